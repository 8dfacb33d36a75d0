//! What the coordinator waits for, and what it does not wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use weir_backend_heap::HeapBackendFactory;
use weir_runtime::{
    Context, JobConfig, JobGraph, KeyedOperator, ReadStatus, Record, Sink, SinkOpening, SinkWriter,
    Source, SplitReader, Storage, VecSink,
};
use weir_state_api::{
    BackendFactory, BoxFuture, Capabilities, CheckpointId, KeyedBackend, Millis, OpenRequest,
    OperatorState, Result,
};

use crate::counting::{Trap, assert_exactly_once, config, count_job, numbers};

/// Waits for something that another thread does; gives up after a time that only a broken machine
/// needs.
fn wait_for(patience: Duration, what: impl Fn() -> bool) -> bool {
    let tries = patience.as_millis();
    for _ in 0..tries {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    what()
}

/// Opens its second instance only after it has looked for a while whether any source reads.
#[derive(Debug, Default)]
struct SlowToOpen {
    opened: AtomicU32,
    reads: Arc<AtomicU64>,
    read_too_early: Arc<AtomicBool>,
}

impl BackendFactory for SlowToOpen {
    fn name(&self) -> &str {
        "slow"
    }

    fn capabilities(&self) -> Capabilities {
        HeapBackendFactory::default().capabilities()
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let last = self.opened.fetch_add(1, SeqCst) == 1;
        let (reads, early) = (self.reads.clone(), self.read_too_early.clone());
        Box::pin(async move {
            if last && wait_for(Duration::from_millis(200), || reads.load(SeqCst) > 0) {
                early.store(true, SeqCst);
            }
            HeapBackendFactory::default().open(request).await
        })
    }
}

/// Ten numbers; counts the reads.
struct Watched(Arc<AtomicU64>);

impl Source for Watched {
    type Out = u64;

    fn splits(&self) -> u32 {
        1
    }

    fn open(&self, _: u32, offset: u64) -> Result<Box<dyn SplitReader<u64>>> {
        Ok(Box::new(WatchedReader { reads: self.0.clone(), next: offset }))
    }
}

struct WatchedReader {
    reads: Arc<AtomicU64>,
    next: u64,
}

impl SplitReader<u64> for WatchedReader {
    fn read(&mut self, _: usize, records: &mut Vec<Record<u64>>) -> Result<ReadStatus> {
        self.reads.fetch_add(1, SeqCst);
        records.extend((self.next..10).map(|n| Record { time: n as Millis, value: n }));
        self.next = 10;
        Ok(ReadStatus::End)
    }

    fn watermark(&self) -> Millis {
        self.next as Millis - 1
    }
}

struct Pass;

impl KeyedOperator for Pass {
    type Key = u64;
    type In = u64;
    type Out = u64;
    type Timer = ();

    fn process(&mut self, number: u64, context: &mut Context<'_, Self>) -> Result<()> {
        context.emit(number)
    }
}

#[test]
fn no_source_reads_before_every_task_has_its_state() {
    let backend = SlowToOpen::default();
    let (reads, early) = (backend.reads.clone(), backend.read_too_early.clone());
    let graph = JobGraph::new("gate");
    graph
        .source("numbers", Watched(reads.clone()))
        .unwrap()
        .key_by(|&number: &u64| number)
        .process("pass", |_| Ok(Pass))
        .unwrap()
        .sink("results", VecSink::default())
        .unwrap();
    let config = JobConfig { parallelism: 2, backend: Arc::new(backend), ..JobConfig::default() };
    let report = weir_runtime::run(&graph, config).unwrap();
    assert_eq!(report.records_read, 10);
    assert!(!early.load(SeqCst), "a source has read while a task was restoring");
}

/// Its first checkpoint is not prepared before one has been given up.
#[derive(Clone)]
struct Stuck {
    inner: VecSink<(u64, u64)>,
    given_up: Arc<AtomicU32>,
}

struct StuckWriter {
    inner: Box<dyn SinkWriter<(u64, u64)>>,
    given_up: Arc<AtomicU32>,
}

impl Sink<(u64, u64)> for Stuck {
    fn open(&self, opening: &SinkOpening) -> Result<Box<dyn SinkWriter<(u64, u64)>>> {
        let inner = self.inner.open(opening)?;
        Ok(Box::new(StuckWriter { inner, given_up: self.given_up.clone() }))
    }
}

impl SinkWriter<(u64, u64)> for StuckWriter {
    fn write(&mut self, batch: Vec<Record<(u64, u64)>>) -> Result<()> {
        self.inner.write(batch)
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<OperatorState> {
        let moved_on = || self.given_up.load(SeqCst) > 0;
        assert!(wait_for(Duration::from_secs(60), moved_on), "it waits for ever");
        self.inner.prepare(checkpoint)
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.inner.commit(checkpoint)
    }
}

#[test]
fn a_checkpoint_that_is_not_answered_is_given_up_after_its_timeout_and_costs_nothing() {
    let sink = VecSink::default();
    let given_up = Arc::new(AtomicU32::new(0));
    let stuck = Stuck { inner: sink.clone(), given_up: given_up.clone() };
    let graph = count_job(numbers(2, 2_000), Trap::at(&[]), stuck);
    let mut settings = config(2, &Storage::in_memory());
    settings.checkpoints.timeout = Duration::from_millis(100);
    settings.checkpoints.tolerable_failures = 1_000;
    settings.on_progress = Some(Arc::new(move |progress| {
        given_up.store(progress.failed_checkpoints, SeqCst);
    }));
    let report = weir_runtime::run(&graph, settings).unwrap();
    assert!(report.failed_checkpoints >= 1);
    assert_eq!(report.restarts, 0);
    assert_exactly_once(sink.take(), 4_000);
}
