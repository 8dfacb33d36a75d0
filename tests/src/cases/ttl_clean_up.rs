//! What has expired goes away physically, and nothing else does.

use weir_state_api::{KeyedBackend, Result, StateId, TimeDomain, block_on};

use super::group;
use super::ttl_probe::{DOMAINS, Kind, Probe, set_time, ttl, ttl_in};
use crate::conformance::Case;
use crate::harness::{At, Contents, Harness, Store};

pub(super) const CASES: &[Case] = group!["ttl_clean_up":
    expired_values_of_every_kind_go => "T-6" if "driven_clean_up",
    steps_keep_their_budget_and_reach_everything => "T-6" if "driven_clean_up",
    what_lives_stays => "T-6",
    lists_and_maps_lose_what_has_expired => "T-6" if "driven_clean_up",
    accesses_drive_clean_up => "T-6" if "driven_clean_up",
    reads_remove_what_they_find_expired => "T-6" if "never_pends",
    clean_up_and_snapshots_do_not_disturb_each_other => "T-6",
    states_without_a_ttl_are_left_alone => "T-6",
];

/// The number of entries of the state `s`.
fn physical(store: &mut Store) -> Result<u64> {
    let backend: &mut dyn KeyedBackend = store.backend();
    let states = backend.states();
    let (id, _) = states.iter().find(|(_, state)| state.name == "s").expect("it is registered");
    backend.physical_entries(*id)
}

fn clean_all(store: &mut Store) -> Result<u64> {
    let done = store.clean_up(u64::MAX)?;
    assert!(done.finished, "a budget without limit reaches the end");
    Ok(done.removed)
}

fn expired_values_of_every_kind_go(h: &Harness<'_>) -> Result<()> {
    for (kind, domain) in Kind::ALL.into_iter().flat_map(|k| DOMAINS.map(|d| (k, d))) {
        let world = h.sibling();
        let mut store = world.open()?;
        let probe = Probe::open(kind, &mut store, Some(ttl_in(domain, 100)))?;
        set_time(&world, &mut store, domain, 1_000);
        for number in 0..1_000 {
            probe.write(store.at(&format!("{number}"))?, number % 9 + 1)?;
            probe.bind(b"n").write(&mut store, 1)?;
        }
        set_time(&world, &mut store, domain, 1_099);
        assert_eq!(clean_all(&mut store)?, 0, "{kind:?} {domain:?}: nothing has expired");
        assert_eq!(physical(&mut store)?, 2_000, "{kind:?} {domain:?}");
        set_time(&world, &mut store, domain, 1_100);
        assert_eq!(clean_all(&mut store)?, 2_000, "{kind:?} {domain:?}");
        assert_eq!(physical(&mut store)?, 0, "{kind:?} {domain:?}");
        // Nothing is left behind, not even an empty map.
        let contents = Contents::take(&mut store)?;
        assert!(contents.entries.is_empty(), "{kind:?} {domain:?}");
    }
    Ok(())
}

fn steps_keep_their_budget_and_reach_everything(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let world = h.sibling();
        world.clock().set(0);
        let mut store = world.open()?;
        let probe = Probe::open(kind, &mut store, Some(ttl(100)))?;
        for number in 0..500 {
            world.clock().set(number % 2);
            store.at(&format!("{number}"))?;
            let digits = if number == 7 && kind.has_elements() { 700 } else { 2 };
            for digit in 0..digits {
                match kind {
                    Kind::Map | Kind::SortedMap => probe.write(&mut store, digit)?,
                    Kind::List if number == 7 => probe.write(&mut store, 1)?,
                    _ => probe.write(&mut store, digit % 2)?,
                }
            }
        }
        world.clock().set(101);
        let before = physical(&mut store)?;
        let (mut removed, mut steps, mut passes) = (0, 0, 0);
        // The writes have begun a pass, so the second one is whole.
        while passes < 2 {
            let step = store.clean_up(50)?;
            assert!(step.visited <= 100, "{kind:?}: a step of 50 visited {}", step.visited);
            removed += step.removed;
            steps += 1;
            assert!(steps < 10_000, "{kind:?}: it never ends");
            passes += usize::from(step.finished);
        }
        assert_eq!((physical(&mut store)?, removed), (0, before), "{kind:?}");
        assert!(u64::from(steps as u32) >= before / 100, "{kind:?}");
    }
    Ok(())
}

fn what_lives_stays(h: &Harness<'_>) -> Result<()> {
    for (kind, domain) in Kind::ALL.into_iter().flat_map(|k| DOMAINS.map(|d| (k, d))) {
        let world = h.sibling();
        let mut store = world.open()?;
        let probe = Probe::open(kind, &mut store, Some(ttl_in(domain, 100)))?;
        for number in 0..300 {
            set_time(&world, &mut store, domain, 1_000 + number);
            probe.write(store.at(&format!("{number}"))?, 1)?;
        }
        set_time(&world, &mut store, domain, 1_299);
        for budget in [7, 64, u64::MAX] {
            while !store.clean_up(budget)?.finished {}
        }
        for number in 0..300 {
            let expected = if number >= 200 { &[1][..] } else { &[] };
            let found = probe.read(store.at(&format!("{number}"))?)?;
            assert_eq!(found, expected, "{kind:?} {domain:?} {number}");
        }
    }
    Ok(())
}

fn lists_and_maps_lose_what_has_expired(h: &Harness<'_>) -> Result<()> {
    h.clock().set(0);
    let mut store = h.open()?;
    let list = store.with_ttl(ttl(100)).list::<u64>("l")?;
    let map = store.with_ttl(ttl(100)).map::<u64, u64>("s")?;
    store.at("k")?;
    for number in 0..600 {
        h.clock().set(number as i64 / 3);
        // Old and new ones take turns, as in a merged list.
        let until = if number % 2 == 0 { 150 } else { 1_000 };
        list.add_expiring_at(&mut store, &number, until)?;
        map.put_expiring_at(&mut store, &number, &number, until)?;
    }
    h.clock().set(200);
    let length = |store: &mut Store| -> Result<usize> {
        let contents = Contents::take(store)?;
        Ok(contents.entries.iter().find(|(at, _)| at.0 == "l").map_or(0, |(_, v)| v.len()))
    };
    let before = length(&mut store)?;
    clean_all(&mut store)?;
    assert_eq!(length(&mut store)?, before / 2, "half of the list is gone");
    assert_eq!(physical(&mut store)?, 300);
    let odd: Vec<u64> = (0..300).map(|number| number * 2 + 1).collect();
    assert_eq!(list.get(store.at("k")?).wait()?, odd);
    let keys = map.entries(&mut store).wait()?.map(|entry| entry.map(|entry| entry.0));
    assert_eq!(keys.collect::<Result<Vec<_>>>()?, odd);
    h.clock().set(1_000);
    clean_all(&mut store)?;
    assert_eq!((length(&mut store)?, physical(&mut store)?), (0, 0));
    Ok(())
}

fn accesses_drive_clean_up(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let world = h.sibling();
        world.clock().set(0);
        let mut store = world.open()?;
        let probe = Probe::open(kind, &mut store, Some(ttl(100)))?;
        for number in 0..500 {
            probe.write(store.at(&format!("{number}"))?, 1)?;
        }
        world.clock().set(100);
        // As many accesses as there are entries, and some, all to one key.
        for _ in 0..1_500 {
            probe.write(store.at("other")?, 1)?;
            probe.clear(&mut store)?;
        }
        assert_eq!(physical(&mut store)?, 0, "{kind:?}");
    }
    Ok(())
}

fn reads_remove_what_they_find_expired(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let world = h.sibling();
        world.clock().set(0);
        let mut store = world.open()?;
        let probe = Probe::open(kind, &mut store, Some(ttl(100)))?;
        probe.write(store.at("k")?, 1)?;
        world.clock().set(50);
        probe.write(&mut store, 2)?;
        world.clock().set(200);
        if let Probe::Map(map) = &probe {
            // An iteration owns no store to remove from; a look-up does.
            assert_eq!(map.get(&mut store, &1).wait()?, None);
            assert!(!map.contains(&mut store, &2).wait()?);
        }
        if let Probe::SortedMap(map) = &probe {
            assert_eq!(map.get(&mut store, &1).wait()?, None);
            assert!(!map.contains(&mut store, &2).wait()?);
        }
        assert_eq!(probe.read(&mut store)?, [0_u64; 0], "{kind:?}");
        assert_eq!(physical(&mut store)?, 0, "{kind:?}");
    }
    Ok(())
}

fn clean_up_and_snapshots_do_not_disturb_each_other(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let world = h.sibling();
        world.clock().set(0);
        let mut store = world.open()?;
        let probe = Probe::open(kind, &mut store, Some(ttl(100)))?;
        for number in 0..200 {
            probe.write(store.at(&format!("{number}"))?, 1)?;
        }
        world.clock().set(60);
        store.clean_up(30)?;
        let task = world.begin_snapshot(&mut store)?;
        let scan = store.keys("s")?;
        world.clock().set(100);
        while !store.clean_up(30)?.finished {}
        probe.write(store.at("0")?, 2)?;
        let handle = block_on(task.run())?;
        assert_eq!(scan.count(), 200, "{kind:?}: a listing is of the moment of its call");
        world.clock().set(99);
        let mut restored = world.restore(&[handle])?;
        let probe = Probe::open(kind, &mut restored, Some(ttl(100)))?;
        for number in 0..200 {
            let found = probe.read(restored.at(&format!("{number}"))?)?;
            assert_eq!(found, [1], "{kind:?} {number}");
        }
    }
    Ok(())
}

fn states_without_a_ttl_are_left_alone(h: &Harness<'_>) -> Result<()> {
    for kind in Kind::ALL {
        let world = h.sibling();
        world.clock().set(0);
        let mut store = world.open()?;
        let probe = Probe::open(kind, &mut store, None)?;
        let timers = store.timers::<()>("t")?;
        probe.write(store.at("k")?, 1)?;
        timers.register(&mut store, 5, &())?;
        set_time(&world, &mut store, TimeDomain::Processing, i64::MAX / 16);
        clean_all(&mut store)?;
        for id in 0..2 {
            store.backend().clean_up(StateId(id), u64::MAX)?;
        }
        assert_eq!(probe.read(store.at("k")?)?, [1], "{kind:?}");
        assert!(store.poll_timer(&timers, 5).wait()?.is_some(), "{kind:?}");
    }
    Ok(())
}
