//! The coordinator of checkpoints: triggers, collects, completes, gives up. On worker 0.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use weir_state_api::{CheckpointId, Error, ErrorKind, Result, Spawned};

use super::message::{Begun, Failure, News, Operator, Report, Role};
use crate::checkpoint::{Collector, JobCheckpoint, Run, TaskPart, TaskSnapshot, checkpoint_folder};
use crate::settings::JobSettings;

/// When nothing but a report can change anything.
const NO_HURRY: Duration = Duration::from_secs(1);

/// A checkpoint on its way.
#[derive(Debug)]
struct Pending {
    begun: Begun,
    since: Instant,
    parts: BTreeMap<(String, u32), TaskPart>,
}

/// What the collector is away for.
#[derive(Debug)]
enum Errand {
    Commit(Begun, Spawned<(Collector, Result<()>)>),
    Collect(Spawned<(Collector, Result<()>)>),
}

/// Decides about checkpoints. Its input and output are plain values; it is moved by calls.
#[derive(Debug)]
pub(crate) struct Coordinator {
    settings: JobSettings,
    run: Run,
    /// The run's name.
    name: String,
    peers: usize,
    /// What was restored: all its operators must be there.
    restored: Option<Rc<JobCheckpoint>>,
    operators: Vec<Operator>,
    ready: BTreeMap<u32, Vec<Operator>>,
    /// Workers whose sources have not read everything.
    reading: usize,
    collector: Option<Collector>,
    errand: Option<Errand>,
    pending: Option<Pending>,
    last_begun: Instant,
    last_was_tried: bool,
    next_epoch: u64,
    failures_in_a_row: u32,
    retained: VecDeque<CheckpointId>,
    started: bool,
    over: bool,
    news: Vec<News>,
}

impl Coordinator {
    /// The coordinator of a run, with the complete checkpoints that former runs have left.
    pub(crate) fn new(
        settings: JobSettings,
        run: Run,
        name: String,
        peers: usize,
        collector: Collector,
        adopted: Vec<CheckpointId>,
        restored: Option<Rc<JobCheckpoint>>,
    ) -> Self {
        Coordinator {
            settings,
            run,
            name,
            peers,
            restored,
            operators: Vec::new(),
            ready: BTreeMap::new(),
            reading: peers,
            collector: Some(collector),
            errand: None,
            pending: None,
            last_begun: Instant::now(),
            last_was_tried: false,
            next_epoch: 0,
            failures_in_a_row: 0,
            retained: adopted.into(),
            started: false,
            over: false,
            news: Vec::new(),
        }
    }

    /// What has been decided since the last call.
    pub(super) fn news(&mut self) -> impl Iterator<Item = News> + use<'_> {
        self.news.drain(..)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// How long it can wait for reports before something is due.
    pub(super) fn patience(&self) -> Duration {
        match &self.pending {
            _ if !self.started || self.errand.is_some() => NO_HURRY,
            Some(pending) => self.settings.timeout.saturating_sub(pending.since.elapsed()),
            None => self.settings.interval.saturating_sub(self.last_begun.elapsed()),
        }
    }

    pub(super) fn take_report(&mut self, report: Report) {
        match report {
            Report::Ready { worker, operators } => {
                self.ready.insert(worker, operators);
                if self.ready.len() == self.peers {
                    self.start();
                }
            }
            Report::InputEnded { .. } => self.reading = self.reading.saturating_sub(1),
            Report::Snapshot { worker, operator, epoch, part } => {
                self.take_part(worker, operator, epoch, part);
            }
            Report::Failed(failure) => self.fail(failure),
            Report::Congestion { worker, congested } => {
                self.news.push(News::Congestion { worker, congested });
            }
        }
    }

    fn start(&mut self) {
        if let Err(error) = self.check_operators() {
            return self.fail(Failure::new(0, &error));
        }
        let of_first = self.ready.first_key_value();
        self.operators = of_first.map_or_else(Vec::new, |(_, operators)| operators.clone());
        // A worker without splits of its own says as well when it has read them all.
        let reads = self.operators.iter().any(|known| matches!(known.role, Role::Source { .. }));
        self.reading = if reads { self.peers } else { 0 };
        self.started = true;
        self.last_begun = Instant::now();
        self.news.push(News::Start);
    }

    /// All workers have built the same, and what the checkpoint holds is there.
    fn check_operators(&self) -> Result<()> {
        let Some((first, operators)) = self.ready.first_key_value() else { return Ok(()) };
        if let Some((other, _)) = self.ready.iter().find(|(_, others)| *others != operators) {
            return Err(Error::new(
                ErrorKind::InvalidUsage,
                format!(
                    "workers {first} and {other} have built different operators, or sources with \
                     different numbers of splits"
                ),
            )
            .advice("build the same dataflow on every worker"));
        }
        let tasks = self.restored.as_ref().map_or(&[][..], |checkpoint| &checkpoint.tasks);
        for task in tasks {
            let name = &task.operator;
            let what = match operators.iter().find(|known| known.name == *name) {
                Some(known) if known.role.makes(&task.part) => continue,
                Some(known) => format!("it is a {} now", known.role.name()),
                None => "the job has none of that name".into(),
            };
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!("the checkpoint has state of operator {name:?}: {what}"),
            )
            .advice("keep the names of operators, or start in another folder"));
        }
        Ok(())
    }

    /// Does what is due. `waker` is called when background work has ended.
    pub(super) fn advance(&mut self, waker: &Waker) {
        self.finish_errand(waker);
        if !self.started || self.over || self.errand.is_some() {
            return;
        }
        if let Some(pending) = &self.pending {
            let (begun, since) = (pending.begun, pending.since);
            if pending.parts.len() == self.operators.len() * self.peers {
                self.complete(waker);
            } else if since.elapsed() >= self.settings.timeout {
                let error = Error::new(
                    ErrorKind::Unavailable,
                    "some operators did not acknowledge the checkpoint in time",
                )
                .object(checkpoint_folder(begun.id))
                .advice("raise the timeout, or see what holds the operators up");
                self.give_up(&error);
            }
            return;
        }
        let last = self.reading == 0;
        // The last checkpoint comes at once; if it fails, the store gets time to recover.
        let at_once = last && !self.last_was_tried;
        if at_once || self.last_begun.elapsed() >= self.settings.interval {
            self.last_was_tried = last;
            self.begin(last);
        }
    }

    fn begin(&mut self, last: bool) {
        let Some(collector) = &mut self.collector else { return };
        let epoch = self.next_epoch;
        let id = self.run.checkpoint(epoch);
        let begun = Begun { epoch, id, reuse_from: collector.begin(id), last };
        self.next_epoch += 1;
        self.last_begun = Instant::now();
        tracing::debug!(checkpoint = id.0, last, "begun");
        self.pending = Some(Pending { begun, since: self.last_begun, parts: BTreeMap::new() });
        self.news.push(News::Begin(begun));
    }

    fn take_part(
        &mut self,
        worker: u32,
        operator: String,
        epoch: u64,
        part: std::result::Result<TaskPart, Failure>,
    ) {
        let pending = self.pending.as_mut().filter(|pending| pending.begun.epoch == epoch);
        match (pending, part) {
            (Some(pending), Ok(part)) => {
                pending.parts.insert((operator, worker), part);
            }
            (Some(_), Err(failure)) => self.give_up(&failure.to_error()),
            (None, _) => {
                // Late: what was written for a checkpoint that had been given up is garbage.
                if let Some(collector) = &mut self.collector {
                    collector.given_up(self.run.checkpoint(epoch));
                }
            }
        }
    }

    fn give_up(&mut self, error: &Error) {
        let Some(Pending { begun, .. }) = self.pending.take() else { return };
        tracing::warn!(checkpoint = begun.id.0, %error, "checkpoint given up");
        if let Some(collector) = &mut self.collector {
            collector.given_up(begun.id);
        }
        self.news.push(News::Aborted { epoch: begun.epoch, id: begun.id });
        self.failures_in_a_row += 1;
        if self.failures_in_a_row > self.settings.tolerable_failures {
            let error = Error::new(
                error.kind(),
                format!("{} checkpoints failed in a row", self.failures_in_a_row),
            )
            .source(error.to_string());
            self.fail(Failure::new(0, &error));
        }
    }

    fn complete(&mut self, waker: &Waker) {
        let Some((pending, mut collector)) = self.pending.take().zip(self.collector.take()) else {
            return;
        };
        let tasks = pending.parts.into_iter();
        let checkpoint = JobCheckpoint {
            job: self.settings.job.clone(),
            id: pending.begun.id,
            run: self.name.clone(),
            workers: self.peers as u32,
            max_parallelism: self.settings.max_parallelism,
            finished: pending.begun.last,
            tasks: tasks
                .map(|((operator, worker), part)| TaskSnapshot { operator, worker, part })
                .collect(),
        };
        let commit = Spawned::future(&*self.settings.environment.spawner, async move {
            let committed = collector.commit(&checkpoint).await;
            Ok((collector, committed))
        });
        self.errand = Some(Errand::Commit(pending.begun, commit));
        self.finish_errand(waker);
    }

    fn finish_errand(&mut self, waker: &Waker) {
        let mut context = Context::from_waker(waker);
        while let Some(errand) = &mut self.errand {
            let (Errand::Commit(_, work) | Errand::Collect(work)) = errand;
            let Poll::Ready(done) = Pin::new(work).poll(&mut context) else { return };
            let errand = self.errand.take();
            let (collector, result) = match done {
                Ok((collector, result)) => (collector, result),
                Err(error) => return self.fail(Failure::new(0, &error)),
            };
            self.collector = Some(collector);
            match (errand, result) {
                (Some(Errand::Commit(begun, _)), result) => self.committed(begun, result),
                (_, Err(error)) => tracing::warn!(%error, "collection failed; it is tried again"),
                (_, Ok(())) => {}
            }
        }
    }

    fn committed(&mut self, begun: Begun, result: Result<()>) {
        if let Err(error) = result {
            // Going on could commit twice or lose: only a fresh look at the store can tell.
            if matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Indeterminate) {
                return self.fail(Failure::new(0, &error));
            }
            self.pending = Some(Pending { begun, since: self.last_begun, parts: BTreeMap::new() });
            return self.give_up(&error);
        }
        tracing::debug!(checkpoint = begun.id.0, "complete");
        self.failures_in_a_row = 0;
        self.news.push(News::Complete { epoch: begun.epoch, id: begun.id });
        self.retained.push_back(begun.id);
        while self.retained.len() > self.settings.retained.max(1) {
            let Some(oldest) = self.retained.pop_front() else { break };
            self.news.push(News::Subsumed(oldest));
            if let Some(collector) = &mut self.collector {
                collector.subsume(oldest);
            }
        }
        if begun.last {
            self.over = true;
            self.news.push(News::Finish);
        }
        if let Some(mut collector) = self.collector.take() {
            let collect = Spawned::future(&*self.settings.environment.spawner, async move {
                let collected = collector.collect().await;
                Ok((collector, collected))
            });
            self.errand = Some(Errand::Collect(collect));
        }
    }

    fn fail(&mut self, failure: Failure) {
        if !self.over {
            self.over = true;
            self.news.push(News::Failed(failure));
        }
    }
}

#[cfg(test)]
#[path = "coordinator_tests.rs"]
mod tests;
