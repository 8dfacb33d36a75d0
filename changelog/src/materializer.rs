//! When an instance materializes, and what becomes of it. No I/O: the instance does what this decides.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use weir_state_api::{CheckpointId, Error, ErrorKind, Result, SnapshotHandle};

use crate::format::{LogId, LogPosition};
use crate::options::Materialization;

/// A materialization that has ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) materialized: Begun,
    pub(crate) result: Result<SnapshotHandle>,
}

/// A materialization under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Its number, which the wrapped backend takes for a checkpoint's.
    pub(crate) id: CheckpointId,
    /// Where the log goes on from it.
    pub(crate) position: LogPosition,
    /// Counts what has made the log before useless.
    generation: u64,
}

/// Outcomes on their way from whatever thread wrote the snapshot to the instance.
#[derive(Debug, Clone, Default)]
struct Outcomes(Arc<Mutex<Vec<Outcome>>>);

impl Outcomes {
    fn push(&self, materialized: Begun, result: Result<SnapshotHandle>) {
        let mut outcomes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.push(Outcome { materialized, result });
    }

    fn take(&self) -> Vec<Outcome> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Where the outcome of one materialization goes. One whose task is dropped before its end has failed.
#[derive(Debug)]
pub(crate) struct OutcomeOf {
    outcomes: Outcomes,
    of: Option<Begun>,
}

impl OutcomeOf {
    pub(crate) fn is(mut self, result: Result<SnapshotHandle>) {
        if let Some(begun) = self.of.take() {
            self.outcomes.push(begun, result);
        }
    }
}

impl Drop for OutcomeOf {
    fn drop(&mut self) {
        if let Some(begun) = self.of.take() {
            let what = "the snapshot was dropped before its end";
            self.outcomes.push(begun, Err(Error::new(ErrorKind::Closed, what)));
        }
    }
}

/// The schedule of one instance.
#[derive(Debug)]
pub(crate) struct Materializer {
    schedule: Materialization,
    max_batches: usize,
    next_id: u64,
    generation: u64,
    running: Option<Begun>,
    outcomes: Outcomes,
    due: Option<Instant>,
    /// With a schedule by changes: the position at which it is due, beyond all else.
    due_at: u64,
    /// Requests by hand: all of the process, and how many of them are served.
    requests: Arc<AtomicU64>,
    served: u64,
    /// It was due at a snapshot, but no notification has come since to begin in.
    overdue: bool,
}

impl Materializer {
    /// For an instance whose wrapped backend has seen snapshots up to `last`.
    pub(crate) fn new(
        schedule: Materialization,
        max_batches: usize,
        last: CheckpointId,
        log: LogId,
        requests: Arc<AtomicU64>,
    ) -> Self {
        let due = match schedule {
            Materialization::Every(interval) => {
                let part = u32::from(log.0[0]) << 8 | u32::from(log.0[1]);
                Instant::now().checked_add(interval.mul_f64(f64::from(part) / 65_536.0))
            }
            Materialization::AfterChanges(_) | Materialization::OnRequest => None,
        };
        let served = requests.load(Ordering::Relaxed);
        let mut new = Materializer {
            schedule,
            max_batches,
            next_id: last.0.saturating_add(1),
            generation: 0,
            running: None,
            outcomes: Outcomes::default(),
            due,
            due_at: u64::MAX,
            requests,
            served,
            overdue: false,
        };
        new.count_from(LogPosition::START);
        new
    }

    /// A number that the wrapped backend has not seen.
    pub(crate) fn next_id(&mut self) -> CheckpointId {
        let id = CheckpointId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        id
    }

    /// Whether one is due at this position; asked at each change.
    #[inline]
    pub(crate) fn is_due_at(&self, position: LogPosition) -> bool {
        position.0 >= self.due_at
    }

    /// Whether one is due by time, request, or the length of the log.
    pub(crate) fn is_due(&self, now: Instant, batches: usize) -> bool {
        self.running.is_none()
            && (self.due.is_some_and(|due| due <= now)
                || self.requests.load(Ordering::Relaxed) > self.served
                || batches > self.max_batches)
    }

    /// It is due at a snapshot, which should not be held up: the next notification begins it. Returns
    /// whether none has come since the last time.
    pub(crate) fn is_overdue(&mut self) -> bool {
        std::mem::replace(&mut self.overdue, true)
    }

    /// Whether one is under way.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// One begins here.
    pub(crate) fn begin(&mut self, now: Instant, position: LogPosition) -> Begun {
        let begun = Begun { id: self.next_id(), position, generation: self.generation };
        self.running = Some(begun);
        self.skip(now, position);
        begun
    }

    /// There is nothing to do now: the next one is a whole interval away.
    pub(crate) fn skip(&mut self, now: Instant, position: LogPosition) {
        self.overdue = false;
        self.served = self.requests.load(Ordering::Relaxed);
        if let Materialization::Every(interval) = self.schedule {
            self.due = now.checked_add(interval);
        }
        self.count_from(position);
    }

    /// The log before is useless, and so is whatever was begun on it.
    pub(crate) fn invalidate(&mut self) {
        self.generation += 1;
        self.running = None;
    }

    /// Where to put the outcome.
    pub(crate) fn outcome_of(&self, begun: Begun) -> OutcomeOf {
        OutcomeOf { outcomes: self.outcomes.clone(), of: Some(begun) }
    }

    /// What has ended since the last time, and whether it can be used.
    pub(crate) fn ended(&mut self) -> Vec<(Outcome, bool)> {
        let outcomes = self.outcomes.take();
        for outcome in &outcomes {
            if self.running == Some(outcome.materialized) {
                self.running = None;
            }
        }
        let current = self.generation;
        let of_today = |outcome: &Outcome| outcome.materialized.generation == current;
        outcomes
            .into_iter()
            .map(|outcome| (of_today(&outcome), outcome))
            .map(|(u, o)| (o, u))
            .collect()
    }

    fn count_from(&mut self, position: LogPosition) {
        if let Materialization::AfterChanges(changes) = self.schedule {
            self.due_at = position.0.saturating_add(changes.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_interval_is_a_random_part_of_one_and_later_ones_come_whole() {
        let interval = Duration::from_secs(6_000);
        let scheduled = |byte| {
            let (every, log) = (Materialization::Every(interval), LogId([byte; 16]));
            Materializer::new(every, 10, CheckpointId(0), log, Arc::default())
        };
        let begun = Instant::now();
        let after = |part: f64| begun + interval.mul_f64(part);
        let (mut early, late) = (scheduled(0x10), scheduled(0xf0));
        assert!(early.is_due(after(0.1), 0) && !late.is_due(after(0.1), 0));
        assert!(!late.is_due(after(0.9), 0) && late.is_due(after(1.0), 0));
        early.skip(after(0.1), LogPosition(5));
        assert!(!early.is_due(after(1.09), 0) && early.is_due(after(1.1), 0));
    }
}
