//! Tables as bytes: searching, decoding and building blocks, filters, indexes.
//!
//! `cargo bench -p weir-backend-forst --bench format`
#![allow(missing_docs, reason = "criterion's macros generate functions")]

#[path = "../src/format/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "a part of it is measured")]
mod format;

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use format::*;
use weir_state_api::stored_key::push_point;
use weir_state_api::{KeyGroup, KeyRef, StateId};

const VALUE_LEN: usize = 40;

/// Stored keys of a point state with keys of eight bytes, in order.
fn keys(count: u64) -> Vec<Vec<u8>> {
    let key = |n: u64| {
        let mut stored = Vec::new();
        let bytes = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let key = KeyRef::with_group(&bytes, KeyGroup((n % 128) as u16)).expect("a group");
        push_point(StateId(1), key, b"", &mut stored);
        stored
    };
    let mut keys: Vec<_> = (0..count).map(key).collect();
    keys.sort_unstable();
    keys
}

/// Values of which a half is noise.
fn value(n: usize) -> [u8; VALUE_LEN] {
    let mut value = [7; VALUE_LEN];
    let noise = (n as u64).wrapping_mul(0xd6e8_feb8_6659_fd93).to_le_bytes();
    value[..8].copy_from_slice(&noise);
    value[16..24].copy_from_slice(&noise.map(|byte| byte.rotate_left(3)));
    value
}

fn write(keys: &[Vec<u8>], options: TableOptions) -> (Bytes, TableMeta) {
    let mut writer = TableWriter::new(options).expect("options");
    for (n, key) in keys.iter().enumerate() {
        let entry = Entry { key, kind: EntryKind::Put, value: &value(n) };
        writer.add(entry, EntryTraits::POINT).expect("in order");
    }
    let finished = writer.finish().expect("small");
    let bytes = finished.ready.concat();
    let tail = &bytes[finished.meta.offset as usize..];
    let meta = TableMeta::decode(tail, &finished.meta, "bench").expect("a table");
    (Bytes::from(bytes), meta)
}

fn stored(file: &Bytes, meta: &TableMeta, block: usize) -> (Bytes, BlockPlace) {
    let place = meta.block_place(block).expect("a block");
    let start = place.offset as usize;
    (file.slice(start..start + place.length as usize), place)
}

fn blocks(file: &Bytes, meta: &TableMeta) -> Vec<Block> {
    let decode = |block| {
        let (bytes, place) = stored(file, meta, block);
        Block::decode(&Bytes::copy_from_slice(&bytes), &place, "bench").expect("a block")
    };
    (0..meta.block_count()).map(decode).collect()
}

const PLAIN: TableOptions = TableOptions {
    block_len: 16 << 10,
    compression: Compression::None,
    filter: FilterKind::BinaryFuse8,
    hash_index: true,
    restart_interval: 16,
};

/// The same few thousand numbers below `below`, in no order.
fn shuffled(below: usize) -> Vec<usize> {
    (0..4_096_usize).map(|n| n.wrapping_mul(2_654_435_761) % below).collect()
}

fn get(c: &mut Criterion) {
    let mut group = c.benchmark_group("block get");
    for (name, hash_index, interval) in [
        ("hash index", true, 16),
        ("hash index, groups of 8", true, 8),
        ("binary search", false, 16),
    ] {
        let keys = keys(20_000);
        let options = TableOptions { hash_index, restart_interval: interval, ..PLAIN };
        let (file, meta) = write(&keys, options);
        let first = blocks(&file, &meta).swap_remove(0);
        let order = shuffled(first.len());
        let mut turn = 0;
        group.bench_function(format!("present, {name}"), |b| {
            b.iter(|| {
                turn = (turn + 1) % order.len();
                black_box(first.get(black_box(&keys[order[turn]])))
            });
        });
        let absent: Vec<Vec<u8>> =
            keys[..first.len()].iter().map(|key| [&key[..], &[1]].concat()).collect();
        group.bench_function(format!("absent, {name}"), |b| {
            b.iter(|| {
                turn = (turn + 1) % order.len();
                black_box(first.get(black_box(&absent[order[turn]])))
            });
        });
    }
    // 64 MB of blocks: what is touched is not in the processor's caches.
    for (name, hash_index) in [("hash index", true), ("binary search", false)] {
        let keys = keys(1_000_000);
        let (file, meta) = write(&keys, TableOptions { hash_index, ..PLAIN });
        let blocks = blocks(&file, &meta);
        let mut n = 0_usize;
        group.bench_function(format!("index and block of 64 MB, {name}"), |b| {
            b.iter(|| {
                n = (n + 612_773) % keys.len();
                let key = &keys[n];
                let block = meta.block_of(key).expect("a block");
                black_box(blocks[block].get(key))
            });
        });
        group.bench_function(format!("block of 64 MB, {name}"), |b| {
            b.iter_batched(
                || {
                    n = (n + 612_773) % keys.len();
                    (&keys[n], meta.block_of(&keys[n]).expect("a block"))
                },
                |(key, block)| black_box(blocks[block].get(key)),
                BatchSize::NumIterations(1_000),
            );
        });
    }
    group.finish();
}

fn decode(c: &mut Criterion) {
    let keys = keys(2_000);
    let mut group = c.benchmark_group("block decode");
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
        let (file, meta) = write(&keys, TableOptions { compression, ..PLAIN });
        let (bytes, place) = stored(&file, &meta, 0);
        group.throughput(Throughput::Bytes(16 << 10));
        group.bench_function(format!("{compression:?}, {} bytes", bytes.len()), |b| {
            b.iter(|| black_box(Block::decode(black_box(&bytes), &place, "bench")));
        });
    }
    let (file, meta) = write(&keys, PLAIN);
    let (bytes, _) = stored(&file, &meta, 0);
    group.bench_function("checksum alone", |b| {
        b.iter(|| black_box(crc32fast::hash(black_box(&bytes))));
    });
    let block = blocks(&file, &meta).swap_remove(0);
    group.throughput(Throughput::Elements(block.len() as u64));
    group.bench_function("walk", |b| {
        let mut cursor = BlockCursor::new(block.clone());
        b.iter(|| {
            cursor.seek_to_first();
            while cursor.is_valid() {
                black_box(cursor.entry());
                cursor.next();
            }
        });
    });
    group.finish();
}

/// What the length of blocks costs: in the file, in memory while it is open, and in time for reads that
/// find their block decoded, for those that do not, and for scans.
fn length(c: &mut Criterion) {
    let keys = keys(1_000_000);
    let mut group = c.benchmark_group("length of blocks");
    group.sample_size(20);
    for kib in [1, 2, 4, 8, 16] {
        let options = TableOptions { block_len: kib << 10, compression: Compression::Lz4, ..PLAIN };
        let (file, meta) = write(&keys, options);
        println!(
            "blocks of {kib} KiB: {} bytes of file for 1,000 entries, {} bytes in memory",
            file.len() * 1_000 / keys.len(),
            meta.memory_bytes() * 1_000 / keys.len()
        );
        let mut n = 0_usize;
        group.bench_function(format!("{kib} KiB, read of a block that must be decoded"), |b| {
            b.iter(|| {
                n = (n + 612_773) % keys.len();
                let number = meta.block_of(&keys[n]).expect("a block");
                let (bytes, place) = stored(&file, &meta, number);
                let block = Block::decode_copy(&bytes, &place, "bench").expect("a block");
                black_box(block.get(&keys[n]).is_some())
            });
        });
        group.throughput(Throughput::Elements(keys.len() as u64));
        group.bench_function(format!("{kib} KiB, scan of blocks that must be decoded"), |b| {
            b.iter(|| {
                for number in 0..meta.block_count() {
                    let (bytes, place) = stored(&file, &meta, number);
                    let block = Block::decode_copy(&bytes, &place, "bench").expect("a block");
                    let mut cursor = BlockCursor::new(block);
                    cursor.seek_to_first();
                    while cursor.is_valid() {
                        black_box(cursor.entry());
                        cursor.next();
                    }
                }
            });
        });
        group.throughput(Throughput::Elements(1));
        let blocks = blocks(&file, &meta);
        group.bench_function(format!("{kib} KiB, read of a decoded block"), |b| {
            b.iter(|| {
                n = (n + 612_773) % keys.len();
                let number = meta.block_of(&keys[n]).expect("a block");
                black_box(blocks[number].get(&keys[n]))
            });
        });
    }
    group.finish();
}

fn build(c: &mut Criterion) {
    let keys = keys(100_000);
    let mut group = c.benchmark_group("build");
    let raw: usize = keys.iter().map(|key| key.len() + VALUE_LEN).sum();
    group.throughput(Throughput::Bytes(raw as u64));
    group.sample_size(20);
    for (name, compression, filter) in [
        ("plain, no filter", Compression::None, FilterKind::None),
        ("plain, as flushed", Compression::None, FilterKind::BlockedBloom),
        ("plain", Compression::None, FilterKind::BinaryFuse8),
        ("lz4", Compression::Lz4, FilterKind::BinaryFuse8),
        ("zstd 1", Compression::Zstd(1), FilterKind::BinaryFuse8),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let options = TableOptions { compression, filter, ..PLAIN };
                let mut writer = TableWriter::new(options).expect("options");
                for (n, key) in keys.iter().enumerate() {
                    let entry = Entry { key, kind: EntryKind::Put, value: &value(n) };
                    writer.add(entry, EntryTraits::POINT).expect("in order");
                    if n % 1_024 == 0 {
                        black_box(writer.take_ready());
                    }
                }
                black_box(writer.finish().expect("small"))
            });
        });
    }
    group.finish();
}

fn filter(c: &mut Criterion) {
    let keys = keys(1_000_000);
    let (_, meta) = write(&keys, TableOptions { block_len: 64 << 10, ..PLAIN });
    let mut group = c.benchmark_group("filter of 1 M keys");
    let mut n = 0_usize;
    group.bench_function("hash", |b| {
        b.iter(|| {
            n = (n + 612_773) % keys.len();
            black_box(filter_hash(&keys[n]))
        });
    });
    group.bench_function("hash and probe, present", |b| {
        b.iter(|| {
            n = (n + 612_773) % keys.len();
            black_box(meta.may_contain(filter_hash(&keys[n])))
        });
    });
    let mut hash = 1_u64;
    group.bench_function("probe, absent", |b| {
        b.iter(|| {
            hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            black_box(meta.may_contain(hash))
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = get, decode, length, build, filter
}
criterion_main!(benches);
