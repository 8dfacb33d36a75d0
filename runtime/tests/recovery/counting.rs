//! The job under test: counts numbers per key and emits every count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use weir_runtime::{
    Context, JobConfig, JobGraph, KeyedOperator, ReadStatus, Record, Sink, Source, SplitReader,
    Storage,
};
use weir_state_api::{Error, ErrorKind, Millis, Result, ValueState};

const KEYS: u64 = 97;

/// Numbers in splits, with a pause at each read so that checkpoints fall between them.
#[derive(Clone)]
pub(crate) struct Numbers {
    splits: u32,
    per_split: u64,
}

/// Numbers `0..splits * per_split`.
pub(crate) fn numbers(splits: u32, per_split: u64) -> Numbers {
    Numbers { splits, per_split }
}

impl Source for Numbers {
    type Out = u64;

    fn splits(&self) -> u32 {
        self.splits
    }

    fn open(&self, split: u32, offset: u64) -> Result<Box<dyn SplitReader<u64>>> {
        Ok(Box::new(Reader { source: self.clone(), split, next: offset }))
    }
}

struct Reader {
    source: Numbers,
    split: u32,
    next: u64,
}

impl SplitReader<u64> for Reader {
    fn read(&mut self, limit: usize, records: &mut Vec<Record<u64>>) -> Result<ReadStatus> {
        std::thread::sleep(Duration::from_millis(1));
        let end = self.source.per_split.min(self.next + limit as u64);
        let (split, splits) = (u64::from(self.split), u64::from(self.source.splits));
        records.extend(
            (self.next..end).map(|n| Record { time: n as Millis, value: n * splits + split }),
        );
        self.next = end;
        Ok(if end == self.source.per_split { ReadStatus::End } else { ReadStatus::More })
    }

    fn watermark(&self) -> Millis {
        self.next as Millis - 1
    }
}

/// Fails the job when given numbers of records were processed, once at each.
#[derive(Default)]
pub(crate) struct Trap {
    at: Vec<u64>,
    panics: bool,
    before_failing: Option<Box<dyn Fn() + Send + Sync>>,
    processed: AtomicU64,
    sprung: AtomicU32,
}

impl Trap {
    pub(crate) fn at(at: &[u64]) -> Arc<Self> {
        Arc::new(Self::new(at, false))
    }

    pub(crate) fn new(at: &[u64], panics: bool) -> Self {
        Trap { at: at.to_vec(), panics, ..Trap::default() }
    }

    /// Calls `f`, then fails.
    pub(crate) fn calling(at: u64, f: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Trap { before_failing: Some(Box::new(f)), ..Self::new(&[at], false) })
    }

    pub(crate) fn sprung(&self) -> u32 {
        self.sprung.load(SeqCst)
    }

    fn step(&self) -> Result<()> {
        let processed = self.processed.fetch_add(1, SeqCst);
        let next = self.sprung.load(SeqCst);
        let due = self.at.get(next as usize).is_some_and(|&at| processed >= at);
        if due && self.sprung.compare_exchange(next, next + 1, SeqCst, SeqCst).is_ok() {
            assert!(!self.panics, "the operator panics");
            self.before_failing.iter().for_each(|f| f());
            return Err(Error::new(ErrorKind::Unavailable, "the operator fails"));
        }
        Ok(())
    }
}

struct Count {
    count: ValueState<u64>,
    trap: Arc<Trap>,
}

impl KeyedOperator for Count {
    type Key = u64;
    type In = u64;
    type Out = (u64, u64);
    type Timer = ();

    fn process(&mut self, number: u64, context: &mut Context<'_, Self>) -> Result<()> {
        self.trap.step()?;
        let count = self.count.update(context, |old| old.unwrap_or(0) + 1).wait()?;
        context.emit((number % KEYS, count))
    }
}

pub(crate) fn count_job(
    numbers: Numbers,
    trap: Arc<Trap>,
    sink: impl Sink<(u64, u64)>,
) -> JobGraph {
    let graph = JobGraph::new("count");
    graph
        .source("numbers", numbers)
        .unwrap()
        .key_by(|number: &u64| number % KEYS)
        .process("count", move |store| {
            Ok(Count { count: store.value("count")?, trap: trap.clone() })
        })
        .unwrap()
        .sink("counts", sink)
        .unwrap();
    graph
}

/// Checkpoints every few milliseconds, restarts without delay.
pub(crate) fn config(parallelism: u16, storage: &Storage) -> JobConfig {
    let mut config =
        JobConfig { parallelism, storage: storage.clone(), batch_size: 64, ..JobConfig::default() };
    config.checkpoints.interval = Duration::from_millis(5);
    config.restart.delay = Duration::ZERO;
    config.restart.max_restarts = 10;
    config
}

/// Every key's counts are 1, 2, 3, ... up to the number of its records, each once.
pub(crate) fn assert_exactly_once(mut counts: Vec<(u64, u64)>, total: u64) {
    counts.sort_unstable();
    let mut per_key = BTreeMap::<u64, u64>::new();
    for number in 0..total {
        *per_key.entry(number % KEYS).or_default() += 1;
    }
    let expected: Vec<_> = per_key
        .into_iter()
        .flat_map(|(key, count)| (1..=count).map(move |count| (key, count)))
        .collect();
    assert_eq!(counts.len(), expected.len(), "number of results");
    assert!(counts == expected, "some count is missing or doubled");
}
