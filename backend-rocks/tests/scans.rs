//! Scans of maps: beside deleted ones, over several pages, between writes, whatever walk they begin with.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use std::collections::BTreeMap;
use std::ops::Bound;

use common::{World, at, descriptor, snapshot};
use weir_backend_rocks::RocksMemory;
use weir_state_api::{Address, KeyedBackend, MapRange, Order, Page, ScanStep, StateId, StateKind};

/// Map keys and values.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// All entries of a range, page by page, and how many pages there were.
fn scan(
    backend: &mut dyn KeyedBackend,
    at: &Address<'_>,
    range: MapRange<'_>,
    order: Order,
) -> (Entries, usize) {
    let mut page = Page::new();
    let mut step = backend.scan(at, range, order, &mut page).unwrap();
    let (mut entries, mut pages) = (Vec::new(), 1);
    loop {
        entries.extend(page.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        page.clear();
        step = match step {
            ScanStep::Last => return (entries, pages),
            ScanStep::More(rest) => rest.next(&mut page).unwrap(),
            ScanStep::Pending(_) => panic!("scans never pend"),
        };
        pages += 1;
    }
}

fn all(backend: &mut dyn KeyedBackend, at: &Address<'_>) -> Entries {
    scan(backend, at, MapRange::ALL, Order::Ascending).0
}

fn map(backend: &mut dyn KeyedBackend) -> StateId {
    backend.register(&descriptor("m", StateKind::Map)).unwrap()
}

fn put(backend: &mut dyn KeyedBackend, at: &Address<'_>, map_key: u32, value: &[u8]) {
    backend.put(&Address { map_key: &map_key.to_be_bytes(), ..*at }, value).unwrap();
}

/// A map that stands alone among hundreds that were cleared, in memory and on disk.
#[test]
fn a_map_ends_where_it_ends_however_many_deleted_entries_follow() {
    let world = World::new();
    let mut backend = world.open(world.request());
    let state = map(&mut *backend);
    // One key: its namespaces lie side by side.
    let maps: Vec<[u8; 2]> = (0..500_u16).map(u16::to_be_bytes).collect();
    let of = |namespace| Address { namespace, ..at(state, b"k") };
    for round in 0..2 {
        for namespace in &maps {
            for map_key in 0..5 {
                put(&mut *backend, &of(namespace), map_key, b"v");
            }
        }
        if round == 1 {
            snapshot(&mut *backend, 1);
        }
        for (number, namespace) in maps.iter().enumerate() {
            if number % 100 != 7 {
                backend.delete_range(&of(namespace), MapRange::ALL).unwrap();
            }
        }
        for (number, namespace) in maps.iter().enumerate() {
            let (stays, address) = (number % 100 == 7, of(namespace));
            assert_eq!(all(&mut *backend, &address).len(), if stays { 5 } else { 0 }, "{number}");
            assert_eq!(backend.has_map_keys(&address).unwrap(), Some(stays), "{number}");
        }
    }
}

/// Entries inside the map are deleted, more of them than a walk steps over at a time.
#[test]
fn what_lies_behind_deleted_entries_is_found() {
    let world = World::new();
    let mut backend = world.open(world.request());
    let at = at(map(&mut *backend), b"k");
    for map_key in 0..400 {
        put(&mut *backend, &at, map_key, b"v");
    }
    for map_key in (0..399).filter(|map_key| ![50, 51, 200].contains(map_key)) {
        backend.delete(&Address { map_key: &u32::to_be_bytes(map_key), ..at }).unwrap();
    }
    let keys: Vec<Vec<u8>> = all(&mut *backend, &at).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [50_u32, 51, 200, 399].map(|key| key.to_be_bytes().to_vec()));
    assert_eq!(backend.has_map_keys(&at).unwrap(), Some(true));
}

/// A scan of several pages sees the map as of its call, also when its walk was an older one.
#[test]
fn all_pages_are_as_of_the_call() {
    let world = World::new();
    let mut backend = world.open(world.request());
    let at = at(map(&mut *backend), b"k");
    for map_key in 0..500 {
        put(&mut *backend, &at, map_key, b"old");
    }
    assert_eq!(scan(&mut *backend, &at, MapRange::ALL, Order::Ascending).1, 4);
    let mut page = Page::new();
    let begun = backend.scan(&at, MapRange::ALL, Order::Ascending, &mut page).unwrap();
    assert_eq!(page.len(), 128);
    for map_key in 0..500 {
        put(&mut *backend, &at, map_key, b"new");
    }
    put(&mut *backend, &at, 500, b"new");
    assert_eq!(all(&mut *backend, &at).len(), 501);
    let mut step = begun;
    let mut seen = page.len();
    while let ScanStep::More(rest) = step {
        page.clear();
        step = rest.next(&mut page).unwrap();
        seen += page.len();
        assert!(page.iter().all(|(_, value)| value == b"old"));
    }
    assert_eq!(seen, 500);
}

/// Random accesses against an ordered map in memory; write buffers are flushed in between.
#[test]
fn scans_between_writes_and_flushes_agree_with_a_model() {
    let world = World::new();
    let mut backend = world.open(world.request());
    let state = map(&mut *backend);
    let mut model: BTreeMap<(u64, u32), u64> = BTreeMap::new();
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for step in 0..20_000_u64 {
        let (key, map_key) = (random(6), random(60) as u32);
        let bytes = key.to_be_bytes();
        let address = at(state, &bytes);
        let whole = (key, 0)..(key + 1, 0);
        match random(16) {
            0..=6 => {
                put(&mut *backend, &address, map_key, &step.to_be_bytes());
                model.insert((key, map_key), step);
            }
            7..=9 => {
                let entry = Address { map_key: &map_key.to_be_bytes(), ..address };
                backend.delete(&entry).unwrap();
                model.remove(&(key, map_key));
            }
            10 if random(20) == 0 => {
                backend.delete_range(&address, MapRange::ALL).unwrap();
                model.retain(|(of, _), _| *of != key);
            }
            11 if random(60) == 0 => drop(snapshot(&mut *backend, step)),
            12 => {
                let any = model.range(whole).next().is_some();
                assert_eq!(backend.has_map_keys(&address).unwrap(), Some(any), "step {step}");
            }
            _ => {
                let (from, to) = (map_key.to_be_bytes(), (map_key + 20).to_be_bytes());
                let inside =
                    MapRange { from: Bound::Included(&from[..]), to: Bound::Excluded(&to[..]) };
                let is_whole = random(2) == 0;
                let range = if is_whole { MapRange::ALL } else { inside };
                let order = [Order::Ascending, Order::Ascending, Order::Descending];
                let order = order[random(3) as usize];
                let expected = if is_whole {
                    model.range(whole)
                } else {
                    model.range((key, map_key)..(key, map_key + 20))
                };
                let mut expected: Entries = expected
                    .map(|((_, map_key), step)| {
                        (map_key.to_be_bytes().to_vec(), step.to_be_bytes().to_vec())
                    })
                    .collect();
                if order == Order::Descending {
                    expected.reverse();
                }
                let (found, _) = scan(&mut *backend, &address, range, order);
                assert_eq!(found, expected, "step {step}");
            }
        }
    }
}

/// A kept walk does not hold write buffers that have been flushed: not over a snapshot, not over many
/// writes.
#[test]
fn flushed_write_buffers_are_let_go() {
    let memory = RocksMemory::new(64 << 20, 0.5);
    let world = World::with_options(|options| {
        options.with_memory(memory.clone()).with_rocksdb_option("write_buffer_size", "4194304")
    });
    let mut backend = world.open(world.request());
    let at = at(map(&mut *backend), b"k");
    let value = vec![1; 1_000];
    for map_key in 0..2_000 {
        put(&mut *backend, &at, map_key, &value);
    }
    assert!(backend.has_map_keys(&at).unwrap().unwrap());
    let written = memory.write_bytes();
    assert!(written > 2_000_000, "{written}");
    snapshot(&mut *backend, 1);
    assert!(memory.write_bytes() < written / 2, "{} bytes", memory.write_bytes());
}
