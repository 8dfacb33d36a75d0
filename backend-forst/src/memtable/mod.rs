//! What is written and not yet in a table.
//!
//! | module | concept |
//! |---|---|
//! | `point_table` | entries of point states: a hash table, updated in place |
//! | `arena` | the memory for their keys and values |
//! | `ordered_table` | entries of maps and queues: sorted, pinned by scans |
//! | `deleted_ranges` | ranges of map keys that were deleted as a whole |
//!
//! One memtable holds all states of an instance by their stored keys, each key once: a write replaces
//! what was there. What lies in older memtables and in tables is not looked at by a write; so a delete
//! leaves a tombstone, and what is appended to nothing stays an operand.

mod arena;
mod deleted_ranges;
mod ordered_table;
mod point_table;

use std::iter::Peekable;

use weir_state_api::StateShape;

pub(crate) use deleted_ranges::DeletedRanges;
pub(crate) use ordered_table::{OrderedTable, Place};
pub(crate) use point_table::PointTable;

use crate::format::EntryKind;

/// A version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) kind: EntryKind,
    pub(crate) value: &'a [u8],
}

/// All that was written since the one before was frozen.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    points: PointTable,
    ordered: OrderedTable,
    /// They apply to what is older than this memtable; in it, what they cover is gone already.
    deleted: DeletedRanges,
}

impl Memtable {
    /// The version of a key, whose hash is known; `None` when older ones count, unless
    /// [`deleted`](Memtable::deleted) covers it.
    #[inline]
    pub(crate) fn get(&self, shape: StateShape, hash: u64, key: &[u8]) -> Option<Found<'_>> {
        match shape {
            StateShape::Point => self.points.get(hash, key),
            StateShape::Ordered | StateShape::Queue => self.ordered.get(key),
        }
    }

    /// Makes this the newest version of a key.
    #[inline]
    pub(crate) fn set(
        &mut self,
        shape: StateShape,
        hash: u64,
        key: &[u8],
        kind: EntryKind,
        value: &[u8],
    ) {
        match shape {
            StateShape::Point => self.points.set(hash, key, kind, value),
            StateShape::Ordered | StateShape::Queue => self.ordered.set(key, kind, value),
        }
    }

    /// Appends to the newest version of a key, whatever it is.
    pub(crate) fn append(&mut self, shape: StateShape, hash: u64, key: &[u8], more: &[u8]) {
        match shape {
            StateShape::Point => self.points.append(hash, key, more),
            StateShape::Ordered | StateShape::Queue => {
                self.ordered.append(key, more, self.deleted.covers(key));
            }
        }
    }

    /// Deletes all entries of maps from `from` up to `to`, here and, if there can be any, in what is
    /// older.
    pub(crate) fn delete_range(&mut self, from: &[u8], to: &[u8], older: bool) {
        self.ordered.remove_range(from, to);
        if older {
            self.deleted.add(from, to);
        }
    }

    pub(crate) fn deleted(&self) -> &DeletedRanges {
        &self.deleted
    }

    pub(crate) fn ordered(&self) -> &OrderedTable {
        &self.ordered
    }

    pub(crate) fn points(&self) -> &PointTable {
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

    /// Bytes held.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.points.memory_bytes() + self.ordered.memory_bytes() + self.deleted.memory_bytes()
    }

    /// All entries in the order of their stored keys.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = (&[u8], Found<'_>)> {
        let ordered = self
            .ordered
            .iter()
            .map(|entry| (&*entry.key, Found { kind: entry.kind, value: &entry.value }));
        InOrder { a: self.points.sorted().peekable(), b: ordered.peekable() }
    }
}

/// Two sorted sequences without common keys, as one.
struct InOrder<A: Iterator, B: Iterator> {
    a: Peekable<A>,
    b: Peekable<B>,
}

impl<'m, A, B> Iterator for InOrder<A, B>
where
    A: Iterator<Item = (&'m [u8], Found<'m>)>,
    B: Iterator<Item = (&'m [u8], Found<'m>)>,
{
    type Item = (&'m [u8], Found<'m>);

    fn next(&mut self) -> Option<Self::Item> {
        match (self.a.peek(), self.b.peek()) {
            (Some((a, _)), Some((b, _))) if a < b => self.a.next(),
            (Some(_), None) => self.a.next(),
            _ => self.b.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: StateShape = StateShape::Point;
    const MAP: StateShape = StateShape::Ordered;

    fn found(table: &Memtable, shape: StateShape, key: &[u8]) -> Option<(EntryKind, Vec<u8>)> {
        table.get(shape, hash(key), key).map(|found| (found.kind, found.value.to_vec()))
    }

    fn hash(key: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64(key)
    }

    #[test]
    fn appending_folds_into_what_is_there() {
        for shape in [POINT, MAP] {
            let mut table = Memtable::default();
            let key = b"key";
            table.append(shape, hash(key), key, b"a");
            table.append(shape, hash(key), key, b"b");
            assert_eq!(found(&table, shape, key), Some((EntryKind::Append, b"ab".to_vec())));
            table.set(shape, hash(key), key, EntryKind::Delete, b"");
            table.append(shape, hash(key), key, b"c");
            assert_eq!(found(&table, shape, key), Some((EntryKind::Put, b"c".to_vec())));
            table.append(shape, hash(key), key, b"d");
            assert_eq!(found(&table, shape, key), Some((EntryKind::Put, b"cd".to_vec())));
            assert_eq!(found(&table, shape, b"ke"), None);
        }
    }

    /// A range delete and an operand above it never meet in one table.
    #[test]
    fn appending_to_what_a_range_delete_removed_begins_anew() {
        let mut table = Memtable::default();
        table.append(MAP, 0, b"k2", b"old");
        table.delete_range(b"k1", b"k3", true);
        assert_eq!(found(&table, MAP, b"k2"), None);
        table.append(MAP, 0, b"k2", b"new");
        assert_eq!(found(&table, MAP, b"k2"), Some((EntryKind::Put, b"new".to_vec())));
        table.append(MAP, 0, b"k3", b"x");
        assert_eq!(found(&table, MAP, b"k3"), Some((EntryKind::Append, b"x".to_vec())));
    }

    #[test]
    fn all_entries_come_in_one_order_and_every_byte_is_counted() {
        let mut table = Memtable::default();
        for number in (0..1_000_u16).rev() {
            let key = number.to_be_bytes();
            let shape = if number % 3 == 0 { MAP } else { POINT };
            let value = vec![7; usize::from(number % 50)];
            table.set(shape, hash(&key), &key, EntryKind::Put, &value);
        }
        let keys: Vec<_> = table.sorted().map(|(key, _)| key.to_vec()).collect();
        assert!(
            keys.iter()
                .eq((0..1_000_u16).map(|n| n.to_be_bytes().to_vec()).collect::<Vec<_>>().iter())
        );
        let before = table.memory_bytes();
        // Overwriting with values of the same length holds no more.
        for number in 0..1_000_u16 {
            let key = number.to_be_bytes();
            let shape = if number % 3 == 0 { MAP } else { POINT };
            let value = vec![8; usize::from(number % 50)];
            table.set(shape, hash(&key), &key, EntryKind::Put, &value);
        }
        assert_eq!(table.memory_bytes(), before);
        assert_eq!(table.len(), 1_000);
    }
}
