//! Several sorted sources as one sequence of keys.

use std::task::{Context, Poll, ready};

use weir_state_api::Result;

use super::source::{Direction, SortedSource};
use crate::format::Entry;

/// Walks over the keys of all sources in order, each key once with all its versions.
///
/// Nothing is copied: entries are lent from where the sources stand. The number of sources is small
/// (memtables and runs), so they are kept sorted by insertion: while one source brings many keys in a
/// row, a step costs one comparison.
#[derive(Debug)]
pub(crate) struct Merge<S> {
    /// Newest first.
    sources: Vec<S>,
    direction: Direction,
    /// Sources with an entry in memory, by key, then age, newest first.
    order: Vec<usize>,
    /// Sources that have moved and are not in order yet.
    moved: Vec<usize>,
    /// How many sources in front stand at the present key.
    at_key: usize,
    /// How many of them no newer range delete hides.
    visible: usize,
}

impl<S: SortedSource> Merge<S> {
    /// `sources` newest first, each read in `direction`. The first key is reached by
    /// [`poll_next`](Merge::poll_next).
    pub(crate) fn new(sources: Vec<S>, direction: Direction) -> Self {
        let moved = (0..sources.len()).collect();
        Merge {
            order: Vec::with_capacity(sources.len()),
            sources,
            direction,
            moved,
            at_key: 0,
            visible: 0,
        }
    }

    /// Moves to the next key; `false` behind the last one.
    ///
    /// # Errors
    /// Those of the sources. The call may be repeated: a failure never looks like the end.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<bool>> {
        if let ([only], []) = (&self.order[..], &self.moved[..]) {
            return self.poll_only(*only, context);
        }
        for source in self.order.drain(..self.at_key) {
            self.sources[source].advance();
            self.moved.push(source);
        }
        (self.at_key, self.visible) = (0, 0);
        ready!(self.poll_moved(context))?;
        let Some(&first) = self.order.first() else { return Poll::Ready(Ok(false)) };
        let key = key_of(&self.sources[first]);
        self.at_key = self.order[1..]
            .iter()
            .take_while(|&&source| key_of(&self.sources[source]) == key)
            .count()
            + 1;
        self.visible = self.visible_at(key);
        Poll::Ready(Ok(true))
    }

    /// Moves to the next key of the only source that has any left.
    #[inline]
    fn poll_only(&mut self, only: usize, context: &mut Context<'_>) -> Poll<Result<bool>> {
        let source = &mut self.sources[only];
        if self.at_key > 0 {
            (self.at_key, self.visible) = (0, 0);
            source.advance();
            let polled = source.poll_entry(context);
            if !matches!(polled, Poll::Ready(Ok(()))) {
                self.order.clear();
                self.moved.push(only);
            }
            ready!(polled)?;
        }
        let Some(entry) = self.sources[only].entry() else {
            self.order.clear();
            return Poll::Ready(Ok(false));
        };
        let hidden = self.sources[..only].iter().any(|newer| newer.hides(entry.key));
        (self.at_key, self.visible) = (1, usize::from(!hidden));
        Poll::Ready(Ok(true))
    }

    /// The present key, after [`poll_next`](Merge::poll_next) has found one.
    pub(crate) fn key(&self) -> &[u8] {
        self.order.first().map_or(&[], |&source| key_of(&self.sources[source]))
    }

    /// The entries of the present key that no newer range delete hides, newest first, each with its
    /// source. None at all when a range delete hides the newest.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&S, Entry<'_>)> {
        self.order[..self.visible].iter().filter_map(|&source| {
            let source = &self.sources[source];
            source.entry().map(|entry| (source, entry))
        })
    }

    /// Polls all sources that have moved, so that their reads overlap, and puts those that have an
    /// entry to their places.
    fn poll_moved(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut next = 0;
        while let Some(&source) = self.moved.get(next) {
            if self.sources[source].poll_entry(context)?.is_pending() {
                next += 1;
                continue;
            }
            self.moved.swap_remove(next);
            self.insert(source);
        }
        if self.moved.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn insert(&mut self, source: usize) {
        let Some(entry) = self.sources[source].entry() else { return };
        let before = |other: usize| {
            let by_key = entry.key.cmp(key_of(&self.sources[other]));
            let by_key = match self.direction {
                Direction::Forward => by_key,
                Direction::Backward => by_key.reverse(),
            };
            by_key.then(source.cmp(&other)).is_lt()
        };
        let place = self.order.iter().position(|&other| before(other));
        self.order.insert(place.unwrap_or(self.order.len()), source);
    }

    fn visible_at(&self, key: &[u8]) -> usize {
        let oldest = self.order[self.at_key - 1];
        let hiding = self.sources[..oldest].iter().position(|source| source.hides(key));
        hiding.map_or(self.at_key, |hiding| {
            self.order[..self.at_key].iter().take_while(|&&source| source <= hiding).count()
        })
    }
}

fn key_of(source: &impl SortedSource) -> &[u8] {
    source.entry().map_or(&[], |entry| entry.key)
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
