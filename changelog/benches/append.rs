//! What a change costs the log: its record, and the batch that it becomes a part of.
//!
//! `cargo bench -p weir-changelog --bench append`
#![allow(missing_docs, reason = "criterion's macros generate functions")]

#[path = "../src/format/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "a part of it is measured")]
mod format;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use format::batch::{BatchEncoder, BatchHeader};
use format::record::{push_append, push_put};
use format::{LogId, LogPosition};
use weir_state_api::{Address, KeyGroup, KeyRef, StateId};

const CHANGES: u64 = 10_000;

/// Appends records of values that do not compress.
fn records(value_len: usize, map_key: &[u8], appends: bool, out: &mut Vec<u8>) {
    let mut value = vec![0; value_len];
    for n in 0..CHANGES {
        let noise = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let key = noise(n);
        for (place, part) in value.chunks_mut(8).enumerate() {
            part.copy_from_slice(&noise(n * 16 + place as u64)[..part.len()]);
        }
        let key = KeyRef::with_group(&key, KeyGroup((n % 128) as u16)).expect("a group");
        let at = Address { state: StateId(1), key, namespace: b"", map_key };
        if appends {
            push_append(&at, &value, out);
        } else {
            push_put(&at, &value, out);
        }
    }
}

fn all(c: &mut Criterion) {
    let mut group = c.benchmark_group("record");
    group.throughput(Throughput::Elements(CHANGES));
    let mut out = Vec::new();
    for (name, value_len, map_key, appends) in [
        ("put eight bytes", 8, &b""[..], false),
        ("put 100 bytes", 100, b"", false),
        ("put 100 bytes to a map", 100, b"map key!", false),
        ("append 100 bytes", 100, b"", true),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear();
                records(value_len, map_key, appends, &mut out);
                black_box(out.len())
            });
        });
    }
    group.finish();

    let mut group = c.benchmark_group("batch");
    let mut changes = Vec::new();
    records(100, b"", false, &mut changes);
    group.throughput(Throughput::Bytes(changes.len() as u64));
    let header =
        BatchHeader { log: LogId([7; 16]), first: LogPosition(0), records: CHANGES as u32 };
    for (name, level) in [("raw", 0), ("zstd 1", 1)] {
        let mut encoder = BatchEncoder::new(level);
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear();
                encoder.encode(header, &changes, &mut out);
                black_box(out.len())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, all);
criterion_main!(benches);
