//! The word count on the adapter.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use timely::Config;
use weir_engine_timely::{Job, JobSettings, Keyed, KeyedContext, KeyedLogic, Stateful};
use weir_state_api::opendal::{Operator, services};
use weir_state_api::{Environment, Result, SystemClock, TokioSpawner, ValueState};

use crate::Failure;
use crate::cpu;
use crate::input::{Input, Words};

struct Count {
    counts: ValueState<u64>,
    total: Arc<AtomicU64>,
}

impl KeyedLogic for Count {
    type Key = String;
    type Record = String;
    type Out = ();
    type Timer = ();

    async fn process(&self, _: &String, context: &mut impl KeyedContext<Self>) -> Result<()> {
        let count = self.counts.update(context, |old| old.unwrap_or(0) + 1).await?;
        self.total.fetch_add(count, Relaxed);
        Ok(())
    }
}

/// What a run is like.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) input: Input,
    pub(crate) workers: usize,
    pub(crate) keyed: Keyed,
    /// From one checkpoint to the next.
    pub(crate) interval: Duration,
}

/// What has become of it.
pub(crate) struct Outcome {
    /// The sum of all counts, as each is reached: depends on every update.
    pub(crate) sum: u64,
    pub(crate) checkpoints: u64,
    /// From the first word to the end of the last checkpoint.
    pub(crate) time: Duration,
    /// The processor's time of the workers and of all other threads, as far as the system tells it.
    pub(crate) workers_busy: Option<Duration>,
    pub(crate) others_busy: Option<Duration>,
}

/// Files in a folder.
pub(crate) fn files(folder: &Path) -> Result<Operator, Failure> {
    let root = folder.to_string_lossy();
    let files = services::Fs::default().root(&root).atomic_write_dir(&format!("{root}/.staging"));
    Ok(Operator::new(files)?)
}

impl Program {
    /// Runs it with its checkpoints in a store, from the latest of them.
    pub(crate) fn run(self, store: Operator) -> Result<Outcome, Failure> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let spawner = Arc::new(TokioSpawner::new(runtime.handle().clone()));
        let environment = Environment::new(Arc::new(SystemClock), store, spawner);
        let settings = JobSettings::new("word-count", environment).with_interval(self.interval);
        let total = Arc::new(AtomicU64::new(0));
        let of_workers = total.clone();
        let Program { input, workers, keyed, .. } = self;
        let process_before = cpu::of_process();
        let guards = timely::execute(Config::process(workers), move |worker| {
            let job = Job::join(worker, settings.clone())?;
            job.dataflow(worker, |scope| {
                let step = workers as u64;
                let words = job.source(scope, "words", workers as u32, |split, offset| {
                    Ok(Words::new(input, offset.max(u64::from(split)), step))
                });
                let total = of_workers.clone();
                words.stateful(
                    &job,
                    keyed.clone(),
                    |word| word,
                    |store| Ok(Count { counts: store.value("count")?, total }),
                );
            })?;
            let begun = Instant::now();
            let report = job.run(worker)?;
            Ok::<_, weir_state_api::Error>((report.completed, begun.elapsed(), cpu::of_thread()))
        })?;
        let (mut checkpoints, mut time) = (0, Duration::ZERO);
        let mut workers_busy = Some(Duration::ZERO);
        for worker in guards.join() {
            let (completed, took, busy) = worker??;
            checkpoints = completed;
            time = time.max(took);
            workers_busy = workers_busy.zip(busy).map(|(all, one)| all + one);
        }
        let process = cpu::of_process().zip(process_before).map(|(now, before)| now - before);
        let others_busy =
            process.zip(workers_busy).map(|(all, workers)| all.saturating_sub(workers));
        Ok(Outcome { sum: total.load(Relaxed), checkpoints, time, workers_busy, others_busy })
    }
}
