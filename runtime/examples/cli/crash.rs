//! Crashing on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_runtime::{Data, ReadStatus, Record, Source, SplitReader};
use weir_state_api::{Millis, Result};

/// The status of a process that was killed, as shells report it: 128 + 9.
pub(crate) const EXIT_CODE: i32 = 137;

type LastWords = dyn Fn(u64) + Send + Sync;

/// The moment at which the process ends, counted in records read by all sources together.
pub(crate) struct CrashPoint {
    after: u64,
    read: AtomicU64,
    last_words: Box<LastWords>,
}

impl CrashPoint {
    /// After `after` records `last_words` is called with the number read; then the process is over.
    pub(crate) fn new(after: u64, last_words: impl Fn(u64) + Send + Sync + 'static) -> Self {
        CrashPoint { after, read: AtomicU64::new(0), last_words: Box::new(last_words) }
    }

    fn count(&self, records: u64) {
        let before = self.read.fetch_add(records, Relaxed);
        // Of all threads that read, one is the first to be over.
        if before < self.after && self.after <= before + records {
            (self.last_words)(before + records);
            // No destructor runs and no other thread is waited for: what is not durable is lost.
            std::process::exit(EXIT_CODE);
        }
    }
}

/// A source that may crash the process.
pub(crate) struct Crashing<S> {
    source: S,
    point: Option<Arc<CrashPoint>>,
}

impl<S> Crashing<S> {
    /// `source` as it is, and the process ends at `point`, if there is one.
    pub(crate) fn at(point: Option<Arc<CrashPoint>>, source: S) -> Self {
        Crashing { source, point }
    }
}

impl<S: Source> Source for Crashing<S> {
    type Out = S::Out;

    fn splits(&self) -> u32 {
        self.source.splits()
    }

    fn open(&self, split: u32, offset: u64) -> Result<Box<dyn SplitReader<S::Out>>> {
        let reader = self.source.open(split, offset)?;
        Ok(match &self.point {
            Some(point) => Box::new(Reader { reader, point: point.clone() }),
            None => reader,
        })
    }
}

struct Reader<T> {
    reader: Box<dyn SplitReader<T>>,
    point: Arc<CrashPoint>,
}

impl<T: Data> SplitReader<T> for Reader<T> {
    fn read(&mut self, limit: usize, records: &mut Vec<Record<T>>) -> Result<ReadStatus> {
        let before = records.len();
        let status = self.reader.read(limit, records)?;
        self.point.count((records.len() - before) as u64);
        Ok(status)
    }

    fn watermark(&self) -> Millis {
        self.reader.watermark()
    }
}
