//! The memtable: writes and reads of point states and of maps.
//!
//! `cargo bench -p weir-backend-forst --bench memtable`
#![allow(missing_docs, reason = "criterion's macros generate functions")]

#[path = "../src/format/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "a part of it is measured")]
mod format;
#[path = "../src/memtable/mod.rs"]
#[allow(dead_code, unused_imports, reason = "a part of it is measured")]
mod memtable;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use format::EntryKind;
use memtable::{Memtables, Sorted};
use weir_state_api::StateShape;
use xxhash_rust::xxh3::xxh3_64;

const KEYS: usize = 100_000;
const VALUE: [u8; 40] = [7; 40];

/// Keys in a random order, with their hashes.
fn keys() -> Vec<([u8; 16], u64)> {
    let key = |n: u64| {
        let noise = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let mut key = [1; 16];
        key[8..].copy_from_slice(&noise);
        (key, xxh3_64(&key))
    };
    (0..KEYS as u64).map(key).collect()
}

fn filled(shape: StateShape, keys: &[([u8; 16], u64)]) -> Memtables {
    let mut table = Memtables::default();
    for (key, hash) in keys {
        table.set(shape, *hash, key, EntryKind::Put, &VALUE);
    }
    table
}

fn get(tables: &Memtables, shape: StateShape, hash: u64, key: &[u8]) {
    match shape {
        StateShape::Point => {
            black_box(tables.point(hash, key));
        }
        StateShape::Ordered | StateShape::Queue => {
            black_box(tables.active().ordered().get(key));
        }
    }
}

fn all(c: &mut Criterion) {
    let keys = keys();
    for (name, shape) in [("point", StateShape::Point), ("ordered", StateShape::Ordered)] {
        let mut group = c.benchmark_group(format!("memtable, {name}"));
        group.throughput(Throughput::Elements(KEYS as u64)).sample_size(20);
        group.bench_function("fill", |b| {
            b.iter_batched(|| (), |()| filled(shape, &keys), BatchSize::PerIteration);
        });
        let mut table = filled(shape, &keys);
        group.bench_function("get", |b| {
            b.iter(|| {
                for (key, hash) in &keys {
                    get(&table, shape, *hash, key);
                }
            });
        });
        group.bench_function("replace", |b| {
            b.iter(|| {
                for (key, hash) in &keys {
                    table.set(shape, *hash, key, EntryKind::Put, black_box(&VALUE));
                }
            });
        });
        group.bench_function("append eight bytes to nothing", |b| {
            b.iter_batched(
                Memtables::default,
                |mut table| {
                    for (key, hash) in &keys {
                        table.append(shape, *hash, key, black_box(&[7; 8]));
                    }
                    table
                },
                BatchSize::PerIteration,
            );
        });
        group.bench_function("walk in order", |b| {
            b.iter(|| {
                let sorted = table.active().sorted();
                black_box(sorted.map(|Sorted { key, .. }| usize::from(key[8])).sum::<usize>())
            });
        });
        group.finish();
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
