//! What changes, folds, merges, iterations and listings make of expired values: nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_state_api::{Order, Result, TimeDomain};

use super::group;
use super::ttl_probe::{DOMAINS, Kind, Probe, set_time, ttl, ttl_in};
use crate::conformance::Case;
use crate::harness::{At, Harness, Store};

pub(super) const CASES: &[Case] = group!["ttl_expired":
    changes_of_expired_things_are_changes_of_absent_ones => "T-3",
    folds_begin_anew => "T-3",
    emptiness_counts_what_is_live => "T-5",
    iterations_skip_expired_entries => "T-5",
    listings_skip_expired_keys => "T-3",
    batched_reads_expire => "T-1",
    merged_values_expire_with_the_last_of_them => "T-9",
    expired_sources_do_not_merge => "T-9",
];

fn changes_of_expired_things_are_changes_of_absent_ones(h: &Harness<'_>) -> Result<()> {
    for cleaned in [false, true] {
        let world = h.sibling();
        let mut store = world.open()?;
        world.clock().set(0);
        let probes = Kind::ALL
            .map(|kind| Probe::named(&format!("{kind:?}"), kind, &mut store, Some(ttl(10))));
        let probes = probes.into_iter().collect::<Result<Vec<_>>>()?;
        for probe in &probes {
            probe.write(store.at("k")?, 1)?;
        }
        world.clock().set(10);
        if cleaned {
            store.clean_up(u64::MAX)?;
        }
        for probe in &probes {
            if let Probe::Map(map) = probe {
                map.remove(store.at("k")?, &1)?;
                map.remove(&mut store, &2)?;
            }
            if let Probe::Value(value) = probe {
                assert_eq!(value.try_update(store.at("k")?, |_| Ok(None)).wait()?, None);
            }
            probe.clear(store.at("k")?)?;
            assert_eq!(probe.read(&mut store)?, [0_u64; 0], "{probe:?}");
            probe.write(&mut store, 2)?;
            assert_eq!(probe.read(&mut store)?, [2], "{probe:?}");
        }
    }
    Ok(())
}

fn folds_begin_anew(h: &Harness<'_>) -> Result<()> {
    h.clock().set(0);
    let mut store = h.open()?;
    let value = store.with_ttl(ttl(10)).value::<u64>("v")?;
    let sum = store.with_ttl(ttl(10)).reducing("r", |a: u64, b| Ok(a + b))?;
    let text = store.with_ttl(ttl(10)).aggregating("a", super::folding::Join)?;
    store.at("k")?;
    for (now, first) in [(0, true), (9, false), (18, false), (28, true)] {
        h.clock().set(now);
        let seen = std::sync::atomic::AtomicBool::new(false);
        let update = value.update(&mut store, |old| {
            seen.store(old.is_some(), std::sync::atomic::Ordering::Relaxed);
            old.unwrap_or(0) + 1
        });
        update.wait()?;
        assert_eq!(!seen.into_inner(), first, "at {now}");
        assert_eq!(sum.add(&mut store, 1).wait()?, first, "at {now}");
        assert_eq!(text.add(&mut store, "x".into()).wait()?, first, "at {now}");
    }
    assert_eq!(value.get(&mut store).wait()?, Some(1));
    assert_eq!(sum.get(&mut store).wait()?, Some(1));
    assert_eq!(text.get(&mut store).wait()?.as_deref(), Some("1:x"));
    Ok(())
}

fn emptiness_counts_what_is_live(h: &Harness<'_>) -> Result<()> {
    h.clock().set(0);
    let mut store = h.open()?;
    let list = store.with_ttl(ttl(10)).list::<u64>("l")?;
    let map = store.with_ttl(ttl(10)).map::<u64, u64>("m")?;
    store.at("k")?;
    for number in 0..1_000 {
        list.add(&mut store, &number)?;
        map.put(&mut store, &number, &number)?;
    }
    map.put_with_ttl(&mut store, &1_000, &1, Duration::from_millis(20))?;
    list.add_with_ttl(&mut store, &1_000, Duration::from_millis(20))?;
    for (now, empty) in [(9, false), (10, false), (19, false), (20, true)] {
        h.clock().set(now);
        assert_eq!(list.is_empty(&mut store).wait()?, empty, "list at {now}");
        assert_eq!(map.is_empty(&mut store).wait()?, empty, "map at {now}");
        assert_eq!(map.contains(&mut store, &1_000).wait()?, !empty, "at {now}");
        assert_eq!(map.contains(&mut store, &500).wait()?, now < 10, "at {now}");
    }
    Ok(())
}

fn iterations_skip_expired_entries(h: &Harness<'_>) -> Result<()> {
    h.clock().set(0);
    let mut store = h.open()?;
    let map = store.with_ttl(ttl(10)).map::<u64, u64>("m")?;
    store.at("k")?;
    for number in 0..900 {
        h.clock().set(i64::from(number % 3 == 0) * 5);
        map.put(&mut store, &number, &number)?;
        // The store's clock keeps the latest time: stamps of their own for the old ones.
        if number % 3 != 0 {
            map.put_expiring_at(&mut store, &number, &number, 10)?;
        }
    }
    for (now, step) in [(9, 1), (10, 3), (14, 3), (15, 1_000)] {
        h.clock().set(now);
        for order in [Order::Ascending, Order::Descending] {
            let entries = map.range(&mut store, 100..700, order).wait()?;
            let found = entries.collect::<Result<Vec<_>>>()?;
            let mut expected: Vec<_> = (100..700)
                .filter(|number| number % step == 0 && step < 1_000)
                .map(|number| (number, number))
                .collect();
            if order == Order::Descending {
                expected.reverse();
            }
            assert_eq!(found, expected, "at {now}, {order:?}");
        }
    }
    Ok(())
}

fn listings_skip_expired_keys(h: &Harness<'_>) -> Result<()> {
    for (kind, domain) in Kind::ALL.into_iter().flat_map(|k| DOMAINS.map(|d| (k, d))) {
        let world = h.sibling();
        let mut store = world.open()?;
        let probe = Probe::open(kind, &mut store, Some(ttl_in(domain, 100)))?;
        for number in 0..40_i64 {
            set_time(&world, &mut store, domain, 1_000 + number);
            store.at(&format!("{number}"))?;
            probe.write(&mut store, 1)?;
            probe.bind(b"n").write(&mut store, 2)?;
        }
        let list = |store: &mut Store| -> Result<BTreeSet<(String, Vec<u8>)>> {
            store.keys("s")?.collect()
        };
        assert_eq!(list(&mut store)?.len(), 80, "{kind:?} {domain:?}");
        let mut request = world.next_checkpoint();
        request.watermark = Some(if domain == TimeDomain::Event { 1_039 } else { 9_999 });
        let handle = weir_state_api::block_on(store.snapshot(request)?.run())?;
        // Restored, and not registered.
        for mut store in [store, world.restore(&[handle])?] {
            set_time(&world, &mut store, domain, 1_129);
            let found = list(&mut store)?;
            let expected: BTreeSet<_> = (30..40)
                .flat_map(|n| [vec![], b"n".to_vec()].map(|namespace| (format!("{n}"), namespace)))
                .collect();
            assert_eq!(found, expected, "{kind:?} {domain:?}");
            assert_eq!(store.keys_in_namespace("s", b"n")?.count(), 10, "{kind:?} {domain:?}");
            let mut visited = 0;
            store.for_each_key("s", |_, _| {
                visited += 1;
                Ok(())
            })?;
            assert_eq!(visited, 10, "{kind:?} {domain:?}");
        }
    }
    Ok(())
}

fn batched_reads_expire(h: &Harness<'_>) -> Result<()> {
    for refresh in [false, true] {
        let world = h.sibling();
        world.clock().set(0);
        let mut store = world.open()?;
        let hundred = if refresh { ttl(100).refresh_on_read() } else { ttl(100) };
        let value = store.with_ttl(hundred).value::<u64>("v")?;
        value.set(store.at("a")?, &1)?;
        world.clock().set(50);
        value.set(store.at("b")?, &2)?;
        let keys = ["b", "a", "c", "b"].map(String::from);
        assert_eq!(store.get_many(&value, &keys).wait()?, [Some(2), Some(1), None, Some(2)]);
        world.clock().set(120);
        let a = refresh.then_some(1);
        assert_eq!(store.get_many(&value, &keys).wait()?, [Some(2), a, None, Some(2)]);
        world.clock().set(219);
        assert_eq!(value.get(store.at("b")?).wait()?, refresh.then_some(2));
        world.clock().set(1_000);
        assert_eq!(store.get_many(&value, &keys).wait()?, [None; 4]);
    }
    Ok(())
}

fn merged_values_expire_with_the_last_of_them(h: &Harness<'_>) -> Result<()> {
    h.clock().set(0);
    let mut store = h.open()?;
    let sums = store.with_ttl(ttl(100)).namespaced::<u8>().reducing_with(
        "r",
        weir_state_api::Native,
        |a: u64, b| Ok(a + b),
    )?;
    let values = store.with_ttl(ttl(100)).namespaced::<u8>().value::<u64>("v")?;
    let lists = store.with_ttl(ttl(100)).namespaced::<u8>().list::<u64>("l")?;
    store.at("k")?;
    for (now, namespace) in [(0, 1), (30, 2), (60, 3)] {
        h.clock().set(now);
        sums.at(&namespace)?.add(&mut store, u64::from(namespace)).wait()?;
        values.at(&namespace)?.set(&mut store, &u64::from(namespace))?;
        lists.at(&namespace)?.add(&mut store, &u64::from(namespace))?;
    }
    h.clock().set(99);
    // The youngest is the target, then a source: neither place makes a difference.
    sums.merge(&mut store, &3, &[1, 2]).wait()?;
    values.merge(&mut store, &1, &[3, 2], |a, b| Ok(a * 10 + b)).wait()?;
    lists.merge(&mut store, &2, &[3, 1]).wait()?;
    assert_eq!(sums.at(&3)?.get(&mut store).wait()?, Some(6));
    assert_eq!(values.at(&1)?.get(&mut store).wait()?, Some(132));
    assert_eq!(lists.at(&2)?.get(&mut store).wait()?, [2, 3, 1]);
    for namespace in [1, 2] {
        assert_eq!(sums.at(&namespace)?.get(&mut store).wait()?, None);
    }
    for (now, live, list) in
        [(100, true, vec![2, 3]), (130, true, vec![3]), (159, true, vec![3]), (160, false, vec![])]
    {
        h.clock().set(now);
        assert_eq!(sums.at(&3)?.get(&mut store).wait()?, live.then_some(6), "at {now}");
        assert_eq!(values.at(&1)?.get(&mut store).wait()?, live.then_some(132), "at {now}");
        assert_eq!(lists.at(&2)?.get(&mut store).wait()?, list, "at {now}");
    }
    Ok(())
}

fn expired_sources_do_not_merge(h: &Harness<'_>) -> Result<()> {
    for shown in [false, true] {
        let world = h.sibling();
        world.clock().set(0);
        let mut store = world.open()?;
        let ttl = if shown { ttl(100).return_expired_until_removed() } else { ttl(100) };
        let values = store.with_ttl(ttl).namespaced::<u8>().value::<u64>("v")?;
        let lists = store.with_ttl(ttl).namespaced::<u8>().list::<u64>("l")?;
        store.at("k")?;
        values.at(&1)?.set(&mut store, &1)?;
        lists.at(&1)?.add(&mut store, &1)?;
        world.clock().set(50);
        values.at(&2)?.set(&mut store, &2)?;
        lists.at(&2)?.add(&mut store, &2)?;
        world.clock().set(100);
        values.merge(&mut store, &3, &[1, 2], |a, b| Ok(a * 10 + b)).wait()?;
        lists.merge(&mut store, &3, &[1, 2]).wait()?;
        assert_eq!(values.at(&3)?.get(&mut store).wait()?, Some(2), "{shown}");
        assert_eq!(lists.at(&3)?.get(&mut store).wait()?, [2], "{shown}");
        for namespace in [1, 2] {
            assert_eq!(values.at(&namespace)?.get(&mut store).wait()?, None, "{shown}");
            assert!(lists.at(&namespace)?.is_empty(&mut store).wait()?, "{shown}");
        }
        world.clock().set(150);
        values.merge(&mut store, &4, &[3, 1], |a, b| Ok(a * 10 + b)).wait()?;
        assert_eq!(values.at(&4)?.get(&mut store).wait()?, None, "{shown}");
        assert_eq!(store.keys("v")?.count(), 0, "{shown}");
    }
    Ok(())
}
