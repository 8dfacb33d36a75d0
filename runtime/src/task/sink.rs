//! The task of a sink: aligns barriers, prepares and commits.

use std::sync::Arc;
use std::time::Instant;

use weir_state_api::{CheckpointId, Result};

use super::alignment::Alignment;
use super::{Attempt, Node, NodeKind, StartedTask, TaskContext, spawn};
use crate::inbox::{Control, Inbox, Received};
use crate::output::InboxCell;
use crate::record::{Data, Element, Signal};
use crate::sink::{Sink, SinkOpening, SinkWriter};

pub(crate) struct SinkNode<T, S> {
    pub(crate) name: String,
    pub(crate) sink: Arc<S>,
    pub(crate) inboxes: InboxCell<T>,
}

impl<T: Data, S: Sink<T>> Node for SinkNode<T, S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> NodeKind {
        NodeKind::Sink
    }

    fn prepare(&self, attempt: &Attempt) {
        *self.inboxes.borrow_mut() = (0..attempt.parallelism)
            .map(|_| Inbox::new(usize::from(attempt.parallelism), attempt.channel_capacity))
            .collect();
    }

    fn start(&self, attempt: &Attempt, subtask: u16) -> Result<StartedTask> {
        let context = TaskContext::new(attempt, &self.name, subtask)?;
        let inbox = self.inboxes.borrow()[usize::from(subtask)].clone();
        let sink = self.sink.clone();
        spawn(context, inbox.clone(), move |context| {
            let opening = SinkOpening {
                subtask,
                parallelism: context.attempt.parallelism,
                attempt: context.attempt.name.clone(),
                restored: context.attempt.restored.as_ref().map(|checkpoint| checkpoint.id),
                state: context.state.clone(),
            };
            let writer = sink.open(&opening)?;
            context.ready()?;
            let alignment = only_own_sender(inbox.channels(), subtask, context);
            SinkTask { context, inbox, alignment, writer }.run()
        })
    }
}

/// A forward edge sends through one channel; the others never carry anything.
fn only_own_sender(channels: usize, subtask: u16, context: &TaskContext) -> Alignment {
    let mut alignment = Alignment::new(channels);
    if context.attempt.parallelism > 1 {
        for channel in (0..channels).filter(|&channel| channel != usize::from(subtask)) {
            alignment.end(channel);
        }
    }
    alignment
}

struct SinkTask<'a, T> {
    context: &'a TaskContext,
    inbox: Arc<Inbox<T>>,
    alignment: Alignment,
    writer: Box<dyn SinkWriter<T>>,
}

impl<T: Data> SinkTask<'_, T> {
    fn run(mut self) -> Result<()> {
        while !self.alignment.all_ended() {
            match self.inbox.receive(self.alignment.blocked())? {
                Received::Control(Control::Complete(id)) => self.writer.commit(id)?,
                Received::Control(Control::Abort(id)) => self.alignment.abort(id),
                Received::Control(Control::Trigger(_) | Control::Subsumed(_) | Control::Finish) => {
                }
                Received::Element { element: Element::Batch(batch), .. } => {
                    self.context.count(|counters| &counters.written, batch.len() as u64);
                    self.writer.write(batch)?;
                }
                Received::Element { channel, element: Element::Signal(signal) } => {
                    let aligned = match signal {
                        Signal::Watermark(_) => None,
                        Signal::Barrier(barrier) => self.alignment.barrier(channel, barrier),
                        Signal::End => self.alignment.end(channel),
                    };
                    if let Some(barrier) = aligned {
                        self.prepare(barrier.checkpoint)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let begun = Instant::now();
        let state = self.writer.prepare(checkpoint)?;
        self.context.part_of(checkpoint, begun.elapsed()).send(Ok((state, None)));
        Ok(())
    }
}
