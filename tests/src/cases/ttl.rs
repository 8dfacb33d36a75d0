//! When values expire, and which of them a read shows.

use std::time::Duration;

use weir_state_api::ttl::NEVER;
use weir_state_api::{ErrorKind, Millis, Order, Result, TimeDomain, Ttl};

use super::ttl_probe::{DOMAINS, Kind, Probe, set_time, ttl, ttl_in};
use super::{group, refusal};
use crate::conformance::Case;
use crate::harness::{At, Harness, Store};

pub(super) const CASES: &[Case] = group!["ttl":
    values_of_every_kind_expire_at_their_deadline => "T-1",
    reads_refresh_where_asked => "T-2",
    a_read_refreshes_only_what_it_read => "T-2",
    expired_values_are_shown_where_asked => "T-3",
    nothing_is_built_on_what_is_shown => "T-3",
    long_lifetimes_do_not_wrap => "T-1",
    values_may_have_lifetimes_of_their_own => "T-4",
    own_lifetimes_need_a_ttl => "T-4",
    time_never_runs_backwards => "T-4",
    empty_values_and_units_expire_like_others => "T-1",
    restored_values_are_as_old_as_they_were => "T-8",
    a_snapshot_holds_what_had_not_expired_when_it_began => "T-8",
    impossible_ttls_are_refused => "T-10",
];

/// What a state holds by the contract: each digit with the time that counts.
fn held(kind: Kind, writes: &[(Millis, u64)]) -> Vec<(Millis, u64)> {
    let last = writes.last().map_or(0, |write| write.0);
    match kind {
        Kind::Value => writes.last().copied().into_iter().collect(),
        Kind::List | Kind::Map | Kind::SortedMap => writes.to_vec(),
        Kind::Reducing | Kind::Aggregating => {
            writes.iter().map(|&(_, digit)| (last, digit)).collect()
        }
    }
}

fn live(held: &[(Millis, u64)], lifetime: Millis, now: Millis) -> Vec<u64> {
    held.iter().filter(|(at, _)| at + lifetime > now).map(|&(_, digit)| digit).collect()
}

/// A state with a TTL of 100 and 1 written at 1,000, 2 at 1,050.
fn written(h: &Harness<'_>, kind: Kind, domain: TimeDomain, ttl: Ttl) -> Result<(Store, Probe)> {
    let mut store = h.open()?;
    let probe = Probe::open(kind, &mut store, Some(ttl))?;
    for (time, digit) in WRITES {
        set_time(h, &mut store, domain, time);
        probe.write(store.at("k")?, digit)?;
    }
    Ok((store, probe))
}

const WRITES: [(Millis, u64); 2] = [(1_000, 1), (1_050, 2)];

/// One before, at and one after each deadline.
fn around(deadlines: &[Millis]) -> impl Iterator<Item = Millis> {
    deadlines.iter().flat_map(|at| [at - 1, *at, at + 1])
}

fn values_of_every_kind_expire_at_their_deadline(h: &Harness<'_>) -> Result<()> {
    for (kind, domain) in Kind::ALL.into_iter().flat_map(|k| DOMAINS.map(|d| (k, d))) {
        for now in around(&[1_100, 1_150]) {
            let world = h.sibling();
            let (mut store, probe) = written(&world, kind, domain, ttl_in(domain, 100))?;
            assert_eq!(probe.read(&mut store)?.last(), Some(&2), "{kind:?} {domain:?}");
            set_time(&world, &mut store, domain, now);
            let expected = live(&held(kind, &WRITES), 100, now);
            assert_eq!(probe.read(&mut store)?, expected, "{kind:?} {domain:?} at {now}");
            assert_eq!(probe.read(&mut store)?, expected, "{kind:?} {domain:?} at {now}, again");
        }
    }
    Ok(())
}

fn reads_refresh_where_asked(h: &Harness<'_>) -> Result<()> {
    for (kind, domain) in Kind::ALL.into_iter().flat_map(|k| DOMAINS.map(|d| (k, d))) {
        for now in around(&[1_150, 1_220]) {
            let world = h.sibling();
            let refreshing = ttl_in(domain, 100).refresh_on_read();
            let (mut store, probe) = written(&world, kind, domain, refreshing)?;
            // What lives at 1,120 lives until 1,220.
            set_time(&world, &mut store, domain, 1_120);
            let read = live(&held(kind, &WRITES), 100, 1_120);
            assert_eq!(probe.read(&mut store)?, read, "{kind:?} {domain:?}");
            set_time(&world, &mut store, domain, now);
            let expected = if now < 1_220 { read } else { Vec::new() };
            assert_eq!(probe.read(&mut store)?, expected, "{kind:?} {domain:?} at {now}");
        }
    }
    Ok(())
}

fn a_read_refreshes_only_what_it_read(h: &Harness<'_>) -> Result<()> {
    h.clock().set(0);
    let mut store = h.open()?;
    let refreshing = ttl(100).refresh_on_read();
    let map = store.with_ttl(refreshing).map::<u64, String>("m")?;
    let values = store.with_ttl(refreshing).namespaced::<u8>().value::<u64>("v")?;
    store.at("k")?;
    for number in 0..4 {
        map.put(&mut store, &number, &format!("{number}"))?;
    }
    values.at(&1)?.set(&mut store, &1)?;
    values.at(&2)?.set(&mut store, &2)?;
    h.clock().set(60);
    assert_eq!(map.get(&mut store, &1).wait()?.as_deref(), Some("1"));
    assert!(map.contains(&mut store, &3).wait()?);
    // Neither of these reads anything.
    assert!(!map.is_empty(&mut store).wait()?);
    assert_eq!(store.keys("m")?.count(), 1);
    assert_eq!(values.at(&2)?.get(&mut store).wait()?, Some(2));
    let iterated = map.range(&mut store, 0..=0, Order::Ascending).wait()?;
    assert_eq!(iterated.map(|entry| entry.map(|e| e.0)).collect::<Result<Vec<_>>>()?, [0]);
    h.clock().set(100);
    store.at("k")?;
    let left = map.entries(&mut store).wait()?.collect::<Result<Vec<_>>>()?;
    assert_eq!(left.iter().map(|entry| entry.0).collect::<Vec<_>>(), [0, 1, 3]);
    assert_eq!(values.at(&1)?.get(&mut store).wait()?, None);
    assert_eq!(values.at(&2)?.get(&mut store).wait()?, Some(2));

    // An iteration that goes on while entries are written refreshes none of these to what they were.
    map.clear(&mut store)?;
    for number in 0..300 {
        map.put(&mut store, &number, &String::from("old"))?;
    }
    h.clock().set(150);
    let mut entries = map.entries(&mut store).wait()?;
    map.put(&mut store, &299, &String::from("new"))?;
    map.remove(&mut store, &298)?;
    while entries.next_entry().wait()?.is_some() {}
    assert_eq!(map.get(&mut store, &299).wait()?.as_deref(), Some("new"));
    assert_eq!(map.get(&mut store, &298).wait()?, None);
    h.clock().set(249);
    assert_eq!(map.get(&mut store, &0).wait()?.as_deref(), Some("old"));
    Ok(())
}

fn expired_values_are_shown_where_asked(h: &Harness<'_>) -> Result<()> {
    for (kind, domain) in Kind::ALL.into_iter().flat_map(|k| DOMAINS.map(|d| (k, d))) {
        for refresh in [false, true] {
            let world = h.sibling();
            let mut shown = ttl_in(domain, 100).return_expired_until_removed();
            if refresh {
                shown = shown.refresh_on_read();
            }
            let (mut store, probe) = written(&world, kind, domain, shown)?;
            set_time(&world, &mut store, domain, 5_000);
            let all: Vec<u64> = held(kind, &WRITES).iter().map(|write| write.1).collect();
            // Reading does not refresh what has expired, and removes nothing.
            for _ in 0..2 {
                assert_eq!(probe.read(&mut store)?, all, "{kind:?} {domain:?} {refresh}");
            }
            assert_eq!(store.keys("s")?.count(), 0, "{kind:?} {domain:?}: listings show none");
            if world.factory().capabilities().driven_clean_up {
                assert!(store.clean_up(u64::MAX)?.finished);
                assert_eq!(
                    probe.read(store.at("k")?)?,
                    [0_u64; 0],
                    "{kind:?} {domain:?} {refresh}"
                );
            }
        }
    }
    Ok(())
}

fn nothing_is_built_on_what_is_shown(h: &Harness<'_>) -> Result<()> {
    h.clock().set(0);
    let mut store = h.open()?;
    let shown = ttl(100).return_expired_until_removed();
    let value = store.with_ttl(shown).value::<u64>("v")?;
    let sum = store.with_ttl(shown).reducing("r", |a: u64, b| Ok(a + b))?;
    value.set(store.at("k")?, &1)?;
    sum.add(&mut store, 1).wait()?;
    h.clock().set(100);
    assert_eq!(value.get(&mut store).wait()?, Some(1));
    assert_eq!(value.update(&mut store, |old| old.map_or(7, |old| old + 1)).wait()?, 7);
    assert_eq!(sum.get(&mut store).wait()?, Some(1));
    assert!(sum.add(&mut store, 5).wait()?, "the first element again");
    assert_eq!(sum.get(&mut store).wait()?, Some(5));
    Ok(())
}

fn long_lifetimes_do_not_wrap(h: &Harness<'_>) -> Result<()> {
    for lifetime in [Duration::MAX, Duration::from_millis(i64::MAX as u64)] {
        for (kind, domain) in Kind::ALL.into_iter().flat_map(|k| DOMAINS.map(|d| (k, d))) {
            let world = h.sibling();
            let mut endless = Ttl::new(lifetime);
            if domain == TimeDomain::Event {
                endless = endless.event_time();
            }
            let mut store = world.open()?;
            let probe = Probe::open(kind, &mut store, Some(endless))?;
            store.advance_watermark(10);
            probe.write(store.at("k")?, 1)?;
            for now in [50, i64::MAX / 8, i64::MAX - 1, i64::MAX] {
                world.clock().set(now);
                store.advance_watermark(now);
                assert_eq!(probe.read(&mut store)?, [1], "{kind:?} {domain:?} at {now}");
            }
            // At the end of time a new value still lives.
            probe.clear(&mut store)?;
            probe.write(&mut store, 2)?;
            assert_eq!(probe.read(&mut store)?, [2], "{kind:?} {domain:?}");
        }
    }
    Ok(())
}

fn values_may_have_lifetimes_of_their_own(h: &Harness<'_>) -> Result<()> {
    for domain in DOMAINS {
        let world = h.sibling();
        let mut store = world.open()?;
        let hundred = ttl_in(domain, 100).refresh_on_read();
        let value = store.with_ttl(hundred).namespaced::<u8>().value::<u64>("v")?;
        let list = store.with_ttl(hundred).list::<u64>("l")?;
        let map = store.with_ttl(hundred).map::<u64, u64>("m")?;
        set_time(&world, &mut store, domain, 1_000);
        store.at("k")?;
        let (short, long) = (Duration::from_millis(10), Duration::from_millis(500));
        value.at(&0)?.set_with_ttl(&mut store, &0, short)?;
        value.at(&1)?.set_with_ttl(&mut store, &1, long)?;
        value.at(&2)?.set_expiring_at(&mut store, &2, 1_300)?;
        value.at(&3)?.set_expiring_at(&mut store, &3, NEVER)?;
        value.at(&4)?.set_expiring_at(&mut store, &4, 900)?;
        value.at(&5)?.set_with_ttl(&mut store, &5, Duration::MAX)?;
        list.add_with_ttl(&mut store, &0, short)?;
        list.add_with_ttl(&mut store, &1, long)?;
        list.add_expiring_at(&mut store, &2, 1_300)?;
        map.put_with_ttl(&mut store, &0, &0, short)?;
        map.put_with_ttl(&mut store, &1, &1, long)?;
        map.put_expiring_at(&mut store, &2, &2, 1_300)?;
        for (now, expected) in [
            (1_009, [true, true, true, true, false, true]),
            (1_010, [false, true, true, true, false, true]),
            (1_299, [false, true, true, true, false, true]),
            (1_300, [false, true, false, true, false, true]),
            (1_499, [false, true, false, true, false, true]),
            (1_500, [false, false, false, true, false, true]),
            (i64::MAX / 16, [false, false, false, true, false, true]),
        ] {
            set_time(&world, &mut store, domain, now);
            let mut found = Vec::new();
            for namespace in 0..6 {
                found.push(value.at(&namespace)?.get(&mut store).wait()?.is_some());
            }
            assert_eq!(found, expected, "{domain:?} at {now}");
            let numbers: Vec<u64> = (0..3).filter(|n| expected[*n as usize]).collect();
            assert_eq!(list.get(&mut store).wait()?, numbers, "{domain:?} at {now}");
            let keys = map.entries(&mut store).wait()?.map(|entry| entry.map(|e| e.0));
            assert_eq!(keys.collect::<Result<Vec<_>>>()?, numbers, "{domain:?} at {now}");
        }
        // A write without one gives the state's lifetime again.
        let last = i64::MAX / 16;
        value.at(&3)?.update(&mut store, |old| old.unwrap_or(0)).wait()?;
        set_time(&world, &mut store, domain, last + 100);
        assert_eq!(value.at(&3)?.get(&mut store).wait()?, None);
    }
    Ok(())
}

fn own_lifetimes_need_a_ttl(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u64>("v")?;
    let list = store.list::<u64>("l")?;
    let map = store.map::<u64, u64>("m")?;
    value.set(store.at("k")?, &1)?;
    let second = Duration::from_secs(1);
    for refused in [
        value.set_with_ttl(&mut store, &2, second),
        value.set_expiring_at(&mut store, &2, 5_000),
        list.add_with_ttl(&mut store, &2, second),
        list.add_expiring_at(&mut store, &2, 5_000),
        map.put_with_ttl(&mut store, &2, &2, second),
        map.put_expiring_at(&mut store, &2, &2, 5_000),
    ] {
        let error = refusal(refused, "the state has no TTL");
        assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
        assert!(error.state_name().is_some(), "{error}");
    }
    assert_eq!(value.get(&mut store).wait()?, Some(1));
    assert!(list.is_empty(&mut store).wait()? && map.is_empty(&mut store).wait()?);
    Ok(())
}

fn time_never_runs_backwards(h: &Harness<'_>) -> Result<()> {
    for domain in DOMAINS {
        let world = h.sibling();
        let mut store = world.open()?;
        let value = store.with_ttl(ttl_in(domain, 100)).value::<u64>("v")?;
        set_time(&world, &mut store, domain, 1_000);
        value.set(store.at("a")?, &1)?;
        // The clock jumps back: what is written now counts from the latest time there was.
        set_time(&world, &mut store, domain, 900);
        value.set(store.at("b")?, &2)?;
        set_time(&world, &mut store, domain, 1_099);
        assert_eq!(value.get(store.at("a")?).wait()?, Some(1), "{domain:?}");
        assert_eq!(value.get(store.at("b")?).wait()?, Some(2), "{domain:?}");
        set_time(&world, &mut store, domain, 1_100);
        assert_eq!(store.keys("v")?.count(), 0, "{domain:?}");
        // What has been seen as expired stays so.
        set_time(&world, &mut store, domain, 950);
        assert_eq!(value.get(store.at("a")?).wait()?, None, "{domain:?}");
        assert_eq!(value.get(store.at("b")?).wait()?, None, "{domain:?}");
    }
    Ok(())
}

fn empty_values_and_units_expire_like_others(h: &Harness<'_>) -> Result<()> {
    h.clock().set(0);
    let mut store = h.open()?;
    let unit = store.with_ttl(ttl(10)).value::<()>("u")?;
    let units = store.with_ttl(ttl(10)).list::<()>("l")?;
    let set = store.with_ttl(ttl(10)).map::<Vec<u8>, ()>("m")?;
    unit.set(store.at("k")?, &())?;
    units.add_all(&mut store, &[(), ()])?;
    set.put(&mut store, &vec![], &())?;
    for (now, live) in [(9, true), (10, false)] {
        h.clock().set(now);
        if now == 9 {
            store.clean_up(u64::MAX)?;
            let handle = h.snapshot(&mut store)?;
            store = h.restore(&[handle])?;
            store.with_ttl(ttl(10)).value::<()>("u")?;
        }
        let unit = store.with_ttl(ttl(10)).value::<()>("u")?;
        let units = store.with_ttl(ttl(10)).list::<()>("l")?;
        let set = store.with_ttl(ttl(10)).map::<Vec<u8>, ()>("m")?;
        assert_eq!(unit.get(store.at("k")?).wait()?, live.then_some(()), "at {now}");
        assert_eq!(units.get(&mut store).wait()?.len(), usize::from(live) * 2, "at {now}");
        assert_eq!(set.contains(&mut store, &vec![]).wait()?, live, "at {now}");
    }
    Ok(())
}

fn restored_values_are_as_old_as_they_were(h: &Harness<'_>) -> Result<()> {
    for (kind, domain) in Kind::ALL.into_iter().flat_map(|k| DOMAINS.map(|d| (k, d))) {
        let world = h.sibling();
        let mut stores = world.open_all(1, &[])?;
        let mut probe = Probe::open(kind, &mut stores[0], Some(ttl_in(domain, 100)))?;
        let mut writes = Vec::new();
        for (time, digit) in WRITES {
            set_time(&world, &mut stores[0], domain, time);
            probe.write(stores[0].at("k")?, digit)?;
            writes.push((time, digit));
            let mut request = world.next_checkpoint();
            request.watermark =
                Some(if domain == TimeDomain::Event { time } else { time + 9_000_000 });
            let task = stores[0].snapshot(request)?;
            let handle = weir_state_api::block_on(task.run())?;
            stores = world.open_all(1, &[handle])?;
            probe = Probe::open(kind, &mut stores[0], Some(ttl_in(domain, 100)))?;
        }
        for now in around(&[1_100, 1_150]) {
            set_time(&world, &mut stores[0], domain, now);
            let expected = live(&held(kind, &writes), 100, now);
            let found = probe.read(stores[0].at("k")?)?;
            assert_eq!(found, expected, "{kind:?} {domain:?} at {now}");
        }
    }
    Ok(())
}

/// The task runs when all has expired and was removed; the snapshot holds what lived at its
/// beginning. A clock that was set back shows it.
fn a_snapshot_holds_what_had_not_expired_when_it_began(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let world = h.sibling();
        let (mut store, probe) = written(&world, kind, TimeDomain::Processing, ttl(100))?;
        world.clock().set(1_120);
        let expected = live(&held(kind, &WRITES), 100, 1_120);
        let task = world.begin_snapshot(&mut store)?;
        world.clock().set(9_000);
        assert_eq!(probe.read(store.at("k")?)?, [0_u64; 0], "{kind:?}");
        store.clean_up(u64::MAX)?;
        let handle = weir_state_api::block_on(task.run())?;
        world.clock().set(1_121);
        let mut restored = world.restore(&[handle])?;
        let probe = Probe::open(kind, &mut restored, Some(ttl(100)))?;
        assert_eq!(probe.read(restored.at("k")?)?, expected, "{kind:?}");
    }
    Ok(())
}

fn impossible_ttls_are_refused(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let error = refusal(store.with_ttl(ttl(0)).value::<u64>("z"), "a TTL of nothing");
    assert_eq!((error.kind(), error.state_name()), (ErrorKind::InvalidUsage, Some("z")));
    let value = store.with_ttl(ttl(100)).value::<u64>("v")?;
    value.set(store.at("k")?, &1)?;
    for other in [ttl(101), ttl(100).event_time()] {
        let error = refusal(store.with_ttl(other).value::<u64>("v"), "another TTL");
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        assert!(error.to_string().contains("100 ms of processing time"), "{error}");
    }
    let error = refusal(store.value::<u64>("v"), "no TTL");
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    // The same again, and other habits of reading, are the same state.
    let again = store.with_ttl(ttl(100).refresh_on_read()).value::<u64>("v")?;
    assert_eq!(again.get(&mut store).wait()?, Some(1));
    Ok(())
}
