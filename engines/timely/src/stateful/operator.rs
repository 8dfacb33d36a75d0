//! What the frontier drives: epochs, watermarks, snapshots.
//!
//! A schedule of the operator takes all input in, by epoch, and then goes on as far as it can: records
//! of the open epoch, the watermark and its timers, and at the end of the epoch the snapshot. Where it
//! has to wait for a read, it returns; the read's end has it scheduled again.

use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use timely::container::CapacityContainerBuilder;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::OutputBuilderSession;
use weir_state_api::{Error, ErrorKind, Millis, Notification, Result, SnapshotRequest};

use super::executor::Executor;
use super::logic::KeyedLogic;
use super::stash::{Item, Stash};
use crate::alarm::Alarm;
use crate::checkpoint::{TaskPart, checkpoint_folder, shared_folder};
use crate::control::{Begun, Listener, News, Reporter, Shared};
use crate::panics::caught;
use crate::time::{EpochTime, Progress};

/// Reads in flight are let run dry for a watermark no more often than this: until then it is late,
/// which a watermark may be.
const MIN_BETWEEN_DRAINS: Duration = Duration::from_millis(50);

/// When to look again at the clock, at the latest, while a timer of processing time is set: the clock
/// may jump.
const LONGEST_NAP: Millis = 100;

pub(super) type Output<'a, D> =
    OutputBuilderSession<'a, EpochTime, CapacityContainerBuilder<Vec<D>>>;

/// A keyed operator on one worker.
pub(super) struct KeyedTask<L: KeyedLogic, F> {
    pub(super) shared: Rc<Shared>,
    pub(super) name: String,
    pub(super) key: F,
    pub(super) executor: Executor<L>,
    pub(super) stash: Stash<L::Record>,
    pub(super) listener: Listener,
    pub(super) reporter: Reporter,
    pub(super) waker: Waker,
    /// All outputs go out with this: at the open epoch, and the watermark that has been fired.
    pub(super) held: Option<Capability<EpochTime>>,
    pub(super) watermark: Watermark,
    /// Timers of processing time up to this fire.
    pub(super) processing: Option<Millis>,
    pub(super) alarm: Alarm,
    pub(super) gathering: Gathering,
    pub(super) congested: bool,
}

/// Whether reads that have to wait for the store wait for others first: many in one go cost less.
pub(super) struct Gathering {
    /// So long at most.
    longest: Duration,
    /// When records in flight were last let go on: what was deferred since waits.
    since: Instant,
    /// Records have come since the last schedule.
    more: bool,
}

impl Gathering {
    pub(super) fn new(longest: Duration) -> Self {
        Gathering { longest, since: Instant::now(), more: false }
    }

    /// Input keeps coming, which brings more reads.
    fn goes_on(&self) -> bool {
        self.more && self.since.elapsed() < self.longest
    }
}

/// How far event time is.
pub(super) struct Watermark {
    /// Timers before it have fired.
    fired: Millis,
    /// Timers before it are to fire.
    due: Option<Millis>,
    /// They do.
    firing: bool,
    /// When reads in flight were last let run dry for timers.
    last: Instant,
}

impl Watermark {
    pub(super) fn new() -> Self {
        Watermark { fired: Millis::MIN, due: None, firing: false, last: Instant::now() }
    }
}

/// How far a step has come.
enum Step {
    Done,
    /// Something must come first; the operator is scheduled again then.
    Wait,
}

impl<L: KeyedLogic, F: Fn(&L::Record) -> &L::Key> KeyedTask<L, F> {
    /// Takes in what the input brings.
    pub(super) fn take_in(&mut self, times: &[EpochTime], records: Vec<L::Record>) {
        if self.shared.is_failing() {
            return;
        }
        self.gathering.more = true;
        if let Err(error) = self.stash.take_in(times, records) {
            self.fail(&error);
        }
    }

    /// Goes on as far as possible. Answers whether the operator must be kept.
    pub(super) fn schedule(&mut self, progress: Progress, output: &mut Output<'_, L::Out>) -> bool {
        if let Err(error) = self.hear() {
            self.fail(&error);
        }
        if self.shared.is_over() {
            self.held = None;
            return false;
        }
        if !self.shared.is_failing() {
            self.stash.note(progress);
            match caught(|| self.go_on(progress, output)) {
                Ok(()) => {
                    self.gathering.more = false;
                    self.watch_queue();
                    self.watch_clock();
                }
                Err(error) => {
                    let cause = self.executor.cause(error);
                    self.fail(&cause);
                }
            }
        }
        true
    }

    fn fail(&self, error: &Error) {
        let named = Error::new(error.kind(), format!("operator {:?}: {error}", self.name));
        self.shared.fail(&named);
    }

    /// Passes news on to the backend.
    fn hear(&mut self) -> Result<()> {
        while let Some(news) = self.listener.next() {
            let notification = match news {
                News::Complete { id, .. } => Notification::Complete(id),
                News::Aborted { id, .. } => Notification::Aborted(id),
                News::Subsumed(id) => Notification::Subsumed(id),
                News::Start
                | News::Begin(_)
                | News::Congestion { .. }
                | News::Failed(_)
                | News::Finish => continue,
            };
            self.executor.notify(notification)?;
        }
        Ok(())
    }

    fn go_on(&mut self, progress: Progress, output: &mut Output<'_, L::Out>) -> Result<()> {
        loop {
            if self.watermark.firing {
                let Step::Done = self.fire(output)? else { return Ok(()) };
            }
            let Step::Done = self.fire_processing(output)? else { return Ok(()) };
            match self.stash.next() {
                Some(Item::Records(records)) => {
                    let Step::Done = self.process(records, output)? else { return Ok(()) };
                }
                Some(Item::Watermark(event)) => {
                    self.watermark.due = Some(event);
                    self.watermark.firing = !self.executor.is_in_flight()
                        || self.watermark.last.elapsed() >= MIN_BETWEEN_DRAINS;
                }
                None => {
                    let Step::Done = self.end(progress, output)? else { return Ok(()) };
                }
            }
        }
    }

    fn process(
        &mut self,
        mut records: Vec<L::Record>,
        output: &mut Output<'_, L::Out>,
    ) -> Result<Step> {
        while let Some(record) = records.pop() {
            let Some(back) = self.executor.submit(record, &self.key)? else { continue };
            self.hand_on(output)?;
            records.push(back);
            self.gathering.since = Instant::now();
            let room = self.executor.poll_room(&mut Context::from_waker(&self.waker))?;
            if room.is_pending() {
                self.hand_on(output)?;
                self.stash.put_back(Item::Records(records));
                return Ok(Step::Wait);
            }
        }
        self.hand_on(output)?;
        Ok(Step::Done)
    }

    /// Whether no record is in flight; moves those that are.
    fn is_idle(&mut self, output: &mut Output<'_, L::Out>) -> Result<bool> {
        self.gathering.since = Instant::now();
        let idle = self.executor.poll_idle(&mut Context::from_waker(&self.waker))?;
        self.hand_on(output)?;
        Ok(idle.is_ready())
    }

    /// Fires the timers before the watermark that is due.
    fn fire(&mut self, output: &mut Output<'_, L::Out>) -> Result<Step> {
        let Some(due) = self.watermark.due else {
            self.watermark.firing = false;
            return Ok(Step::Done);
        };
        // Once the first one fires, records in flight are timers.
        let begun = self.watermark.fired == due;
        if !begun {
            if !self.is_idle(output)? {
                return Ok(Step::Wait);
            }
            self.watermark.fired = due;
        }
        // A frontier says what may still come, a watermark what will not.
        let now = if due == Millis::MAX { due } else { due - 1 };
        let fired = self.executor.poll_watermark(now, &mut Context::from_waker(&self.waker))?;
        self.hand_on(output)?;
        if fired.is_pending() {
            return Ok(Step::Wait);
        }
        self.watermark.due = None;
        self.watermark.firing = false;
        self.watermark.last = Instant::now();
        if let Some(held) = &mut self.held {
            held.downgrade(&EpochTime::new(self.stash.epoch(), due));
        }
        Ok(Step::Done)
    }

    /// Fires the timers of processing time that are due.
    fn fire_processing(&mut self, output: &mut Output<'_, L::Out>) -> Result<Step> {
        let now = match self.processing {
            Some(now) => now,
            None => match self.executor.next_processing_timer() {
                Some(next) if self.held.is_some() && self.shared.is_started() => {
                    let now = self.shared.settings.environment.clock.now();
                    let rests = self.watermark.last.elapsed() < MIN_BETWEEN_DRAINS;
                    if next > now || (rests && !self.is_idle(output)?) {
                        return Ok(Step::Done);
                    }
                    now
                }
                _ => return Ok(Step::Done),
            },
        };
        // Up to `now` only: a timer that sets the next one must not keep the operator from its input.
        self.processing = Some(now);
        let context = &mut Context::from_waker(&self.waker);
        let fired = self.executor.poll_processing_timers(now, context)?;
        self.hand_on(output)?;
        if fired.is_pending() {
            return Ok(Step::Wait);
        }
        self.processing = None;
        self.watermark.last = Instant::now();
        Ok(Step::Done)
    }

    /// Has the operator scheduled when the next timer of processing time is due.
    fn watch_clock(&mut self) {
        if let Some(next) = self.executor.next_processing_timer()
            && self.held.is_some()
        {
            let now = self.shared.settings.environment.clock.now();
            let patience = next.saturating_sub(now).clamp(1, LONGEST_NAP);
            self.alarm.set(Duration::from_millis(patience.unsigned_abs()));
        }
    }

    /// Nothing of the epoch waits: closes it, when it is over.
    fn end(&mut self, progress: Progress, output: &mut Output<'_, L::Out>) -> Result<Step> {
        if self.executor.is_in_flight()
            && !progress.is_past(self.stash.epoch())
            && self.gathering.goes_on()
        {
            // Once more, in case nothing else comes.
            self.listener.activate();
            return Ok(Step::Wait);
        }
        if !self.is_idle(output)? {
            return Ok(Step::Wait);
        }
        if self.watermark.due.is_some() {
            self.watermark.firing = true;
            return Ok(Step::Done);
        }
        let epoch = self.stash.epoch();
        if !progress.is_past(epoch) {
            return Ok(Step::Wait);
        }
        // The sources of this worker have closed the epoch, so the news came before the frontier.
        // Where other inputs have, the next checkpoint waits for its turn.
        let Some(checkpoint) = self.shared.begun(epoch) else { return Ok(Step::Wait) };
        if let Some(begun) = checkpoint {
            self.snapshot(begun);
        }
        self.stash.close();
        self.stash.note(progress);
        if progress.epoch.is_none() {
            self.held = None;
        } else if let Some(held) = &mut self.held {
            held.downgrade(&EpochTime::new(epoch + 1, self.watermark.fired));
        }
        Ok(Step::Done)
    }

    /// Pins the state; it is written in the background, and then acknowledged.
    fn snapshot(&mut self, begun: Begun) {
        let mut request = SnapshotRequest::checkpoint(begun.id, checkpoint_folder(begun.id));
        request.shared_directory = shared_folder(begun.id);
        request.reuse_from = Some(begun.reuse_from);
        request.watermark = match self.watermark.fired {
            Millis::MIN => None,
            Millis::MAX => Some(Millis::MAX),
            fired => Some(fired - 1),
        };
        let (reporter, name) = (self.reporter.clone(), self.name.clone());
        match self.executor.snapshot(request) {
            Ok(task) => task.run_on(&*self.shared.settings.environment.spawner, move |handle| {
                let part = handle.map(|handle| TaskPart::Keyed(Box::new(handle)));
                reporter.snapshot(&name, begun.epoch, part);
            }),
            Err(error) => reporter.snapshot(&name, begun.epoch, Err(error)),
        }
    }

    fn hand_on(&mut self, output: &mut Output<'_, L::Out>) -> Result<()> {
        let Some(held) = &self.held else {
            let mut late = false;
            self.executor.for_each_output(|_| late = true);
            return if late { Err(output_after_the_end()) } else { Ok(()) };
        };
        let mut session = output.session(held);
        self.executor.for_each_output(|out| session.give(out));
        Ok(())
    }

    /// Has sources pause while too much waits here.
    fn watch_queue(&mut self) {
        let limit = self.shared.settings.queued_records;
        let waiting = self.stash.records();
        let congested = if self.congested { waiting > limit / 2 } else { waiting > limit };
        if congested != self.congested {
            self.congested = congested;
            self.shared.set_congested(&self.name, congested);
        }
    }
}

#[cold]
fn output_after_the_end() -> Error {
    Error::new(ErrorKind::InvalidUsage, "output after the end of all input")
}
