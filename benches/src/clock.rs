//! What a piece of work costs: time by the wall, and processor time.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Time that passed, three ways.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Elapsed {
    /// By the wall clock. Suffers when something else takes the core.
    pub(crate) wall: Duration,
    /// Processor time of the calling thread: what it could do with a core of its own.
    pub(crate) thread: Duration,
    /// Processor time of the whole process: garbage collection, compactions and the like are in it.
    pub(crate) process: Duration,
}

/// Measures from [`start`](Stopwatch::start) to [`stop`](Stopwatch::stop).
#[derive(Debug)]
pub(crate) struct Stopwatch {
    wall: Instant,
    thread: Duration,
    process: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Stopwatch {
            process: read(ClockId::ProcessCPUTime),
            thread: read(ClockId::ThreadCPUTime),
            wall: Instant::now(),
        }
    }

    pub(crate) fn stop(&self) -> Elapsed {
        Elapsed {
            wall: self.wall.elapsed(),
            thread: read(ClockId::ThreadCPUTime).saturating_sub(self.thread),
            process: read(ClockId::ProcessCPUTime).saturating_sub(self.process),
        }
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // Both clocks begin at 0 and never run backwards.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
