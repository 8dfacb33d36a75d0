//! Windows of event time.
//!
//! All queries share one convention: a watermark `w` says that no event with a time of `w` or
//! earlier will come. A window is complete when the watermark reaches its last millisecond.

use weir_runtime::TimeWindow;

use super::event::Millis;

/// The times from `start` (included) to `end` (excluded).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Window {
    /// The first millisecond.
    pub(crate) start: Millis,
    /// The millisecond after the last.
    pub(crate) end: Millis,
}

impl Window {
    /// The window that `time` is in, when windows of `size` ms follow each other from the epoch.
    pub(crate) fn tumbling(time: Millis, size: Millis) -> Self {
        let start = time - time.rem_euclid(size);
        Window { start, end: start + size }
    }

    /// The windows that `time` is in, earliest first, when a window of `size` ms starts every
    /// `slide` ms from the epoch on; `size` is a multiple of `slide`.
    pub(crate) fn sliding(time: Millis, size: Millis, slide: Millis) -> impl Iterator<Item = Self> {
        let last = time - time.rem_euclid(slide);
        (0..size / slide).rev().map(move |slides| {
            let start = last - slides * slide;
            Window { start, end: start + size }
        })
    }
}

impl From<TimeWindow> for Window {
    fn from(TimeWindow { start, end }: TimeWindow) -> Self {
        Window { start, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tumbling_windows_are_half_open() {
        let window = |time| Window::tumbling(time, 10);
        assert_eq!(window(0), Window { start: 0, end: 10 });
        assert_eq!(window(9), window(0));
        assert_eq!(window(10), Window { start: 10, end: 20 });
        assert_eq!(window(-1), Window { start: -10, end: 0 });
    }

    #[test]
    fn a_time_is_in_every_sliding_window_that_covers_it() {
        let starts = |time| Window::sliding(time, 10, 2).map(|w| w.start).collect::<Vec<_>>();
        assert_eq!(starts(10), [2, 4, 6, 8, 10]);
        assert_eq!(starts(11), [2, 4, 6, 8, 10]);
        assert_eq!(starts(-1), [-10, -8, -6, -4, -2]);
        assert!(Window::sliding(7, 10, 2).all(|w| w.start <= 7 && 7 < w.end));
    }
}
