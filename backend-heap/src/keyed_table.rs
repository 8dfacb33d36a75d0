//! The hash table from (key, namespace) to a payload, for one state and one key group.
//!
//! It is a row of hash tables, the *segments*. A segment holds a few thousand entries at most, and
//! the number of segments grows one at a time (linear hashing), so that nothing a single write can
//! trigger (growth, or the copy after a snapshot) depends on the size of the state.
//!
//! The bits of an entry's hash are shared out: the top of the low 32 select the key group, the lower
//! part of the upper 32 the segment, and their top the place in it; the lowest 16 tell entries apart
//! whose content is elsewhere.

use std::sync::Arc;

use weir_state_api::{KeyRef, Result, key_hash};

use crate::freezable::Freezable;
use crate::segment::{Hashed, Segment};

/// The mean number of entries of a segment at which another one is added. The fullest segment has
/// about twice the mean.
///
/// Larger segments make the write that copies one after a snapshot slower (some 10 to 100
/// microseconds now), smaller ones the synchronous part of a snapshot, which counts a reference to
/// each.
const SEGMENT_ENTRIES: usize = 1_792;

/// An entry of a table: a key, a namespace, and what is stored there.
pub(crate) trait Slot: Clone {
    /// The key and the namespace.
    fn key_and_namespace(&self) -> (&[u8], &[u8]);
    /// Whether it is the entry looked for.
    fn is_at(&self, at: Locator<'_>) -> bool;
    /// Physical entries in it.
    fn entry_count(&self) -> usize;
    /// Bytes on the heap; O(1).
    fn heap_bytes(&self) -> usize;
}

impl<S: Slot> Hashed for S {
    fn hash(&self) -> u64 {
        let (key, namespace) = self.key_and_namespace();
        Locator::with_key_hash(key, key_hash(key), namespace).hash
    }
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
    /// It stays, as the function has left it; or stays absent.
    Keep,
    /// This is stored there.
    Store(S),
    /// It goes.
    Remove,
}

/// See the module.
///
/// Invariants: an entry with segment bits `b` lies in segment `b & mask` if there is one with that
/// number, otherwise in `b & (mask >> 1)`; `mask + 1` is the smallest power of two that is not below
/// the number of segments; `len`, `entries` and `heap_bytes` are the sums over all entries.
#[derive(Debug)]
pub(crate) struct KeyedTable<S> {
    segments: Vec<Freezable<Segment<S>>>,
    mask: usize,
    len: usize,
    entries: usize,
    heap_bytes: usize,
}

impl<S> Default for KeyedTable<S> {
    fn default() -> Self {
        KeyedTable { segments: Vec::new(), mask: 0, len: 0, entries: 0, heap_bytes: 0 }
    }
}

impl<S: Slot> KeyedTable<S> {
    /// The number of (key, namespace) pairs.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number of physical entries.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Bytes held, the tables themselves included.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables: usize = self.segments.iter().map(|s| s.get().memory_bytes()).sum();
        self.heap_bytes + tables + self.segments.capacity() * size_of::<Freezable<Segment<S>>>()
    }

    /// Looks an entry up.
    #[inline]
    pub(crate) fn get(&self, at: Locator<'_>) -> Option<&S> {
        let segment = self.segment(at.hash)?;
        segment.get(segment.find(at.hash, |slot| slot.is_at(at))?)
    }

    /// The segment in which an entry with this hash lies, if it exists.
    #[inline(always)]
    pub(crate) fn segment(&self, hash: u64) -> Option<&Segment<S>> {
        self.segments.get(self.segment_of(hash)).map(Freezable::get)
    }

    /// The same for writing; copies it if a snapshot or scan still holds it.
    #[inline(always)]
    pub(crate) fn segment_mut(&mut self, hash: u64) -> Option<&mut Segment<S>> {
        let number = self.segment_of(hash);
        self.segments.get_mut(number).map(Freezable::get_mut)
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
        let number = self.segment_of(at.hash);
        let Some(segment) = self.segments.get_mut(number).map(Freezable::get_mut) else {
            return self.change_absent(number, at, f);
        };
        let Some(place) = segment.find(at.hash, |slot| slot.is_at(at)) else {
            return self.change_absent(number, at, f);
        };
        let Some(slot) = segment.get_mut(place) else { return Ok(()) };
        let before = (slot.entry_count(), slot.heap_bytes());
        match f(Some(slot))? {
            Fate::Keep => {}
            Fate::Store(new) => *slot = new,
            Fate::Remove => {
                self.remove_counted(number, place, before);
                return Ok(());
            }
        }
        let after = (slot.entry_count(), slot.heap_bytes());
        self.entries = self.entries - before.0 + after.0;
        self.heap_bytes = self.heap_bytes - before.1 + after.1;
        Ok(())
    }

    #[inline(never)]
    fn change_absent(
        &mut self,
        number: usize,
        at: Locator<'_>,
        f: impl FnOnce(Option<&mut S>) -> Result<Fate<S>>,
    ) -> Result<()> {
        let Fate::Store(slot) = f(None)? else { return Ok(()) };
        self.entries += slot.entry_count();
        self.heap_bytes += slot.heap_bytes();
        if self.segments.is_empty() {
            self.segments.push(Freezable::default());
        }
        self.len += 1;
        let number = if self.len > self.segments.len() * SEGMENT_ENTRIES {
            self.split();
            self.segment_of(at.hash)
        } else {
            number
        };
        self.segments[number].get_mut().insert(at.hash, slot);
        Ok(())
    }

    /// Removes an entry that has these sizes in the accounts.
    fn remove_counted(&mut self, number: usize, place: usize, sizes: (usize, usize)) {
        drop(self.segments[number].get_mut().remove(place));
        self.entries -= sizes.0;
        self.heap_bytes -= sizes.1;
        self.removed(number);
    }

    /// Removes an entry; absent is no error, and copies nothing.
    pub(crate) fn remove(&mut self, at: Locator<'_>) {
        let number = self.segment_of(at.hash);
        let Some(segment) = self.segments.get(number) else { return };
        let Some(place) = segment.get().find(at.hash, |slot| slot.is_at(at)) else { return };
        if let Some(slot) = segment.get().get(place) {
            let sizes = (slot.entry_count(), slot.heap_bytes());
            self.remove_counted(number, place, sizes);
        }
    }

    /// Shares all entries as they are now: O(1) for a table of one segment.
    pub(crate) fn freeze(&mut self) -> FrozenSegments<S> {
        self.segments
            .iter_mut()
            .filter(|segment| !segment.get().is_empty())
            .map(Freezable::freeze)
            .collect()
    }

    #[inline]
    fn segment_of(&self, hash: u64) -> usize {
        let number = segment_bits(hash) & self.mask;
        if number < self.segments.len() { number } else { number & (self.mask >> 1) }
    }

    /// Gives memory back after a removal from a segment.
    fn removed(&mut self, number: usize) {
        self.len -= 1;
        if self.len == 0 && self.segments.len() > 1 {
            *self = KeyedTable::default();
            return;
        }
        self.segments[number].get_mut().shrink_if_sparse();
    }

    /// Adds a segment and moves half of its predecessor's entries there.
    fn split(&mut self) {
        let new = self.segments.len();
        self.mask = (new + 1).next_power_of_two() - 1;
        let (mask, old) = (self.mask, new & (self.mask >> 1));
        let moved = self.segments[old].get_mut().extract(|hash| segment_bits(hash) & mask == new);
        self.segments.push(Freezable::Owned(moved));
    }
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
        let slot = PointSlot::new(locate(key, namespace), value);
        table.change(locate(key, namespace), |_| Ok(Fate::Store(slot))).unwrap();
    }

    #[test]
    fn key_and_namespace_do_not_run_together() {
        let mut table = KeyedTable::default();
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
        let mut table = KeyedTable::default();
        let count = 60_000_u64;
        for i in 0..count {
            put(&mut table, &i.to_be_bytes(), b"", &i.to_le_bytes());
        }
        assert_eq!(table.len(), count as usize);
        assert_eq!(table.segments.len(), (count as usize).div_ceil(SEGMENT_ENTRIES));
        assert!(table.segments.iter().all(|s| s.get().len() <= 2 * SEGMENT_ENTRIES + 500));
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
    fn frozen_entries_do_not_change_and_absent_removals_copy_nothing() {
        let mut table = KeyedTable::default();
        put(&mut table, b"a", b"", b"1");
        let frozen = table.freeze();
        table.remove(locate(b"b", b""));
        assert!(table.segments[0].is_frozen());
        put(&mut table, b"a", b"", b"2");
        put(&mut table, b"b", b"", b"3");
        let view: Vec<_> = frozen[0].iter().map(PointSlot::value).collect();
        assert_eq!(view, [b"1"]);
    }

    #[test]
    fn the_accounts_follow_every_change() {
        let mut table = KeyedTable::default();
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
