//! Timer queues: ordered on disk per key group, with the first timers of all groups in memory.

mod queue;

pub(crate) use queue::{TimerQueue, time_of_suffix};
