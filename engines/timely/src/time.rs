//! The time of the dataflow: which checkpoint a record belongs to, and how far event time is.

use std::fmt;

use serde::{Deserialize, Serialize};
use timely::PartialOrder;
use timely::progress::timestamp::{PathSummary, Refines, Timestamp};
use weir_state_api::Millis;

/// A timestamp of two independent parts: the epoch, and event time.
///
/// The order is that of products: one time is before another if both of its parts are. So a frontier
/// tells two things at once: an epoch is over when no time of the frontier lies in it or before it,
/// and the watermark is the smallest event time of the frontier, across epochs. A lexicographic order
/// would be wrong here: a source that has begun the next epoch, and whose event time is behind, would
/// not hold the watermark of the others back.
///
/// ```
/// use timely::PartialOrder;
/// use weir_engine_timely::EpochTime;
///
/// let early = EpochTime::new(1, 500);
/// assert!(early.less_equal(&EpochTime::new(2, 500)));
/// assert!(!early.less_equal(&EpochTime::new(2, 499)), "behind in event time: not comparable");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EpochTime {
    /// The epoch, counted from 0 within a run: what comes between two checkpoints.
    pub epoch: u64,
    /// Event time in milliseconds; [`Millis::MIN`](i64::MIN) where nothing is known of it.
    pub event: Millis,
}

impl EpochTime {
    /// A time from its parts.
    pub const fn new(epoch: u64, event: Millis) -> Self {
        EpochTime { epoch, event }
    }
}

impl fmt::Display for EpochTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, event time {}", self.epoch, self.event)
    }
}

impl PartialOrder for EpochTime {
    fn less_equal(&self, other: &Self) -> bool {
        self.epoch <= other.epoch && self.event <= other.event
    }
}

impl Timestamp for EpochTime {
    type Summary = EpochAdvance;

    fn minimum() -> Self {
        EpochTime::new(0, Millis::MIN)
    }
}

impl Refines<()> for EpochTime {
    fn to_inner((): ()) -> Self {
        Self::minimum()
    }

    fn to_outer(self) {}

    fn summarize(_: EpochAdvance) {}
}

/// What a path in the dataflow adds to an [`EpochTime`]; zero unless a loop adds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EpochAdvance {
    /// Epochs.
    pub epochs: u64,
    /// Milliseconds of event time.
    pub millis: i64,
}

impl PartialOrder for EpochAdvance {
    fn less_equal(&self, other: &Self) -> bool {
        self.epochs <= other.epochs && self.millis <= other.millis
    }
}

impl PathSummary<EpochTime> for EpochAdvance {
    fn results_in(&self, time: &EpochTime) -> Option<EpochTime> {
        let epoch = time.epoch.checked_add(self.epochs)?;
        Some(EpochTime::new(epoch, time.event.checked_add(self.millis)?))
    }

    fn followed_by(&self, other: &Self) -> Option<Self> {
        let epochs = self.epochs.checked_add(other.epochs)?;
        Some(EpochAdvance { epochs, millis: self.millis.checked_add(other.millis)? })
    }
}

/// What the frontier of an input says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The first epoch that may still get records; `None` when all input has ended.
    pub(crate) epoch: Option<u64>,
    /// No record to come has an earlier event time.
    pub(crate) event: Millis,
}

impl Progress {
    pub(crate) fn of(frontier: &[EpochTime]) -> Self {
        Progress {
            epoch: frontier.iter().map(|time| time.epoch).min(),
            event: frontier.iter().map(|time| time.event).min().unwrap_or(Millis::MAX),
        }
    }

    /// Whether nothing more comes in this epoch or before.
    pub(crate) fn is_past(&self, epoch: u64) -> bool {
        self.epoch.is_none_or(|open| open > epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_tells_the_epoch_and_the_watermark_apart() {
        let ahead = Progress::of(&[EpochTime::new(4, 5), EpochTime::new(3, 100)]);
        assert_eq!(ahead, Progress { epoch: Some(3), event: 5 });
        assert!(ahead.is_past(2) && !ahead.is_past(3));
        let ended = Progress::of(&[]);
        assert!(ended.is_past(u64::MAX));
        assert_eq!(ended.event, Millis::MAX);
    }

    #[test]
    fn summaries_add_and_overflow_to_nothing() {
        let one = EpochAdvance { epochs: 1, millis: 0 };
        assert_eq!(one.results_in(&EpochTime::new(1, 7)), Some(EpochTime::new(2, 7)));
        assert_eq!(one.results_in(&EpochTime::new(u64::MAX, 7)), None);
        assert_eq!(
            EpochAdvance::default().results_in(&EpochTime::minimum()),
            Some(EpochTime::minimum())
        );
        assert_eq!(one.followed_by(&one), Some(EpochAdvance { epochs: 2, millis: 0 }));
    }
}
