//! The task of a keyed operator: aligns barriers, sets keys, fires timers, takes snapshots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_state_api::{
    Codec, KeyedStore, Millis, NextTimer, Notification, OpenRequest, OperatorState, Ordered,
    OrderedType, Result, SnapshotRequest, TimerState,
};

use super::alignment::Alignment;
use super::watermarks::Watermarks;
use super::{Attempt, Node, NodeKind, StartedTask, TaskContext, spawn};
use crate::checkpoint::{CheckpointStore, live_folder, shared_folder};
use crate::inbox::{Control, Inbox, Received};
use crate::operator::{Context, KeyedOperator};
use crate::output::{InboxCell, KeyOf, Output, Outputs, fan_out};
use crate::record::{Barrier, Element, MAX_TIME, Record, Signal};

/// The names of the runtime's timer queues among the operator's states.
const TIMERS: &str = "weir.event-timers";
const PROCESSING_TIMERS: &str = "weir.processing-timers";

/// How long a task waits at most while a processing-time timer is set: the clock may jump.
const LONGEST_NAP: Duration = Duration::from_millis(100);

/// Opens an operator with its states.
pub(crate) type Create<O> =
    dyn Fn(&mut KeyedStore<<O as KeyedOperator>::Key>) -> Result<O> + Send + Sync;

pub(crate) struct KeyedNode<O: KeyedOperator> {
    pub(crate) name: String,
    pub(crate) create: Arc<Create<O>>,
    pub(crate) key_of: KeyOf<O::In, O::Key>,
    /// Number of input streams.
    pub(crate) inputs: usize,
    pub(crate) inboxes: InboxCell<O::In>,
    pub(crate) outputs: Outputs<O::Out>,
}

impl<O: KeyedOperator> Node for KeyedNode<O>
where
    O::Key: OrderedType,
    O::Timer: OrderedType,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> NodeKind {
        NodeKind::Keyed
    }

    fn prepare(&self, attempt: &Attempt) {
        let channels = self.inputs * usize::from(attempt.parallelism);
        *self.inboxes.borrow_mut() = (0..attempt.parallelism)
            .map(|_| Inbox::new(channels, attempt.channel_capacity))
            .collect();
    }

    fn start(&self, attempt: &Attempt, subtask: u16) -> Result<StartedTask> {
        let context = TaskContext::new(attempt, &self.name, subtask)?;
        let inbox = self.inboxes.borrow()[usize::from(subtask)].clone();
        let output = fan_out(&self.outputs, &context.output_settings());
        let (create, key_of) = (self.create.clone(), self.key_of.clone());
        spawn(context, inbox.clone(), move |context| {
            let mut store = open_store::<O>(context)?;
            let timers = store.timers::<O::Timer>(TIMERS)?;
            let processing_timers = store.timers::<O::Timer>(PROCESSING_TIMERS)?;
            let operator = create(&mut store)?;
            context.ready()?;
            KeyedTask::<O> {
                alignment: Alignment::new(inbox.channels()),
                watermarks: Watermarks::new(inbox.channels(), store.restored_watermark()),
                context,
                inbox,
                output,
                store,
                timers,
                processing_timers,
                operator,
                key_of,
                late: 0,
            }
            .run()
        })
    }
}

fn open_store<O: KeyedOperator>(context: &TaskContext) -> Result<KeyedStore<O::Key>>
where
    O::Key: OrderedType,
{
    let attempt = &context.attempt;
    let key_codec = Codec::<O::Key>::id(&Ordered);
    let mut request =
        OpenRequest::new(attempt.environment.clone(), &*context.id.operator, key_codec);
    request.max_parallelism = attempt.max_parallelism;
    request.key_groups = context.key_groups()?;
    request.directory =
        format!("{}{}/", live_folder(attempt.epoch, &attempt.name), context.id.file_name());
    request.mode = attempt.restore_mode;
    let request = request.restore_from(context.handles());
    attempt.runtime.block_on(KeyedStore::open(&*attempt.backend, request))
}

/// How long to wait for a timer that is due at `time`.
fn nap(time: Millis, now: Millis) -> Duration {
    Duration::from_millis(time.saturating_sub(now).max(0).unsigned_abs()).min(LONGEST_NAP)
}

struct KeyedTask<'a, O: KeyedOperator> {
    context: &'a TaskContext,
    inbox: Arc<Inbox<O::In>>,
    output: Box<dyn Output<O::Out>>,
    alignment: Alignment,
    watermarks: Watermarks,
    store: KeyedStore<O::Key>,
    timers: TimerState<O::Timer>,
    processing_timers: TimerState<O::Timer>,
    operator: O,
    key_of: KeyOf<O::In, O::Key>,
    late: u64,
}

impl<O: KeyedOperator> KeyedTask<'_, O>
where
    O::Key: OrderedType,
    O::Timer: OrderedType,
{
    fn run(mut self) -> Result<()> {
        while !self.alignment.all_ended() {
            let patience = self.fire_processing_timers()?;
            match self.inbox.receive_within(self.alignment.blocked(), patience)? {
                None => {}
                Some(Received::Control(control)) => self.control(control)?,
                Some(Received::Element { element: Element::Batch(batch), .. }) => {
                    self.batch(batch)?;
                }
                Some(Received::Element { channel, element: Element::Signal(signal) }) => {
                    self.signal(channel, signal)?;
                }
            }
            self.report_late();
        }
        self.output.signal(Signal::End)
    }

    fn batch(&mut self, batch: Vec<Record<O::In>>) -> Result<()> {
        for record in batch {
            self.store.set_key(&(self.key_of)(&record.value))?;
            let (operator, mut context) = self.split(record.time);
            operator.process(record.value, &mut context)?;
        }
        Ok(())
    }

    /// Records and timers alike may have counted some.
    fn report_late(&mut self) {
        if self.late > 0 {
            let late = std::mem::take(&mut self.late);
            self.context.count(|counters| &counters.late, late);
        }
    }

    /// Calls the processing-time timers that are due. Returns how long to wait for input before
    /// looking again; `None` when no timer is set.
    fn fire_processing_timers(&mut self) -> Result<Option<Duration>> {
        let next = self.store.next_timer(&self.processing_timers)?;
        if next == NextTimer::Empty {
            return Ok(None);
        }
        let now = self.context.attempt.environment.clock.now();
        if let NextTimer::At(time) = next
            && time > now
        {
            return Ok(Some(nap(time, now)));
        }
        // Up to `now` only: a timer that sets the next one must not keep the task from its input.
        while let Some(timer) = self.store.poll_timer(&self.processing_timers, now).wait()? {
            let not_late = self.watermarks.current().saturating_add(1);
            let (operator, mut context) = self.split(not_late);
            operator.on_processing_timer(timer.time, timer.namespace, &mut context)?;
        }
        // Nothing else may come for long that would fill the batch.
        self.output.flush()?;
        Ok(match self.store.next_timer(&self.processing_timers)? {
            NextTimer::Empty => None,
            NextTimer::At(time) => Some(nap(time, now)),
            NextTimer::Unknown => Some(LONGEST_NAP),
        })
    }

    /// The operator, and the context it gets.
    fn split(&mut self, time: Millis) -> (&mut O, Context<'_, O>) {
        let context = Context {
            store: &mut self.store,
            timers: &self.timers,
            processing_timers: &self.processing_timers,
            clock: &*self.context.attempt.environment.clock,
            output: &mut *self.output,
            time,
            watermark: self.watermarks.current(),
            late: &mut self.late,
        };
        (&mut self.operator, context)
    }

    fn signal(&mut self, channel: usize, signal: Signal) -> Result<()> {
        match signal {
            Signal::Watermark(watermark) => self.watermark(channel, watermark),
            Signal::Barrier(barrier) => match self.alignment.barrier(channel, barrier) {
                Some(barrier) => self.snapshot(barrier),
                None => Ok(()),
            },
            Signal::End => {
                self.watermark(channel, MAX_TIME)?;
                match self.alignment.end(channel) {
                    Some(barrier) => self.snapshot(barrier),
                    None => Ok(()),
                }
            }
        }
    }

    fn watermark(&mut self, channel: usize, watermark: Millis) -> Result<()> {
        let Some(watermark) = self.watermarks.advance(channel, watermark) else { return Ok(()) };
        self.store.advance_watermark(watermark);
        // One by one: a callback may register and delete timers, due ones too.
        while let Some(timer) = self.store.poll_timer(&self.timers, watermark).wait()? {
            let (operator, mut context) = self.split(timer.time);
            operator.on_timer(timer.time, timer.namespace, &mut context)?;
        }
        self.output.signal(Signal::Watermark(watermark))
    }

    fn snapshot(&mut self, barrier: Barrier) -> Result<()> {
        // The barrier goes first: downstream aligns while this task pins its state.
        self.output.signal(Signal::Barrier(barrier))?;
        let begun = Instant::now();
        let id = barrier.checkpoint;
        let mut request = SnapshotRequest::checkpoint(id, CheckpointStore::directory(id));
        request.shared_directory = shared_folder(id);
        request.reuse_from = Some(barrier.reuse_from);
        request.watermark = Some(self.watermarks.current());
        let task = self.store.snapshot(request)?;

        let part = self.context.part_of(id, begun.elapsed());
        task.run_on(&*self.context.attempt.environment.spawner, move |handle| {
            part.send(handle.map(|handle| (OperatorState::new(), Some(handle))));
        });
        Ok(())
    }

    fn control(&mut self, control: Control) -> Result<()> {
        match control {
            Control::Complete(id) => self.store.notify(Notification::Complete(id)),
            Control::Subsumed(id) => self.store.notify(Notification::Subsumed(id)),
            Control::Abort(id) => {
                self.alignment.abort(id);
                self.store.notify(Notification::Aborted(id))
            }
            Control::Trigger(_) | Control::Finish => Ok(()),
        }
    }
}
