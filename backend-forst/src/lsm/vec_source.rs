//! A source for tests: entries in memory, and reads that pend and fail when told.

use std::task::{Context, Poll};

use weir_state_api::{Error, ErrorKind, Result, StateId};

use super::source::{Direction, SortedSource};
use crate::format::{Entry, EntryKind};

/// Entries and range deletes of one run.
#[derive(Debug, Clone, Default)]
pub(crate) struct VecSource {
    entries: Vec<(Vec<u8>, EntryKind, Vec<u8>)>,
    range_deletes: Vec<(Vec<u8>, Vec<u8>)>,
    at: usize,
    /// The eras of entries, if they are not all of the first.
    eras: Vec<(Vec<u8>, u8)>,
    /// Each entry pends once before it is there.
    pends: bool,
    polled: bool,
    /// The place whose first read fails.
    fails_at: Option<usize>,
}

impl VecSource {
    /// `entries` ascending.
    pub(crate) fn new(
        entries: impl IntoIterator<Item = (Vec<u8>, EntryKind, Vec<u8>)>,
        direction: Direction,
    ) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "a key occurs twice or out of order");
        if direction == Direction::Backward {
            entries.reverse();
        }
        VecSource { entries, ..VecSource::default() }
    }

    pub(crate) fn with_range_deletes(mut self, range_deletes: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        self.range_deletes = range_deletes;
        self
    }

    /// `eras` by key.
    pub(crate) fn with_eras(mut self, eras: Vec<(Vec<u8>, u8)>) -> Self {
        self.eras = eras;
        self
    }

    pub(crate) fn range_deletes(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.range_deletes
    }

    pub(crate) fn pending(mut self) -> Self {
        self.pends = true;
        self
    }

    pub(crate) fn failing_at(mut self, place: usize) -> Self {
        self.fails_at = Some(place);
        self
    }
}

impl SortedSource for VecSource {
    fn poll_entry(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.pends && !std::mem::replace(&mut self.polled, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.fails_at == Some(self.at) {
            self.fails_at = None;
            return Poll::Ready(Err(Error::new(ErrorKind::Unavailable, "the read failed")));
        }
        Poll::Ready(Ok(()))
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let (key, kind, value) = self.entries.get(self.at)?;
        Some(Entry { key, kind: *kind, value })
    }

    fn advance(&mut self) {
        self.at += 1;
        self.polled = false;
    }

    fn era(&self, _state: StateId) -> u8 {
        let key = &self.entries[self.at].0;
        let at = self.eras.binary_search_by(|(other, _)| other.cmp(key));
        at.map_or(0, |at| self.eras[at].1)
    }

    fn hides(&self, key: &[u8]) -> bool {
        let covers = |(from, to): &(Vec<u8>, Vec<u8>)| from[..] <= *key && *key < to[..];
        self.range_deletes.iter().any(covers)
    }
}
