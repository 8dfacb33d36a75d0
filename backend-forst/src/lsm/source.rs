//! Sorted sequences of entries: what memtables, runs and files are to a merge.

use std::task::{Context, Poll};

use weir_state_api::{Result, StateId};

use crate::format::Entry;

/// The way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// One memtable or one run, read in one direction. A key occurs once.
pub(crate) trait SortedSource {
    /// Brings the entry at the present place into memory. Ready at once when it is there; pending
    /// while it is read from the store.
    ///
    /// # Errors
    /// Those of the read. The source may be asked again.
    fn poll_entry(&mut self, context: &mut Context<'_>) -> Poll<Result<()>>;

    /// The entry at the present place; `None` behind the last one. Only called after
    /// [`poll_entry`](SortedSource::poll_entry) was ready.
    fn entry(&self) -> Option<Entry<'_>>;

    /// Moves to the next place.
    fn advance(&mut self);

    /// The era of the present entry, whose state this is.
    fn era(&self, state: StateId) -> u8;

    /// Whether a range delete of this source removes a key from older sources.
    fn hides(&self, key: &[u8]) -> bool;
}
