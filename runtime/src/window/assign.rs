//! Windows of event time and how records are put into them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_state_api::{Error, ErrorKind, Millis, OrderedType, Result};

/// The event times `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimeWindow {
    /// The first time in the window.
    pub start: Millis,
    /// The first time behind it.
    pub end: Millis,
}

impl TimeWindow {
    /// The last time in the window; the window is complete once the watermark reaches it.
    pub fn last_time(self) -> Millis {
        self.end.saturating_sub(1)
    }

    /// Whether the windows have a time in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The smallest window that covers both.
    #[must_use]
    pub fn cover(self, other: Self) -> Self {
        TimeWindow { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// A window is a namespace: its encoding orders by start, then end.
impl OrderedType for TimeWindow {
    fn type_name() -> String {
        "time-window".into()
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.start.write(out);
        self.end.write(out);
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        Some(TimeWindow { start: i64::read(input)?, end: i64::read(input)? })
    }
}

/// Puts records into windows by their event time.
pub trait WindowAssigner: Clone + Send + Sync + 'static {
    /// Appends the windows of a record.
    fn assign(&self, time: Millis, windows: &mut Vec<TimeWindow>);

    /// Whether windows of one key that overlap become one.
    fn merges(&self) -> bool {
        false
    }
}

fn positive_millis(what: &str, duration: Duration) -> Result<Millis> {
    let millis = Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX);
    if millis == 0 {
        return Err(Error::new(
            ErrorKind::InvalidUsage,
            format!("the {what} of windows must be at least 1 ms"),
        ));
    }
    Ok(millis)
}

fn window_at(start: Millis, size: Millis) -> TimeWindow {
    TimeWindow { start, end: start.saturating_add(size) }
}

/// The start of the tumbling window of `size` that holds `time`.
fn floor(time: Millis, size: Millis) -> Millis {
    // Saturates at the smallest time, where no aligned start can be represented.
    time.saturating_sub(time.rem_euclid(size))
}

/// Windows of one size, side by side, aligned to the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TumblingWindows {
    size: Millis,
}

impl TumblingWindows {
    /// Windows of this size.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) below 1 ms.
    pub fn of(size: Duration) -> Result<Self> {
        Ok(TumblingWindows { size: positive_millis("size", size)? })
    }
}

impl WindowAssigner for TumblingWindows {
    fn assign(&self, time: Millis, windows: &mut Vec<TimeWindow>) {
        windows.push(window_at(floor(time, self.size), self.size));
    }
}

/// Windows of one size that begin at regular distances; a record is in several of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindows {
    size: Millis,
    slide: Millis,
}

impl SlidingWindows {
    /// Windows of this size, one beginning every `slide`.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) when either is below 1 ms.
    pub fn of(size: Duration, slide: Duration) -> Result<Self> {
        Ok(SlidingWindows {
            size: positive_millis("size", size)?,
            slide: positive_millis("slide", slide)?,
        })
    }
}

impl WindowAssigner for SlidingWindows {
    fn assign(&self, time: Millis, windows: &mut Vec<TimeWindow>) {
        let mut start = floor(time, self.slide);
        // Wider than the times themselves: neither end may wrap or saturate.
        while i128::from(time) - i128::from(start) < i128::from(self.size) {
            windows.push(window_at(start, self.size));
            match start.checked_sub(self.slide) {
                Some(earlier) => start = earlier,
                None => break,
            }
        }
    }
}

/// Windows that last as long as records of a key follow each other by less than a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionWindows {
    gap: Millis,
}

impl SessionWindows {
    /// Sessions that end when nothing comes for `gap`. A record exactly `gap` after the one before
    /// begins a new session. (In Flink it continues the old one, but only if it arrives before the
    /// watermark; here the result does not depend on when it arrives.)
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) below 1 ms.
    pub fn with_gap(gap: Duration) -> Result<Self> {
        Ok(SessionWindows { gap: positive_millis("gap", gap)? })
    }
}

impl WindowAssigner for SessionWindows {
    fn assign(&self, time: Millis, windows: &mut Vec<TimeWindow>) {
        windows.push(window_at(time, self.gap));
    }

    fn merges(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(assigner: &impl WindowAssigner, time: Millis) -> Vec<(Millis, Millis)> {
        let mut windows = Vec::new();
        assigner.assign(time, &mut windows);
        windows.into_iter().map(|window| (window.start, window.end)).collect()
    }

    #[test]
    fn tumbling_windows_are_aligned_also_before_the_epoch() {
        let windows = TumblingWindows::of(Duration::from_millis(10)).unwrap();
        assert_eq!(assigned(&windows, 0), [(0, 10)]);
        assert_eq!(assigned(&windows, 9), [(0, 10)]);
        assert_eq!(assigned(&windows, 10), [(10, 20)]);
        assert_eq!(assigned(&windows, -1), [(-10, 0)]);
        assigned(&windows, Millis::MIN);
        assigned(&windows, Millis::MAX);
    }

    #[test]
    fn sliding_windows_overlap_or_leave_gaps() {
        let of = |size, slide| {
            SlidingWindows::of(Duration::from_millis(size), Duration::from_millis(slide)).unwrap()
        };
        assert_eq!(assigned(&of(10, 5), 7), [(5, 15), (0, 10)]);
        assert_eq!(assigned(&of(5, 10), 3), [(0, 5)]);
        assert_eq!(assigned(&of(5, 10), 7), []);
        assert_eq!(assigned(&of(10, 5), -1), [(-5, 5), (-10, 0)]);
        assert_eq!(assigned(&of(10, 5), Millis::MAX - 1).len(), 2);
    }

    #[test]
    fn overlapping_sessions_merge_and_adjacent_ones_do_not() {
        let a = TimeWindow { start: 0, end: 10 };
        let b = TimeWindow { start: 9, end: 20 };
        assert!(a.overlaps(b) && b.overlaps(a));
        assert_eq!(a.cover(b), TimeWindow { start: 0, end: 20 });
        assert!(!a.overlaps(TimeWindow { start: 10, end: 20 }));
    }

    #[test]
    fn empty_sizes_are_refused() {
        assert!(TumblingWindows::of(Duration::ZERO).is_err());
        assert!(SlidingWindows::of(Duration::from_secs(1), Duration::ZERO).is_err());
        assert!(SessionWindows::with_gap(Duration::from_nanos(1)).is_err());
    }
}
