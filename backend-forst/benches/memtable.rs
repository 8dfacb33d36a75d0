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
use memtable::{MapRoute, Memtables, Route, Sorted};
use xxhash_rust::xxh3::xxh3_64;

const KEYS: usize = 100_000;
const VALUE: [u8; 40] = [7; 40];

/// Stored keys in a random order, each with its route.
type Keys = Vec<([u8; 16], Route)>;

/// Keys that `route` leads to, of maps with ten entries each as far as they are of maps.
fn keys(route: fn(&[u8]) -> Route) -> Keys {
    let key = |n: u64| {
        let mut key = [1; 16];
        key[4..12].copy_from_slice(&(n % (KEYS as u64 / 10)).to_be_bytes());
        key[12..].copy_from_slice(&(n as u32).to_be_bytes());
        (key, route(&key))
    };
    (0..KEYS as u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS as u64).map(key).collect()
}

fn filled(keys: &Keys) -> Memtables {
    let mut table = Memtables::default();
    for (key, route) in keys {
        table.set(*route, key, EntryKind::Put, &VALUE);
    }
    table
}

fn get(tables: &Memtables, route: Route, key: &[u8]) {
    match route {
        Route::Point { hash } => {
            black_box(tables.point(hash, key));
        }
        Route::Map(route) => {
            black_box(tables.newest_in_map(route, key).is_ok());
        }
    }
}

fn all(c: &mut Criterion) {
    let point = keys(|key| Route::Point { hash: xxh3_64(key) });
    let maps = keys(|key| Route::Map(MapRoute::to(key, 12)));
    let one_map = keys(|key| Route::Map(MapRoute::to(key, 4)));
    for (name, keys) in [("point", point), ("maps", maps), ("one map", one_map)] {
        let mut group = c.benchmark_group(format!("memtable, {name}"));
        group.throughput(Throughput::Elements(KEYS as u64)).sample_size(20);
        group.bench_function("fill", |b| {
            b.iter_batched(|| (), |()| filled(&keys), BatchSize::PerIteration);
        });
        let mut table = filled(&keys);
        group.bench_function("get", |b| {
            b.iter(|| {
                for (key, route) in &keys {
                    get(&table, *route, key);
                }
            });
        });
        group.bench_function("replace", |b| {
            b.iter(|| {
                for (key, route) in &keys {
                    table.set(*route, key, EntryKind::Put, black_box(&VALUE));
                }
            });
        });
        group.bench_function("append eight bytes to nothing", |b| {
            b.iter_batched(
                Memtables::default,
                |mut table| {
                    for (key, route) in &keys {
                        table.append(*route, key, black_box(&[7; 8]));
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
