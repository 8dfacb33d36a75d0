//! Sources: splits that are read from an offset, which is part of each checkpoint.

use std::rc::Rc;
use std::time::Duration;

use timely::container::CapacityContainerBuilder;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::operators::generic::{OutputBuilder, OutputBuilderSession};
use timely::dataflow::{Scope, StreamVec};
use weir_state_api::{CheckpointId, Error, ErrorKind, Millis, Result};

use crate::alarm::Alarm;
use crate::checkpoint::{TaskPart, checkpoint_folder};
use crate::control::{Listener, News, Reporter, Role, Shared};
use crate::job::Job;
use crate::panics::caught;
use crate::time::EpochTime;

/// Records of a split that are read in one go.
const BATCH: usize = 1024;

/// When to look again at splits that have nothing.
const IDLE: Duration = Duration::from_millis(5);

/// A part of the input that can be read again from an offset: a file, a partition, a generator.
pub trait Split: 'static {
    /// What it yields.
    type Record;

    /// Appends at most `limit` records.
    ///
    /// # Errors
    /// Any error ends the job on all workers.
    fn read(&mut self, records: &mut Vec<Self::Record>, limit: usize) -> Result<ReadState>;

    /// Where the next record would come from: opened there, a split yields the rest.
    fn offset(&self) -> u64;

    /// No record to come has an earlier event time. It must not run backwards.
    fn watermark(&self) -> Millis {
        Millis::MIN
    }
}

/// What is left of a split after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadState {
    /// There may be more at once.
    More,
    /// There is nothing now; it is looked at again in some milliseconds.
    Idle,
    /// There is nothing more, ever.
    Ended,
}

impl Job {
    /// Reads input that is divided into splits, numbered from 0. Split *n* is read by worker
    /// *n* mod workers; `open` opens it at an offset: 0 at the first start, the one of the checkpoint
    /// later.
    ///
    /// A job that has ended, its input read to the end, ends again when it is started again; more input
    /// is refused then ([`Incompatible`](ErrorKind::Incompatible)).
    ///
    /// Sources decide where an epoch ends: when a checkpoint begins, each notes its offsets and goes on
    /// in the next epoch. Together they let the frontier pass, so a dataflow that takes checkpoints
    /// needs one on every path.
    pub fn source<'scope, S: Split>(
        &self,
        scope: Scope<'scope, EpochTime>,
        name: &str,
        splits: u32,
        open: impl FnMut(u32, u64) -> Result<S>,
    ) -> StreamVec<'scope, EpochTime, S::Record>
    where
        S::Record: Clone + 'static,
    {
        let shared = self.shared().clone();
        shared.add_operator(name, Role::Source { splits }, scope);
        let splits = open_splits(&shared, name, splits, open).unwrap_or_else(|error| {
            let what = format!("source {name:?}: {error}");
            shared.fail(&Error::new(error.kind(), what));
            Vec::new()
        });
        let mut builder = OperatorBuilder::new(name.to_string(), scope);
        let (output, stream) = builder.new_output::<Vec<S::Record>>();
        let mut output = OutputBuilder::<_, CapacityContainerBuilder<Vec<S::Record>>>::from(output);
        let info = builder.operator_info();
        let listener = shared.listen(scope.activator_for(info.address.clone()));
        let alarm = Alarm::new(scope.activator_for(info.address));
        let name = name.to_string();
        builder.build_reschedule(move |capabilities| {
            let held = capabilities.into_iter().next();
            let mut task = shared.reporter().map(|reporter| SourceTask {
                shared: shared.clone(),
                name,
                splits,
                next: 0,
                listener,
                alarm,
                reporter,
                held,
                records: Vec::new(),
                ended: false,
            });
            move |_| match &mut task {
                Some(task) => task.schedule(&mut output.activate()),
                None => false,
            }
        });
        stream
    }
}

/// A split that is read here.
struct Open<S> {
    number: u32,
    split: S,
    ended: bool,
}

fn open_splits<S>(
    shared: &Shared,
    name: &str,
    splits: u32,
    mut open: impl FnMut(u32, u64) -> Result<S>,
) -> Result<Vec<Open<S>>> {
    let offsets = shared.restored.as_ref().map_or_else(Vec::new, |known| known.offsets(name));
    if let Some((lost, _)) = offsets.iter().find(|(number, _)| *number >= splits) {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!("the checkpoint has an offset of split {lost}, the job has {splits} splits"),
        )
        .advice("splits may be added, not taken away"));
    }
    let mine = (0..splits).filter(|number| *number as usize % shared.peers == shared.worker);
    mine.map(|number| {
        let known = offsets.iter().find(|(of, _)| *of == number);
        let split = caught(|| open(number, known.map_or(0, |(_, offset)| *offset)))?;
        Ok(Open { number, split, ended: false })
    })
    .collect()
}

/// A source on one worker.
struct SourceTask<S: Split> {
    shared: Rc<Shared>,
    name: String,
    splits: Vec<Open<S>>,
    /// The split that is read next.
    next: usize,
    listener: Listener,
    alarm: Alarm,
    reporter: Reporter,
    /// At the open epoch, and the watermark of the splits.
    held: Option<Capability<EpochTime>>,
    records: Vec<S::Record>,
    /// All input was read, and the coordinator knows.
    ended: bool,
}

type Output<'a, D> = OutputBuilderSession<'a, EpochTime, CapacityContainerBuilder<Vec<D>>>;

impl<S: Split> SourceTask<S>
where
    S::Record: Clone + 'static,
{
    /// Reads a batch. Answers whether the source must be kept.
    fn schedule(&mut self, output: &mut Output<'_, S::Record>) -> bool {
        while let Some(news) = self.listener.next() {
            if let News::Begin(begun) = news
                && let Err(error) = caught(|| self.close_epoch(begun.epoch, begun.last))
            {
                self.fail(&error);
            }
        }
        if self.shared.is_over() {
            self.held = None;
            self.splits.clear();
            return false;
        }
        let pauses = self.shared.is_failing() || self.shared.is_congested();
        let reads = self.shared.is_started() && !self.ended && !pauses;
        if reads && let Err(error) = caught(|| self.read(output)) {
            self.fail(&error);
        }
        true
    }

    fn fail(&self, error: &Error) {
        let what = format!("source {:?}: {error}", self.name);
        self.shared.fail(&Error::new(error.kind(), what));
    }

    /// Notes the offsets: all that was sent belongs to the epoch, all that follows to the next one.
    fn close_epoch(&mut self, epoch: u64, last: bool) -> Result<()> {
        let offsets = self.splits.iter().map(|open| (open.number, open.split.offset())).collect();
        self.reporter.snapshot(&self.name, epoch, Ok(TaskPart::Offsets(offsets)));
        if last {
            self.held = None;
        } else if let Some(held) = &mut self.held {
            let event = held.time().event;
            held.downgrade(&EpochTime::new(epoch + 1, event));
        }
        Ok(())
    }

    /// Sends the next records, of one split after the other.
    fn read(&mut self, output: &mut Output<'_, S::Record>) -> Result<()> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let mut more = false;
        for _ in 0..self.splits.len() {
            self.next = (self.next + 1) % self.splits.len();
            let open = &mut self.splits[self.next];
            if open.ended {
                continue;
            }
            let state = open.split.read(&mut self.records, BATCH)?;
            open.ended = state == ReadState::Ended;
            more |= state == ReadState::More;
            if !self.records.is_empty() {
                break;
            }
        }
        if let Some(ended) = self.shared.restored.as_ref().filter(|known| known.finished)
            && !self.records.is_empty()
        {
            return Err(more_after_the_end(ended.id));
        }
        output.session(&*held).give_iterator(self.records.drain(..));
        let watermarks = self.splits.iter().filter(|open| !open.ended);
        let watermark = watermarks.map(|open| open.split.watermark()).min();
        let event = watermark.unwrap_or(Millis::MAX);
        if event > held.time().event {
            held.downgrade(&EpochTime::new(held.time().epoch, event));
        }
        if self.splits.iter().all(|open| open.ended) {
            self.ended = true;
            self.shared.source_ended();
        } else if more {
            self.listener.activate();
        } else {
            self.alarm.set(IDLE);
        }
        Ok(())
    }
}

#[cold]
fn more_after_the_end(checkpoint: CheckpointId) -> Error {
    Error::new(
        ErrorKind::Incompatible,
        "there is more input, but the job has ended: all its timers have fired",
    )
    .object(checkpoint_folder(checkpoint))
    .advice("start a new job, in a folder of its own, for the new input")
}
