//! Map states: an ordered map of byte strings per (key, namespace).

use std::ops::Bound;

use weir_state_api::{Change, MapRange, Result, UpdateFn};

use crate::clean_up::Sieve;
use crate::compact_bytes::CompactBytes;
use crate::keyed_table::{Fate, KeyedTable, Locator, Slot, same_bytes};
use crate::limits::ValueLimit;
use crate::sorted_chunks::{Position, SortedChunks};

/// A map entry.
#[derive(Debug, Clone)]
pub(crate) struct MapEntry {
    /// The map key.
    pub(crate) key: CompactBytes,
    /// Its value.
    pub(crate) value: CompactBytes,
}

impl MapEntry {
    fn new(key: &[u8], value: &[u8]) -> Self {
        MapEntry { key: CompactBytes::new(key), value: CompactBytes::new(value) }
    }

    fn heap_bytes(&self) -> usize {
        self.key.heap_bytes() + self.value.heap_bytes()
    }
}

/// The map of one (key, namespace); never empty while it is stored.
#[derive(Debug, Clone)]
pub(crate) struct MapSlot {
    /// The key followed by the namespace.
    place: CompactBytes,
    key_len: u32,
    epoch: u32,
    entries: SortedChunks<MapEntry>,
    /// Bytes on the heap behind place and entries.
    content_bytes: usize,
}

impl Slot for MapSlot {
    fn is_live(&self, sieve: &Sieve) -> bool {
        self.entries.iter().any(|entry| sieve.is_live(entry.value.as_slice()))
    }

    #[inline]
    fn key_and_namespace(&self) -> (&[u8], &[u8]) {
        self.place.as_slice().split_at(self.key_len as usize)
    }

    #[inline(always)]
    fn is_at(&self, at: Locator<'_>) -> bool {
        let (key, namespace) = self.key_and_namespace();
        same_bytes(key, at.key()) && same_bytes(namespace, at.namespace())
    }

    fn entry_count(&self) -> usize {
        self.entries.len()
    }

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn set_epoch(&mut self, now: u32) {
        self.epoch = now;
    }

    fn heap_bytes(&self) -> usize {
        self.content_bytes + self.entries.len() * size_of::<MapEntry>()
    }
}

impl MapSlot {
    fn new(at: Locator<'_>, map_key: &[u8], value: &[u8]) -> Self {
        Self::with_room(at, map_key, value, 0)
    }

    fn with_room(at: Locator<'_>, map_key: &[u8], value: &[u8], more: usize) -> Self {
        let place = CompactBytes::concat(at.key(), at.namespace());
        let entry = MapEntry::new(map_key, value);
        MapSlot {
            key_len: at.key().len() as u32, // keys have at most 64 KiB
            epoch: 0,                       // set when it is stored
            content_bytes: place.heap_bytes() + entry.heap_bytes(),
            place,
            entries: SortedChunks::of(entry, more),
        }
    }

    /// The entries in order.
    pub(crate) fn entries(&self) -> &SortedChunks<MapEntry> {
        &self.entries
    }

    /// The places of the first entry in the range, and of the first one after it.
    pub(crate) fn bounds(&self, range: MapRange<'_>) -> (Position, Position) {
        if range.is_empty() {
            return (Position::START, Position::START);
        }
        let find = |key: &[u8]| self.entries.lower_bound(|entry| entry.key.as_slice() < key);
        let find_after = |key: &[u8]| self.entries.lower_bound(|entry| entry.key.as_slice() <= key);
        let from = match range.from {
            Bound::Unbounded => Position::START,
            Bound::Included(key) => find(key),
            Bound::Excluded(key) => find_after(key),
        };
        let to = match range.to {
            Bound::Unbounded => self.entries.end(),
            Bound::Included(key) => find_after(key),
            Bound::Excluded(key) => find(key),
        };
        (from, to)
    }

    #[inline]
    fn search(&self, key: &[u8]) -> Result<Position, Position> {
        self.entries.search(|entry| entry.key.as_slice().cmp(key))
    }

    #[inline]
    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let at = self.search(key).ok()?;
        self.entries.get(at).map(|entry| entry.value.as_slice())
    }

    /// Changes a value in place.
    fn change(&mut self, at: Position, change: impl FnOnce(&mut CompactBytes)) {
        if let Some(entry) = self.entries.get_mut(at) {
            let before = entry.value.heap_bytes();
            change(&mut entry.value);
            self.content_bytes = self.content_bytes - before + entry.value.heap_bytes();
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        match self.search(key) {
            Ok(at) => self.change(at, |old| old.set(value)),
            Err(at) => self.insert(at, key, value),
        }
    }

    fn insert(&mut self, at: Position, key: &[u8], value: &[u8]) {
        let entry = MapEntry::new(key, value);
        self.content_bytes += entry.heap_bytes();
        self.entries.insert(at, entry);
    }

    #[must_use = "an empty map must be removed"]
    fn remove(&mut self, at: Position) -> Fate<MapSlot> {
        self.content_bytes -= self.entries.remove(at).heap_bytes();
        self.fate()
    }

    #[must_use = "an empty map must be removed"]
    fn remove_range(&mut self, (from, to): (Position, Position)) -> Fate<MapSlot> {
        let removed: usize = self.entries.range(from, to).map(MapEntry::heap_bytes).sum();
        self.content_bytes -= removed;
        self.entries.remove_range(from, to);
        self.fate()
    }

    fn fate(&self) -> Fate<MapSlot> {
        if self.entries.is_empty() { Fate::Remove } else { Fate::Changed }
    }
}

/// The maps of one map state in one key group.
pub(crate) type MapTable = KeyedTable<MapSlot>;

impl MapTable {
    /// The value under a map key.
    #[inline(never)]
    pub(crate) fn get_entry(&mut self, at: Locator<'_>, map_key: &[u8]) -> Option<&[u8]> {
        self.get(at)?.get(map_key)
    }

    /// Stores the value of a map key.
    #[inline(never)]
    pub(crate) fn put_entry(
        &mut self,
        at: Locator<'_>,
        map_key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.change(at, |map| {
            let Some(map) = map else { return Ok(Fate::Store(MapSlot::new(at, map_key, value))) };
            map.put(map_key, value);
            Ok(Fate::Changed)
        })
    }

    /// Stores many entries of one map, as a restore reads them. After an error some are stored.
    pub(crate) fn put_entries<'e>(
        &mut self,
        at: Locator<'_>,
        mut entries: impl Iterator<Item = Result<(&'e [u8], &'e [u8])>>,
    ) -> Result<()> {
        self.change(at, |slot| {
            if let Some(map) = slot {
                entries.try_for_each(|entry| entry.map(|(key, value)| map.put(key, value)))?;
                return Ok(Fate::Changed);
            }
            let Some((key, value)) = entries.next().transpose()? else { return Ok(Fate::Keep) };
            let mut map = MapSlot::with_room(at, key, value, entries.size_hint().0);
            entries.try_for_each(|entry| entry.map(|(key, value)| map.put(key, value)))?;
            Ok(Fate::Store(map))
        })
    }

    /// Appends to the value of a map key.
    pub(crate) fn append_entry(
        &mut self,
        at: Locator<'_>,
        map_key: &[u8],
        more: &[u8],
        limit: ValueLimit,
    ) -> Result<()> {
        self.change(at, |map| {
            let Some(map) = map else { return Ok(Fate::Store(MapSlot::new(at, map_key, more))) };
            match map.search(map_key) {
                Ok(at) => {
                    let old = map.entries.get(at).map_or(0, |entry| entry.value.as_slice().len());
                    limit.check(old + more.len())?;
                    map.change(at, |old| old.append(more));
                }
                Err(place) => map.insert(place, map_key, more),
            }
            Ok(Fate::Changed)
        })
    }

    /// Removes a map key; the map goes with its last one.
    pub(crate) fn remove_entry(&mut self, at: Locator<'_>, map_key: &[u8]) -> Result<()> {
        // Looked up first: what is absent must not make a frozen table copy itself.
        let Some(Ok(position)) = self.get(at).map(|map| map.search(map_key)) else {
            return Ok(());
        };
        self.change(at, |map| Ok(map.map_or(Fate::Keep, |map| map.remove(position))))
    }

    /// Removes all map keys in a range; the map goes with its last one.
    pub(crate) fn remove_range(&mut self, at: Locator<'_>, range: MapRange<'_>) -> Result<()> {
        let Some(map) = self.get(at) else { return Ok(()) };
        let bounds = map.bounds(range);
        if bounds.0 >= bounds.1 {
            return Ok(());
        }
        if bounds == (Position::START, map.entries.end()) {
            self.remove(at);
            return Ok(());
        }
        self.change(at, |map| Ok(map.map_or(Fate::Keep, |map| map.remove_range(bounds))))
    }

    #[inline(never)]
    /// Lets `f` read, change or remove the value of a map key. `buffer` is for its output.
    pub(crate) fn update_entry(
        &mut self,
        at: Locator<'_>,
        map_key: &[u8],
        f: &mut UpdateFn<'_>,
        buffer: &mut Vec<u8>,
        limit: ValueLimit,
    ) -> Result<()> {
        buffer.clear();
        self.change(at, |map| {
            let found = map.as_deref().map(|map| map.search(map_key));
            let old = match (&map, found) {
                (Some(map), Some(Ok(at))) => map.entries.get(at).map(|e| e.value.as_slice()),
                _ => None,
            };
            let change = f(old, buffer)?;
            if change == Change::Put {
                limit.check(buffer.len())?;
            }
            match (change, map, found) {
                (Change::Put, Some(map), Some(Ok(at))) => map.change(at, |old| old.set(buffer)),
                (Change::Put, Some(map), Some(Err(at))) => map.insert(at, map_key, buffer),
                (Change::Put, _, _) => return Ok(Fate::Store(MapSlot::new(at, map_key, buffer))),
                (Change::Delete, Some(map), Some(Ok(at))) => return Ok(map.remove(at)),
                (Change::Keep | Change::Delete, _, _) => return Ok(Fate::Keep),
            }
            Ok(Fate::Changed)
        })
    }
}

#[cfg(test)]
mod tests {
    use weir_state_api::key_hash;

    use super::*;

    #[test]
    fn a_map_disappears_with_its_last_entry_and_leaves_the_accounts_at_zero() {
        let mut table = MapTable::new(1);
        let at = Locator::with_key_hash(b"k", key_hash(b"k"), b"n");
        for key in [&[1_u8; 40][..], b"", b"b"] {
            table.put_entry(at, key, &[9; 50]).unwrap();
        }
        assert_eq!((table.len(), table.entries()), (1, 3));
        table.remove_entry(at, b"absent").unwrap();
        table.remove_entry(at, b"").unwrap();
        let range = MapRange { from: Bound::Included(b"a"), to: Bound::Excluded(b"c") };
        table.remove_range(at, range).unwrap();
        assert_eq!((table.len(), table.entries()), (1, 1));
        let buffer = &mut Vec::new();
        let delete = &mut |_: Option<&[u8]>, _: &mut Vec<u8>| Ok(Change::Delete);
        table.update_entry(at, &[1; 40], delete, buffer, ValueLimit(99)).unwrap();
        assert_eq!((table.len(), table.entries()), (0, 0));
        assert!(table.get(at).is_none());
    }

    #[test]
    fn bounds_follow_the_range() {
        let mut map = MapSlot::new(Locator::with_key_hash(b"k", 0, b""), b"b", b"");
        for key in [b"d", b"f"] {
            let at = map.search(key).unwrap_err();
            map.insert(at, key, b"");
        }
        let keys = |from, to| {
            let (from, to) = map.bounds(MapRange { from, to });
            map.entries.range(from, to).map(|entry| entry.key.as_slice()[0]).collect::<Vec<_>>()
        };
        assert_eq!(keys(Bound::Unbounded, Bound::Unbounded), b"bdf");
        assert_eq!(keys(Bound::Included(b"b"), Bound::Excluded(b"f")), b"bd");
        assert_eq!(keys(Bound::Excluded(b"b"), Bound::Included(b"f")), b"df");
        assert_eq!(keys(Bound::Included(b"e"), Bound::Unbounded), b"f");
        assert_eq!(keys(Bound::Included(b"f"), Bound::Included(b"b")), b"");
    }
}
