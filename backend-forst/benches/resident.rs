//! Look-ups in maps below many memtables that are tables already: frequent checkpoints leave them.
//!
//! `cargo bench -p weir-backend-forst --bench resident`
#![allow(missing_docs, reason = "criterion's macros generate functions")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use weir_backend_forst::{ForstBackendFactory, ForstOptions};
use weir_state_api::{
    Address, BackendFactory, CheckpointId, CodecId, Environment, KeyRef, KeyedBackend, Lookup,
    MaxParallelism, OpenRequest, Result, SnapshotRequest, StateDescriptor, StateId, StateKind,
    block_on,
};

/// Maps that are looked into.
const MAPS: u64 = 1_000;
/// Entries of each of them.
const ENTRIES: u64 = 10;
/// Maps that are written between two checkpoints, with one entry each.
const SMALL: u64 = 10;

/// An instance with a map state.
struct Instance {
    backend: Box<dyn KeyedBackend>,
    state: StateId,
}

impl Instance {
    fn open() -> Result<Self> {
        let bytes = || CodecId::new("bytes", 1);
        let request = OpenRequest::new(Environment::in_memory(), "maps", bytes());
        let factory = ForstBackendFactory::new(ForstOptions::default());
        let mut backend = block_on(factory.open(request))?;
        let map = StateDescriptor::new("map", StateKind::Map, bytes(), bytes());
        let state = backend.register(&map.with_map_key(bytes()))?;
        Ok(Instance { backend, state })
    }

    /// One with so many checkpoints: the first after the maps that are looked into were written, the
    /// others after little else.
    fn after(checkpoints: u64) -> Result<Self> {
        let mut instance = Instance::open()?;
        (0..MAPS * ENTRIES).try_for_each(|n| instance.put(n % MAPS, n / MAPS))?;
        for number in 1..=checkpoints {
            let request = SnapshotRequest::checkpoint(CheckpointId(number), "chk");
            block_on(instance.backend.snapshot(request)?.run())?;
            let first = MAPS + number * SMALL;
            (first..first + SMALL).try_for_each(|map| instance.put(map, 0))?;
        }
        Ok(instance)
    }

    fn put(&mut self, map: u64, entry: u64) -> Result<()> {
        let (map, map_key) = (map.to_be_bytes(), entry.to_be_bytes());
        let key = KeyRef::new(&map, MaxParallelism::default())?;
        let at = Address { state: self.state, key, namespace: b"", map_key: &map_key };
        self.backend.put(&at, &map_key)
    }

    /// Whether an entry is there.
    fn has(&mut self, map: u64, entry: u64) -> Result<bool> {
        let (map, map_key) = (map.to_be_bytes(), entry.to_be_bytes());
        let key = KeyRef::new(&map, MaxParallelism::default())?;
        let at = Address { state: self.state, key, namespace: b"", map_key: &map_key };
        Ok(matches!(self.backend.get(&at)?, Lookup::Found(_)))
    }

    /// One look-up in each of so many maps from one on. How many entries are there.
    fn look_up(&mut self, first: u64) -> Result<u64> {
        (first..first + MAPS)
            .try_fold(0, |found, map| Ok(found + u64::from(self.has(map, map % ENTRIES)?)))
    }
}

fn all(c: &mut Criterion) {
    for checkpoints in [1, 10, 200] {
        let mut group = c.benchmark_group(format!("mapGet after {checkpoints} checkpoints"));
        group.throughput(Throughput::Elements(MAPS)).sample_size(20);
        let mut instance = Instance::after(checkpoints).expect("memory takes it");
        for (name, first, there) in
            [("in the oldest memtable", 0, MAPS), ("nowhere", u64::from(u32::MAX), 0)]
        {
            group.bench_function(name, |b| {
                b.iter(|| {
                    let found = instance.look_up(black_box(first)).expect("memory answers");
                    assert_eq!(found, there);
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
