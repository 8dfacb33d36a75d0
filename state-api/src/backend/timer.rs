//! Timers as a backend keeps them: one queue per state, in the order of their times.

use std::fmt;

use crate::key::check_part_len;
use crate::{BoxFuture, KeyRef, Millis, Result, StateId};

/// A timer to register or delete.
#[derive(Debug, Clone, Copy)]
pub struct TimerRef<'a> {
    /// The queue (a state of kind [`Timers`](crate::StateKind::Timers)).
    pub queue: StateId,
    /// When it is due.
    pub time: Millis,
    /// The key it belongs to.
    pub key: KeyRef<'a>,
    /// The encoded namespace.
    pub namespace: &'a [u8],
}

impl TimerRef<'_> {
    /// Refuses a namespace that is too long; every backend asks before it registers a timer.
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge) beyond [`MAX_KEY_LEN`](crate::MAX_KEY_LEN).
    #[inline]
    pub fn check_lengths(&self) -> Result<()> {
        check_part_len("namespace", self.namespace)
    }
}

/// The outcome of polling a timer queue.
#[must_use]
pub enum TimerPoll<'a> {
    /// No timer is due.
    Idle,
    /// The first due timer, lent until the backend's next call; it is removed from the queue.
    Due(TimerRef<'a>),
    /// The head of the queue must be read first: await, then poll again.
    Pending(BoxFuture<'static, Result<()>>),
}

impl fmt::Debug for TimerPoll<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimerPoll::Idle => f.write_str("Idle"),
            TimerPoll::Due(timer) => f.debug_tuple("Due").field(timer).finish(),
            TimerPoll::Pending(_) => f.write_str("Pending"),
        }
    }
}

/// What is known, without I/O, of the head of a timer queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextTimer {
    /// There is no timer.
    Empty,
    /// The first timer is due then.
    At(Millis),
    /// There may be timers, the first one must be read: poll, and await what is pending.
    Unknown,
}
