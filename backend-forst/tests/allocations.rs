//! A read that memory answers allocates nothing, in a memtable or in a cached block. The allocator
//! counts for each thread by itself: what the background does meanwhile is no cost of the read.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(unsafe_code, reason = "a global allocator is unsafe by its interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use weir_backend_forst::{ForstBackendFactory, ForstOptions};
use weir_state_api::{
    Address, BackendFactory, Change, CheckpointId, CodecId, Environment, KeyRef, KeyedBackend,
    Lookup, MapRange, MaxParallelism, OpenRequest, Order, Page, ScanStep, SnapshotRequest,
    StateDescriptor, StateId, StateKind, Updated, block_on,
};

struct Counting;

thread_local! {
    // A constant without a destructor: the first use on a thread allocates nothing itself.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; `alloc` is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(mut work: impl FnMut()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

const KEYS: u64 = 1_000;

fn read_all(backend: &mut dyn KeyedBackend, states: [StateId; 2]) {
    for number in 0..KEYS {
        let bytes = number.to_be_bytes();
        let key = KeyRef::new(&bytes, MaxParallelism::default()).unwrap();
        for state in states {
            let at = Address { state, key, namespace: b"", map_key: b"" };
            assert!(matches!(backend.get(&at).unwrap(), Lookup::Found(found) if found == bytes));
        }
    }
}

#[test]
fn reads_from_memory_allocate_nothing() {
    let environment = Environment::in_memory();
    let bytes = || CodecId::new("bytes", 1);
    let request = OpenRequest::new(environment, "operator", bytes());
    let factory = ForstBackendFactory::new(ForstOptions::default());
    let mut backend = block_on(factory.open(request)).unwrap();
    let value = StateDescriptor::new("value", StateKind::Value, bytes(), bytes());
    let map = StateDescriptor::new("map", StateKind::Map, bytes(), bytes()).with_map_key(bytes());
    let states = [backend.register(&value).unwrap(), backend.register(&map).unwrap()];
    let write = |backend: &mut dyn KeyedBackend| {
        for number in 0..KEYS {
            let bytes = number.to_be_bytes();
            let key = KeyRef::new(&bytes, MaxParallelism::default()).unwrap();
            for state in states {
                let at = Address { state, key, namespace: b"", map_key: b"" };
                backend.put(&at, &bytes).unwrap();
            }
        }
    };
    write(&mut *backend);
    read_all(&mut *backend, states);
    assert_eq!(allocations(|| read_all(&mut *backend, states)), 0, "in a memtable");
    assert_eq!(allocations(|| write(&mut *backend)), 0, "overwritten in a memtable");
    let update = |backend: &mut dyn KeyedBackend| {
        for number in 0..KEYS {
            let bytes = number.to_be_bytes();
            let key = KeyRef::new(&bytes, MaxParallelism::default()).unwrap();
            let at = Address { state: states[0], key, namespace: b"", map_key: b"" };
            let updated = backend.update(&at, &mut |old, new| {
                new.extend_from_slice(old.unwrap());
                Ok(Change::Put)
            });
            assert!(matches!(updated.unwrap(), Updated::Done));
        }
    };
    update(&mut *backend);
    assert_eq!(allocations(|| update(&mut *backend)), 0, "updated in a memtable");
    let snapshot = backend.snapshot(SnapshotRequest::checkpoint(CheckpointId(1), "chk-1")).unwrap();
    drop(block_on(snapshot.run()).unwrap());
    // Blocks come into the cache.
    read_all(&mut *backend, states);
    assert_eq!(allocations(|| read_all(&mut *backend, states)), 0, "in cached blocks");
}

/// Entries of each map that is scanned.
const ENTRIES: u64 = 100;

fn scan_all(backend: &mut dyn KeyedBackend, state: StateId, page: &mut Page) {
    for number in 0..KEYS {
        let bytes = number.to_be_bytes();
        let key = KeyRef::new(&bytes, MaxParallelism::default()).unwrap();
        let at = Address { state, key, namespace: b"", map_key: b"" };
        for order in [Order::Ascending, Order::Descending] {
            page.clear();
            let step = backend.scan(&at, MapRange::ALL, order, page).unwrap();
            assert!(matches!(step, ScanStep::Last));
            assert_eq!(page.len() as u64, ENTRIES);
        }
    }
}

#[test]
fn scans_of_maps_in_memory_allocate_nothing_for_an_entry() {
    let environment = Environment::in_memory();
    let bytes = || CodecId::new("bytes", 1);
    let request = OpenRequest::new(environment, "operator", bytes());
    let factory = ForstBackendFactory::new(ForstOptions::default());
    let mut backend = block_on(factory.open(request)).unwrap();
    let map = StateDescriptor::new("map", StateKind::Map, bytes(), bytes()).with_map_key(bytes());
    let state = backend.register(&map).unwrap();
    let mut entries = Page::new();
    for number in 0..ENTRIES {
        entries.push(&number.to_be_bytes(), b"value");
    }
    let put_all = |backend: &mut dyn KeyedBackend| {
        for number in 0..KEYS {
            let bytes = number.to_be_bytes();
            let key = KeyRef::new(&bytes, MaxParallelism::default()).unwrap();
            let at = Address { state, key, namespace: b"", map_key: b"" };
            backend.put_entries(&at, &entries).unwrap();
            assert_eq!(backend.has_map_keys(&at).unwrap(), Some(true));
        }
    };
    put_all(&mut *backend);
    assert_eq!(allocations(|| put_all(&mut *backend)), 0, "overwritten in a memtable");
    let mut page = Page::new();
    scan_all(&mut *backend, state, &mut page);
    assert_eq!(allocations(|| scan_all(&mut *backend, state, &mut page)), 0, "in a memtable");
    let snapshot = backend.snapshot(SnapshotRequest::checkpoint(CheckpointId(1), "chk-1")).unwrap();
    drop(block_on(snapshot.run()).unwrap());
    // Blocks come into the cache.
    scan_all(&mut *backend, state, &mut page);
    let count = allocations(|| scan_all(&mut *backend, state, &mut page));
    let scans = 2 * KEYS;
    assert!(count < 40 * scans, "{count} in {scans} scans of cached blocks");
}
