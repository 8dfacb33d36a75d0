//! The checkpoint coordinator of one attempt: triggers, collects, completes, gives up.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use weir_state_api::{CheckpointId, Error, ErrorKind, Result};

use crate::checkpoint::{CheckpointStore, JobCheckpoint, TaskSnapshot};
use crate::config::{CheckpointConfig, JobConfig};
use crate::history::History;
use crate::inbox::Control;
use crate::record::Barrier;
use crate::report::{CheckpointStats, Progress};
use crate::task::{Attempt, NodeKind, StartedTask, TaskId, TaskMessage};

/// How often waiting is interrupted to report progress.
const TICK: Duration = Duration::from_millis(100);

/// A checkpoint on its way.
struct Pending {
    id: CheckpointId,
    begun: Instant,
    /// It covers all input: the job ends once it is complete.
    last: bool,
    parts: HashMap<TaskId, TaskSnapshot>,
    longest_hold: Duration,
}

/// Runs one attempt from its first message to its end.
pub(crate) struct Coordinator<'a> {
    job: &'a str,
    config: &'a JobConfig,
    attempt: &'a Attempt,
    tasks: Vec<(NodeKind, StartedTask)>,
    messages: Receiver<TaskMessage>,
    history: &'a mut History,
    pending: Option<Pending>,
    last_trigger: Instant,
    failures_in_a_row: u32,
    sources_reading: usize,
    last_was_tried: bool,
    finishing: bool,
    ended: usize,
}

impl<'a> Coordinator<'a> {
    pub(crate) fn new(
        job: &'a str,
        config: &'a JobConfig,
        attempt: &'a Attempt,
        tasks: Vec<(NodeKind, StartedTask)>,
        messages: Receiver<TaskMessage>,
        history: &'a mut History,
    ) -> Self {
        let sources_reading = tasks.iter().filter(|(kind, _)| *kind == NodeKind::Source).count();
        Coordinator {
            job,
            config,
            attempt,
            tasks,
            messages,
            history,
            pending: None,
            last_trigger: Instant::now(),
            failures_in_a_row: 0,
            sources_reading,
            last_was_tried: false,
            finishing: false,
            ended: 0,
        }
    }

    /// Runs until all tasks have ended. `on_running` is called once all have restored their state.
    pub(crate) fn run(mut self, on_running: impl FnOnce()) -> Result<()> {
        let result = self.wait_until_ready().and_then(|()| {
            on_running();
            self.last_trigger = Instant::now();
            self.attempt.gate.decide(true);
            self.supervise()
        });
        if result.is_err() {
            self.attempt.gate.decide(false);
            self.tasks.iter().for_each(|(_, task)| task.mailbox.cancel());
        }
        for (_, task) in self.tasks {
            // Panics were caught inside and have been reported as messages.
            drop(task.thread.join());
        }
        result
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let mut ready = 0;
        while ready < self.tasks.len() {
            match self.messages.recv() {
                Ok(TaskMessage::Ready(task)) => {
                    tracing::debug!(%task, "restored");
                    ready += 1;
                }
                Ok(TaskMessage::Ended { result: Err(error), .. }) => return Err(error),
                Ok(_) => {}
                Err(_) => return Err(lost()),
            }
        }
        Ok(())
    }

    fn supervise(&mut self) -> Result<()> {
        while self.ended < self.tasks.len() {
            match self.messages.recv_timeout(self.patience()) {
                Ok(message) => self.message(message)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(lost()),
            }
            self.tick()?;
        }
        self.report_progress()
    }

    fn checkpoints(&self) -> &CheckpointConfig {
        &self.config.checkpoints
    }

    /// How long to wait for a message before something is due.
    fn patience(&self) -> Duration {
        let until_due = match &self.pending {
            Some(pending) => self.checkpoints().timeout.saturating_sub(pending.begun.elapsed()),
            None => self.checkpoints().interval.saturating_sub(self.last_trigger.elapsed()),
        };
        until_due.min(TICK)
    }

    fn tick(&mut self) -> Result<()> {
        if let Some(pending) = &self.pending {
            if pending.begun.elapsed() >= self.checkpoints().timeout {
                let waiting = self.tasks.len() - pending.parts.len();
                let error = Error::new(
                    ErrorKind::Unavailable,
                    format!("{waiting} of {} tasks did not answer in time", self.tasks.len()),
                )
                .object(CheckpointStore::directory(pending.id))
                .advice("raise the timeout, or see what holds the operators up");
                self.give_up(&error)?;
            }
        } else if !self.finishing {
            let all_read = self.sources_reading == 0;
            // The last checkpoint comes at once; if it fails, the store gets time to recover.
            let first_last = all_read && !self.last_was_tried;
            if first_last || self.last_trigger.elapsed() >= self.checkpoints().interval {
                self.last_was_tried = all_read;
                self.trigger(all_read);
            }
        }
        self.report_progress()
    }

    fn report_progress(&self) -> Result<()> {
        let Some(on_progress) = &self.config.on_progress else { return Ok(()) };
        let told = catch_unwind(AssertUnwindSafe(|| {
            on_progress(&Progress {
                records_read: self.attempt.counters.read.load(Relaxed),
                records_written: self.attempt.counters.written.load(Relaxed),
                checkpoints: self.history.completed.len() as u64,
                failed_checkpoints: self.history.failed,
                latest: self.history.retained.back().copied(),
                last_checkpoint: self.history.completed.last().copied(),
                restarts: self.history.restarts,
                objects: self.history.collector.counts(),
            });
        }));
        told.map_err(|_| Error::new(ErrorKind::InvalidUsage, "the progress callback panicked"))
    }

    fn post(&self, to: impl Fn(NodeKind) -> bool, control: Control) {
        for (_, task) in self.tasks.iter().filter(|(kind, _)| to(*kind)) {
            task.mailbox.post(control);
        }
    }

    fn trigger(&mut self, last: bool) {
        let id = self.history.next_id;
        self.history.next_id = CheckpointId(id.0 + 1);
        self.last_trigger = Instant::now();
        self.pending = Some(Pending {
            id,
            begun: self.last_trigger,
            last,
            parts: HashMap::new(),
            longest_hold: Duration::ZERO,
        });
        tracing::debug!(checkpoint = id.0, last, "triggered");
        let reuse_from = self.history.collector.begin(id);
        let barrier = Barrier { checkpoint: id, reuse_from };
        self.post(|kind| kind == NodeKind::Source, Control::Trigger(barrier));
    }

    fn message(&mut self, message: TaskMessage) -> Result<()> {
        match message {
            TaskMessage::Ready(_) => Ok(()),
            TaskMessage::InputRead(task) => {
                tracing::debug!(%task, "all input read");
                self.sources_reading -= 1;
                Ok(())
            }
            TaskMessage::Ended { result: Err(error), task } => {
                tracing::debug!(%task, %error, "failed");
                Err(error)
            }
            TaskMessage::Ended { .. } => {
                self.ended += 1;
                Ok(())
            }
            TaskMessage::Snapshot { task, checkpoint, result, held } => {
                self.part(task, checkpoint, result, held)
            }
        }
    }

    fn part(
        &mut self,
        task: TaskId,
        checkpoint: CheckpointId,
        result: Result<Box<TaskSnapshot>>,
        held: Duration,
    ) -> Result<()> {
        let pending = self.pending.as_mut().filter(|pending| pending.id == checkpoint);
        let Some(pending) = pending else {
            // Late news of a checkpoint that was given up; what was written meanwhile is garbage.
            self.history.collector.given_up(checkpoint);
            return Ok(());
        };
        match result {
            Err(error) => self.give_up(&error),
            Ok(part) => {
                pending.longest_hold = pending.longest_hold.max(held);
                pending.parts.insert(task, *part);
                if pending.parts.len() == self.tasks.len() { self.complete() } else { Ok(()) }
            }
        }
    }

    fn give_up(&mut self, error: &Error) -> Result<()> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        tracing::warn!(checkpoint = pending.id.0, %error, "checkpoint given up");
        self.history.failed += 1;
        self.history.collector.given_up(pending.id);
        self.failures_in_a_row += 1;
        self.post(|_| true, Control::Abort(pending.id));
        if self.failures_in_a_row > self.checkpoints().tolerable_failures {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("{} checkpoints failed in a row", self.failures_in_a_row),
            )
            .source(error.to_string()));
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let mut parts: Vec<_> = pending.parts.into_values().collect();
        parts.sort_by(|a, b| (&a.operator, a.subtask).cmp(&(&b.operator, b.subtask)));
        let checkpoint = JobCheckpoint {
            job: self.job.into(),
            id: pending.id,
            attempt: self.attempt.name.to_string(),
            parallelism: self.attempt.parallelism,
            finished: pending.last,
            tasks: parts,
        };
        let committed = self.history.collector.admit(&checkpoint).and_then(|new_bytes| {
            let commit = self.history.store.commit(&checkpoint, self.history.epoch);
            self.attempt.runtime.block_on(commit).map(|()| new_bytes)
        });
        let new_bytes = match committed {
            Ok(new_bytes) => new_bytes,
            // Going on could commit twice or lose: only a fresh look at the store can tell.
            Err(error) if matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Indeterminate) => {
                return Err(error);
            }
            Err(error) => {
                self.pending = Some(Pending { parts: HashMap::new(), ..pending });
                return self.give_up(&error);
            }
        };
        self.failures_in_a_row = 0;
        let stats = CheckpointStats {
            id: pending.id,
            duration: pending.begun.elapsed(),
            longest_hold: pending.longest_hold,
            bytes: checkpoint.total_bytes(),
            new_bytes,
        };
        let CheckpointStats { duration, bytes, .. } = stats;
        tracing::info!(checkpoint = stats.id.0, ?duration, bytes, new_bytes, "complete");
        self.history.completed.push(stats);
        self.history.retained.push_back(checkpoint.id);
        self.history.collector.completed(&checkpoint);
        self.post(|_| true, Control::Complete(pending.id));
        self.subsume();
        if pending.last {
            self.finishing = true;
            self.post(|kind| kind == NodeKind::Source, Control::Finish);
        }
        Ok(())
    }

    fn subsume(&mut self) {
        while self.history.retained.len() > self.checkpoints().retained.max(1) {
            if let Some(oldest) = self.history.retained.pop_front() {
                self.post(|_| true, Control::Subsumed(oldest));
                self.history.collector.subsume(oldest);
            }
        }
        if let Err(error) = self.attempt.runtime.block_on(self.history.collector.collect()) {
            // The next collection finds what is left.
            tracing::warn!(%error, "collection failed");
        }
        let counts = self.history.collector.counts();
        tracing::debug!(?counts, "collected");
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Closed, "all tasks of the job are gone")
}
