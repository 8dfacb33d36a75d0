//! Writes that RocksDB does not have yet count, join and are found like those that it has.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use common::{World, at, descriptor, envelope, snapshot};
use weir_state_api::ttl::{StateTtl, TimeDomain};
use weir_state_api::{Address, KeyedBackend, Lookup, StateId, StateKind, Values};

/// None, so few that they are written out every few calls, and the default.
const BATCHES: [usize; 3] = [0, 2_400, 1 << 20];

fn worlds() -> impl Iterator<Item = World> {
    BATCHES
        .into_iter()
        .map(|bytes| World::with_options(|options| options.with_write_batch_bytes(bytes)))
}

fn get(backend: &mut dyn KeyedBackend, at: &Address<'_>) -> Option<Vec<u8>> {
    match backend.get(at).unwrap() {
        Lookup::Found(value) => Some(value.to_vec()),
        Lookup::Absent => None,
        Lookup::Pending(_) => panic!("reads never pend"),
    }
}

/// Some in RocksDB, some on the way there, some both: each entry counts once.
#[test]
fn each_entry_counts_once_wherever_it_is() {
    for world in worlds() {
        let mut backend = world.open(world.request());
        let values = backend.register(&descriptor("v", StateKind::Value)).unwrap();
        let lists = backend.register(&descriptor("l", StateKind::List)).unwrap();
        let count = |backend: &dyn KeyedBackend| {
            [values, lists].map(|state| backend.physical_entries(state).unwrap())
        };
        let keys: Vec<[u8; 2]> = (0..200_u16).map(u16::to_be_bytes).collect();
        for key in &keys[..100] {
            backend.put(&at(values, key), b"old").unwrap();
            backend.append(&at(lists, key), b"\x01a").unwrap();
        }
        assert_eq!(count(&*backend), [100, 100]);
        assert!(backend.statistics().entries >= 200);
        snapshot(&mut *backend, 1);
        for key in &keys[50..150] {
            backend.put(&at(values, key), b"new").unwrap();
            backend.append(&at(lists, key), b"\x01b").unwrap();
        }
        for key in keys.iter().step_by(2) {
            backend.delete(&at(values, key)).unwrap();
            backend.delete(&at(lists, key)).unwrap();
        }
        backend.append(&at(lists, &keys[0]), b"\x01c").unwrap();
        assert_eq!(count(&*backend), [75, 76]);
        let handle = snapshot(&mut *backend, 2);
        assert_eq!(count(&*backend), [75, 76]);
        let mut restored = world.open(world.request().restore_from(vec![handle]));
        assert_eq!(count(&*restored), [75, 76]);
        let expected: [(usize, Option<&[u8]>); 4] =
            [(0, Some(b"\x01c")), (1, Some(b"\x01a")), (51, Some(b"\x01a\x01b")), (52, None)];
        for (number, list) in expected {
            let at = at(lists, &keys[number]);
            assert_eq!(get(&mut *backend, &at).as_deref(), list, "{number}");
            assert_eq!(get(&mut *restored, &at).as_deref(), list, "{number}");
        }
    }
}

/// A state gets a TTL between two writes that RocksDB gets together.
#[test]
fn what_comes_under_another_ttl_joins_what_was_there() {
    for world in worlds() {
        for read_between in [false, true] {
            let mut backend = world.open(world.request());
            let plain = descriptor("l", StateKind::List);
            let state = backend.register(&plain).unwrap();
            backend.append(&at(state, b"k"), b"\x01v").unwrap();
            if read_between {
                snapshot(&mut *backend, 1);
                backend.append(&at(state, b"k"), b"\x01v").unwrap();
            }
            let ttl = StateTtl::new(100, TimeDomain::Processing);
            backend.register(&plain.clone().with_ttl(ttl)).unwrap();
            // What was there counts from now, as if it were written now.
            let element = envelope(true, 1_000);
            let whole = |elements: usize| Some(element.repeat(elements));
            let before = 1 + usize::from(read_between);
            assert_eq!(get(&mut *backend, &at(state, b"k")), whole(before));
            backend.append(&at(state, b"k"), &element).unwrap();
            assert_eq!(get(&mut *backend, &at(state, b"k")), whole(before + 1));
        }
    }
}

/// A batch of reads meets what is only on the way, only in RocksDB, both, and neither.
#[test]
fn batched_reads_find_both() {
    for world in worlds() {
        let mut backend = world.open(world.request());
        let lists = backend.register(&descriptor("l", StateKind::List)).unwrap();
        let maps = backend.register(&descriptor("m", StateKind::Map)).unwrap();
        let append =
            |backend: &mut dyn KeyedBackend, state: StateId, keys: [u8; 3], what: &[u8]| {
                for key in keys {
                    let key = [key];
                    let at = Address { map_key: &key, ..at(state, b"k") };
                    let at = if state == maps { at } else { common::at(state, &key) };
                    match state == maps {
                        true => backend.put(&at, what).unwrap(),
                        false => backend.append(&at, what).unwrap(),
                    }
                }
            };
        append(&mut *backend, lists, [0, 1, 2], b"\x01a");
        append(&mut *backend, maps, [0, 1, 2], b"a");
        snapshot(&mut *backend, 1);
        append(&mut *backend, lists, [1, 2, 3], b"\x01b");
        append(&mut *backend, maps, [1, 2, 3], b"b");
        backend.delete(&at(lists, &[2])).unwrap();
        let keys: Vec<[u8; 1]> = (0..5).map(|key| [key]).collect();
        let addresses: Vec<Address<'_>> = (keys.iter().map(|key| at(lists, key)))
            .chain(keys.iter().map(|key| Address { map_key: key, ..at(maps, b"k") }))
            .collect();
        let mut values = Values::new();
        assert!(backend.multi_get(&addresses, &mut values).unwrap().is_none());
        let expected: [Option<&[u8]>; 10] = [
            Some(b"\x01a"),
            Some(b"\x01a\x01b"),
            None,
            Some(b"\x01b"),
            None,
            Some(b"a"),
            Some(b"b"),
            Some(b"b"),
            Some(b"b"),
            None,
        ];
        for (index, expected) in expected.into_iter().enumerate() {
            assert_eq!(values.get(index), expected, "{index}");
            assert_eq!(get(&mut *backend, &addresses[index]).as_deref(), expected, "{index}");
        }
    }
}

/// A value too long to be collected replaces, and is joined with, what has been.
#[test]
fn long_values_go_straight_through_and_in_order() {
    for world in worlds() {
        let mut backend = world.open(world.request());
        let values = backend.register(&descriptor("v", StateKind::Value)).unwrap();
        let lists = backend.register(&descriptor("l", StateKind::List)).unwrap();
        let long = vec![7; 1 << 20];
        let (value, list) = (at(values, b"k"), at(lists, b"k"));
        for _ in 0..2 {
            backend.put(&value, b"short").unwrap();
            backend.put(&value, &long).unwrap();
            assert_eq!(get(&mut *backend, &value).as_deref(), Some(&long[..]));
            backend.put(&value, b"short").unwrap();
            assert_eq!(get(&mut *backend, &value).as_deref(), Some(&b"short"[..]));
        }
        backend.append(&list, b"first").unwrap();
        backend.append(&list, &long).unwrap();
        backend.append(&list, b"last").unwrap();
        let whole = [b"first", &long[..], b"last"].concat();
        assert!(get(&mut *backend, &list).as_deref() == Some(&whole[..]));
        backend.delete(&list).unwrap();
        assert_eq!(get(&mut *backend, &list), None);
    }
}
