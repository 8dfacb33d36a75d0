//! Reading no faster than wanted.

use std::time::{Duration, Instant};

use weir_runtime::{Data, ReadStatus, Record, Source, SplitReader};
use weir_state_api::{Millis, Result};

/// How long a source sleeps at most at a time, so that barriers pass in between.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// A source whose splits together yield at most so many records a second.
pub(crate) struct Paced<S> {
    source: S,
    records_per_second: Option<u32>,
}

impl<S> Paced<S> {
    /// `source` as it is, or slowed down to a rate.
    pub(crate) fn to(records_per_second: Option<u32>, source: S) -> Self {
        Paced { source, records_per_second }
    }
}

impl<S: Source> Source for Paced<S> {
    type Out = S::Out;

    fn splits(&self) -> u32 {
        self.source.splits()
    }

    fn open(&self, split: u32, offset: u64) -> Result<Box<dyn SplitReader<S::Out>>> {
        let reader = self.source.open(split, offset)?;
        let Some(rate) = self.records_per_second else { return Ok(reader) };
        let per_split = f64::from(rate) / f64::from(self.source.splits().max(1));
        Ok(Box::new(Reader { reader, per_second: per_split, read: 0, begun: Instant::now() }))
    }
}

struct Reader<T> {
    reader: Box<dyn SplitReader<T>>,
    per_second: f64,
    read: u64,
    begun: Instant,
}

impl<T: Data> SplitReader<T> for Reader<T> {
    fn read(&mut self, limit: usize, records: &mut Vec<Record<T>>) -> Result<ReadStatus> {
        let due = (self.begun.elapsed().as_secs_f64() * self.per_second) as u64;
        let allowed = usize::try_from(due.saturating_sub(self.read)).unwrap_or(usize::MAX);
        if allowed == 0 {
            return Ok(ReadStatus::Idle(LONGEST_PAUSE));
        }
        let before = records.len();
        let status = self.reader.read(limit.min(allowed), records)?;
        self.read += (records.len() - before) as u64;
        Ok(status)
    }

    fn watermark(&self) -> Millis {
        self.reader.watermark()
    }
}
