//! Rows as a source of the runtime: in splits, from any offset, with exact watermarks.

use std::sync::Arc;

use weir_runtime::{Data, MAX_TIME, ReadStatus, Record, Source, SplitReader};
use weir_state_api::{Error, ErrorKind, Millis, Result};

use super::records::{Flight, Weather};
use super::timeline::{self, Minutes};

/// Something that happens at a point in event time.
pub(crate) trait Event: Data + Sync {
    /// When.
    fn time(&self) -> Minutes;

    /// The same, happening later.
    fn later(&self, by: Minutes) -> Self;
}

impl Event for Flight {
    fn time(&self) -> Minutes {
        self.scheduled
    }

    fn later(&self, by: Minutes) -> Self {
        Flight { scheduled: self.scheduled + by, ..self.clone() }
    }
}

impl Event for Weather {
    fn time(&self) -> Minutes {
        self.hour
    }

    fn later(&self, by: Minutes) -> Self {
        Weather { hour: self.hour + by, ..self.clone() }
    }
}

/// A source that replays rows in their order, over and over, `period` later each time.
///
/// The rows are dealt out to the splits like cards: split `s` of `n` has numbers `s`, `s + n`,
/// `s + 2n` and so on. So all splits proceed alike in event time, and an offset in a split is all it
/// takes to find the next row.
#[derive(Debug, Clone)]
pub(crate) struct Replay<T> {
    /// Sorted by event time.
    rows: Arc<Vec<T>>,
    period: Minutes,
    /// How many rows there are in all repetitions.
    count: u64,
    splits: u32,
}

impl<T: Event> Replay<T> {
    /// The first `count` of the endlessly replayed rows. These must be sorted by event time, and
    /// span less than `period`.
    pub(crate) fn new(rows: Arc<Vec<T>>, period: Minutes, count: u64, splits: u32) -> Self {
        let count = if rows.is_empty() { 0 } else { count };
        Replay { rows, period, count, splits }
    }

    /// The row to start with for `number`, and how much later it happens.
    fn find(&self, number: u64) -> (&T, Minutes) {
        let length = self.rows.len() as u64;
        // Less than the length, which is a `usize`.
        let row = &self.rows[(number % length) as usize];
        (row, (number / length) as Minutes * self.period)
    }

    /// The event time of row `number`.
    fn time(&self, number: u64) -> Millis {
        let (row, later) = self.find(number);
        timeline::millis(row.time() + later)
    }
}

impl<T: Event> Source for Replay<T> {
    type Out = T;

    fn splits(&self) -> u32 {
        self.splits
    }

    fn open(&self, split: u32, offset: u64) -> Result<Box<dyn SplitReader<T>>> {
        let next = u64::from(split) + offset * u64::from(self.splits);
        // The last row of the split may be read, so its offset is the number of its rows.
        if offset > 0 && next - u64::from(self.splits) >= self.count {
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!("the input ends before row {offset} of split {split}"),
            )
            .advice("restore with the input and options that the checkpoint was taken with"));
        }
        Ok(Box::new(Reader { replay: self.clone(), next }))
    }
}

struct Reader<T> {
    replay: Replay<T>,
    /// The number of the next row.
    next: u64,
}

impl<T: Event> SplitReader<T> for Reader<T> {
    fn read(&mut self, limit: usize, records: &mut Vec<Record<T>>) -> Result<ReadStatus> {
        for _ in 0..limit {
            if self.next >= self.replay.count {
                return Ok(ReadStatus::End);
            }
            let (row, later) = self.replay.find(self.next);
            let value = row.later(later);
            records.push(Record { time: timeline::millis(value.time()), value });
            self.next += u64::from(self.replay.splits);
        }
        Ok(ReadStatus::More)
    }

    fn watermark(&self) -> Millis {
        match self.next < self.replay.count {
            // The next row comes at this time: until just before it all is there.
            true => self.replay.time(self.next) - 1,
            false => MAX_TIME,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq)]
    struct At(Minutes);

    impl Event for At {
        fn time(&self) -> Minutes {
            self.0
        }

        fn later(&self, by: Minutes) -> Self {
            At(self.0 + by)
        }
    }

    fn read(reader: &mut dyn SplitReader<At>, limit: usize) -> (Vec<Minutes>, ReadStatus) {
        let mut records = Vec::new();
        let status = reader.read(limit, &mut records).unwrap();
        for record in &records {
            assert_eq!(record.time, timeline::millis(record.value.0));
        }
        (records.into_iter().map(|record| record.value.0).collect(), status)
    }

    #[test]
    fn rows_are_dealt_out_and_repeated_later() {
        let replay = Replay::new(Arc::new(vec![At(1), At(2), At(2)]), 10, 8, 2);
        let mut split = replay.open(0, 0).unwrap();
        assert_eq!(split.watermark(), timeline::millis(1) - 1);
        assert_eq!(read(&mut *split, 3), (vec![1, 2, 12], ReadStatus::More));
        assert_eq!(split.watermark(), timeline::millis(21) - 1);
        assert_eq!(read(&mut *split, 3), (vec![21], ReadStatus::End));
        assert_eq!(split.watermark(), MAX_TIME);
        let mut split = replay.open(1, 0).unwrap();
        assert_eq!(read(&mut *split, 9), (vec![2, 11, 12, 22], ReadStatus::End));
    }

    #[test]
    fn a_split_goes_on_at_any_offset() {
        let replay = Replay::new(Arc::new(vec![At(1), At(2), At(5)]), 10, 20, 3);
        let (all, _) = read(&mut *replay.open(2, 0).unwrap(), 20);
        for offset in 0..=all.len() {
            let mut split = replay.open(2, offset as u64).unwrap();
            assert_eq!(read(&mut *split, 20).0, all[offset..]);
        }
    }

    #[test]
    fn nothing_is_replayed_as_nothing() {
        let replay = Replay::<At>::new(Arc::default(), 10, 5, 1);
        let mut split = replay.open(0, 0).unwrap();
        assert_eq!(split.watermark(), MAX_TIME);
        assert_eq!(read(&mut *split, 1), (vec![], ReadStatus::End));
    }
}
