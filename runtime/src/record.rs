//! What flows through channels: records in batches, and signals between them, in order.

use weir_state_api::{CheckpointId, Millis};

/// Event time before any event.
pub const MIN_TIME: Millis = Millis::MIN;

/// Event time after every event: the watermark of an input that has ended. No record may have it.
pub const MAX_TIME: Millis = Millis::MAX;

/// Values that may flow through a job.
pub trait Data: Clone + Send + 'static {}

impl<T: Clone + Send + 'static> Data for T {}

/// A value with its event time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<T> {
    /// When the event happened, in milliseconds since the Unix epoch.
    pub time: Millis,
    /// What happened.
    pub value: T,
}

/// Divides what belongs to a checkpoint from what does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Barrier {
    pub(crate) checkpoint: CheckpointId,
    /// The oldest checkpoint that stays until this one has ended: what it may build on.
    pub(crate) reuse_from: CheckpointId,
}

/// Signals that flow in order with the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// No record with a smaller or equal event time follows.
    Watermark(Millis),
    /// All records before belong to the checkpoint, none after.
    Barrier(Barrier),
    /// Nothing follows.
    End,
}

/// An element of a channel.
#[derive(Debug)]
pub(crate) enum Element<T> {
    Batch(Vec<Record<T>>),
    Signal(Signal),
}
