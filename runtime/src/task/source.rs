//! The task of a source: reads splits, starts barriers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_state_api::{
    CheckpointId, Error, ErrorKind, Millis, OperatorState, Redistribution, Result,
};

use super::{Attempt, Node, NodeKind, StartedTask, TaskContext, TaskMessage, spawn};
use crate::checkpoint::CheckpointStore;
use crate::inbox::{Control, Inbox};
use crate::output::{Output, Outputs, fan_out};
use crate::record::{Barrier, Data, MAX_TIME, MIN_TIME, Record, Signal};
use crate::source::{ReadStatus, Source, SplitReader};

const OFFSETS: &str = "offsets";

/// A watermark follows after at most this many batches ...
const BATCHES_PER_WATERMARK: usize = 8;

/// ... and after the first batch that ends this long after the one before.
const LONGEST_WITHOUT_WATERMARK: Duration = Duration::from_millis(100);

pub(crate) struct SourceNode<S: Source> {
    pub(crate) name: String,
    pub(crate) source: Arc<S>,
    pub(crate) outputs: Outputs<S::Out>,
}

impl<S: Source> Node for SourceNode<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> NodeKind {
        NodeKind::Source
    }

    fn prepare(&self, _: &Attempt) {}

    fn start(&self, attempt: &Attempt, subtask: u16) -> Result<StartedTask> {
        let context = TaskContext::new(attempt, &self.name, subtask)?;
        let inbox = Inbox::<()>::new(0, 0);
        let output = fan_out(&self.outputs, &context.output_settings());
        let source = self.source.clone();
        spawn(context, inbox.clone(), move |context| {
            let splits = open_splits(&*source, context)?;
            context.ready()?;
            let restored = context.attempt.restored.as_ref();
            let finished =
                restored.filter(|checkpoint| checkpoint.finished).map(|checkpoint| checkpoint.id);
            SourceTask { context, inbox, output, splits, watermark: MIN_TIME, finished }.run()
        })
    }
}

struct OpenSplit<T> {
    number: u32,
    offset: u64,
    reader: Box<dyn SplitReader<T>>,
    ended: bool,
    /// It has nothing to offer before this.
    idle_until: Option<Instant>,
}

impl<T> OpenSplit<T> {
    fn watermark(&self) -> Millis {
        if self.ended { MAX_TIME } else { self.reader.watermark() }
    }
}

fn open_splits<S: Source>(source: &S, context: &TaskContext) -> Result<Vec<OpenSplit<S::Out>>> {
    let (subtask, parallelism) =
        (u32::from(context.id.subtask), u32::from(context.attempt.parallelism));
    let count = source.splits();
    let mut offsets: Vec<(u32, u64)> = context.state.get(OFFSETS)?;
    match &context.attempt.restored {
        None => {
            offsets = (0..count)
                .filter(|split| split % parallelism == subtask)
                .map(|split| (split, 0))
                .collect();
        }
        Some(checkpoint) => {
            let mut stored = 0;
            for state in checkpoint.states(&context.id.operator) {
                stored += state.get::<(u32, u64)>(OFFSETS)?.len();
            }
            if stored != count as usize {
                return Err(Error::new(
                    ErrorKind::Incompatible,
                    format!(
                        "source {:?} has {count} splits, the checkpoint holds {stored}",
                        &*context.id.operator
                    ),
                )
                .object(CheckpointStore::directory(checkpoint.id))
                .advice("restore with the same input, or start without restoring"));
            }
        }
    }
    offsets
        .into_iter()
        .map(|(number, offset)| {
            let reader = source.open(number, offset)?;
            Ok(OpenSplit { number, offset, reader, ended: false, idle_until: None })
        })
        .collect()
}

struct SourceTask<'a, T> {
    context: &'a TaskContext,
    inbox: Arc<Inbox<()>>,
    output: Box<dyn Output<T>>,
    splits: Vec<OpenSplit<T>>,
    watermark: Millis,
    /// The restored checkpoint, if the job had ended with it.
    finished: Option<CheckpointId>,
}

impl<T: Data> SourceTask<'_, T> {
    fn run(mut self) -> Result<()> {
        let batch_size = self.context.attempt.batch_size;
        let mut batch = Vec::with_capacity(batch_size);
        let mut since_watermark = 0;
        let mut last_watermark = Instant::now();
        // The split that is furthest behind is read next, so that no split runs ahead in event time
        // and fills the state of joins and windows.
        while self.splits.iter().any(|split| !split.ended) {
            if let Some(control) = self.inbox.try_control()? {
                self.control(control)?;
                continue;
            }
            let Some(next) = self.furthest_behind() else {
                self.pause()?;
                continue;
            };
            let status = self.read(next, batch_size, &mut batch)?;
            since_watermark += 1;
            if since_watermark >= BATCHES_PER_WATERMARK
                || status != ReadStatus::More
                || last_watermark.elapsed() >= LONGEST_WITHOUT_WATERMARK
            {
                self.advance_watermark()?;
                since_watermark = 0;
                last_watermark = Instant::now();
            }
        }
        self.advance_watermark()?;
        self.output.flush()?;
        self.context.send(TaskMessage::InputRead(self.context.id.clone()));
        // Barriers must pass until the last checkpoint is complete.
        loop {
            match self.inbox.wait_control(Duration::from_secs(1))? {
                Some(Control::Finish) => return self.output.signal(Signal::End),
                Some(control) => self.control(control)?,
                None => {}
            }
        }
    }

    /// The split to read next; `None` when all that are open have nothing for now.
    fn furthest_behind(&self) -> Option<usize> {
        let now = Instant::now();
        let ready =
            self.splits.iter().enumerate().filter(|(_, split)| {
                !split.ended && split.idle_until.is_none_or(|until| until <= now)
            });
        ready.min_by_key(|(_, split)| split.reader.watermark()).map(|(index, _)| index)
    }

    /// Waits until some split may have something again, or for a control message.
    fn pause(&mut self) -> Result<()> {
        self.output.flush()?;
        let open = self.splits.iter().filter(|split| !split.ended);
        let until = open.filter_map(|split| split.idle_until).min();
        let pause =
            until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        match self.inbox.wait_control(pause)? {
            Some(control) => self.control(control),
            None => Ok(()),
        }
    }

    fn read(
        &mut self,
        index: usize,
        limit: usize,
        batch: &mut Vec<Record<T>>,
    ) -> Result<ReadStatus> {
        let split = &mut self.splits[index];
        let status = split.reader.read(limit, batch)?;
        split.offset += batch.len() as u64;
        split.ended = status == ReadStatus::End;
        split.idle_until = match status {
            ReadStatus::Idle(pause) => Some(Instant::now() + pause),
            ReadStatus::More | ReadStatus::End => None,
        };
        if let (Some(checkpoint), false) = (&self.finished, batch.is_empty()) {
            return Err(ended(&self.context.id.operator, *checkpoint));
        }
        self.context.count(|counters| &counters.read, batch.len() as u64);
        for record in batch.drain(..) {
            if record.time == MAX_TIME {
                return Err(no_such_time(&self.context.id.operator));
            }
            self.output.record(record)?;
        }
        Ok(status)
    }

    fn advance_watermark(&mut self) -> Result<()> {
        let watermark = self.splits.iter().map(OpenSplit::watermark).min().unwrap_or(MAX_TIME);
        if watermark > self.watermark {
            self.watermark = watermark;
            self.output.signal(Signal::Watermark(watermark))?;
        }
        Ok(())
    }

    fn control(&mut self, control: Control) -> Result<()> {
        match control {
            Control::Trigger(barrier) => self.checkpoint(barrier),
            // A source has nothing to commit or give up; `Finish` before the end of the input can
            // only come from a coordinator that has given the attempt up.
            Control::Complete(_) | Control::Abort(_) | Control::Subsumed(_) | Control::Finish => {
                Ok(())
            }
        }
    }

    fn checkpoint(&mut self, barrier: Barrier) -> Result<()> {
        self.output.signal(Signal::Barrier(barrier))?;
        let begun = Instant::now();
        let offsets: Vec<(u32, u64)> =
            self.splits.iter().map(|split| (split.number, split.offset)).collect();
        let mut state = OperatorState::new();
        state.set(OFFSETS, Redistribution::Split, &offsets);
        self.context.part_of(barrier.checkpoint, begun.elapsed()).send(Ok((state, None)));
        Ok(())
    }
}

#[cold]
fn ended(operator: &str, checkpoint: CheckpointId) -> Error {
    Error::new(
        ErrorKind::Incompatible,
        format!(
            "source {operator:?} has more input, but the job has ended: its windows are closed"
        ),
    )
    .object(CheckpointStore::directory(checkpoint))
    .advice("restore an earlier checkpoint, or start a new job for the new input")
}

#[cold]
fn no_such_time(operator: &str) -> Error {
    Error::new(
        ErrorKind::InvalidUsage,
        format!("source {operator:?} read a record with the event time MAX_TIME"),
    )
    .advice("MAX_TIME stands for the end of the input; give records an earlier time")
}
