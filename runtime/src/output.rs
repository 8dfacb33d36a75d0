//! Where a task's records go: fused stateless steps, then partitioned, batched channels.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use weir_state_api::{
    Codec, KeyRef, MaxParallelism, Ordered, OrderedType, Result, subtask_of_group,
};

use crate::inbox::Inbox;
use crate::record::{Data, Element, Record, Signal};

/// The sending side of one task.
pub(crate) trait Output<T>: Send {
    fn record(&mut self, record: Record<T>) -> Result<()>;
    /// Sends what is buffered, then the signal, to every receiver.
    fn signal(&mut self, signal: Signal) -> Result<()>;
    /// Sends what is buffered.
    fn flush(&mut self) -> Result<()>;
}

/// Makes outputs for the subtasks of an attempt.
pub(crate) trait OutputPlan<T> {
    fn output(&self, settings: &OutputSettings) -> Box<dyn Output<T>>;
}

/// What an output must know about its attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputSettings {
    pub(crate) subtask: u16,
    pub(crate) parallelism: u16,
    pub(crate) max_parallelism: MaxParallelism,
    pub(crate) batch_size: usize,
}

/// The consumers of a stream; grows while the graph is built.
pub(crate) type Outputs<T> = Rc<RefCell<Vec<Rc<dyn OutputPlan<T>>>>>;

/// One output for all consumers of a stream.
pub(crate) fn fan_out<T: Data>(
    plans: &Outputs<T>,
    settings: &OutputSettings,
) -> Box<dyn Output<T>> {
    let mut outputs: Vec<_> = plans.borrow().iter().map(|plan| plan.output(settings)).collect();
    match outputs.len() {
        1 => outputs.remove(0),
        _ => Box::new(FanOut(outputs)),
    }
}

/// Copies to several consumers; with none, drops everything.
struct FanOut<T>(Vec<Box<dyn Output<T>>>);

impl<T: Data> Output<T> for FanOut<T> {
    fn record(&mut self, record: Record<T>) -> Result<()> {
        if let Some((last, others)) = self.0.split_last_mut() {
            for output in others {
                output.record(record.clone())?;
            }
            last.record(record)?;
        }
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        self.0.iter_mut().try_for_each(|output| output.signal(signal))
    }

    fn flush(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(|output| output.flush())
    }
}

/// A stateless step, fused into the task before it.
pub(crate) struct FlatMapPlan<T, U, F> {
    pub(crate) f: F,
    pub(crate) next: Outputs<U>,
    pub(crate) input: std::marker::PhantomData<fn(T)>,
}

impl<T: Data, U: Data, F> OutputPlan<T> for FlatMapPlan<T, U, F>
where
    F: Fn(Record<T>, &mut dyn FnMut(Record<U>) -> Result<()>) -> Result<()>
        + Clone
        + Send
        + 'static,
{
    fn output(&self, settings: &OutputSettings) -> Box<dyn Output<T>> {
        Box::new(FlatMap { f: self.f.clone(), next: fan_out(&self.next, settings) })
    }
}

struct FlatMap<U, F> {
    f: F,
    next: Box<dyn Output<U>>,
}

impl<T, U, F> Output<T> for FlatMap<U, F>
where
    F: Fn(Record<T>, &mut dyn FnMut(Record<U>) -> Result<()>) -> Result<()> + Send,
{
    fn record(&mut self, record: Record<T>) -> Result<()> {
        (self.f)(record, &mut |record| self.next.record(record))
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        self.next.signal(signal)
    }

    fn flush(&mut self) -> Result<()> {
        self.next.flush()
    }
}

/// Picks the receiving subtask of a record.
pub(crate) enum Partition<T> {
    /// The subtask with the sender's number.
    Forward,
    /// The owner of the record's key.
    Key(Arc<KeyEncoder<T>>),
}

/// Encodes a record's key into a buffer.
pub(crate) type KeyEncoder<T> = dyn Fn(&T, &mut Vec<u8>) -> Result<()> + Send + Sync;

/// Extracts a record's key.
pub(crate) type KeyOf<T, K> = Arc<dyn Fn(&T) -> K + Send + Sync>;

/// The encoder for keys that `key_of` extracts.
pub(crate) fn key_encoder<T, K>(key_of: KeyOf<T, K>) -> Arc<KeyEncoder<T>>
where
    T: 'static,
    K: 'static,
    K: OrderedType,
{
    Arc::new(move |value, out| Ordered.encode(&key_of(value), out))
}

/// The inboxes of the consumer's subtasks in the current attempt.
pub(crate) type InboxCell<T> = Rc<RefCell<Vec<Arc<Inbox<T>>>>>;

/// An edge of the graph: channels into every subtask of a consumer.
pub(crate) struct EdgePlan<T> {
    pub(crate) inboxes: InboxCell<T>,
    /// Number of this edge among the consumer's inputs.
    pub(crate) input: usize,
    pub(crate) partition: Rc<Partition<T>>,
}

impl<T: Data> OutputPlan<T> for EdgePlan<T> {
    fn output(&self, settings: &OutputSettings) -> Box<dyn Output<T>> {
        let inboxes = self.inboxes.borrow().clone();
        let channel =
            self.input * usize::from(settings.parallelism) + usize::from(settings.subtask);
        let buffers = inboxes.iter().map(|_| Vec::new()).collect();
        let partition = match &*self.partition {
            Partition::Forward => Partition::Forward,
            Partition::Key(encoder) => Partition::Key(encoder.clone()),
        };
        Box::new(Edge {
            inboxes,
            channel,
            buffers,
            partition,
            settings: *settings,
            key: Vec::new(),
        })
    }
}

struct Edge<T> {
    inboxes: Vec<Arc<Inbox<T>>>,
    channel: usize,
    buffers: Vec<Vec<Record<T>>>,
    partition: Partition<T>,
    settings: OutputSettings,
    key: Vec<u8>,
}

impl<T> Edge<T> {
    fn target(&mut self, value: &T) -> Result<usize> {
        if self.inboxes.len() == 1 {
            return Ok(0);
        }
        match &self.partition {
            Partition::Forward => Ok(usize::from(self.settings.subtask)),
            Partition::Key(encoder) => {
                self.key.clear();
                encoder(value, &mut self.key)?;
                let max = self.settings.max_parallelism;
                let group = KeyRef::new(&self.key, max)?.group();
                Ok(usize::from(subtask_of_group(max, self.settings.parallelism, group)))
            }
        }
    }

    fn flush_one(&mut self, target: usize) -> Result<()> {
        if self.buffers[target].is_empty() {
            return Ok(());
        }
        let empty = Vec::with_capacity(self.settings.batch_size);
        let batch = std::mem::replace(&mut self.buffers[target], empty);
        self.inboxes[target].send(self.channel, Element::Batch(batch))
    }
}

impl<T: Data> Output<T> for Edge<T> {
    fn record(&mut self, record: Record<T>) -> Result<()> {
        let target = self.target(&record.value)?;
        self.buffers[target].push(record);
        if self.buffers[target].len() >= self.settings.batch_size {
            self.flush_one(target)?;
        }
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        self.flush()?;
        // A forward channel has one receiver; the others hear from their own sender.
        let receivers = match self.partition {
            Partition::Forward if self.inboxes.len() > 1 => {
                let own = usize::from(self.settings.subtask);
                own..own + 1
            }
            _ => 0..self.inboxes.len(),
        };
        self.inboxes[receivers]
            .iter()
            .try_for_each(|inbox| inbox.send(self.channel, Element::Signal(signal)))
    }

    fn flush(&mut self) -> Result<()> {
        (0..self.buffers.len()).try_for_each(|target| self.flush_one(target))
    }
}
