//! The hash table from (key, namespace) to a payload, for one state and one key group.
//!
//! It is a row of hash tables, the *segments*. A segment holds a few thousand entries at most, and
//! the number of segments grows one at a time (linear hashing), so that nothing a single write can
//! trigger (growth, or the copy after a snapshot) depends on the size of the state.
//!
//! The bits of an entry's hash are shared out: the low 32 select the key group (their top) and the
//! bucket (their bottom), the next 25 the segment, and the top 7 are the tag in the bucket's control
//! byte.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use weir_state_api::{KeyRef, Result, key_hash};

use crate::compact_bytes::CompactBytes;
use crate::freezable::Freezable;

/// The mean number of entries of a segment at which another one is added. The fullest segment has
/// about twice the mean: 7,168, which is what 8,192 buckets of `hashbrown` hold.
const SEGMENT_ENTRIES: usize = 3_584;

/// Segments of at most this capacity are not shrunk.
const MIN_CAPACITY: usize = 64;

/// What is stored under a (key, namespace).
pub(crate) trait Payload: Clone {
    /// Physical entries in it.
    fn entry_count(&self) -> usize;
    /// Bytes on the heap; O(1).
    fn heap_bytes(&self) -> usize;
}

impl Payload for CompactBytes {
    #[inline]
    fn entry_count(&self) -> usize {
        1
    }
    #[inline]
    fn heap_bytes(&self) -> usize {
        CompactBytes::heap_bytes(self)
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
        let hash = if namespace.is_empty() {
            hash
        } else {
            // The hash of the key first, so that (key, namespace) and (namespace, key) differ.
            (hash.rotate_left(23) ^ key_hash(namespace)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        Locator { hash, key, namespace }
    }
}

/// One entry: a cache line.
#[derive(Debug, Clone)]
pub(crate) struct Slot<P> {
    hash: u64,
    /// The key followed by the namespace.
    bytes: CompactBytes,
    key_len: u32,
    /// What is stored there.
    pub(crate) payload: P,
}

impl<P> Slot<P> {
    fn new(at: Locator<'_>, payload: P) -> Self {
        Slot {
            hash: at.hash,
            bytes: CompactBytes::concat(at.key, at.namespace),
            key_len: at.key.len() as u32, // keys have at most 64 KiB
            payload,
        }
    }

    /// The key and the namespace.
    #[inline]
    pub(crate) fn key_and_namespace(&self) -> (&[u8], &[u8]) {
        self.bytes.as_slice().split_at(self.key_len as usize)
    }

    #[inline]
    fn is_at(&self, at: Locator<'_>) -> bool {
        if self.hash != at.hash || self.key_len as usize != at.key.len() {
            return false;
        }
        let bytes = self.bytes.as_slice();
        if at.namespace.is_empty() {
            return bytes == at.key;
        }
        bytes.len() == at.key.len() + at.namespace.len()
            && bytes.starts_with(at.key)
            && bytes.ends_with(at.namespace)
    }
}

/// A hash table of bounded size; what a snapshot shares with the writer.
pub(crate) type Segment<P> = HashTable<Slot<P>>;

/// All entries of a table as they were at one moment.
pub(crate) type FrozenSegments<P> = Vec<Arc<Segment<P>>>;

/// What becomes of an entry; see [`KeyedTable::change`].
pub(crate) enum Fate<P> {
    /// It stays, as the function has left it; or stays absent.
    Keep,
    /// This is stored there.
    Store(P),
    /// It goes.
    Remove,
}

/// See the module.
///
/// Invariants: an entry with segment bits `b` lies in segment `b & mask` if there is one with that
/// number, otherwise in `b & (mask >> 1)`; `mask + 1` is the smallest power of two that is not below
/// the number of segments; `len`, `entries` and `heap_bytes` are the sums over all entries.
#[derive(Debug)]
pub(crate) struct KeyedTable<P> {
    segments: Vec<Freezable<Segment<P>>>,
    mask: usize,
    len: usize,
    entries: usize,
    heap_bytes: usize,
}

impl<P> Default for KeyedTable<P> {
    fn default() -> Self {
        KeyedTable { segments: Vec::new(), mask: 0, len: 0, entries: 0, heap_bytes: 0 }
    }
}

impl<P: Payload> KeyedTable<P> {
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
        let tables: usize = self.segments.iter().map(|s| s.get().allocation_size()).sum();
        self.heap_bytes + tables + self.segments.capacity() * size_of::<Freezable<Segment<P>>>()
    }

    /// Looks an entry up.
    #[inline]
    pub(crate) fn get(&self, at: Locator<'_>) -> Option<&P> {
        let segment = self.segments.get(self.segment_of(at.hash))?.get();
        segment.find(at.hash, |slot| slot.is_at(at)).map(|slot| &slot.payload)
    }

    /// Shows the payload to `f`, which may change it, and does what `f` says, in one probe.
    ///
    /// An error of `f` is passed on and changes nothing; `f` must not have changed the payload
    /// either.
    #[inline]
    pub(crate) fn change(
        &mut self,
        at: Locator<'_>,
        f: impl FnOnce(Option<&mut P>) -> Result<Fate<P>>,
    ) -> Result<()> {
        if self.segments.is_empty() {
            self.segments.push(Freezable::default());
        }
        let number = self.segment_of(at.hash);
        let segment = self.segments[number].get_mut();
        match segment.entry(at.hash, |slot| slot.is_at(at), |slot| slot.hash) {
            Entry::Occupied(mut entry) => {
                let payload = &mut entry.get_mut().payload;
                let before = (payload.entry_count(), payload.heap_bytes());
                let fate = f(Some(payload))?;
                if let Fate::Remove = fate {
                    self.heap_bytes -= before.1 + entry.remove().0.bytes.heap_bytes();
                    self.entries -= before.0;
                    self.removed(number);
                    return Ok(());
                }
                if let Fate::Store(new) = fate {
                    *payload = new;
                }
                self.entries = self.entries - before.0 + payload.entry_count();
                self.heap_bytes = self.heap_bytes - before.1 + payload.heap_bytes();
            }
            Entry::Vacant(entry) => {
                if let Fate::Store(payload) = f(None)? {
                    let slot = Slot::new(at, payload);
                    self.entries += slot.payload.entry_count();
                    self.heap_bytes += slot.bytes.heap_bytes() + slot.payload.heap_bytes();
                    entry.insert(slot);
                    self.len += 1;
                    if self.len > self.segments.len() * SEGMENT_ENTRIES {
                        self.split();
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes an entry; absent is no error, and copies nothing.
    pub(crate) fn remove(&mut self, at: Locator<'_>) {
        let number = self.segment_of(at.hash);
        let Some(segment) = self.segments.get_mut(number) else { return };
        if segment.is_frozen() && segment.get().find(at.hash, |slot| slot.is_at(at)).is_none() {
            return;
        }
        if let Ok(entry) = segment.get_mut().find_entry(at.hash, |slot| slot.is_at(at)) {
            let (slot, _) = entry.remove();
            self.entries -= slot.payload.entry_count();
            self.heap_bytes -= slot.bytes.heap_bytes() + slot.payload.heap_bytes();
            self.removed(number);
        }
    }

    /// Shares all entries as they are now: O(1) for a table of one segment.
    pub(crate) fn freeze(&mut self) -> FrozenSegments<P> {
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
        let segment = self.segments[number].get_mut();
        // Capacity at least halves, so this is paid for by the removals since the last time.
        if segment.capacity() > MIN_CAPACITY && segment.len() < segment.capacity() / 8 {
            let capacity = (segment.len() * 2).max(MIN_CAPACITY / 2);
            segment.shrink_to(capacity, |slot| slot.hash);
        }
    }

    /// Adds a segment and moves half of its predecessor's entries there.
    fn split(&mut self) {
        let new = self.segments.len();
        self.mask = (new + 1).next_power_of_two() - 1;
        let (mask, old) = (self.mask, new & (self.mask >> 1));
        let old = self.segments[old].get_mut();
        let mut moved = Segment::with_capacity(old.len() / 2);
        for slot in old.extract_if(|slot| segment_bits(slot.hash) & mask == new) {
            moved.insert_unique(slot.hash, slot, |slot| slot.hash);
        }
        self.segments.push(Freezable::Owned(moved));
    }
}

#[inline]
fn segment_bits(hash: u64) -> usize {
    (hash >> 32) as usize & 0x1ff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locate<'a>(key: &'a [u8], namespace: &'a [u8]) -> Locator<'a> {
        Locator::with_key_hash(key, key_hash(key), namespace)
    }

    fn put(table: &mut KeyedTable<CompactBytes>, key: &[u8], namespace: &[u8], value: &[u8]) {
        let value = CompactBytes::new(value);
        table.change(locate(key, namespace), |_| Ok(Fate::Store(value))).unwrap();
    }

    #[test]
    fn an_entry_is_a_cache_line() {
        assert_eq!(size_of::<Slot<CompactBytes>>(), 64);
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
            let found = table.get(locate(key, namespace)).map(CompactBytes::as_slice);
            assert_eq!(found, Some(&[index as u8][..]));
        }
        assert_eq!(table.get(locate(b"d", b"abc")), None);
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
            let found = table.get(locate(&key, b"")).map(CompactBytes::as_slice);
            assert_eq!(found, Some(&i.to_le_bytes()[..]));
            table.remove(locate(&key, b""));
            assert_eq!(table.get(locate(&key, b"")), None);
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
        let view: Vec<_> = frozen[0].iter().map(|slot| slot.payload.as_slice()).collect();
        assert_eq!(view, [b"1"]);
    }

    #[test]
    fn the_accounts_follow_every_change() {
        let mut table = KeyedTable::default();
        put(&mut table, &[1; 100], b"", &[2; 100]);
        put(&mut table, &[1; 100], b"", &[2; 300]);
        let slots: usize = table.freeze()[0]
            .iter()
            .map(|slot| slot.bytes.heap_bytes() + slot.payload.heap_bytes())
            .sum();
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
