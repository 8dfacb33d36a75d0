//! The watermark of a task: the smallest of its channels.

use weir_state_api::Millis;

use crate::record::{MAX_TIME, MIN_TIME};

/// Combines the watermarks of a task's channels.
#[derive(Debug)]
pub(crate) struct Watermarks {
    channels: Vec<Millis>,
    current: Millis,
}

impl Watermarks {
    /// Starts at the watermark of the restored state: time does not go back by a restore.
    pub(crate) fn new(channels: usize, restored: Option<Millis>) -> Self {
        Watermarks { channels: vec![MIN_TIME; channels], current: restored.unwrap_or(MIN_TIME) }
    }

    pub(crate) fn current(&self) -> Millis {
        self.current
    }

    /// Notes a channel's watermark; returns the task's if it advanced.
    pub(crate) fn advance(&mut self, channel: usize, watermark: Millis) -> Option<Millis> {
        let known = &mut self.channels[channel];
        *known = (*known).max(watermark);
        let smallest = self.channels.iter().copied().min().unwrap_or(MAX_TIME);
        (smallest > self.current).then(|| {
            self.current = smallest;
            smallest
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_slowest_channel_and_never_goes_back() {
        let mut watermarks = Watermarks::new(2, None);
        assert_eq!(watermarks.advance(0, 10), None);
        assert_eq!(watermarks.advance(1, 5), Some(5));
        assert_eq!(watermarks.advance(1, 3), None);
        assert_eq!(watermarks.advance(1, 20), Some(10));
        assert_eq!(watermarks.advance(0, MAX_TIME), Some(20));
        assert_eq!(watermarks.current(), 20);
    }

    #[test]
    fn a_restored_watermark_is_not_repeated() {
        let mut watermarks = Watermarks::new(1, Some(100));
        assert_eq!(watermarks.advance(0, 90), None);
        assert_eq!(watermarks.advance(0, 101), Some(101));
    }
}
