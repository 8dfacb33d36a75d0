//! Timer queues: in the tree per key group, with the first timers of all groups apart.

mod queue;
mod refill;

pub(crate) use queue::{QueueHead, TimerQueue, time_of_suffix};
