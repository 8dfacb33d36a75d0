//! Scans of maps that begin with a walk that is there already.
//!
//! To make an iterator of RocksDB costs more than to read the ten entries of a short map with it; to
//! set one back costs little. So a scan that ends with its first page, as most do, leaves its walk to
//! the next scan, of whatever map of the same database.
//!
//! Such a walk has no upper bound, because RocksDB fixes bounds when it makes an iterator. Here the scan
//! knows where its map ends, but RocksDB does not: behind the last entry it looks for the next one, over
//! all deleted ones of the maps that follow. So it is told to give up after some; the rest is then left
//! to a walk with a bound, as is what follows the first page.

use std::ops::ControlFlow;
use std::sync::Arc;

use rocksdb::ReadOptions;
use weir_state_api::stored_key::map_bounds;
use weir_state_api::{MapRange, Order, Page, Result, ScanStep, StateShape};

use super::MapScan;
use super::map::{make_room, push, stands_for_something};
use crate::database::{Database, Walk};
use crate::shard::StoredState;

/// Deleted and overwritten entries that a walk steps over at a time. To make a new walk costs about as
/// much.
const MAX_SKIPPED: u64 = 32;

/// Writes after which a walk that no scan has taken meanwhile is let go: it holds the write buffer and
/// the files that were there when it was last taken.
const MAX_WRITES: usize = 1_024;

/// The walk that the next scan takes, if there is one.
#[derive(Debug, Default)]
pub(crate) struct KeptWalk {
    walk: Option<Walk>,
    /// Writes since it was last taken.
    writes: usize,
}

/// How far a first look at a map came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// To the end of the map, or as far as was wanted.
    Done,
    /// Not so far; more may follow.
    Unfinished,
}

impl KeptWalk {
    /// Counts writes.
    #[inline]
    pub(crate) fn note_writes(&mut self, writes: usize) {
        self.writes += writes;
        if self.writes >= MAX_WRITES {
            self.let_go();
        }
    }

    /// Holds nothing any more.
    pub(crate) fn let_go(&mut self) {
        *self = KeptWalk::default();
    }

    /// Begins a scan upwards over a range of the map whose stored keys begin with `prefix`. It serves
    /// pages that most maps fit in; what such a page leaves over costs a walk of its own.
    pub(crate) fn scan(
        &mut self,
        database: &Arc<Database>,
        state: StoredState,
        prefix: &[u8],
        range: MapRange<'_>,
        page: &mut Page,
    ) -> Result<ScanStep> {
        make_room(page);
        let before = page.len();
        let (from, to) = map_bounds(prefix, range);
        let outcome = self.walk_over(database, &from, &to, |database, stored, value| {
            if page.is_full() {
                return Ok(ControlFlow::Break(Outcome::Unfinished));
            }
            push(database, state, &stored[prefix.len()..], value, page)?;
            Ok(ControlFlow::Continue(()))
        })?;
        if outcome == Outcome::Done {
            return Ok(ScanStep::Last);
        }
        // Nothing was written meanwhile, so a second walk sees what the first one saw.
        let from = match page.len().checked_sub(1).filter(|last| *last >= before) {
            Some(last) => {
                let map_key = page.get(last).map_or(&[][..], |(map_key, _)| map_key);
                [prefix, map_key, &[0]].concat()
            }
            None => from,
        };
        MapScan::start(database, state, (from, to), Order::Ascending, prefix.len())?
            .first_page(page)
    }

    /// Whether the map whose stored keys begin with `prefix` has any entry.
    pub(crate) fn finds_any(
        &mut self,
        database: &Arc<Database>,
        state: StoredState,
        prefix: &[u8],
    ) -> Result<bool> {
        let mut found = false;
        let (from, to) = map_bounds(prefix, MapRange::ALL);
        let outcome = self.walk_over(database, &from, &to, |database, _, value| {
            found = stands_for_something(database, state, value)?;
            Ok(if found { ControlFlow::Break(Outcome::Done) } else { ControlFlow::Continue(()) })
        })?;
        if outcome == Outcome::Done {
            return Ok(found);
        }
        MapScan::start(database, state, (from, to), Order::Ascending, prefix.len())?.finds_any()
    }

    /// Hands over the entries from `from` up to `to`, until `take` breaks off.
    fn walk_over(
        &mut self,
        database: &Arc<Database>,
        from: &[u8],
        to: &[u8],
        mut take: impl FnMut(&Database, &[u8], &[u8]) -> Result<ControlFlow<Outcome>>,
    ) -> Result<Outcome> {
        let (mut walk, is_new) = match self.walk.take() {
            Some(walk) => (walk, false),
            None => {
                let mut options = ReadOptions::default();
                options.set_max_skippable_internal_keys(MAX_SKIPPED);
                (database.walk(StateShape::Ordered, options)?, true)
            }
        };
        let sought = if is_new { walk.seek(from) } else { walk.restart(from) };
        let mut outcome = Outcome::Done;
        let walked = sought.and_then(|_| {
            walk.each(Order::Ascending, |database, stored, value| {
                if stored >= to {
                    return Ok(ControlFlow::Break(()));
                }
                Ok(match take(database, stored, value)? {
                    ControlFlow::Continue(()) => ControlFlow::Continue(()),
                    ControlFlow::Break(as_far) => {
                        outcome = as_far;
                        ControlFlow::Break(())
                    }
                })
            })
        });
        if let Err(error) = walked {
            if !walk.has_given_up() {
                return Err(error);
            }
            outcome = Outcome::Unfinished;
        }
        *self = KeptWalk { walk: Some(walk), writes: 0 };
        Ok(outcome)
    }
}
