//! What is written and not yet in a table.
//!
//! | module | concept |
//! |---|---|
//! | `memtables` | those of one shard: the one that takes writes, and earlier ones |
//! | `index` | where the newest version of each key is, over all of them |
//! | `maps` | what each of them has of one map |
//! | `point_log` | entries of point states, in memory as they were written |
//! | `ordered_table` | entries of maps and queues: each map for itself |
//! | `sequence` | the entries of one map: sorted, pinned by scans |
//! | `leaf` | some of them, packed |
//! | `deleted_ranges` | ranges of map keys that were deleted as a whole |
//!
//! One memtable holds all states of an instance by their stored keys, each key once: a write replaces
//! what was there. What lies in earlier memtables and in tables stays as it is; so a delete leaves a
//! tombstone, and what is appended to nothing stays an operand.

mod deleted_ranges;
mod index;
mod leaf;
mod maps;
mod memtables;
mod ordered_table;
mod point_log;
mod sequence;

use std::iter::Peekable;

pub(crate) use deleted_ranges::DeletedRanges;
pub(crate) use maps::{MapVersion, MapVersions};
pub(crate) use memtables::{Churn, Memtables, PointSlot, Route};
pub(crate) use ordered_table::{MapRoute, OrderedTable};
pub(crate) use point_log::{LogEntry, PointLog};
pub(crate) use sequence::{Position, Sequence};

use crate::format::{EntryKind, filter_hash};
use index::Index;

/// A version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) kind: EntryKind,
    pub(crate) value: &'a [u8],
}

/// All that was written from one freeze to the next.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    points: PointLog,
    ordered: OrderedTable,
    /// They apply to what is older than this memtable; in it, what they cover is gone already.
    deleted: DeletedRanges,
}

impl Memtable {
    pub(crate) fn deleted(&self) -> &DeletedRanges {
        &self.deleted
    }

    pub(crate) fn ordered(&self) -> &OrderedTable {
        &self.ordered
    }

    pub(crate) fn points(&self) -> &PointLog {
        &self.points
    }

    /// Keys in it.
    pub(crate) fn len(&self) -> usize {
        self.points.len() + self.ordered.len()
    }

    /// Whether writing it to a table would change nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && self.deleted.is_empty()
    }

    /// Bytes held, with a slot in the indexes for each entry of a point state and for each map.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_points = self.points.len() * Index::<point_log::Place>::SLOT_BYTES;
        let of_maps = self.ordered.maps() * Index::<ordered_table::MapPlace>::SLOT_BYTES;
        of_points + of_maps + self.entry_bytes()
    }

    #[inline]
    fn entry_bytes(&self) -> usize {
        self.points.used_bytes() + self.ordered.memory_bytes() + self.deleted.memory_bytes()
    }

    /// All entries in the order of their stored keys.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = Sorted<'_>> {
        let points = self.points.sorted().map(|LogEntry { hash, key, found, .. }| Sorted {
            hash,
            key,
            found,
        });
        let ordered = self.ordered.iter().map(|entry| Sorted {
            hash: filter_hash(entry.key),
            key: entry.key,
            found: Found { kind: entry.kind, value: entry.value },
        });
        InOrder { a: points.peekable(), b: ordered.peekable() }
    }
}

/// An entry under its stored key, whose hash is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sorted<'m> {
    pub(crate) hash: u64,
    pub(crate) key: &'m [u8],
    pub(crate) found: Found<'m>,
}

/// Two sorted sequences without common keys, as one.
struct InOrder<A: Iterator, B: Iterator> {
    a: Peekable<A>,
    b: Peekable<B>,
}

impl<'m, A, B> Iterator for InOrder<A, B>
where
    A: Iterator<Item = Sorted<'m>>,
    B: Iterator<Item = Sorted<'m>>,
{
    type Item = Sorted<'m>;

    fn next(&mut self) -> Option<Self::Item> {
        match (self.a.peek(), self.b.peek()) {
            (Some(a), Some(b)) if a.key < b.key => self.a.next(),
            (Some(_), None) => self.a.next(),
            _ => self.b.next(),
        }
    }
}
