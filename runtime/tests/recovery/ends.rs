//! Ends of inputs and of jobs: quiet splits, grown inputs, exchanged operators, outages at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use weir_runtime::{
    JobConfig, JobGraph, ReadStatus, Record, RestoreFrom, Source, SplitReader, Storage, VecSink,
    VecSource,
};
use weir_state_api::{ErrorKind, Millis, Result};
use weir_tests::faults::{Faults, StoreOp, When};

use crate::counting::{Trap, assert_exactly_once, config, count_job, numbers};

/// Split 0 has nothing until split 1 was read to its end.
struct OneQuietSplit {
    read: Arc<AtomicU64>,
}

impl Source for OneQuietSplit {
    type Out = u64;

    fn splits(&self) -> u32 {
        2
    }

    fn open(&self, split: u32, offset: u64) -> Result<Box<dyn SplitReader<u64>>> {
        Ok(Box::new(QuietReader { quiet: split == 0, next: offset, read: self.read.clone() }))
    }
}

struct QuietReader {
    quiet: bool,
    next: u64,
    read: Arc<AtomicU64>,
}

impl SplitReader<u64> for QuietReader {
    fn read(&mut self, limit: usize, records: &mut Vec<Record<u64>>) -> Result<ReadStatus> {
        if self.quiet {
            let all_read = self.read.load(SeqCst) == 10_000;
            return Ok(if all_read { ReadStatus::End } else { idle() });
        }
        let end = 10_000.min(self.next + limit as u64);
        records.extend((self.next..end).map(|n| Record { time: n as Millis, value: n }));
        self.next = end;
        self.read.store(end, SeqCst);
        Ok(if end == 10_000 { ReadStatus::End } else { ReadStatus::More })
    }

    fn watermark(&self) -> Millis {
        if self.quiet { Millis::MIN } else { self.next as Millis - 1 }
    }
}

fn idle() -> ReadStatus {
    ReadStatus::Idle(Duration::from_millis(2))
}

#[test]
fn a_quiet_split_does_not_stop_the_others_of_its_subtask() {
    let graph = JobGraph::new("quiet");
    let sink = VecSink::default();
    let source = OneQuietSplit { read: Arc::default() };
    graph.source("s", source).unwrap().sink("k", sink.clone()).unwrap();
    let report = weir_runtime::run(&graph, JobConfig::default()).unwrap();
    assert_eq!((report.records_read, sink.take().len()), (10_000, 10_000));
}

#[test]
fn a_job_that_has_ended_refuses_more_input_and_restores_without() {
    let storage = Storage::in_memory();
    let run = |per_split, restore| {
        let sink = VecSink::default();
        let mut config = config(2, &storage);
        config.restore = restore;
        weir_runtime::run(&count_job(numbers(2, per_split), Trap::at(&[]), sink), config)
    };
    run(500, RestoreFrom::Fresh).unwrap();
    let error = run(900, RestoreFrom::Latest).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.to_string().contains("the job has ended"), "{error}");
    assert_eq!(run(500, RestoreFrom::Latest).unwrap().records_read, 0);
}

#[test]
fn an_input_shorter_than_the_checkpoint_is_refused() {
    let storage = Storage::in_memory();
    let run = |records: i64, restore| {
        let graph = JobGraph::new("shrunk");
        let source = VecSource::new((0..records).map(|n| (n, n as u64)));
        graph.source("s", source).unwrap().sink("k", VecSink::default()).unwrap();
        let mut config = config(1, &storage);
        config.restore = restore;
        weir_runtime::run(&graph, config)
    };
    run(100, RestoreFrom::Fresh).unwrap();
    let error = run(50, RestoreFrom::Latest).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
}

#[test]
fn an_operator_that_was_keyed_must_be_keyed() {
    let storage = Storage::in_memory();
    weir_runtime::run(
        &count_job(numbers(1, 200), Trap::at(&[]), VecSink::default()),
        config(1, &storage),
    )
    .unwrap();
    let swapped = JobGraph::new("count");
    let stream = swapped.source("numbers", numbers(1, 200)).unwrap();
    stream.sink("count", VecSink::default()).unwrap();
    stream.sink("counts", VecSink::default()).unwrap();
    let mut config = config(1, &storage);
    config.restore = RestoreFrom::Latest;
    let error = weir_runtime::run(&swapped, config).unwrap_err();
    assert!(error.to_string().contains("was keyed in the checkpoint"), "{error}");
}

#[test]
fn two_streams_may_share_a_vector_sink_but_not_a_graph() {
    let graph = JobGraph::new("shared");
    let stream = graph.source("s", VecSource::new((0..100).map(|n| (n, n as u64)))).unwrap();
    let sink = VecSink::default();
    stream.sink("a", sink.clone()).unwrap();
    stream.map(|n| n + 1_000).sink("b", sink.clone()).unwrap();
    weir_runtime::run(&graph, JobConfig::default()).unwrap();
    assert_eq!(sink.take().len(), 200);

    let other = JobGraph::new("other");
    let foreign = other.source("s", VecSource::new([(0, 1_u64)])).unwrap();
    let joined = stream.union(&foreign).key_by(|n: &u64| *n);
    let error = joined
        .window(
            "w",
            weir_runtime::TumblingWindows::of(Duration::from_secs(1)).unwrap(),
            crate::windows::Sum,
        )
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
}

#[test]
fn a_short_outage_at_the_end_of_the_input_is_waited_out() {
    let faults = Faults::new();
    let operator = opendal::Operator::new(opendal::services::Memory::default()).unwrap();
    let storage = Storage::custom(operator.layer(faults.layer()));
    let sink = VecSink::default();
    let breaking = faults.clone();
    // The outage begins with the failure near the end and lasts for several tries.
    let trap = Trap::calling(3_900, move || {
        breaking.fail_always(StoreOp::Write, When::Before);
        let healing = breaking.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            healing.heal();
        });
    });
    let graph = count_job(numbers(2, 2_000), trap, sink.clone());
    let mut config = config(2, &storage);
    config.checkpoints.interval = Duration::from_millis(100);
    config.checkpoints.tolerable_failures = 10;
    weir_runtime::run(&graph, config).unwrap();
    assert_exactly_once(sink.take(), 4_000);
}

#[test]
fn a_run_that_was_overtaken_does_not_recover() {
    let operator = opendal::Operator::new(opendal::services::Memory::default()).unwrap();
    let storage = Storage::custom(operator.clone());
    let store = weir_runtime::CheckpointStore::new(operator);
    let trap = Trap::calling(2_000, move || {
        weir_state_api::block_on(store.claim_epoch("a newer run")).unwrap();
    });
    let sink = VecSink::default();
    let graph = count_job(numbers(2, 3_000), trap, sink.clone());
    let error = weir_runtime::run(&graph, config(2, &storage)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
}
