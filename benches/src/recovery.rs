//! How long a restored subtask takes until it is as fast as it was before.
//!
//! It reads as an operator does that has many records in flight: a thousand keys at a time, some of them
//! much more often than others.

use std::time::{Duration, Instant};

use weir_state_api::Result;

use crate::interrupt;
use crate::shuffle::Random;
use crate::stage::Subtask;
use crate::statistics::quantile;
use crate::zipf::Zipf;

/// Records in flight.
const AT_A_TIME: usize = 1_000;
/// Over which time a speed is taken.
const WINDOW: Duration = Duration::from_millis(10);
/// A restored subtask is as fast as before when it is at this much of it.
const AS_FAST: f64 = 0.9;

/// Reads of a subtask: which keys, in which order.
pub(crate) struct Reads {
    keys: Vec<i64>,
    zipf: Zipf,
    random: Random,
}

/// When a restored subtask got how fast, from the request to restore it.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Half as fast as before, if it was in time.
    pub(crate) half: Option<Duration>,
    /// As fast as before, if it was in time.
    pub(crate) whole: Option<Duration>,
    /// The last speed, over the one before.
    pub(crate) reached: f64,
}

impl Reads {
    /// Of the keys that are the subtask's, all in the round in which they were written first.
    pub(crate) fn of(task: &mut Subtask, order: &[i64]) -> Result<Self> {
        let keys = task.own(order)?;
        let zipf = Zipf::new(keys.len().max(1) as u64, 0.99);
        Ok(Reads { keys, zipf, random: Random(42) })
    }

    /// Reads for so long; the speed of the middle window, in reads a second.
    pub(crate) fn speed(&mut self, task: &mut Subtask, time: Duration) -> Result<f64> {
        let begun = Instant::now();
        let mut speeds = Vec::new();
        while speeds.is_empty() || begun.elapsed() < time {
            speeds.push(self.window(task)?);
        }
        Ok(quantile(&speeds, 0.5))
    }

    /// Reads until the subtask is as fast as `before`, or for so long.
    pub(crate) fn recover(
        &mut self,
        task: &mut Subtask,
        begun: Instant,
        before: f64,
        limit: Duration,
    ) -> Result<Recovery> {
        let first = Instant::now();
        let mut recovery = Recovery { half: None, whole: None, reached: 0.0 };
        while recovery.whole.is_none() && first.elapsed() < limit && !interrupt::requested() {
            recovery.reached = self.window(task)? / before;
            let now = begun.elapsed();
            if recovery.reached >= 0.5 {
                recovery.half.get_or_insert(now);
            }
            if recovery.reached >= AS_FAST {
                recovery.whole = Some(now);
            }
        }
        Ok(recovery)
    }

    /// The speed over one window.
    fn window(&mut self, task: &mut Subtask) -> Result<f64> {
        let begun = Instant::now();
        let mut count = 0;
        while begun.elapsed() < WINDOW {
            let (keys, zipf, random) = (&self.keys, &self.zipf, &mut self.random);
            let some = (0..AT_A_TIME).map(|_| keys[zipf.next(random) as usize]);
            task.check_many(&some.collect::<Vec<_>>(), 0)?;
            count += AT_A_TIME;
        }
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    }
}
