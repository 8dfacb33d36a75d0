//! The hash table from (key, namespace) to a payload, for one state and one key group.
//!
//! It is a row of hash tables, the *segments*. A segment holds a few thousand entries at most, and
//! the number of segments grows one at a time (linear hashing), so that nothing a single write can
//! trigger (growth, or the copy after a snapshot) depends on the size of the state.
//!
//! The bits of an entry's hash are shared out: the top of the low 32 select the key group, the lower
//! part of the upper 32 the segment, and their top the place in it; the lowest 16 tell entries apart
//! whose content is elsewhere.

mod walk;

use std::sync::{Arc, Mutex};

use weir_state_api::{KeyRef, Result, key_hash};

use crate::cell::{Cell, Pinned, View, lock};
use crate::clean_up::Sieve;
use crate::removals::{Removals, RemovedKeys};
use crate::segment::{Hashed, Segment};
pub(crate) use walk::Place;

/// An entry of a table: a key, a namespace, and what is stored there.
pub(crate) trait Slot: Clone {
    /// The mean number of entries of a segment at which another one is added. The fullest segment
    /// has about twice the mean.
    ///
    /// Larger segments make the write that copies one for a scan slower (some 10 to 100
    /// microseconds), smaller ones the synchronous part of a snapshot, which counts a reference to
    /// each.
    const SEGMENT_ENTRIES: usize = 1_792;

    /// The key and the namespace.
    fn key_and_namespace(&self) -> (&[u8], &[u8]);
    /// Whether it is the entry looked for.
    fn is_at(&self, at: Locator<'_>) -> bool;
    /// The hash of key and namespace, as far as it chooses a place or tells entries apart.
    fn table_hash(&self) -> u64 {
        let (key, namespace) = self.key_and_namespace();
        hash_of(key, namespace)
    }
    /// Physical entries in it.
    fn entry_count(&self) -> usize;
    /// Bytes on the heap; O(1).
    fn heap_bytes(&self) -> usize;
    /// Begins to load what it refers to. A reader of many entries does it for some of them at once, so
    /// that their cache misses overlap.
    fn touch(&self);
    /// Whether it holds anything that has not expired.
    fn is_live(&self, sieve: &Sieve) -> bool;
    /// The epoch of its last change.
    fn epoch(&self) -> u32;
    /// Says that it has changed.
    fn set_epoch(&mut self, now: u32);
}

impl<S: Slot> Hashed for S {
    fn hash(&self) -> u64 {
        self.table_hash()
    }
}

/// The common hash of a key and a namespace.
pub(crate) fn hash_of(key: &[u8], namespace: &[u8]) -> u64 {
    Locator::with_key_hash(key, key_hash(key), namespace).hash
}

/// A key and a namespace to look for, with their common hash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Locator<'a> {
    hash: u64,
    key: &'a [u8],
    namespace: &'a [u8],
}

impl<'a> Locator<'a> {
    /// The place of `key` and `namespace`. The key is not hashed again.
    #[inline]
    pub(crate) fn new(key: KeyRef<'a>, namespace: &'a [u8]) -> Self {
        Self::with_key_hash(key.bytes(), key.hash(), namespace)
    }

    /// The same for a key whose hash was computed apart.
    #[inline]
    pub(crate) fn with_key_hash(key: &'a [u8], hash: u64, namespace: &'a [u8]) -> Self {
        let hash = if namespace.is_empty() { hash } else { mix(hash, namespace) };
        Locator { hash, key, namespace }
    }

    /// The common hash.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// What tells entries apart whose content is elsewhere: bits that choose no place.
    #[inline]
    pub(crate) fn tag(&self) -> u16 {
        self.hash as u16
    }

    /// The key.
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The namespace.
    #[inline]
    pub(crate) fn namespace(&self) -> &'a [u8] {
        self.namespace
    }
}

/// Out of line: it would weigh on the path of the default namespace.
#[inline(never)]
fn mix(hash: u64, namespace: &[u8]) -> u64 {
    // Not symmetric, so that (key, namespace) and (namespace, key) differ.
    (hash.rotate_left(23) ^ key_hash(namespace)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// All entries of a table as they were at one moment.
pub(crate) type FrozenSegments<S> = Vec<Arc<Segment<S>>>;

/// What becomes of an entry; see [`KeyedTable::change`].
pub(crate) enum Fate<S> {
    /// It stays as it was; or stays absent.
    Keep,
    /// It stays, and the function has changed it.
    Changed,
    /// This is stored there.
    Store(S),
    /// It goes.
    Remove,
}

/// What a snapshot takes from a table.
#[derive(Debug)]
pub(crate) struct TableView<S> {
    /// The segments as they were.
    pub(crate) segments: Vec<View<S>>,
    /// How much of them is written.
    pub(crate) extent: Extent,
}

/// How much of a table a snapshot writes.
#[derive(Debug)]
pub(crate) enum Extent {
    /// All entries.
    Whole,
    /// What changed after an epoch, and the keys that were removed after it.
    Since(u32, Vec<Arc<RemovedKeys>>),
}

impl Extent {
    /// The epoch after which changes are written; `None` for all.
    pub(crate) fn base(&self) -> Option<u32> {
        match self {
            Extent::Whole => None,
            Extent::Since(base, _) => Some(*base),
        }
    }
}

/// See the module.
///
/// Time is divided into *epochs*: each ends with a snapshot. An entry carries the epoch of its last
/// change, so that a snapshot tells entries that changed after its pin, and an incremental one those
/// that changed after its base.
///
/// Invariants: an entry with segment bits `b` lies in segment `b & mask` if there is one with that
/// number, otherwise in `b & (mask >> 1)`; `mask + 1` is the smallest power of two that is not below
/// the number of segments; `len`, `entries` and `heap_bytes` are the sums over all entries; no entry
/// is of a later epoch than `epoch`.
#[derive(Debug)]
pub(crate) struct KeyedTable<S> {
    cells: Vec<Cell<S>>,
    mask: usize,
    epoch: u32,
    len: usize,
    entries: usize,
    heap_bytes: usize,
    removals: Removals,
    /// A copy of the entry read last, if it had to be read under a lock.
    lent: Option<S>,
}

impl<S: Slot> KeyedTable<S> {
    /// An empty table in this epoch.
    pub(crate) fn new(epoch: u32) -> Self {
        KeyedTable {
            cells: Vec::new(),
            mask: 0,
            epoch,
            len: 0,
            entries: 0,
            heap_bytes: 0,
            removals: Removals::default(),
            lent: None,
        }
    }

    /// An empty table with room for so many entries.
    pub(crate) fn with_room(epoch: u32, len: usize) -> Self {
        let mut table = KeyedTable::new(epoch);
        let cells = len.div_ceil(S::SEGMENT_ENTRIES).max(1);
        table.mask = cells.next_power_of_two() - 1;
        let (all, half) = (table.mask + 1, table.mask.div_ceil(2));
        // A segment whose partner does not exist yet holds the entries of both.
        let is_split = |number: usize| number >= half || number + half < cells;
        let room = |number: usize| len / all * if is_split(number) { 1 } else { 2 };
        table.cells = (0..cells).map(|n| Cell::Owned(Segment::with_room(room(n)))).collect();
        table
    }

    /// The number of (key, namespace) pairs.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number of physical entries.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// The running epoch.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Bytes held, the tables themselves included.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables: usize = self.cells.iter().map(Cell::memory_bytes).sum();
        self.heap_bytes
            + tables
            + self.cells.capacity() * size_of::<Cell<S>>()
            + self.removals.memory_bytes()
    }

    /// Looks an entry up.
    #[inline]
    pub(crate) fn get(&mut self, at: Locator<'_>) -> Option<&S> {
        let number = self.cell_of(at.hash);
        if self.cells.get(number)?.readable().is_none() {
            return self.get_pinned(number, at);
        }
        self.cells[number].readable()?.find_entry(at.hash, |slot| slot.is_at(at))
    }

    /// A snapshot has the segment, or had it: then it is taken back.
    #[cold]
    fn get_pinned(&mut self, number: usize, at: Locator<'_>) -> Option<&S> {
        match self.cells[number].writable() {
            Ok(segment) => segment.find_entry(at.hash, |slot| slot.is_at(at)),
            Err(pinned) => {
                let pinned = lock(pinned);
                let found = pinned.segment().find_entry(at.hash, |slot| slot.is_at(at))?;
                Some(self.lent.insert(found.clone()))
            }
        }
    }

    /// The segment in which an entry with this hash lies, if it exists.
    #[inline(always)]
    pub(crate) fn cell(&self, hash: u64) -> Option<&Cell<S>> {
        self.cells.get(self.cell_of(hash))
    }

    /// The same for writing.
    #[inline(always)]
    pub(crate) fn cell_mut(&mut self, hash: u64) -> Option<&mut Cell<S>> {
        let number = self.cell_of(hash);
        self.cells.get_mut(number)
    }

    /// Shows the payload to `f`, which may change it, and does what `f` says, in one probe.
    ///
    /// An error of `f` is passed on and changes nothing; `f` must not have changed the payload
    /// either.
    #[inline]
    pub(crate) fn change(
        &mut self,
        at: Locator<'_>,
        f: impl FnOnce(Option<&mut S>) -> Result<Fate<S>>,
    ) -> Result<()> {
        let number = self.cell_of(at.hash);
        let epoch = self.epoch;
        let Some(cell) = self.cells.get_mut(number) else {
            return self.change_absent(number, at, f);
        };
        let segment = match cell.writable() {
            Ok(segment) => segment,
            Err(pinned) => {
                // Looked at once: the snapshot may let go at any moment.
                let pinned = Arc::clone(pinned);
                return self.change_pinned(&pinned, number, at, f);
            }
        };
        let Some(place) = segment.find(at.hash, |slot| slot.is_at(at)) else {
            return self.change_absent(number, at, f);
        };
        let Some(slot) = segment.get_mut(place) else { return Ok(()) };
        let before = sizes(slot);
        match f(Some(slot))? {
            Fate::Keep => return Ok(()),
            Fate::Changed => {}
            Fate::Store(new) => *slot = new,
            Fate::Remove => {
                segment.remove(place);
                segment.shrink_if_sparse();
                self.removed(at, before);
                return Ok(());
            }
        }
        slot.set_epoch(epoch);
        let after = sizes(slot);
        self.recount(before, after);
        Ok(())
    }

    /// The same while snapshots hold the segment.
    #[cold]
    fn change_pinned(
        &mut self,
        pinned: &Mutex<Pinned<S>>,
        number: usize,
        at: Locator<'_>,
        f: impl FnOnce(Option<&mut S>) -> Result<Fate<S>>,
    ) -> Result<()> {
        // It would keep what it refers to from being changed in place.
        self.lent = None;
        let epoch = self.epoch;
        let mut pinned = lock(pinned);
        let Some(place) = pinned.segment().find(at.hash, |slot| slot.is_at(at)) else {
            drop(pinned);
            return self.change_absent(number, at, f);
        };
        let Some(slot) = pinned.segment().get(place) else { return Ok(()) };
        let former = pinned.copy_for_snapshots(slot);
        let Some(slot) = pinned.segment_mut().get_mut(place) else { return Ok(()) };
        let before = sizes(slot);
        let mut after = (0, 0);
        match f(Some(slot))? {
            Fate::Keep => return Ok(()),
            Fate::Changed => after = sizes(slot),
            Fate::Store(new) => {
                *slot = new;
                after = sizes(slot);
            }
            Fate::Remove => drop(pinned.segment_mut().remove(place)),
        }
        if after == (0, 0) {
            self.removed(at, before);
        } else {
            if let Some(slot) = pinned.segment_mut().get_mut(place) {
                slot.set_epoch(epoch);
            }
            self.recount(before, after);
        }
        pinned.save(former);
        Ok(())
    }

    #[inline(never)]
    fn change_absent(
        &mut self,
        number: usize,
        at: Locator<'_>,
        f: impl FnOnce(Option<&mut S>) -> Result<Fate<S>>,
    ) -> Result<()> {
        let Fate::Store(mut slot) = f(None)? else { return Ok(()) };
        slot.set_epoch(self.epoch);
        let (entries, heap_bytes) = sizes(&slot);
        self.entries += entries;
        self.heap_bytes += heap_bytes;
        if self.cells.is_empty() {
            self.cells.push(Cell::default());
        }
        self.len += 1;
        let number = if self.len > self.cells.len() * S::SEGMENT_ENTRIES && self.split() {
            self.cell_of(at.hash)
        } else {
            number
        };
        match self.cells[number].writable() {
            Ok(segment) => segment.insert(at.hash, slot),
            Err(pinned) => lock(pinned).segment_mut().insert(at.hash, slot),
        }
        Ok(())
    }

    /// Removes an entry; absent is no error, and copies nothing.
    pub(crate) fn remove(&mut self, at: Locator<'_>) {
        // A segment that readers hold would be copied, or taken back, for what is not there.
        let is_owned = self.cell_mut(at.hash).is_none_or(|cell| cell.owned().is_some());
        if is_owned || self.get(at).is_some() {
            // The function does not fail, and removing does not either.
            drop(self.change(at, |_| Ok(Fate::Remove)));
        }
    }

    /// Shares all entries as they are now: O(1) for a table of one segment.
    pub(crate) fn freeze(&mut self) -> FrozenSegments<S> {
        self.cells.iter_mut().filter(|cell| cell.len() > 0).map(Cell::freeze).collect()
    }

    /// Shares the entries with a snapshot: all of them, or what changed after the epoch `base` as far
    /// as that is known. O(segments). The epoch is over: [`begin_epoch`](KeyedTable::begin_epoch) must
    /// follow.
    pub(crate) fn pin(&mut self, base: Option<u32>) -> TableView<S> {
        let epoch = self.epoch;
        self.removals.end_epoch(epoch);
        let removed = base.and_then(|base| Some((base, self.removals.since(base)?)));
        let segments = self.cells.iter_mut().map(|cell| cell.pin(epoch)).collect();
        let extent = removed.map_or(Extent::Whole, |(base, keys)| Extent::Since(base, keys));
        TableView { segments, extent }
    }

    /// Begins an epoch; what changes from now on is of it.
    pub(crate) fn begin_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

    /// From now on removals are recorded, for snapshots that build on one taken before. To be called
    /// at the beginning of an epoch.
    pub(crate) fn record_removals(&mut self) {
        self.removals.record_after(self.epoch.saturating_sub(1));
    }

    /// No snapshot will build on an epoch before `base` any more.
    pub(crate) fn forget_up_to(&mut self, base: u32) {
        self.removals.forget_up_to(base);
    }

    #[inline]
    fn cell_of(&self, hash: u64) -> usize {
        let number = segment_bits(hash) & self.mask;
        if number < self.cells.len() { number } else { number & (self.mask >> 1) }
    }

    #[inline]
    fn recount(&mut self, before: (usize, usize), after: (usize, usize)) {
        self.entries = self.entries - before.0 + after.0;
        self.heap_bytes = self.heap_bytes - before.1 + after.1;
    }

    /// Takes a removed entry off the accounts; gives all memory back with the last one.
    fn removed(&mut self, at: Locator<'_>, sizes: (usize, usize)) {
        self.recount(sizes, (0, 0));
        self.len -= 1;
        self.removals.record(at, self.epoch, self.len);
        if self.len == 0 && self.cells.len() > 1 {
            (self.cells, self.mask) = (Vec::new(), 0);
        }
    }

    /// Adds a segment and moves half of its predecessor's entries there. Not while a snapshot holds
    /// that one: the next insertion tries again.
    fn split(&mut self) -> bool {
        let new = self.cells.len();
        let mask = (new + 1).next_power_of_two() - 1;
        let Ok(old) = self.cells[new & (mask >> 1)].writable() else { return false };
        let moved = old.extract(|hash| segment_bits(hash) & mask == new);
        self.cells.push(Cell::Owned(moved));
        self.mask = mask;
        true
    }
}

/// What a slot counts for: entries, bytes on the heap.
#[inline]
fn sizes(slot: &impl Slot) -> (usize, usize) {
    (slot.entry_count(), slot.heap_bytes())
}

/// Equality by words, without a call: a call inside the probe of a hash table costs more than the
/// comparison of a key of common length.
#[inline(always)]
pub(crate) fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (Some(a_last), Some(b_last)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) else {
        // Shorter than a word.
        return a.iter().zip(b).all(|(a, b)| a == b);
    };
    // The last words may overlap the ones before.
    a_last == b_last
        && (a.len() == 8
            || a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).all(|(a, b)| a == b))
}

#[inline]
fn segment_bits(hash: u64) -> usize {
    (hash >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point_slot::PointSlot;

    fn locate<'a>(key: &'a [u8], namespace: &'a [u8]) -> Locator<'a> {
        Locator::with_key_hash(key, key_hash(key), namespace)
    }

    fn put(table: &mut KeyedTable<PointSlot>, key: &[u8], namespace: &[u8], value: &[u8]) {
        let slot = PointSlot::new(locate(key, namespace), value, 0);
        table.change(locate(key, namespace), |_| Ok(Fate::Store(slot))).unwrap();
    }

    #[test]
    fn key_and_namespace_do_not_run_together() {
        let mut table = KeyedTable::new(1);
        let pairs: [(&[u8], &[u8]); 6] =
            [(b"ab", b""), (b"a", b"b"), (b"", b"ab"), (b"", b""), (b"b", b"a"), (b"abc", b"d")];
        for (index, (key, namespace)) in pairs.into_iter().enumerate() {
            put(&mut table, key, namespace, &[index as u8]);
        }
        for (index, (key, namespace)) in pairs.into_iter().enumerate() {
            let found = table.get(locate(key, namespace)).map(PointSlot::value);
            assert_eq!(found, Some(&[index as u8][..]));
        }
        assert!(table.get(locate(b"d", b"abc")).is_none());
    }

    #[test]
    fn many_entries_spread_over_bounded_segments_and_leave_nothing_behind() {
        let mut table = KeyedTable::new(1);
        let count = 60_000_u64;
        for i in 0..count {
            put(&mut table, &i.to_be_bytes(), b"", &i.to_le_bytes());
        }
        assert_eq!(table.len(), count as usize);
        assert_eq!(table.cells.len(), (count as usize).div_ceil(PointSlot::SEGMENT_ENTRIES));
        assert!(table.cells.iter().all(|cell| cell.len() <= 2 * PointSlot::SEGMENT_ENTRIES + 500));
        let frozen = table.freeze();
        for i in 0..count {
            let key = i.to_be_bytes();
            let found = table.get(locate(&key, b"")).map(PointSlot::value);
            assert_eq!(found, Some(&i.to_le_bytes()[..]));
            table.remove(locate(&key, b""));
            assert!(table.get(locate(&key, b"")).is_none());
        }
        assert_eq!((table.len(), table.entries(), table.heap_bytes), (0, 0, 0));
        assert_eq!(table.memory_bytes(), 0);
        assert_eq!(frozen.iter().map(|s| s.len()).sum::<usize>(), count as usize);
    }

    #[test]
    fn a_table_made_with_room_does_not_grow_and_finds_everything() {
        for count in [0_u64, 1, 5_000, 12_345, 40_000] {
            let mut table = KeyedTable::with_room(1, count as usize);
            let cells = table.cells.len();
            for i in 0..count {
                put(&mut table, &i.to_be_bytes(), b"", b"v");
            }
            assert_eq!(table.cells.len(), cells, "{count}");
            assert!((0..count).all(|i| table.get(locate(&i.to_be_bytes(), b"")).is_some()));
            for i in count..2 * count {
                put(&mut table, &i.to_be_bytes(), b"", b"v");
            }
            assert!((0..2 * count).all(|i| table.get(locate(&i.to_be_bytes(), b"")).is_some()));
        }
    }

    #[test]
    fn frozen_entries_do_not_change_and_absent_removals_copy_nothing() {
        let mut table = KeyedTable::new(1);
        put(&mut table, b"a", b"", b"1");
        let frozen = table.freeze();
        table.remove(locate(b"b", b""));
        assert!(table.cells[0].owned().is_none());
        put(&mut table, b"a", b"", b"2");
        put(&mut table, b"b", b"", b"3");
        let view: Vec<_> = frozen[0].iter().map(PointSlot::value).collect();
        assert_eq!(view, [b"1"]);
    }

    #[test]
    fn the_accounts_follow_every_change() {
        let mut table = KeyedTable::new(1);
        put(&mut table, &[1; 100], b"", &[2; 100]);
        put(&mut table, &[1; 100], b"", &[2; 300]);
        let slots: usize = table.freeze()[0].iter().map(Slot::heap_bytes).sum();
        assert_eq!((table.entries(), table.heap_bytes), (1, slots));
        let failed = table.change(locate(&[1; 100], b""), |_| {
            Err(weir_state_api::Error::new(weir_state_api::ErrorKind::UserFunction, "no"))
        });
        assert!(failed.is_err());
        assert_eq!((table.entries(), table.heap_bytes), (1, slots));
        table.change(locate(&[1; 100], b""), |_| Ok(Fate::Remove)).unwrap();
        assert_eq!((table.entries(), table.heap_bytes), (0, 0));
    }
}
