//! A source from memory, for tests and examples.

use std::sync::Arc;

use weir_state_api::{Error, ErrorKind, Millis, Result};

use crate::record::{Data, MIN_TIME, Record};
use crate::source::{ReadStatus, Source, SplitReader};

/// Reads values with event times from memory; one split per vector, in ascending time.
#[derive(Debug, Clone)]
pub struct VecSource<T> {
    splits: Vec<Arc<Vec<Record<T>>>>,
}

impl<T> VecSource<T> {
    /// A source with one split. Times must not descend: records behind a later one are late.
    pub fn new(records: impl IntoIterator<Item = (Millis, T)>) -> Self {
        Self::with_splits([records])
    }

    /// A source with a split for each collection.
    pub fn with_splits(
        splits: impl IntoIterator<Item = impl IntoIterator<Item = (Millis, T)>>,
    ) -> Self {
        let record = |(time, value)| Record { time, value };
        let splits = splits
            .into_iter()
            .map(|records| Arc::new(records.into_iter().map(record).collect()))
            .collect();
        VecSource { splits }
    }
}

impl<T: Data + Sync> Source for VecSource<T> {
    type Out = T;

    fn splits(&self) -> u32 {
        self.splits.len() as u32
    }

    fn open(&self, split: u32, offset: u64) -> Result<Box<dyn SplitReader<T>>> {
        let records = self.splits[split as usize].clone();
        match usize::try_from(offset) {
            Ok(next) if next <= records.len() => Ok(Box::new(Reader { records, next })),
            _ => Err(Error::new(
                ErrorKind::Incompatible,
                format!("split {split} has {} records, not {offset}", records.len()),
            )
            .advice("restore with the input that the checkpoint was taken with")),
        }
    }
}

struct Reader<T> {
    records: Arc<Vec<Record<T>>>,
    next: usize,
}

impl<T: Data + Sync> SplitReader<T> for Reader<T> {
    fn read(&mut self, limit: usize, records: &mut Vec<Record<T>>) -> Result<ReadStatus> {
        let end = self.records.len().min(self.next + limit);
        records.extend_from_slice(&self.records[self.next..end]);
        self.next = end;
        Ok(if end == self.records.len() { ReadStatus::End } else { ReadStatus::More })
    }

    fn watermark(&self) -> Millis {
        // A record of the same time may follow.
        match self.next.checked_sub(1) {
            Some(last) => self.records[last].time.saturating_sub(1),
            None => MIN_TIME,
        }
    }
}
