//! When an instance materializes, and what becomes of it. No I/O: the instance does what this decides.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_state_api::{CheckpointId, Error, ErrorKind, Result, SnapshotHandle};

use crate::format::{LogId, LogPosition};
use crate::options::{ChangelogOptions, Materialization};

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
    running: Option<(Begun, Instant)>,
    timeout: Duration,
    /// Those that were given up while they ran.
    given_up: Vec<Begun>,
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
        options: &ChangelogOptions,
        last: CheckpointId,
        log: LogId,
        requests: Arc<AtomicU64>,
    ) -> Self {
        let schedule = options.materialization;
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
            max_batches: options.max_batches,
            next_id: last.0.saturating_add(1),
            generation: 0,
            running: None,
            timeout: options.materialization_timeout,
            given_up: Vec::new(),
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

    /// The log begins here, behind that of a former instance, which counts like its own. When that is long
    /// enough by itself, the first checkpoint still builds on it: a job that has just been restored wants
    /// one soon.
    pub(crate) fn goes_on(&mut self, now: Instant, position: LogPosition, restored_changes: u64) {
        self.count_from(position);
        match self.schedule {
            Materialization::AfterChanges(changes) if restored_changes >= changes => {
                self.due = Some(now);
            }
            _ => self.due_at = self.due_at.saturating_sub(restored_changes),
        }
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
        self.running = Some((begun, now));
        self.skip(now, position);
        begun
    }

    /// There is nothing to do now: the next one is a whole interval away.
    pub(crate) fn skip(&mut self, now: Instant, position: LogPosition) {
        self.overdue = false;
        self.served = self.requests.load(Ordering::Relaxed);
        self.due = match self.schedule {
            Materialization::Every(interval) => now.checked_add(interval),
            Materialization::AfterChanges(_) | Materialization::OnRequest => None,
        };
        self.count_from(position);
    }

    /// Gives up the one under way when it has taken too long.
    pub(crate) fn give_up_late(&mut self, now: Instant) -> Option<CheckpointId> {
        let late = |(_, since): &(Begun, Instant)| now >= *since + self.timeout;
        let (begun, _) = self.running.take_if(|running| late(running))?;
        self.given_up.push(begun);
        Some(begun.id)
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
        let mut outcomes = self.outcomes.take();
        // Of those nobody wants to hear any more.
        outcomes.retain(|outcome| {
            let known = self.given_up.iter().position(|begun| *begun == outcome.materialized);
            known.map(|at| self.given_up.swap_remove(at)).is_none()
        });
        for outcome in &outcomes {
            self.running.take_if(|(begun, _)| *begun == outcome.materialized);
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
            let every = Materialization::Every(interval);
            let options = ChangelogOptions::default().with_materialization(every);
            Materializer::new(&options, CheckpointId(0), LogId([byte; 16]), Arc::default())
        };
        let begun = Instant::now();
        let after = |part: f64| begun + interval.mul_f64(part);
        let (mut early, late) = (scheduled(0x10), scheduled(0xf0));
        assert!(early.is_due(after(0.1), 0) && !late.is_due(after(0.1), 0));
        assert!(!late.is_due(after(0.9), 0) && late.is_due(after(1.0), 0));
        early.skip(after(0.1), LogPosition(5));
        assert!(!early.is_due(after(1.09), 0) && early.is_due(after(1.1), 0));
    }

    /// One that is lost must not be the last.
    #[test]
    fn one_that_does_not_end_is_given_up_and_what_comes_of_it_later_is_nothing() {
        let options = ChangelogOptions::default()
            .with_materialization(Materialization::OnRequest)
            .with_max_batches(10)
            .with_materialization_timeout(Duration::from_secs(100));
        let new = || Materializer::new(&options, CheckpointId(0), LogId([0; 16]), Arc::default());
        let (mut materializer, begun) = (new(), Instant::now());
        let lost = materializer.begin(begun, LogPosition(5));
        let outcome = materializer.outcome_of(lost);
        assert_eq!(materializer.give_up_late(begun + Duration::from_secs(99)), None);
        let late = begun + Duration::from_secs(100);
        assert!(!materializer.is_due(late, 11));
        assert_eq!(materializer.give_up_late(late), Some(lost.id));
        assert_eq!(materializer.give_up_late(late), None);
        assert!(materializer.is_due(late, 11));
        let next = materializer.begin(late, LogPosition(9));
        drop(outcome);
        assert!(materializer.ended().is_empty() && materializer.is_running());
        drop(materializer.outcome_of(next));
        assert_eq!(materializer.ended().len(), 1);
    }

    /// What a former instance logged counts.
    #[test]
    fn a_log_that_goes_on_is_due_earlier() {
        let options =
            ChangelogOptions::default().with_materialization(Materialization::AfterChanges(100));
        let new = || Materializer::new(&options, CheckpointId(0), LogId([0; 16]), Arc::default());
        let now = Instant::now();
        for (restored, due, at_once) in [(0, 100, false), (60, 40, false), (100, 100, true)] {
            let mut materializer = new();
            materializer.goes_on(now, LogPosition(7), restored);
            assert!(materializer.is_due_at(LogPosition(7 + due)), "{restored}");
            assert!(!materializer.is_due_at(LogPosition(6 + due)), "{restored}");
            assert_eq!(materializer.is_due(now, 0), at_once, "{restored}");
            materializer.begin(now, LogPosition(8));
            materializer.invalidate();
            assert!(!materializer.is_due(now, 0), "{restored}");
        }
    }
}
