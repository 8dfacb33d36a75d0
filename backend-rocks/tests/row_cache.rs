//! What has been read is found again without RocksDB, and never after it has changed.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use common::{World, at, descriptor, envelope, snapshot};
use weir_state_api::ttl::{StateTtl, TimeDomain};
use weir_state_api::{Address, KeyedBackend, Lookup, MapRange, StateKind, Values};

fn get(backend: &mut dyn KeyedBackend, at: &Address<'_>) -> Option<Vec<u8>> {
    match backend.get(at).unwrap() {
        Lookup::Found(value) => Some(value.to_vec()),
        Lookup::Absent => None,
        Lookup::Pending(_) => panic!("reads never pend"),
    }
}

/// Each way to change a value, of any length, after it has been read from RocksDB; with writes that are
/// collected and writes that are not.
#[test]
fn a_value_that_was_read_changes_in_every_way() {
    for batch in [0, 1 << 20] {
        let world = World::with_options(|options| options.with_write_batch_bytes(batch));
        let mut backend = world.open(world.request());
        let lists = backend.register(&descriptor("l", StateKind::List)).unwrap();
        let list = at(lists, b"k");
        for (number, length) in [1, 2, 2, 1, 20_000, 3, 1 << 20, 1, 0].into_iter().enumerate() {
            let value = vec![number as u8; length];
            for in_rocksdb in [false, true] {
                for change in ["put", "append", "delete"] {
                    backend.put(&list, b"before").unwrap();
                    if in_rocksdb {
                        snapshot(&mut *backend, 1);
                    }
                    assert_eq!(get(&mut *backend, &list).as_deref(), Some(&b"before"[..]));
                    let expected = match change {
                        "put" => {
                            backend.put(&list, &value).unwrap();
                            Some(value.clone())
                        }
                        "append" => {
                            backend.append(&list, &value).unwrap();
                            Some([b"before", &value[..]].concat())
                        }
                        _ => {
                            backend.delete(&list).unwrap();
                            None
                        }
                    };
                    for _ in 0..2 {
                        assert!(get(&mut *backend, &list) == expected, "{change} {length}");
                        snapshot(&mut *backend, 1);
                    }
                }
            }
        }
    }
}

/// Maps of fewer entries than are deleted one by one, of more, and of more than rows are looked for.
#[test]
fn what_was_read_of_a_map_goes_with_the_map() {
    let world = World::new();
    let mut backend = world.open(world.request());
    let maps = backend.register(&descriptor("m", StateKind::Map)).unwrap();
    let values = backend.register(&descriptor("v", StateKind::Value)).unwrap();
    let other = at(values, b"k");
    backend.put(&other, b"stays").unwrap();
    for entries in [10, 3_000, 120_000_u32] {
        let keys: Vec<[u8; 4]> = (0..entries).map(u32::to_be_bytes).collect();
        let entry = |number: usize| Address { map_key: &keys[number], ..at(maps, b"k") };
        for number in 0..keys.len() {
            backend.put(&entry(number), b"value").unwrap();
        }
        snapshot(&mut *backend, 1);
        let read = [0, keys.len() / 2, keys.len() - 1];
        for number in read {
            assert_eq!(get(&mut *backend, &entry(number)).as_deref(), Some(&b"value"[..]));
        }
        assert_eq!(get(&mut *backend, &other).as_deref(), Some(&b"stays"[..]));
        backend.delete_range(&at(maps, b"k"), MapRange::ALL).unwrap();
        for number in read {
            assert_eq!(get(&mut *backend, &entry(number)), None, "{entries}");
        }
        assert_eq!(get(&mut *backend, &other).as_deref(), Some(&b"stays"[..]));
    }
}

/// A batch of reads may name a key twice, before and after it was read alone.
#[test]
fn a_key_that_is_asked_for_twice_at_once_changes_once() {
    let world = World::new();
    let mut backend = world.open(world.request());
    let state = backend.register(&descriptor("v", StateKind::Value)).unwrap();
    let value = at(state, b"k");
    let mut values = Values::new();
    for written in [&b"old"[..], b"newer"] {
        backend.put(&value, written).unwrap();
        snapshot(&mut *backend, 1);
        for _ in 0..2 {
            backend.multi_get(&[value, value], &mut values).unwrap();
            assert_eq!([values.get(0), values.get(1)], [Some(written); 2]);
        }
    }
    backend.delete(&value).unwrap();
    snapshot(&mut *backend, 1);
    backend.multi_get(&[value, value], &mut values).unwrap();
    assert_eq!([values.get(0), values.get(1)], [None; 2]);
}

/// A clean-up shortens and removes what has been read.
#[test]
fn what_has_expired_goes_although_it_was_read() {
    let world = World::with_options(|options| options.with_driven_clean_up(true));
    let mut backend = world.open(world.request());
    let ttl = StateTtl::new(100, TimeDomain::Processing);
    let lists = backend.register(&descriptor("l", StateKind::List).with_ttl(ttl)).unwrap();
    let (short, gone) = (at(lists, b"short"), at(lists, b"gone"));
    let (old, new) = (envelope(true, 900), envelope(true, 1_000));
    backend.put(&short, &[&old[..], &new].concat()).unwrap();
    backend.put(&gone, &old).unwrap();
    snapshot(&mut *backend, 1);
    assert_eq!(get(&mut *backend, &gone), Some(old.clone()));
    assert_eq!(get(&mut *backend, &short), Some([&old[..], &new].concat()));
    world.clock.set(1_050);
    while !backend.clean_up(lists, 1_000).unwrap().finished {}
    assert_eq!(get(&mut *backend, &gone), None);
    assert_eq!(get(&mut *backend, &short), Some(new));
}
