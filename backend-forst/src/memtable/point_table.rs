//! Entries of point states: a hash table that is updated in place.

use std::hint::black_box;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;

use super::Found;
use super::arena::{Arena, Place};
use crate::format::EntryKind;

/// A version of a key. In the arena the value stands behind the key.
#[derive(Debug)]
struct PointEntry {
    /// Of the stored key, as filters want it; so that a growing table need not look at the keys.
    hash: u64,
    place: Place,
    value_len: usize,
    /// How long the value may become where it is.
    capacity: usize,
    key_len: u32,
    kind: EntryKind,
}

impl PointEntry {
    #[inline]
    fn key<'a>(&self, arena: &'a Arena) -> &'a [u8] {
        arena.get(self.place, self.key_len as usize)
    }

    /// Whether it is of this key. The hash tells nearly always, without a look at the key's memory.
    #[inline]
    fn is_of(&self, hash: u64, key: &[u8], arena: &Arena) -> bool {
        self.hash == hash && self.key(arena) == key
    }

    #[inline]
    fn both<'a>(&self, arena: &'a Arena) -> (&'a [u8], &'a [u8]) {
        let key_len = self.key_len as usize;
        arena.get(self.place, key_len + self.value_len).split_at(key_len)
    }

    #[inline]
    fn found<'a>(&self, arena: &'a Arena) -> Found<'a> {
        Found { kind: self.kind, value: self.both(arena).1 }
    }

    /// Replaces what is behind the first `keep` bytes of the value.
    #[inline]
    fn write(&mut self, arena: &mut Arena, keep: usize, bytes: &[u8]) {
        let len = keep + bytes.len();
        if len > self.capacity && !self.place.grows() {
            self.move_to(arena, keep, len.max(self.capacity * 2));
        }
        arena.write(self.place, self.key_len as usize + keep, bytes);
        self.value_len = len;
    }

    #[cold]
    fn move_to(&mut self, arena: &mut Arena, keep: usize, capacity: usize) {
        let (key, value) = self.both(arena);
        let (key, value) = (key.to_vec(), value[..keep].to_vec());
        self.place = arena.add(&key, &value, capacity);
        self.capacity = capacity;
    }
}

/// The newest version of each stored key that was written to a point state.
#[derive(Debug, Default)]
pub(crate) struct PointTable {
    entries: HashTable<PointEntry>,
    arena: Arena,
}

impl PointTable {
    /// The version under a stored key whose hash is known.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Option<Found<'_>> {
        let entry = self.entries.find(hash, |entry| entry.is_of(hash, key, &self.arena))?;
        Some(entry.found(&self.arena))
    }

    /// Replaces what is there, or adds it.
    #[inline]
    pub(crate) fn set(&mut self, hash: u64, key: &[u8], kind: EntryKind, value: &[u8]) {
        let arena = &mut self.arena;
        match self.entries.entry(hash, |entry| entry.is_of(hash, key, arena), |entry| entry.hash) {
            Slot::Occupied(mut slot) => {
                let entry = slot.get_mut();
                entry.write(arena, 0, value);
                entry.kind = kind;
            }
            Slot::Vacant(slot) => {
                let place = arena.add(key, value, value.len());
                // Keys have some 128 KiB at most.
                let key_len = key.len() as u32;
                let (value_len, capacity) = (value.len(), value.len());
                slot.insert(PointEntry { hash, place, value_len, capacity, key_len, kind });
            }
        }
    }

    /// Appends: to a value in place, to nothing as an operand for what may be older.
    pub(crate) fn append(&mut self, hash: u64, key: &[u8], more: &[u8]) {
        let arena = &mut self.arena;
        let Some(entry) = self.entries.find_mut(hash, |entry| entry.is_of(hash, key, arena)) else {
            return self.set(hash, key, EntryKind::Append, more);
        };
        if entry.kind == EntryKind::Delete {
            entry.kind = EntryKind::Put;
        }
        entry.write(arena, entry.value_len, more);
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes held: table and entries.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.arena.used_bytes() + self.entries.capacity() * (size_of::<PointEntry>() + 1)
    }

    /// All entries in the order of their stored keys.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = (&[u8], Found<'_>)> {
        let arena = &self.arena;
        // Most pairs are told apart by what lies side by side here.
        let mut entries: Vec<(u128, &PointEntry)> =
            self.entries.iter().map(|entry| (first_bytes(entry.key(arena)), entry)).collect();
        entries.sort_unstable_by(|(a_first, a), (b_first, b)| {
            a_first.cmp(b_first).then_with(|| a.key(arena).cmp(b.key(arena)))
        });
        (0..entries.len()).map(move |at| {
            if at % AHEAD == 0 {
                touch(entries[at..].iter().take(AHEAD).map(|(_, entry)| entry.key(arena)));
            }
            let entry = entries[at].1;
            (entry.key(arena), entry.found(arena))
        })
    }

    /// All entries in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Found<'_>)> {
        self.entries.iter().map(|entry| (entry.key(&self.arena), entry.found(&self.arena)))
    }
}

/// So many entries are brought into the processor's caches together when all are walked through in the
/// order of their keys: they lie anywhere, and one after the other each would be waited for.
const AHEAD: usize = 64;

/// Reads a byte of each, which do not wait for each other.
fn touch<'k>(keys: impl Iterator<Item = &'k [u8]>) {
    black_box(keys.fold(0, |sum, key| sum ^ key.first().copied().unwrap_or(0)));
}

/// The first bytes of a key as a number: in the order of the keys, as far as they decide it.
fn first_bytes(key: &[u8]) -> u128 {
    match key.first_chunk() {
        Some(first) => u128::from_be_bytes(*first),
        None => {
            let mut first = [0; size_of::<u128>()];
            first[..key.len()].copy_from_slice(key);
            u128::from_be_bytes(first)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Keys that share their first bytes, or are the beginning of one another, and values that grow,
    /// shrink and move, against a sorted map.
    #[test]
    fn it_is_a_map_in_the_order_of_keys() {
        let mut table = PointTable::default();
        let mut expected = BTreeMap::new();
        let mut random = 7_u64;
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (random >> 40) % 500;
            let mut key = vec![b'k'; (number % 40) as usize];
            key.extend_from_slice(&number.to_le_bytes()[..(number % 3) as usize]);
            let hash = xxhash_rust::xxh3::xxh3_64(&key);
            let len = if step % 1_000 == 0 { 70_000 } else { (random >> 33) as usize % 90 };
            let bytes = vec![step as u8; len];
            if random >> 63 == 0 {
                table.set(hash, &key, EntryKind::Put, &bytes);
                expected.insert(key, (EntryKind::Put, bytes));
            } else {
                table.append(hash, &key, &bytes);
                let entry = expected.entry(key).or_insert((EntryKind::Append, Vec::new()));
                entry.1.extend_from_slice(&bytes);
            }
        }
        let found =
            |(key, found): (&[u8], Found<'_>)| (key.to_vec(), (found.kind, found.value.to_vec()));
        assert!(table.sorted().map(found).eq(expected.clone()));
        assert!(table.iter().map(found).collect::<BTreeMap<_, _>>() == expected);
        for (key, (kind, value)) in &expected {
            let hash = xxhash_rust::xxh3::xxh3_64(key);
            assert_eq!(table.get(hash, key), Some(Found { kind: *kind, value }));
        }
    }
}
