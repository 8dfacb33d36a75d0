//! A job that counts numbers, with an input that can be held and a sink that can be looked at.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use timely::worker::Worker;
use weir_backend_heap::HeapBackendFactory;
use weir_engine_timely::{
    EpochTime, Job, JobReport, JobSettings, Keyed, KeyedContext, KeyedLogic, ReadState, SinkTo,
    Split, Stateful, TransactionalSink,
};
use weir_state_api::{
    BackendFactory, BoxFuture, CheckpointId, Environment, Error, ErrorKind, Millis, Result,
    ValueState,
};

pub(crate) const KEYS: u64 = 97;
pub(crate) const SPLITS: u32 = 3;

/// A number, and the split it is from.
pub(crate) type Number = (u64, u32);

/// What the test and all workers share.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) settings: JobSettings,
    pub(crate) backend: Arc<dyn BackendFactory>,
    /// How long reads wait for others.
    pub(crate) gather: Duration,
    pub(crate) output: Output,
    /// Numbers in each split.
    pub(crate) numbers: u64,
    /// Splits stop in the middle until this many checkpoints were committed, then the logic fails.
    pub(crate) fail_after: Option<u64>,
}

impl World {
    pub(crate) fn new(numbers: u64) -> Self {
        World::in_environment(numbers, Environment::in_memory())
    }

    pub(crate) fn in_environment(numbers: u64, environment: Environment) -> Self {
        World {
            settings: JobSettings::new("counting", environment)
                .with_interval(Duration::from_millis(2)),
            backend: Arc::new(HeapBackendFactory::default()),
            gather: Duration::from_millis(5),
            output: Output::default(),
            numbers,
            fail_after: None,
        }
    }

    /// Runs the job; the results of all workers.
    pub(crate) fn run(&self, workers: usize) -> Vec<Result<JobReport>> {
        self.run_with(workers, |world, _| world.settings.clone())
    }

    /// As [`run`](World::run), with settings of each worker's own.
    pub(crate) fn run_with(
        &self,
        workers: usize,
        settings: impl Fn(&World, usize) -> JobSettings + Send + Sync + 'static,
    ) -> Vec<Result<JobReport>> {
        let world = self.clone();
        let guards = timely::execute(timely::Config::process(workers), move |worker| {
            let settings = settings(&world, worker.index());
            let job = Job::join(worker, settings)?;
            world.build(worker, &job);
            job.run(worker)
        });
        let results = guards.unwrap().join();
        results.into_iter().map(|result| result.expect("no worker panics")).collect()
    }

    pub(crate) fn build(&self, worker: &mut Worker, job: &Job) {
        let world = self.clone();
        worker.dataflow::<EpochTime, _, _>(|scope| {
            let numbers = job.source(scope, "numbers", SPLITS, |split, next| {
                Ok(Numbers { split, next, world: world.clone() })
            });
            numbers
                .stateful(
                    job,
                    Keyed::new("count", world.backend.clone()).with_gather(world.gather),
                    |(number, _)| number,
                    |store| Ok(Count(store.value("count")?)),
                )
                .sink_to(job, "output", world.output.own());
        });
    }

    /// What any run must have committed: each key's counts, from one on.
    pub(crate) fn expected(&self) -> Vec<(u64, u64)> {
        let mut counts = BTreeMap::<u64, u64>::new();
        for split in 0..SPLITS {
            for next in 0..self.numbers {
                *counts.entry(key(split, next)).or_default() += 1;
            }
        }
        counts.into_iter().flat_map(|(key, n)| (1..=n).map(move |count| (key, count))).collect()
    }
}

fn key(split: u32, next: u64) -> u64 {
    (next + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(split + 7) % KEYS
}

pub(crate) const POISON: u64 = u64::MAX;

pub(crate) struct Numbers {
    pub(crate) split: u32,
    pub(crate) next: u64,
    pub(crate) world: World,
}

impl Split for Numbers {
    type Record = Number;

    fn read(&mut self, records: &mut Vec<Number>, limit: usize) -> Result<ReadState> {
        let end = self.world.numbers;
        let stop = match self.world.fail_after {
            Some(checkpoints) if self.next >= end / 2 => {
                if self.world.output.commits() < checkpoints {
                    return Ok(ReadState::Idle);
                }
                records.push((POISON, self.split));
                return Ok(ReadState::Idle);
            }
            Some(_) => end / 2,
            None => end,
        };
        let to = stop.min(self.next + (limit as u64).min(100));
        records.extend((self.next..to).map(|next| (key(self.split, next), self.split)));
        self.next = to;
        Ok(if to == end { ReadState::Ended } else { ReadState::More })
    }

    fn offset(&self) -> u64 {
        self.next
    }

    fn watermark(&self) -> Millis {
        self.next as Millis
    }
}

pub(crate) struct Count(ValueState<u64>);

impl KeyedLogic for Count {
    type Key = u64;
    type Record = Number;
    type Out = (u64, u64);
    type Timer = ();

    async fn process(
        &self,
        (number, _): &Number,
        context: &mut impl KeyedContext<Self>,
    ) -> Result<()> {
        if *number == POISON {
            return Err(Error::new(ErrorKind::UserFunction, "a poisoned number"));
        }
        let count = self.0.update(context, |old| old.unwrap_or(0) + 1).await?;
        context.emit((*number, count));
        Ok(())
    }
}

/// A sink in memory that survives its workers.
#[derive(Clone, Default)]
pub(crate) struct Output {
    open: Arc<Mutex<Vec<(u64, u64)>>>,
    state: Arc<Mutex<OutputState>>,
    commits: Arc<AtomicU64>,
}

#[derive(Default)]
struct OutputState {
    next: u64,
    prepared: BTreeMap<u64, Vec<(u64, u64)>>,
    committed: Vec<(u64, u64)>,
}

impl Output {
    /// What was committed, sorted.
    pub(crate) fn committed(&self) -> Vec<(u64, u64)> {
        let mut committed = self.state.lock().unwrap().committed.clone();
        committed.sort_unstable();
        committed
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(SeqCst)
    }

    /// What is prepared and not committed.
    pub(crate) fn pending(&self) -> usize {
        self.state.lock().unwrap().prepared.len()
    }

    /// Another worker's handle: a transaction of its own.
    pub(crate) fn own(&self) -> Self {
        Output { open: Arc::default(), ..self.clone() }
    }
}

impl OutputState {
    fn commit(&mut self, transaction: &[u8]) {
        let number = u64::from_le_bytes(transaction.try_into().unwrap());
        // Committing twice does nothing.
        self.committed.extend(self.prepared.remove(&number).unwrap_or_default());
    }
}

impl TransactionalSink for Output {
    type Record = (u64, u64);

    fn recover(&mut self, prepared: Vec<Vec<u8>>) -> BoxFuture<'static, Result<()>> {
        let mut state = self.state.lock().unwrap();
        prepared.iter().for_each(|transaction| state.commit(transaction));
        state.prepared.clear();
        Box::pin(async { Ok(()) })
    }

    fn write(&mut self, records: Vec<(u64, u64)>) -> Result<()> {
        self.open.lock().unwrap().extend(records);
        Ok(())
    }

    fn prepare(&mut self, _: CheckpointId) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        let records = std::mem::take(&mut *self.open.lock().unwrap());
        let mut state = self.state.lock().unwrap();
        state.next += 1;
        let number = state.next;
        state.prepared.insert(number, records);
        Box::pin(async move { Ok(Some(number.to_le_bytes().to_vec())) })
    }

    fn commit(&mut self, prepared: Vec<u8>) -> BoxFuture<'static, Result<()>> {
        self.state.lock().unwrap().commit(&prepared);
        self.commits.fetch_add(1, SeqCst);
        Box::pin(async { Ok(()) })
    }
}
