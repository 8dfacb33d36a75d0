//! Expiry on disk: what compactions, merges and clean-ups remove, and what a changed TTL does to what
//! is stored.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use common::World;
use weir_state_api::ttl::{Stamp, StateTtl, TimeDomain};
use weir_state_api::{
    Address, CheckpointId, KeyedBackend, Lookup, Notification, Page, StateDescriptor, StateId,
    StateKind,
};

const TTL: StateTtl = StateTtl::new(100, TimeDomain::Processing);

fn stamped(at: i64, value: &[u8]) -> Vec<u8> {
    [&Stamp::Written(at).to_bytes()[..], value].concat()
}

/// An element of a list.
fn element(at: i64, value: &[u8]) -> Vec<u8> {
    let content = stamped(at, value);
    [&[content.len() as u8][..], &content].concat()
}

fn descriptor(name: &str, kind: StateKind, ttl: Option<StateTtl>) -> StateDescriptor {
    let plain = common::descriptor(name, kind);
    match ttl {
        Some(ttl) => plain.with_ttl(ttl),
        None => plain,
    }
}

fn get(backend: &mut dyn KeyedBackend, at: &Address<'_>) -> Option<Vec<u8>> {
    match backend.get(at).unwrap() {
        Lookup::Found(value) => Some(value.to_vec()),
        Lookup::Absent => None,
        Lookup::Pending(_) => panic!("reads never pend"),
    }
}

fn keys(backend: &mut dyn KeyedBackend, state: StateId) -> usize {
    let mut page = Page::new();
    drop(backend.scan_keys(state, None, &mut page).unwrap());
    page.len()
}

/// For each kind: nothing is read after the writes, the clean-up alone removes all.
#[test]
fn a_driven_clean_up_removes_what_has_expired_of_every_kind() {
    let world = World::with_options(|options| options.with_driven_clean_up(true));
    let mut backend = world.open(world.request());
    let kinds = [
        StateKind::Value,
        StateKind::List,
        StateKind::Map,
        StateKind::Reducing,
        StateKind::Aggregating,
    ];
    for kind in kinds {
        let state = backend.register(&descriptor(&kind.to_string(), kind, Some(TTL))).unwrap();
        for number in 0..50_u32 {
            let bytes = number.to_be_bytes();
            let value =
                if kind == StateKind::List { element(1_000, b"v") } else { stamped(1_000, b"v") };
            let map_key = if kind == StateKind::Map { &b"k"[..] } else { b"" };
            let at = Address { map_key, ..common::at(state, &bytes) };
            if kind == StateKind::List {
                backend.append(&at, &value).unwrap();
            } else {
                backend.put(&at, &value).unwrap();
            }
        }
        world.clock.set(1_099);
        assert!(backend.clean_up(state, u64::MAX).unwrap().finished);
        assert_eq!(backend.physical_entries(state).unwrap(), 50, "{kind}");
        world.clock.set(1_100);
        let (mut steps, mut removed) = (0, 0);
        loop {
            let step = backend.clean_up(state, 7).unwrap();
            assert!(step.visited <= 7);
            (steps, removed) = (steps + 1, removed + step.removed);
            if step.finished {
                break;
            }
        }
        assert!(steps >= 7, "{kind}: {steps}");
        assert_eq!((removed, backend.physical_entries(state).unwrap()), (50, 0), "{kind}");
        world.clock.set(1_000);
        // The clock of an instance never runs backwards.
        backend = world.open(world.request());
    }
}

/// A list in part expired is shortened in place, and the rest stays readable.
#[test]
fn a_clean_up_shortens_lists() {
    let world = World::with_options(|options| options.with_driven_clean_up(true));
    let mut backend = world.open(world.request());
    let list = backend.register(&descriptor("l", StateKind::List, Some(TTL))).unwrap();
    let at = common::at(list, b"k");
    for time in [1_000, 1_050, 1_010] {
        backend.append(&at, &element(time, b"v")).unwrap();
    }
    world.clock.set(1_120);
    let step = backend.clean_up(list, 10).unwrap();
    assert_eq!((step.visited, step.removed), (1, 0));
    assert_eq!(get(&mut *backend, &at), Some(element(1_050, b"v")));
}

/// An instance restored from a snapshot compacts what it was given: values, map entries and lists of
/// nothing but operands go from the disk without being touched.
#[test]
fn compactions_remove_what_has_expired() {
    let world = World::new();
    let mut backend = world.open(world.request());
    let value = backend.register(&descriptor("v", StateKind::Value, Some(TTL))).unwrap();
    let list = backend.register(&descriptor("l", StateKind::List, Some(TTL))).unwrap();
    for number in 0..2_000_u32 {
        let bytes = number.to_be_bytes();
        backend.put(&common::at(value, &bytes), &stamped(1_000, b"v")).unwrap();
        backend.append(&common::at(list, &bytes), &element(1_000, b"v")).unwrap();
    }
    let first = common::snapshot(&mut *backend, 1);
    world.clock.set(1_100);
    let mut count = |number: u32| {
        // Each snapshot flushes a file over the same keys; four of them are compacted.
        let bytes = number.to_be_bytes();
        for state in [value, list] {
            backend
                .put(&common::at(state, &bytes), &common::envelope(state == list, 1_100))
                .unwrap();
        }
        common::snapshot(&mut *backend, u64::from(number) + 2);
        [value, list].map(|state| backend.physical_entries(state).unwrap())
    };
    let mut left = [u64::MAX; 2];
    for round in 0..400_u32 {
        left = count(round % 8);
        if left.iter().all(|left| *left <= 8) {
            break;
        }
        std::thread::yield_now();
    }
    assert!(left.iter().all(|left| *left <= 8), "{left:?}");
    // The snapshot still has what it had.
    world.clock.set(1_000);
    let backend = world.open(world.request().restore_from(vec![first]));
    assert_eq!(backend.physical_entries(value).unwrap(), 2_000);
}

/// What lies at the bottom, where nobody writes, goes with periodic compactions. RocksDB measures their
/// period by the clock of the machine, so this waits for it: some seconds, however busy the machine is.
#[test]
fn periodic_compactions_reach_what_nobody_writes() {
    let world = World::new();
    let mut backend = world.open(world.request());
    let value = backend.register(&descriptor("v", StateKind::Value, Some(TTL))).unwrap();
    let list = backend.register(&descriptor("l", StateKind::List, Some(TTL))).unwrap();
    for number in 0..100_u32 {
        let bytes = number.to_be_bytes();
        backend.put(&common::at(value, &bytes), &stamped(1_000, b"v")).unwrap();
        for _ in 0..2 {
            backend.append(&common::at(list, &bytes), &element(1_000, b"v")).unwrap();
        }
    }
    backend.put(&common::at(value, b"later"), &stamped(1_050, b"v")).unwrap();
    let mut handle = common::snapshot(&mut *backend, 1);
    world.clock.set(1_120);
    let world = world
        .reopened_with(|options| options.with_rocksdb_option("periodic_compaction_seconds", "1"));
    let begun = std::time::Instant::now();
    // Which files are due is found out when a database is opened. The first compaction makes nothing of
    // each list, the second one removes that.
    for number in 2.. {
        let mut backend = world.open(world.request().restore_from(vec![handle]));
        let left = || [value, list].map(|state| backend.physical_entries(state).unwrap());
        if (0..20).any(|_| left() == [1, 0]) {
            break;
        }
        assert!(begun.elapsed().as_secs() < 60, "{:?} are still there", left());
        handle = common::snapshot(&mut *backend, number);
    }
}

/// Listings leave out what has expired, also a map of which every entry has.
#[test]
fn expired_keys_are_not_listed() {
    let world = World::new();
    let mut backend = world.open(world.request());
    let value = backend.register(&descriptor("v", StateKind::Value, Some(TTL))).unwrap();
    let map = backend.register(&descriptor("m", StateKind::Map, Some(TTL))).unwrap();
    for (key, at) in [(b"a", 1_000), (b"b", 1_050)] {
        backend.put(&common::at(value, key), &stamped(at, b"v")).unwrap();
        for map_key in [&b"1"[..], b"2"] {
            let at_entry = Address { map_key, ..common::at(map, key) };
            backend.put(&at_entry, &stamped(at, b"v")).unwrap();
        }
    }
    backend
        .put(&Address { map_key: b"3", ..common::at(map, b"a") }, &stamped(1_080, b"v"))
        .unwrap();
    for (now, values, maps) in [(1_099, 2, 2), (1_100, 1, 2), (1_150, 0, 1), (1_180, 0, 0)] {
        world.clock.set(now);
        assert_eq!(keys(&mut *backend, value), values, "{now}");
        assert_eq!(keys(&mut *backend, map), maps, "{now}");
    }
}

/// On, off, on again over restores, with appends in every era onto the same list.
#[test]
fn a_ttl_can_be_switched_and_what_is_stored_follows() {
    let world = World::new();
    let mut backend = world.open(world.request());
    let register = |backend: &mut dyn KeyedBackend, ttl| {
        let value = backend.register(&descriptor("v", StateKind::Value, ttl)).unwrap();
        let list = backend.register(&descriptor("l", StateKind::List, ttl)).unwrap();
        let map = backend.register(&descriptor("m", StateKind::Map, ttl)).unwrap();
        (value, list, map)
    };
    let (value, list, map) = register(&mut *backend, None);
    let entry = Address { map_key: b"e", ..common::at(map, b"k") };
    backend.put(&common::at(value, b"k"), b"old").unwrap();
    backend.append(&common::at(list, b"k"), b"\x01a").unwrap();
    backend.put(&entry, b"old").unwrap();
    let handle = common::snapshot(&mut *backend, 1);

    world.clock.set(1_500);
    let mut backend = world.open(world.request().restore_from(vec![handle]));
    assert_eq!(register(&mut *backend, Some(TTL)), (value, list, map));
    assert_eq!(get(&mut *backend, &common::at(value, b"k")), Some(stamped(1_500, b"old")));
    backend.append(&common::at(list, b"k"), &element(1_550, b"b")).unwrap();
    let both = [element(1_500, b"a"), element(1_550, b"b")].concat();
    assert_eq!(get(&mut *backend, &common::at(list, b"k")), Some(both));
    let handle = common::snapshot(&mut *backend, 2);

    // Restored without being registered it keeps its TTL; registered without one, what has expired by
    // then is gone and the rest stays for ever.
    world.clock.set(1_600);
    let mut backend = world.open(world.request().restore_from(vec![handle]));
    assert_eq!(keys(&mut *backend, value), 0);
    register(&mut *backend, None);
    assert_eq!(get(&mut *backend, &common::at(value, b"k")), None);
    assert_eq!(get(&mut *backend, &entry), None);
    backend.append(&common::at(list, b"k"), b"\x01c").unwrap();
    world.clock.set(9_999);
    let expected = Some(b"\x01b\x01c".to_vec());
    assert_eq!(get(&mut *backend, &common::at(list, b"k")), expected);
    let handle = common::snapshot(&mut *backend, 3);
    backend.notify(Notification::Complete(CheckpointId(3))).unwrap();
    let mut backend = world.open(world.request().restore_from(vec![handle]));
    assert_eq!(get(&mut *backend, &common::at(list, b"k")), expected);
}
