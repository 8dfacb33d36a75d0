//! Codecs: typed values to bytes and back.
//!
//! `cargo bench -p weir-state-api --bench codec`
#![allow(missing_docs, reason = "criterion's macros generate functions")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use serde::{Deserialize, Serialize};
use weir_state_api::{Codec, Native, Ordered, Postcard};

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    item: String,
    prices: Vec<(u64, u32)>,
}

fn both_ways<T, C: Codec<T>>(c: &mut Criterion, name: &str, codec: &C, value: &T) {
    let mut group = c.benchmark_group(name);
    let mut bytes = Vec::new();
    group.bench_function("encode", |b| {
        b.iter(|| {
            bytes.clear();
            codec.encode(black_box(value), &mut bytes).expect("it can be encoded");
            black_box(bytes.len())
        });
    });
    group.bench_function("decode", |b| {
        b.iter(|| black_box(codec.decode(black_box(&bytes)).expect("it was encoded")));
    });
    group.finish();
}

fn all(c: &mut Criterion) {
    let text = "a name of some length".to_string();
    let pair = (7_i64, text.clone());
    let order = Order { item: text.clone(), prices: (0..10).map(|n| (n, n as u32)).collect() };
    both_ways(c, "native: i64", &Native, &-42_i64);
    both_ways(c, "native: text", &Native, &text);
    both_ways(c, "native: i64 and text", &Native, &pair);
    both_ways(c, "native: a hundred i64", &Native, &vec![-42_i64; 100]);
    both_ways(c, "native: a hundred bytes", &Native, &vec![42_u8; 100]);
    both_ways(c, "ordered: i64", &Ordered, &-42_i64);
    both_ways(c, "ordered: text", &Ordered, &text);
    both_ways(c, "ordered: i64 and text", &Ordered, &pair);
    both_ways(c, "postcard: a struct", &Postcard::schema("Order", 1), &order);
}

criterion_group!(benches, all);
criterion_main!(benches);
