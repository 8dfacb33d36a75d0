//! Running a job: attempts, recovery, the report.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use weir_state_api::{
    CheckpointId, Environment, Error, ErrorKind, KeyGroupRange, RestoreMode, Result, TokioSpawner,
};

use crate::checkpoint::{CheckpointStore, JobCheckpoint};
use crate::config::{JobConfig, RestoreFrom};
use crate::coordinator::Coordinator;
use crate::graph::JobGraph;
use crate::history::History;
use crate::report::JobReport;
use crate::task::{Attempt, Counters, Gate, NodeKind};

/// Runs a job to the end of its input, recovering from failures of its tasks.
///
/// Blocks the calling thread and runs an executor of its own for I/O, so call it from a thread that is
/// not a worker of an executor. A user function that never returns cannot be stopped: the job then
/// never ends, even when it fails.
///
/// All input read, a last checkpoint is taken and committed, so everything the sinks wrote is
/// published when this returns.
///
/// # Errors
/// The failure of a task or of checkpoints once the restart strategy is exhausted; at once when a
/// retry cannot help: [`InvalidUsage`](ErrorKind::InvalidUsage),
/// [`Incompatible`](ErrorKind::Incompatible), [`Corrupt`](ErrorKind::Corrupt),
/// [`NotFound`](ErrorKind::NotFound), [`Fenced`](ErrorKind::Fenced). Complete checkpoints stay
/// usable.
pub fn run(graph: &JobGraph, config: JobConfig) -> Result<JobReport> {
    // Validates parallelism against max parallelism before anything is touched.
    KeyGroupRange::of_subtask(config.max_parallelism, config.parallelism, 0)?;
    if config.batch_size == 0 || config.channel_capacity == 0 {
        return Err(Error::new(
            ErrorKind::InvalidUsage,
            "batch size and channel capacity must be at least 1",
        ));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("weir-io")
        .enable_all()
        .build()
        .map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the I/O threads cannot start").source(error)
        })?;
    Job { graph, config, runtime: runtime.handle().clone() }.run()
}

struct Job<'a> {
    graph: &'a JobGraph,
    config: JobConfig,
    runtime: tokio::runtime::Handle,
}

impl Job<'_> {
    fn run(&self) -> Result<JobReport> {
        let store = CheckpointStore::new(self.config.storage.operator.clone());
        let owner = uuid::Uuid::new_v4().simple().to_string();
        // Claim first, look second: what an older run completes after this look is fenced.
        let epoch = self.runtime.block_on(store.claim_epoch(&owner))?;
        let complete = self.runtime.block_on(store.complete())?;
        let start = self.starting_point(&store, &complete)?;
        if let (Some(start), RestoreMode::NoClaim) = (&start, self.config.restore_mode) {
            // Before anything of this run could push it out.
            self.runtime.block_on(store.keep(start.id))?;
        }
        let mut history = self.runtime.block_on(History::load(store, epoch, &complete))?;
        let restored_from = start.as_ref().map(|checkpoint| checkpoint.id);
        let counters = Arc::new(Counters::default());
        let begun = Instant::now();
        let mut restore_time = None;
        let mut restored = start.clone();
        loop {
            let attempt_begun = Instant::now();
            let on_running = || {
                if restore_time.is_none() && restored.is_some() {
                    restore_time = Some(attempt_begun.elapsed());
                }
            };
            let result = self.attempt(restored.clone(), counters.clone(), &mut history, on_running);
            let Err(error) = result else { break };
            restored = self.recover(error, &mut history, start.as_ref())?;
        }
        Ok(self.report(&history, &counters, restored_from, begun.elapsed(), restore_time))
    }

    /// Decides whether there is another attempt, and where it starts.
    fn recover(
        &self,
        mut error: Error,
        history: &mut History,
        start: Option<&Arc<JobCheckpoint>>,
    ) -> Result<Option<Arc<JobCheckpoint>>> {
        loop {
            if is_final(&error) || history.restarts >= self.config.restart.max_restarts {
                return Err(error);
            }
            history.restarts += 1;
            tracing::warn!(%error, restart = history.restarts, "the job recovers");
            std::thread::sleep(self.config.restart.delay);
            match self.runtime.block_on(history.recovery_point(start)) {
                Ok(restored) => return Ok(restored),
                Err(unreadable) => error = unreadable,
            }
        }
    }

    fn report(
        &self,
        history: &History,
        counters: &Counters,
        restored_from: Option<CheckpointId>,
        elapsed: Duration,
        restore_time: Option<Duration>,
    ) -> JobReport {
        JobReport {
            job: self.graph.name().into(),
            parallelism: self.config.parallelism,
            elapsed,
            records_read: counters.read.load(Relaxed),
            records_written: counters.written.load(Relaxed),
            records_late: counters.late.load(Relaxed),
            restored_from,
            restore_time,
            restarts: history.restarts,
            failed_checkpoints: history.failed,
            checkpoints: history.completed.clone(),
            unreadable: history.unreadable.clone(),
            objects: history.collector.counts(),
        }
    }

    /// The checkpoint to start from, of those that are complete.
    fn starting_point(
        &self,
        store: &CheckpointStore,
        complete: &[CheckpointId],
    ) -> Result<Option<Arc<JobCheckpoint>>> {
        let id = match (self.config.restore, complete.last()) {
            (RestoreFrom::Fresh, Some(&newest)) => {
                return Err(Error::new(
                    ErrorKind::InvalidUsage,
                    "the store holds complete checkpoints",
                )
                .object(CheckpointStore::directory(newest))
                .advice("restore the latest one, or give the new job an empty store"));
            }
            (RestoreFrom::Fresh, None) | (RestoreFrom::Latest, None) => return Ok(None),
            (RestoreFrom::Latest, Some(&newest)) => newest,
            (RestoreFrom::Checkpoint(id), _) => id,
        };
        // A damaged one is reported, not skipped.
        let checkpoint = self.runtime.block_on(store.read(id))?;
        self.check(&checkpoint)?;
        Ok(Some(Arc::new(checkpoint)))
    }

    fn check(&self, checkpoint: &JobCheckpoint) -> Result<()> {
        let refuse = |message: String, advice: &str| {
            Err(Error::new(ErrorKind::Incompatible, message)
                .object(format!("{}metadata", CheckpointStore::directory(checkpoint.id)))
                .advice(advice))
        };
        if checkpoint.job != self.graph.name() {
            return refuse(
                format!(
                    "the checkpoint belongs to job {:?}, this is {:?}",
                    checkpoint.job,
                    self.graph.name()
                ),
                "give each job a store of its own",
            );
        }
        let nodes = self.graph.nodes();
        let unknown = checkpoint
            .tasks
            .iter()
            .find(|task| !nodes.iter().any(|node| node.name() == task.operator));
        if let Some(task) = unknown {
            return refuse(
                format!(
                    "the checkpoint has state of operator {:?}, the job has none",
                    task.operator
                ),
                "name the operators as they were named when the checkpoint was taken",
            );
        }
        // Names alone could hide that a keyed operator has become something else.
        let swapped = checkpoint.tasks.iter().find(|task| {
            let keyed = nodes
                .iter()
                .any(|node| node.name() == task.operator && node.kind() == NodeKind::Keyed);
            keyed != task.keyed.is_some()
        });
        if let Some(task) = swapped {
            let (was, is) = match task.keyed {
                Some(_) => ("keyed", "not keyed"),
                None => ("not keyed", "keyed"),
            };
            return refuse(
                format!("operator {:?} was {was} in the checkpoint and is {is} now", task.operator),
                "name the operators as they were named when the checkpoint was taken",
            );
        }
        Ok(())
    }

    fn attempt(
        &self,
        restored: Option<Arc<JobCheckpoint>>,
        counters: Arc<Counters>,
        history: &mut History,
        on_running: impl FnOnce(),
    ) -> Result<()> {
        let (sender, messages) = std::sync::mpsc::channel();
        let name: Arc<str> = uuid::Uuid::new_v4().simple().to_string().into();
        history.collector.attempt_starts(name.clone());
        // What this run has completed itself is its own in any case.
        let own =
            |checkpoint: &Arc<JobCheckpoint>| checkpoint.id >= history.epoch.first_checkpoint();
        let restore_mode = match &restored {
            Some(checkpoint) if !own(checkpoint) => self.config.restore_mode,
            _ => RestoreMode::Claim,
        };
        let attempt = Attempt {
            name,
            epoch: history.epoch,
            parallelism: self.config.parallelism,
            max_parallelism: self.config.max_parallelism,
            batch_size: self.config.batch_size,
            channel_capacity: self.config.channel_capacity,
            backend: self.config.backend.clone(),
            environment: Environment::new(
                self.config.clock.clone(),
                history.store.operator().clone(),
                Arc::new(TokioSpawner::new(self.runtime.clone())),
            ),
            runtime: self.runtime.clone(),
            restored,
            restore_mode,
            messages: sender,
            gate: Arc::new(Gate::default()),
            counters,
        };
        let nodes = self.graph.nodes();
        for node in nodes.iter() {
            node.prepare(&attempt);
        }
        let mut tasks = Vec::new();
        let mut failure = None;
        'start: for node in nodes.iter() {
            for subtask in 0..attempt.parallelism {
                match node.start(&attempt, subtask) {
                    Ok(task) => tasks.push((node.kind(), task)),
                    Err(error) => {
                        failure = Some(error);
                        break 'start;
                    }
                }
            }
        }
        if let Some(error) = failure {
            attempt.gate.decide(false);
            for (_, task) in tasks {
                task.mailbox.cancel();
                drop(task.thread.join());
            }
            return Err(error);
        }
        Coordinator::new(self.graph.name(), &self.config, &attempt, tasks, messages, history)
            .run(on_running)
    }
}

/// Whether another attempt would fail the same way, or would do harm.
fn is_final(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidUsage
            | ErrorKind::Incompatible
            | ErrorKind::Corrupt
            | ErrorKind::NotFound
            | ErrorKind::Fenced
            | ErrorKind::Unsupported
    )
}
