//! Map states: an ordered map of byte strings per (key, namespace).

use weir_state_api::{Change, KeyRef, MapRange, Result, UpdateFn, ValueLimit};

use crate::cell::Cell;
use crate::compact_bytes::copy_short;
use crate::entry_chunk::{Entry, MAX_VALUE_LEN};
use crate::entry_chunks::EntryChunks;
use crate::keyed_table::{Fate, KeyedTable, Locator, Slot};
use crate::map_slot::MapSlot;
use crate::segment::Segment;
use crate::sorted_chunks::Position;

/// The maps of one map state in one key group.
pub(crate) type MapTable = KeyedTable<MapSlot>;

/// What can be stored, whatever the options say: a snapshot may come from elsewhere.
const LONGEST: ValueLimit = ValueLimit::new(MAX_VALUE_LEN, "HeapOptions");

/// A map of one entry.
fn single(at: Locator<'_>, entry: Entry<'_>) -> Fate<MapSlot> {
    Fate::Store(MapSlot::new(at, EntryChunks::of(entry)))
}

impl MapTable {
    /// The map of a key in the default namespace, if the segment can be read without a lock. As few
    /// instructions as [`PointTable::read`](crate::point_table::PointTable::read), for the same reason.
    #[inline(always)]
    pub(crate) fn read(&self, key: KeyRef<'_>) -> Option<&EntryChunks> {
        let segment = self.cell(key.hash())?.readable()?;
        let slot = match <&[u8; 8]>::try_from(key.bytes()) {
            Ok(word) => segment.find_entry(key.hash(), |slot| slot.is_of(word)),
            Err(_) => find_any(segment, key),
        };
        slot.map(MapSlot::entries)
    }

    /// Writes a value where one of its length is, in a small map of a key of one word in the default
    /// namespace, if the writer alone holds it. Such a change leaves the accounts as they are. Says
    /// whether it was done.
    #[inline(always)]
    pub(crate) fn put_word(&mut self, key: KeyRef<'_>, map_key: &[u8], value: &[u8]) -> bool {
        let epoch = self.epoch();
        let Ok(word) = <&[u8; 8]>::try_from(key.bytes()) else { return false };
        let segment = self.cell_mut(key.hash()).and_then(Cell::owned);
        let slot = segment.and_then(|s| s.find_entry_mut(key.hash(), |slot| slot.is_of(word)));
        let Some(slot) = slot else { return false };
        match slot.entries_mut().value_in_one(map_key) {
            Some(place) if place.len() == value.len() => copy_short(place, value),
            _ => return false,
        }
        slot.set_epoch(epoch);
        true
    }

    /// The value under a map key.
    #[inline]
    pub(crate) fn get_entry(&mut self, at: Locator<'_>, map_key: &[u8]) -> Option<&[u8]> {
        self.get(at)?.entries().get(map_key)
    }

    /// Stores the value of a map key.
    #[inline]
    pub(crate) fn put_entry(
        &mut self,
        at: Locator<'_>,
        map_key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.change(at, |map| {
            let Some(map) = map else { return Ok(single(at, (map_key, value))) };
            map.put((map_key, value));
            Ok(Fate::Changed)
        })
    }

    /// Stores many ascending entries of one map, as a restore reads them. After an error some are
    /// stored.
    pub(crate) fn put_entries<'e>(
        &mut self,
        at: Locator<'_>,
        entries: impl Iterator<Item = Result<Entry<'e>>>,
    ) -> Result<()> {
        self.change(at, |slot| {
            let mut entries = entries.map(|entry| {
                let (key, value) = entry?;
                LONGEST.check(value.len()).map(|()| (key, value))
            });
            if let Some(map) = slot {
                entries.try_for_each(|entry| entry.map(|entry| map.put(entry)))?;
                return Ok(Fate::Changed);
            }
            let entries = EntryChunks::from_ascending(entries)?;
            Ok(entries.map_or(Fate::Keep, |entries| Fate::Store(MapSlot::new(at, entries))))
        })
    }

    /// Stores many entries of one map, in any order.
    pub(crate) fn put_each<'e>(
        &mut self,
        at: Locator<'_>,
        mut entries: impl Iterator<Item = Entry<'e>>,
    ) -> Result<()> {
        let Some(first) = entries.next() else { return Ok(()) };
        self.change(at, |map| {
            let Some(map) = map else {
                let mut map = MapSlot::new(at, EntryChunks::of(first));
                entries.for_each(|entry| map.put(entry));
                return Ok(Fate::Store(map));
            };
            map.put(first);
            entries.for_each(|entry| map.put(entry));
            Ok(Fate::Changed)
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
            let Some(map) = map else { return Ok(single(at, (map_key, more))) };
            let entries = map.entries_mut();
            match entries.search(map_key) {
                Ok(at) => {
                    limit.check(entries.value(at).map_or(0, <[u8]>::len) + more.len())?;
                    entries.append(at, more);
                }
                Err(at) => entries.insert(at, map_key, more),
            }
            Ok(Fate::Changed)
        })
    }

    /// Removes a map key; the map goes with its last one.
    #[inline]
    pub(crate) fn remove_entry(&mut self, at: Locator<'_>, map_key: &[u8]) -> Result<()> {
        // Looked up first: what is absent must not make a frozen table copy itself.
        let Some(Ok(position)) = self.get(at).map(|map| map.entries().search(map_key)) else {
            return Ok(());
        };
        self.change(at, |map| Ok(map.map_or(Fate::Keep, |map| remove(map, position))))
    }

    /// Removes all map keys in a range; the map goes with its last one.
    pub(crate) fn remove_range(&mut self, at: Locator<'_>, range: MapRange<'_>) -> Result<()> {
        let Some(map) = self.get(at) else { return Ok(()) };
        let (from, to) = map.entries().bounds(range);
        if from >= to {
            return Ok(());
        }
        if (from, to) == (Position::START, map.entries().end()) {
            self.remove(at);
            return Ok(());
        }
        self.change(at, |map| {
            let Some(map) = map else { return Ok(Fate::Keep) };
            map.entries_mut().remove_range(from, to);
            Ok(Fate::Changed)
        })
    }

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
            let found = map.as_deref().map(|map| map.entries().search(map_key));
            let old = match (&map, found) {
                (Some(map), Some(Ok(at))) => map.entries().value(at),
                _ => None,
            };
            let change = f(old, buffer)?;
            if change == Change::Put {
                limit.check(buffer.len())?;
            }
            match (change, map, found) {
                (Change::Put, Some(map), Some(Ok(at))) => map.entries_mut().set(at, buffer),
                (Change::Put, Some(map), Some(Err(at))) => {
                    map.entries_mut().insert(at, map_key, buffer);
                }
                (Change::Put, _, _) => return Ok(single(at, (map_key, buffer))),
                (Change::Delete, Some(map), Some(Ok(at))) => return Ok(remove(map, at)),
                (Change::Keep | Change::Delete, _, _) => return Ok(Fate::Keep),
            }
            Ok(Fate::Changed)
        })
    }
}

#[inline(never)]
fn find_any<'s>(segment: &'s Segment<MapSlot>, key: KeyRef<'_>) -> Option<&'s MapSlot> {
    let at = Locator::new(key, b"");
    segment.find_entry(key.hash(), |slot| slot.is_at(at))
}

fn remove(map: &mut MapSlot, at: Position) -> Fate<MapSlot> {
    if map.entries().len() == 1 {
        return Fate::Remove;
    }
    map.entries_mut().remove(at);
    Fate::Changed
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

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
        table
            .update_entry(at, &[1; 40], delete, buffer, ValueLimit::new(99, "HeapOptions"))
            .unwrap();
        assert_eq!((table.len(), table.entries()), (0, 0));
        assert!(table.get(at).is_none());
    }

    #[test]
    fn bounds_follow_the_range() {
        let mut map = EntryChunks::of((b"b", b""));
        for key in [b"d", b"f"] {
            map.insert(map.search(key).unwrap_err(), key, b"");
        }
        let keys = |from, to| {
            let (from, to) = map.bounds(MapRange { from, to });
            map.range(from, to).map(|(key, _)| key[0]).collect::<Vec<_>>()
        };
        assert_eq!(keys(Bound::Unbounded, Bound::Unbounded), b"bdf");
        assert_eq!(keys(Bound::Included(b"b"), Bound::Excluded(b"f")), b"bd");
        assert_eq!(keys(Bound::Excluded(b"b"), Bound::Included(b"f")), b"df");
        assert_eq!(keys(Bound::Included(b"e"), Bound::Unbounded), b"f");
        assert_eq!(keys(Bound::Included(b"f"), Bound::Included(b"b")), b"");
    }
}
