//! Event time: what counts before any watermark is known, and after a restore.

use std::time::Duration;

use weir_state_api::{Millis, Result, TimeDomain, block_on};

use super::group;
use super::ttl_probe::{Kind, Probe, ttl, ttl_in};
use crate::conformance::Case;
use crate::harness::{At, Harness, Store};

pub(super) const CASES: &[Case] = group!["ttl_event":
    nothing_expires_before_the_first_watermark => "T-11",
    what_is_older_than_all_watermarks_counts_from_the_first => "T-11",
    own_lifetimes_count_from_the_first_watermark => "T-11",
    a_restored_watermark_is_the_present => "T-11",
    no_watermark_is_not_the_smallest_one => "T-11",
];

fn open(h: &Harness<'_>, kind: Kind) -> Result<(Store, Probe)> {
    let mut store = h.open()?;
    let probe = Probe::open(kind, &mut store, Some(ttl_in(TimeDomain::Event, 100)))?;
    Ok((store, probe))
}

/// A snapshot with this watermark, restored.
fn restored(
    h: &Harness<'_>,
    store: &mut Store,
    kind: Kind,
    watermark: Option<Millis>,
) -> Result<(Store, Probe)> {
    let mut request = h.next_checkpoint();
    request.watermark = watermark;
    let handle = block_on(store.snapshot(request)?.run())?;
    let mut store = h.restore(&[handle])?;
    let probe = Probe::open(kind, &mut store, Some(ttl_in(TimeDomain::Event, 100)))?;
    Ok((store, probe))
}

fn nothing_expires_before_the_first_watermark(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let (mut store, probe) = open(h, kind)?;
        probe.write(store.at("k")?, 1)?;
        h.clock().advance(1_000_000_000);
        store.clean_up(u64::MAX)?;
        assert_eq!(probe.read(store.at("k")?)?, [1], "{kind:?}");
        let (mut store, probe) = restored(h, &mut store, kind, None)?;
        store.clean_up(u64::MAX)?;
        assert_eq!(probe.read(store.at("k")?)?, [1], "{kind:?}");
        assert_eq!(store.keys("s")?.count(), 1, "{kind:?}");
    }
    Ok(())
}

fn what_is_older_than_all_watermarks_counts_from_the_first(h: &Harness<'_>) -> Result<()> {
    for (kind, restore) in Kind::ALL.into_iter().flat_map(|k| [false, true].map(|r| (k, r))) {
        for (watermark, expected) in [(50_099, &[1][..]), (50_100, &[]), (50_101, &[])] {
            let (mut store, mut probe) = open(h, kind)?;
            probe.write(store.at("k")?, 1)?;
            store.advance_watermark(50_000);
            assert_eq!(probe.read(store.at("k")?)?, [1], "{kind:?} at the first watermark");
            if restore {
                (store, probe) = restored(h, &mut store, kind, Some(50_000))?;
            }
            store.advance_watermark(watermark);
            if watermark % 2 == 0 {
                store.clean_up(u64::MAX)?;
            }
            let listed = store.keys("s")?.count();
            assert_eq!(listed, expected.len(), "{kind:?} {restore} {watermark}");
            let found = probe.read(store.at("k")?)?;
            assert_eq!(found, expected, "{kind:?} {restore} {watermark}");
        }
    }
    Ok(())
}

fn own_lifetimes_count_from_the_first_watermark(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let hundred = ttl(100).event_time();
    let value = store.with_ttl(hundred).namespaced::<u8>().value::<u64>("v")?;
    store.at("k")?;
    value.at(&1)?.set_with_ttl(&mut store, &1, Duration::from_millis(10))?;
    value.at(&2)?.set_expiring_at(&mut store, &2, 1_005)?;
    value.at(&3)?.set(&mut store, &3)?;
    // The one that would expire last decides, also before it is known when that is.
    value.merge(&mut store, &4, &[1, 3], |a, b| Ok(a * 10 + b)).wait()?;
    value.at(&1)?.set_with_ttl(&mut store, &1, Duration::from_millis(10))?;
    for (watermark, expected) in [
        (1_000, [true, true, true]),
        (1_004, [true, true, true]),
        (1_005, [true, false, true]),
        (1_010, [false, false, true]),
        (1_099, [false, false, true]),
        (1_100, [false, false, false]),
    ] {
        store.advance_watermark(watermark);
        for (namespace, expected) in [1, 2, 4].into_iter().zip(expected) {
            let found = value.at(&namespace)?.get(&mut store).wait()?;
            assert_eq!(found.is_some(), expected, "{namespace} at {watermark}");
        }
    }
    Ok(())
}

fn a_restored_watermark_is_the_present(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let (mut store, probe) = open(h, kind)?;
        store.advance_watermark(1_000);
        probe.write(store.at("k")?, 1)?;
        for (watermark, expected) in [(1_099, &[1][..]), (1_100, &[])] {
            let (mut store, probe) = restored(h, &mut store, kind, Some(watermark))?;
            assert_eq!(store.keys("s")?.count(), expected.len(), "{kind:?} {watermark}");
            assert_eq!(probe.read(store.at("k")?)?, expected, "{kind:?} {watermark}");
            // An earlier watermark changes nothing.
            store.advance_watermark(900);
            assert_eq!(probe.read(&mut store)?, expected, "{kind:?} {watermark}");
        }
    }
    Ok(())
}

fn no_watermark_is_not_the_smallest_one(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let (mut store, probe) = open(h, kind)?;
        store.advance_watermark(Millis::MIN);
        probe.write(store.at("k")?, 1)?;
        let (mut store, probe) = restored(h, &mut store, kind, Some(Millis::MIN))?;
        store.advance_watermark(7_000);
        assert_eq!(probe.read(store.at("k")?)?, [1], "{kind:?}");
        assert_eq!(store.keys("s")?.count(), 1, "{kind:?}");
        store.advance_watermark(7_100);
        assert_eq!(probe.read(store.at("k")?)?, [0_u64; 0], "{kind:?}");
    }
    Ok(())
}
