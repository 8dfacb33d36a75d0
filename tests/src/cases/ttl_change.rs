//! Another TTL when a state is restored, or none.

use weir_state_api::{Result, SnapshotHandle, TimeDomain, Ttl, block_on};

use super::group;
use super::ttl_probe::{Kind, Probe, ttl, ttl_in};
use crate::conformance::Case;
use crate::harness::{At, Harness, Store};

pub(super) const CASES: &[Case] = group!["ttl_change":
    switching_on_counts_from_the_restore => "T-7",
    switching_off_keeps_what_lives => "T-7",
    a_new_lifetime_applies_to_old_stamps => "T-7",
    what_had_expired_stays_expired => "T-7",
    another_domain_keeps_ages => "T-7",
    changes_survive_snapshots => "T-7",
    unregistered_states_keep_their_ttl => "T-7",
    subtasks_may_have_changed_it_at_different_times => "T-7",
    a_refused_registration_changes_nothing => "T-7",
];

/// `k` with 1 written at 1,000 and 2 at 1,050; `old` with 1 at 1,000 only.
fn written(h: &Harness<'_>, kind: Kind, ttl: Option<Ttl>) -> Result<SnapshotHandle> {
    let mut store = h.open()?;
    let probe = Probe::open(kind, &mut store, ttl)?;
    for (time, digit) in [(1_000, 1), (1_050, 2)] {
        h.clock().set(time);
        store.advance_watermark(time);
        probe.write(store.at("k")?, digit)?;
        if digit == 1 {
            probe.write(store.at("old")?, digit)?;
        }
    }
    snapshot(h, &mut store)
}

fn snapshot(h: &Harness<'_>, store: &mut Store) -> Result<SnapshotHandle> {
    let mut request = h.next_checkpoint();
    request.watermark = Some(h.now());
    block_on(store.snapshot(request)?.run())
}

/// Restores with another TTL at a time.
fn restore(
    h: &Harness<'_>,
    handle: &SnapshotHandle,
    kind: Kind,
    now: i64,
    ttl: Option<Ttl>,
) -> Result<(Store, Probe)> {
    h.clock().set(now);
    let mut store = h.restore(std::slice::from_ref(handle))?;
    let probe = Probe::open(kind, &mut store, ttl)?;
    Ok((store, probe))
}

/// All digits that were written to `k`.
fn all(kind: Kind) -> Vec<u64> {
    if kind == Kind::Value { vec![2] } else { vec![1, 2] }
}

fn switching_on_counts_from_the_restore(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let h = &h.sibling();
        let handle = written(h, kind, None)?;
        for (now, live) in [(5_000, true), (5_099, true), (5_100, false)] {
            let (mut store, probe) = restore(h, &handle, kind, 5_000, Some(ttl(100)))?;
            h.clock().set(now);
            assert_eq!(store.keys("s")?.count(), if live { 2 } else { 0 }, "{kind:?} at {now}");
            let expected = if live { all(kind) } else { Vec::new() };
            assert_eq!(probe.read(store.at("k")?)?, expected, "{kind:?} at {now}");
        }
    }
    Ok(())
}

fn switching_off_keeps_what_lives(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let h = &h.sibling();
        let handle = written(h, kind, Some(ttl(100)))?;
        for (now, expected, keys) in [
            (1_099, all(kind), 2),
            (1_100, if kind.has_elements() { vec![2] } else { all(kind) }, 1),
            (1_150, vec![], 0),
        ] {
            let (mut store, probe) = restore(h, &handle, kind, now, None)?;
            // From now on nothing expires.
            h.clock().set(1_000_000);
            assert_eq!(probe.read(store.at("k")?)?, expected, "{kind:?} at {now}");
            assert_eq!(store.keys("s")?.count(), keys, "{kind:?} at {now}");
            probe.write(store.at("k")?, 3)?;
            assert_eq!(probe.read(&mut store)?.last(), Some(&3), "{kind:?} at {now}");
        }
    }
    Ok(())
}

fn a_new_lifetime_applies_to_old_stamps(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let h = &h.sibling();
        let handle = written(h, kind, Some(ttl(100)))?;
        let younger = if kind.has_elements() { vec![2] } else { all(kind) };
        for (lifetime, now, expected) in [
            (10, 1_060, vec![]),
            (20, 1_060, younger.clone()),
            (20, 1_070, vec![]),
            (500, 1_499, all(kind)),
            (500, 1_500, younger.clone()),
            (500, 1_550, vec![]),
        ] {
            let (mut store, probe) = restore(h, &handle, kind, 1_060, Some(ttl(lifetime)))?;
            h.clock().set(now);
            let found = probe.read(store.at("k")?)?;
            assert_eq!(found, expected, "{kind:?}, {lifetime} at {now}");
        }
    }
    Ok(())
}

fn what_had_expired_stays_expired(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let h = &h.sibling();
        let handle = written(h, kind, Some(ttl(100)))?;
        let shown = ttl(10_000).return_expired_until_removed();
        for longer in [ttl(10_000), shown] {
            let (mut store, probe) = restore(h, &handle, kind, 1_120, Some(longer))?;
            let expected = if kind.has_elements() { vec![2] } else { all(kind) };
            assert_eq!(probe.read(store.at("k")?)?, expected, "{kind:?}");
            assert_eq!(probe.read(store.at("old")?)?, [0_u64; 0], "{kind:?}");
            assert_eq!(store.keys("s")?.count(), 1, "{kind:?}");
        }
    }
    Ok(())
}

fn another_domain_keeps_ages(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let h = &h.sibling();
        let handle = written(h, kind, Some(ttl(100)))?;
        let younger = if kind.has_elements() { vec![2] } else { all(kind) };
        // The clock shows 1,070, the restored watermark is 1,050: written 70 and 20 ms ago.
        for (watermark, expected) in [
            (1_079, all(kind)),
            (1_080, younger.clone()),
            (1_129, younger.clone()),
            (1_130, vec![]),
        ] {
            let event = ttl_in(TimeDomain::Event, 100);
            let (mut store, probe) = restore(h, &handle, kind, 1_070, Some(event))?;
            h.clock().set(1_000_000);
            store.advance_watermark(watermark);
            let found = probe.read(store.at("k")?)?;
            assert_eq!(found, expected, "{kind:?} at watermark {watermark}");
        }
        let handle = written(h, kind, Some(ttl_in(TimeDomain::Event, 100)))?;
        // The clock shows 7,000, the restored watermark is 1,050: written 50 and 0 ms ago.
        for (now, expected) in [
            (7_049, all(kind)),
            (7_050, younger.clone()),
            (7_099, younger.clone()),
            (7_100, vec![]),
        ] {
            let (mut store, probe) = restore(h, &handle, kind, 7_000, Some(ttl(100)))?;
            store.advance_watermark(1_000_000);
            h.clock().set(now);
            assert_eq!(probe.read(store.at("k")?)?, expected, "{kind:?} at {now}");
        }
    }
    Ok(())
}

fn changes_survive_snapshots(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let h = &h.sibling();
        let mut handle = written(h, kind, None)?;
        for (now, ttl) in
            [(2_000, Some(ttl(100))), (2_050, None), (3_000, Some(ttl(70))), (3_010, Some(ttl(90)))]
        {
            let (mut store, probe) = restore(h, &handle, kind, now, ttl)?;
            assert_eq!(probe.read(store.at("k")?)?, all(kind), "{kind:?} at {now}");
            handle = snapshot(h, &mut store)?;
            let stored = handle.states.iter().find(|state| state.name == "s");
            assert_eq!(stored.unwrap().ttl, ttl.map(|ttl| ttl.state_ttl()), "{kind:?}");
        }
        for (now, live) in [(3_089, true), (3_090, false)] {
            let (mut store, probe) = restore(h, &handle, kind, now, Some(ttl(90)))?;
            let expected = if live { all(kind) } else { Vec::new() };
            assert_eq!(probe.read(store.at("k")?)?, expected, "{kind:?} at {now}");
        }
    }
    Ok(())
}

fn unregistered_states_keep_their_ttl(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let h = &h.sibling();
        let mut handle = written(h, kind, Some(ttl(100)))?;
        for now in [1_060, 1_120] {
            h.clock().set(now);
            let mut store = h.restore(&[handle])?;
            let keys = if now == 1_060 { 2 } else { 1 };
            assert_eq!(store.keys("s")?.count(), keys, "{kind:?} at {now}");
            handle = snapshot(h, &mut store)?;
        }
        let (mut store, probe) = restore(h, &handle, kind, 1_149, Some(ttl(100)))?;
        let expected = if kind.has_elements() { vec![2] } else { all(kind) };
        assert_eq!(probe.read(store.at("k")?)?, expected, "{kind:?}");
        h.clock().set(1_150);
        assert_eq!(probe.read(&mut store)?, [0_u64; 0], "{kind:?}");
    }
    Ok(())
}

/// A subtask that has not registered the state yet snapshots it with the TTL it was restored with.
fn subtasks_may_have_changed_it_at_different_times(h: &Harness<'_>) -> Result<()> {
    for (kind, on) in Kind::ALL.into_iter().flat_map(|k| [false, true].map(|on| (k, on))) {
        let h = &h.sibling();
        let (before, after) = if on { (None, Some(ttl(100))) } else { (Some(ttl(100)), None) };
        h.clock().set(1_000);
        let mut stores = h.open_all(2, &[])?;
        let keys: Vec<String> = (0..40).map(|number| format!("{number}")).collect();
        for store in &mut stores {
            let probe = Probe::open(kind, store, before)?;
            for key in &keys {
                if store.at(key).is_ok() {
                    probe.write(store, 1)?;
                }
            }
        }
        let handles = h.snapshot_all(&mut stores)?;
        h.clock().set(1_050);
        let mut stores = h.open_all(2, &handles)?;
        // Only one of them registers it.
        Probe::open(kind, &mut stores[1], after)?;
        let handles = h.snapshot_all(&mut stores)?;
        for (now, ttl) in [(1_099, before), (1_099, after)] {
            h.clock().set(now);
            let mut store = h.open_all(1, &handles)?.remove(0);
            let probe = Probe::open(kind, &mut store, ttl)?;
            for key in &keys {
                assert_eq!(probe.read(store.at(key)?)?, [1], "{kind:?} {on} {key}");
            }
            assert_eq!(store.keys("s")?.count(), 40, "{kind:?} {on}");
        }
    }
    Ok(())
}

fn a_refused_registration_changes_nothing(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let h = &h.sibling();
        let handle = written(h, kind, Some(ttl(100)))?;
        h.clock().set(1_060);
        let mut store = h.restore(&[handle])?;
        assert!(store.value::<String>("s").is_err(), "{kind:?}");
        assert!(store.with_ttl(ttl(5)).list::<String>("s").is_err(), "{kind:?}");
        let probe = Probe::open(kind, &mut store, Some(ttl(100)))?;
        assert_eq!(probe.read(store.at("k")?)?, all(kind), "{kind:?}");
    }
    Ok(())
}
