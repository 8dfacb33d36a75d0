//! Windows: results depend on the events, not on how they arrived.

use std::time::Duration;

use weir_runtime::{
    JobConfig, JobGraph, SessionWindows, SlidingWindows, TumblingWindows, VecSink, VecSource,
    WindowAssigner,
};
use weir_state_api::{Aggregate, BoxError, Millis, Result};

#[derive(Clone)]
struct Total;

impl Aggregate for Total {
    type Input = (u64, i64);
    type Accumulator = i64;
    type Output = i64;

    fn create(&self) -> i64 {
        0
    }

    fn add(&self, total: &mut i64, (_, amount): (u64, i64)) -> Result<(), BoxError> {
        *total = total.checked_add(amount).ok_or("overflow")?;
        Ok(())
    }

    fn merge(&self, a: i64, b: i64) -> Result<i64, BoxError> {
        a.checked_add(b).ok_or_else(|| "overflow".into())
    }

    fn output(&self, total: &i64) -> i64 {
        *total
    }
}

type Totals = Vec<(u64, Millis, Millis, i64)>;

fn totals(
    splits: Vec<Vec<(Millis, (u64, i64))>>,
    assigner: impl WindowAssigner,
    parallelism: u16,
) -> (Totals, u64) {
    let graph = JobGraph::new("totals");
    let sink = VecSink::default();
    graph
        .source("amounts", VecSource::with_splits(splits))
        .unwrap()
        .key_by(|&(key, _): &(u64, i64)| key)
        .window("windows", assigner, Total)
        .unwrap()
        .map(|result| (result.key, result.window.start, result.window.end, result.value))
        .sink("results", sink.clone())
        .unwrap();
    // Small batches make watermarks frequent: one follows every eighth batch.
    let config = JobConfig { parallelism, batch_size: 1, ..JobConfig::default() };
    let report = weir_runtime::run(&graph, config).unwrap();
    let mut results = sink.take();
    results.sort_unstable();
    (results, report.records_late)
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn tumbling_and_sliding_windows_emit_each_window_once() {
    let records = vec![(1, (7, 10)), (5, (7, 20)), (5, (8, 5)), (12, (7, 1)), (25, (7, 2))];
    let tumbling = TumblingWindows::of(millis(10)).unwrap();
    let sliding = SlidingWindows::of(millis(10), millis(5)).unwrap();
    for parallelism in [1, 3] {
        let (results, late) = totals(vec![records.clone()], tumbling, parallelism);
        assert_eq!(results, [(7, 0, 10, 30), (7, 10, 20, 1), (7, 20, 30, 2), (8, 0, 10, 5)]);
        assert_eq!(late, 0);
        let (results, _) = totals(vec![records.clone()], sliding, parallelism);
        let of_seven: Vec<_> =
            results.iter().filter(|row| row.0 == 7).map(|r| (r.1, r.3)).collect();
        assert_eq!(of_seven, [(-5, 10), (0, 30), (5, 21), (10, 1), (20, 2), (25, 2)]);
    }
}

#[test]
fn records_behind_the_watermark_are_counted_and_dropped() {
    // Twenty records push the watermark to 118; the next two come for windows that have passed.
    let mut records: Vec<_> = (100..120).map(|time| (time, (1, 1))).collect();
    records.extend([(5, (1, 1)), (105, (1, 1)), (119, (1, 1))]);
    let (results, late) = totals(vec![records], TumblingWindows::of(millis(10)).unwrap(), 1);
    assert_eq!(results, [(1, 100, 110, 10), (1, 110, 120, 11)]);
    assert_eq!(late, 2);
}

#[test]
fn sessions_merge_whatever_the_order_of_their_records() {
    // With a gap of 10, a record exactly 10 behind another begins a new session.
    let records = [0, 40, 9, 18, 100, 36, 27, 45, 110].map(|time| (time, (1, 1)));
    for rotation in 0..records.len() {
        let mut rotated = records.to_vec();
        rotated.rotate_left(rotation);
        // A split each: they are read in the order of their watermarks, all before any watermark.
        let splits = rotated.into_iter().map(|record| vec![record]).collect();
        let (results, late) = totals(splits, SessionWindows::with_gap(millis(10)).unwrap(), 1);
        assert_eq!(results, [(1, 0, 55, 7), (1, 100, 110, 1), (1, 110, 120, 1)], "{rotation}");
        assert_eq!(late, 0);
    }
}

/// Adds numbers up.
#[derive(Clone)]
pub(crate) struct Sum;

impl Aggregate for Sum {
    type Input = u64;
    type Accumulator = u64;
    type Output = u64;

    fn create(&self) -> u64 {
        0
    }

    fn add(&self, sum: &mut u64, number: u64) -> Result<(), BoxError> {
        *sum += number;
        Ok(())
    }

    fn merge(&self, a: u64, b: u64) -> Result<u64, BoxError> {
        Ok(a + b)
    }

    fn output(&self, sum: &u64) -> u64 {
        *sum
    }
}
