//! A job on a worker: joined, built, run.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use timely::dataflow::Scope;
use timely::worker::Worker;
use weir_state_api::{
    CheckpointId, Error, ErrorKind, MaxParallelism, Result, Spawned, Spawner, block_on,
};

use crate::agreement::all_gather;
use crate::checkpoint::{CheckpointStore, Collector, JobCheckpoint, Run};
use crate::control::{Coordinator, Failure, Report, Shared, connect};
use crate::panics::{caught, panic_error};
use crate::settings::JobSettings;
use crate::time::EpochTime;

/// A job on one worker: what operators, sources and sinks are built with.
///
/// All workers of all processes [`join`](Job::join) it, build the same dataflow, and
/// [`run`](Job::run) it. See the crate's documentation for an example.
pub struct Job {
    shared: Rc<Shared>,
    worker: Worker,
    has_run: bool,
}

/// What has become of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobReport {
    /// The checkpoint that the job went on from.
    pub restored: Option<CheckpointId>,
    /// Checkpoints completed.
    pub completed: u64,
    /// The latest of them; it covers all input.
    pub latest: Option<CheckpointId>,
}

/// What each worker says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Introduction {
    job: String,
    max_parallelism: MaxParallelism,
}

/// What worker 0 has found in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Opening {
    run: Run,
    name: String,
    restored: Option<CheckpointId>,
}

impl Job {
    /// Joins the job; every worker of every process must call it, before it builds the job's dataflow.
    /// It runs the worker until all have joined.
    ///
    /// Worker 0 claims the store for this run, which fences all former ones, and chooses the latest
    /// complete checkpoint; all others look whether their store shows the same.
    ///
    /// # Errors
    /// The same on every worker. [`InvalidUsage`](ErrorKind::InvalidUsage) when workers disagree about
    /// job, max parallelism or store, or when there are more workers than key groups;
    /// [`Incompatible`](ErrorKind::Incompatible) when the store or the checkpoint is another job's, or
    /// has another max parallelism; [`Corrupt`](ErrorKind::Corrupt) when the latest checkpoint's record
    /// is damaged; those of the store.
    pub fn join(worker: &mut Worker, settings: JobSettings) -> Result<Job> {
        let (index, peers) = (worker.index(), worker.peers());
        let mine =
            Introduction { job: settings.job.clone(), max_parallelism: settings.max_parallelism };
        check_introductions(&all_gather(worker, mine))?;

        let spawner = settings.environment.spawner.clone();
        let store = CheckpointStore::new(settings.environment.store.clone());
        let mut found = None;
        let mut offer = None;
        if index == 0 {
            let opened = wait_on(&*spawner, open_store(store.clone(), settings.job.clone()));
            offer = Some(match opened {
                Ok((opening, collector, adopted)) => {
                    found = Some((collector, adopted));
                    Ok(opening)
                }
                Err(error) => Err(Failure::new(0, &error)),
            });
        }
        let opening = all_gather(worker, offer).into_iter().flatten().next();
        let opening = match opening {
            Some(Ok(opening)) => opening,
            Some(Err(failure)) => return Err(failure.to_error()),
            None => return Err(Error::new(ErrorKind::Closed, "worker 0 has said nothing")),
        };
        let restored = wait_on(&*spawner, restore(store, settings.clone(), opening.clone()));
        let verdict = restored.as_ref().map(|_| ()).map_err(|error| Failure::new(index, error));
        for verdict in all_gather(worker, verdict) {
            verdict.map_err(|failure| failure.to_error())?;
        }
        let restored = restored?.map(Rc::new);

        let coordinator = found.map(|(collector, adopted)| {
            let (run, name) = (opening.run, opening.name.clone());
            let settings = settings.clone();
            Coordinator::new(settings, run, name, peers, collector, adopted, restored.clone())
        });
        let shared = Shared::new(index, peers, settings, opening.run, restored);
        connect(worker, &shared, coordinator);
        Ok(Job { shared, worker: worker.clone(), has_run: false })
    }

    /// The checkpoint that the job goes on from; `None` at its first start.
    pub fn restored(&self) -> Option<CheckpointId> {
        self.shared.restored.as_ref().map(|checkpoint| checkpoint.id)
    }

    /// Builds a dataflow of the job, as [`Worker::dataflow`] does. A panic in `build` is an error of the
    /// job, on all workers of all processes: without this it ends the thread, and with it timely
    /// dataflow's connections between processes.
    ///
    /// # Errors
    /// [`UserFunction`](ErrorKind::UserFunction) when `build` panics. [`run`](Job::run) then has the same
    /// error; it need not be called.
    pub fn dataflow<R>(
        &self,
        worker: &mut Worker,
        build: impl FnOnce(Scope<'_, EpochTime>) -> R,
    ) -> Result<R> {
        caught(|| Ok(worker.dataflow(build))).inspect_err(|error| self.shared.fail(error))
    }

    pub(crate) fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }

    /// Runs the job on this worker until it has ended: all sources have read all input, and a last
    /// checkpoint covers it; or until it has failed anywhere.
    ///
    /// # Errors
    /// The first failure of any worker, the same on all: an operator that failed, a restore that was
    /// refused, checkpoints that failed too often, a newer run that owns the store
    /// ([`Fenced`](ErrorKind::Fenced)), user code that panicked
    /// ([`UserFunction`](ErrorKind::UserFunction)). Then the dataflows with operators of the job are
    /// dropped. Recovery is a new start of all processes. The death of a process is a panic on the
    /// others: timely dataflow ends them.
    pub fn run(mut self, worker: &mut Worker) -> Result<JobReport> {
        self.has_run = true;
        let shared = self.shared.clone();
        while shared.has_outstanding_work() && !shared.is_failing() {
            step(worker, &shared);
        }
        if !shared.is_failing() {
            let operators = shared.operators();
            shared.report(Report::Ready { worker: shared.worker as u32, operators });
        }
        while !shared.has_failed() && !shared.is_finished() {
            step(worker, &shared);
        }
        // Output of the last checkpoint is still being committed.
        while shared.has_outstanding_work() && !shared.is_failing() {
            step(worker, &shared);
        }
        if shared.is_failing() {
            drop_dataflows(worker, &shared);
        }
        let (completed, latest) = shared.completed();
        match shared.failure() {
            Some(error) => Err(error),
            None => Ok(JobReport { restored: self.restored(), completed, latest }),
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The others wait for this worker.
        if self.has_run {
            return;
        }
        let panics = std::thread::panicking();
        self.shared.fail(&if panics {
            Error::new(ErrorKind::UserFunction, "user code panicked before the job ran")
                .advice("see the panic's message, in the output of that worker's process")
        } else {
            Error::new(ErrorKind::Closed, "the job was dropped before it ran")
        });
        drop_dataflows(&mut self.worker, &self.shared);
        if panics {
            take_leave(&mut self.worker, &self.shared);
        }
    }
}

/// Runs a worker whose thread is about to end until all workers know why, and need nothing more of it.
fn take_leave(worker: &mut Worker, shared: &Shared) {
    let leave = || {
        while shared.is_connected(worker) {
            worker.step_or_park(None);
        }
    };
    if catch_unwind(AssertUnwindSafe(leave)).is_err() {
        tracing::warn!(worker = shared.worker, "the other processes are gone");
    }
}

/// A panic of an operator, whoever wrote it, ends the job on all workers. The worker that is left
/// has to say so.
fn step(worker: &mut Worker, shared: &Shared) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| worker.step_or_park(None))) else { return };
    shared.fail(&panic_error(&*panic));
    if !drop_dataflows(worker, shared) {
        // It is not an operator of the job: the connection to a process that has died is broken.
        resume_unwind(panic);
    }
}

/// Nobody waits for what never comes: operators of others may hold times for ever. Answers whether any
/// dataflow of the job was left.
fn drop_dataflows(worker: &mut Worker, shared: &Shared) -> bool {
    let left = shared.take_dataflows();
    for dataflow in &left {
        worker.drop_dataflow(*dataflow);
    }
    !left.is_empty()
}

/// Waits for work that the spawner does: the store's client may only work there.
pub(crate) fn wait_on<T: Send + 'static>(
    spawner: &dyn Spawner,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    block_on(Spawned::future(spawner, work))
}

fn check_introductions(all: &[Introduction]) -> Result<()> {
    let Some(first) = all.first() else { return Ok(()) };
    let differ = |what: &str, worker: usize, others: &dyn fmt::Debug, own: &dyn fmt::Debug| {
        Err(Error::new(
            ErrorKind::InvalidUsage,
            format!("workers disagree about the {what}: worker 0 has {own:?}, worker {worker} {others:?}"),
        )
        .advice("start all processes with the same settings"))
    };
    for (worker, other) in all.iter().enumerate() {
        if other.job != first.job {
            return differ("job", worker, &other.job, &first.job);
        }
        let (max, others_max) = (first.max_parallelism.get(), other.max_parallelism.get());
        if max != others_max {
            return differ("max parallelism", worker, &others_max, &max);
        }
    }
    if all.len() > usize::from(first.max_parallelism.get()) {
        return Err(Error::new(
            ErrorKind::InvalidUsage,
            format!("{} workers share {} key groups", all.len(), first.max_parallelism),
        )
        .advice("start at most as many workers as there are key groups"));
    }
    Ok(())
}

/// Claims the store, then looks for what former runs have completed: in this order, so that either
/// the checkpoint is seen here or its run learns that it is fenced.
async fn open_store(
    store: CheckpointStore,
    job: String,
) -> Result<(Opening, Collector, Vec<CheckpointId>)> {
    let name = uuid::Uuid::new_v4().to_string();
    let run = store.claim_run(&job, &name).await?;
    let mut collector = Collector::new(store.clone(), run);
    let restored = store.complete().await?.into_iter().next_back();
    let adopted = collector.adopt_all().await?;
    Ok((Opening { run, name, restored }, collector, adopted))
}

/// What every worker reads for itself.
async fn restore(
    store: CheckpointStore,
    settings: JobSettings,
    opening: Opening,
) -> Result<Option<JobCheckpoint>> {
    store.check_same_store(opening.run, &opening.name).await?;
    let Some(id) = opening.restored else { return Ok(None) };
    let checkpoint = store.read_for(id, &settings.job).await?;
    if checkpoint.max_parallelism != settings.max_parallelism {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!(
                "checkpoint {id} was taken with max parallelism {}, the job has {}",
                checkpoint.max_parallelism, settings.max_parallelism
            ),
        )
        .advice("keep the max parallelism for the life of the job's state"));
    }
    Ok(Some(checkpoint))
}
