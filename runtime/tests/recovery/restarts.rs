//! Restarts within a process and from run to run.

use std::sync::Arc;

use weir_runtime::{
    CheckpointStore, JobConfig, JobGraph, RestoreFrom, Storage, VecSink, VecSource,
};
use weir_state_api::ErrorKind;

use crate::counting::{Trap, assert_exactly_once, config, count_job, numbers};

#[test]
fn failing_and_panicking_operators_leave_no_trace_in_the_output() {
    for (parallelism, panics) in [(1, false), (3, false), (2, true)] {
        let trap = Arc::new(Trap::new(&[500, 4_000, 9_000], panics));
        let sink = VecSink::default();
        let graph = count_job(numbers(4, 5_000), trap, sink.clone());
        let report = weir_runtime::run(&graph, config(parallelism, &Storage::in_memory())).unwrap();
        assert_eq!(report.restarts, 3);
        assert!(report.records_read > 20_000, "some input was read again");
        assert_exactly_once(sink.take(), 20_000);
    }
}

#[test]
fn a_job_stops_and_goes_on_at_another_parallelism() {
    let storage = Storage::in_memory();
    let sink = VecSink::default();
    let mut restored_from = None;
    for (parallelism, fails_at) in [(2, Some(4_000)), (3, Some(4_000)), (1, Some(4_000)), (4, None)]
    {
        let trap = Trap::at(fails_at.as_slice());
        let graph = count_job(numbers(5, 4_000), trap, sink.clone());
        let mut config = config(parallelism, &storage);
        config.restart.max_restarts = 0;
        config.restore = RestoreFrom::Latest;
        match weir_runtime::run(&graph, config) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            Ok(report) => restored_from = report.restored_from,
        }
    }
    assert!(restored_from.is_some(), "the last run went on from a checkpoint");
    assert_exactly_once(sink.take(), 20_000);
}

#[test]
fn restarts_are_limited_and_the_cause_is_reported() {
    let trap = Trap::at(&[0; 10]);
    let graph = count_job(numbers(1, 100), trap.clone(), VecSink::default());
    let mut config = config(1, &Storage::in_memory());
    config.restart.max_restarts = 2;
    let error = weir_runtime::run(&graph, config).unwrap_err();
    assert!(error.to_string().contains("the operator fails"), "{error}");
    assert_eq!(trap.sprung(), 3, "one run and two restarts");
}

#[test]
fn only_the_retained_checkpoints_stay_in_the_store() {
    let storage = tempfile::tempdir().unwrap();
    let location = storage.path().to_str().unwrap();
    let opened = Storage::open(location).unwrap();
    let graph = count_job(numbers(2, 20_000), Trap::at(&[3_000]), VecSink::default());
    let mut config = config(2, &opened);
    config.checkpoints.retained = 3;
    let report = weir_runtime::run(&graph, config).unwrap();
    assert!(report.checkpoints.len() > 4, "{}", report.checkpoints.len());
    let mut kept: Vec<_> = std::fs::read_dir(location)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("chk-"))
        .collect();
    kept.sort();
    let newest = report.checkpoints.iter().rev().take(3).rev();
    let expected: Vec<_> = newest
        .map(|stats| CheckpointStore::directory(stats.id).trim_end_matches('/').to_string())
        .collect();
    assert_eq!(kept, expected);
}

#[test]
fn a_stream_with_two_consumers_reaches_both_and_one_without_any_ends() {
    let graph = JobGraph::new("fan-out");
    let numbers = graph.source("numbers", VecSource::new((0..100).map(|n| (n, n as u64)))).unwrap();
    let (even, odd) = (VecSink::default(), VecSink::default());
    numbers.filter(|n| n % 2 == 0).sink("even", even.clone()).unwrap();
    numbers.filter_map(|n| (n % 2 == 1).then_some(n * 10)).sink("odd", odd.clone()).unwrap();
    graph.source("lonely", VecSource::new([(0, 1_u8)])).unwrap();
    weir_runtime::run(&graph, JobConfig { parallelism: 3, ..JobConfig::default() }).unwrap();
    assert_eq!((even.take().len(), odd.take().len()), (50, 50));
}

#[test]
fn an_empty_source_and_a_graph_without_operators_end() {
    let graph = JobGraph::new("empty");
    let sink = VecSink::default();
    let nothing: [(i64, u64); 0] = [];
    graph.source("nothing", VecSource::new(nothing)).unwrap().sink("sink", sink.clone()).unwrap();
    weir_runtime::run(&graph, JobConfig::default()).unwrap();
    assert!(sink.take().is_empty());
    weir_runtime::run(&JobGraph::new("nothing at all"), JobConfig::default()).unwrap();
}
