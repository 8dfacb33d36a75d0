//! Replayable sources: splits with offsets.

use std::time::Duration;

use weir_state_api::{Millis, Result};

use crate::record::{Data, Record};

/// A source of records in a fixed number of splits, each replayable from any offset.
///
/// Splits are given out to the source's subtasks; their offsets are part of every checkpoint, so
/// after a failure, or at another parallelism, reading goes on exactly where the checkpoint was.
pub trait Source: Send + Sync + 'static {
    /// What the records carry.
    type Out: Data;

    /// The number of splits; the same in every run that shares checkpoints.
    fn splits(&self) -> u32;

    /// Opens split `split` so that the next record is number `offset` (the first is 0).
    ///
    /// # Errors
    /// When the input is missing or malformed; the job fails or recovers. An offset behind the end
    /// is an error too ([`Incompatible`](weir_state_api::ErrorKind::Incompatible)): the input is not
    /// the one that the checkpoint was taken with.
    fn open(&self, split: u32, offset: u64) -> Result<Box<dyn SplitReader<Self::Out>>>;
}

/// What a split has to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadStatus {
    /// There may be more at once.
    More,
    /// Nothing for now; ask again after this time. Buffered records and the watermark are sent on
    /// meanwhile, so a live source returns this rather than wait inside of `read`.
    Idle(Duration),
    /// The split has ended.
    End,
}

/// Reads one split.
pub trait SplitReader<T>: Send {
    /// Appends up to `limit` records. Each appended record counts one in the split's offset.
    ///
    /// # Errors
    /// When the input fails or is malformed; the job fails or recovers.
    fn read(&mut self, limit: usize, records: &mut Vec<Record<T>>) -> Result<ReadStatus>;

    /// The event time that the records read so far have reached: no record with a smaller or equal
    /// time follows in this split. It must not depend on how the reads were cut.
    ///
    /// It is asked for every eighth batch, about ten times a second at least as long as reads
    /// return, and at [`Idle`](ReadStatus::Idle) and [`End`](ReadStatus::End).
    fn watermark(&self) -> Millis;
}
