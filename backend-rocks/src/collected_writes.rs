//! Writes that RocksDB has not been given yet.
//!
//! A write to RocksDB costs a batch, a turn in its queue of writers and a search in a skip list, nearly
//! all of it misses of the processor's caches. Writes that come together in the order of their keys
//! share the queue and the way through the list. So they are collected here, where they are found by
//! hash, and each key is written once, however often it changes meanwhile.
//!
//! Nothing here knows RocksDB: what is to be done is handed out in order, and forgotten when the caller
//! says that it is done.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use xxhash_rust::xxh3::xxh3_64;

use crate::hashed_key::{HashedKey, spread};

/// What an entry takes beside its bytes: itself, and its places in the tables at their usual load.
const ENTRY_BYTES: usize = size_of::<Entry>() + 16;

/// What is longer than this part of the limit is not worth collecting: copying it costs more than the
/// search that it saves.
const LEAST_ENTRIES: usize = 8;

/// What is to become of a key. Values are in their stored form, which ends with an era (`eras`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collected<'w> {
    /// The value, whatever RocksDB has.
    Put(&'w [u8]),
    /// This is added to what RocksDB has.
    Append(&'w [u8]),
    /// Nothing, whatever RocksDB has.
    Delete,
}

/// Whether there is room for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// When what has been collected is written.
    WhenWritten,
    /// It is to be written at once, after what has been collected.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    Append,
    Delete,
}

/// A collected write. Places are those in [`CollectedWrites::bytes`].
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u32,
    key: u32,
    key_len: u32,
    value: u32,
    value_len: u32,
    /// The value may grow to this length where it is.
    value_room: u32,
    kind: Kind,
}

/// The writes to one column family.
#[derive(Debug)]
pub(crate) struct CollectedWrites {
    /// How many bytes are collected, more or less; with 0 nothing is.
    limit: usize,
    /// Keys and values, as they came.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The entries, by the hash of their keys.
    by_key: HashTable<u32>,
    /// The hashes of what the keys of maps begin with. Two maps with the same hash count as one.
    maps: HashTable<u64>,
    deletes: usize,
}

impl CollectedWrites {
    /// Collects `limit` bytes at a time.
    pub(crate) fn new(limit: usize) -> Self {
        CollectedWrites {
            // Places have 32 bits.
            limit: limit.min(1 << 30),
            bytes: Vec::new(),
            entries: Vec::new(),
            by_key: HashTable::new(),
            maps: HashTable::new(),
            deletes: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys that have a value, minus deleted ones: what they may add to the number of all.
    pub(crate) fn net_entries(&self) -> i64 {
        self.entries.len() as i64 - 2 * self.deletes as i64
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.entries.capacity() * size_of::<Entry>()
            + self.by_key.allocation_size()
            + self.maps.allocation_size()
    }

    /// What is to become of a key, if anything.
    #[inline]
    pub(crate) fn find(&self, key: HashedKey<'_>) -> Option<Collected<'_>> {
        if self.is_empty() {
            return None;
        }
        let is_it = |at: &u32| {
            let entry = &self.entries[*at as usize];
            entry.hash == key.hash && self.key(entry) == key.bytes
        };
        let at = self.by_key.find(spread(key.hash), is_it)?;
        Some(self.collected(&self.entries[*at as usize]))
    }

    /// Whether it has anything of the map whose keys begin with `prefix`.
    #[inline]
    pub(crate) fn has_map(&self, prefix: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let hash = xxh3_64(prefix);
        self.maps.find(hash, |known| *known == hash).is_some()
    }

    /// Whether there is room for a key and a value.
    #[inline]
    pub(crate) fn room_for(&self, len: usize) -> Room {
        if len + ENTRY_BYTES > self.limit / LEAST_ENTRIES {
            return Room::Never;
        }
        let taken = self.bytes.len() + self.entries.len() * ENTRY_BYTES;
        if taken + len + ENTRY_BYTES <= self.limit { Room::Enough } else { Room::WhenWritten }
    }

    /// Notes that something of a map comes, whose keys begin with `prefix`.
    #[inline]
    pub(crate) fn note_map(&mut self, prefix: &[u8]) {
        let hash = xxh3_64(prefix);
        self.maps.entry(hash, |known| *known == hash, |known| *known).or_insert(hash);
    }

    #[inline]
    pub(crate) fn put(&mut self, key: HashedKey<'_>, value: &[u8]) {
        let at = self.entry(key);
        self.set(at, Kind::Put, value);
    }

    #[inline]
    pub(crate) fn delete(&mut self, key: HashedKey<'_>) {
        let at = self.entry(key);
        self.set(at, Kind::Delete, &[]);
    }

    /// Adds to what is there; `false` when it cannot be joined with what has been collected, because
    /// that is of another era or there is no room for the whole.
    #[inline]
    pub(crate) fn append(&mut self, key: HashedKey<'_>, operand: &[u8]) -> bool {
        let known = self.entries.len();
        let at = self.entry(key);
        if at == known {
            self.set(at, Kind::Append, operand);
            return true;
        }
        let entry = self.entries[at];
        if entry.kind == Kind::Delete {
            self.set(at, Kind::Put, operand);
            return true;
        }
        let (value, value_len) = (entry.value as usize, entry.value_len as usize);
        if operand.last() != self.bytes[value..value + value_len].last() {
            return false;
        }
        // The era of the whole is that of the operand.
        let payload_len = value_len.saturating_sub(1);
        let whole_len = payload_len + operand.len();
        if whole_len <= entry.value_room as usize {
            let from = value + payload_len;
            self.bytes[from..from + operand.len()].copy_from_slice(operand);
        } else {
            // Twice the room, so that a list that grows on is seldom copied.
            let room = whole_len * 2;
            if self.room_for(room) != Room::Enough {
                return false;
            }
            let place = self.bytes.len();
            self.bytes.extend_from_within(value..value + payload_len);
            self.bytes.extend_from_slice(operand);
            self.bytes.resize(place + room, 0);
            let entry = &mut self.entries[at];
            (entry.value, entry.value_room) = (place as u32, room as u32);
        }
        self.entries[at].value_len = whole_len as u32;
        true
    }

    /// All of it, in the order of the keys.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (&[u8], Collected<'_>)> {
        // The first bytes beside each entry: most comparisons need not go to the keys.
        let first_bytes = |entry: &Entry| {
            let (key, mut first) = (self.key(entry), [0; 16]);
            let len = key.len().min(16);
            first[..len].copy_from_slice(&key[..len]);
            u128::from_be_bytes(first)
        };
        let mut order: Vec<_> =
            self.entries.iter().map(|entry| (first_bytes(entry), entry)).collect();
        order.sort_unstable_by(|(a, one), (b, other)| {
            a.cmp(b).then_with(|| self.key(one).cmp(self.key(other)))
        });
        order.into_iter().map(|(_, entry)| (self.key(entry), self.collected(entry)))
    }

    /// All of it, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (HashedKey<'_>, Collected<'_>)> {
        self.entries.iter().map(|entry| {
            let key = HashedKey { bytes: self.key(entry), hash: entry.hash };
            (key, self.collected(entry))
        })
    }

    /// Forgets everything: it is written.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.by_key.clear();
        self.maps.clear();
        self.deletes = 0;
    }

    #[inline]
    fn key(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.key as usize..][..entry.key_len as usize]
    }

    #[inline]
    fn collected(&self, entry: &Entry) -> Collected<'_> {
        let value = &self.bytes[entry.value as usize..][..entry.value_len as usize];
        match entry.kind {
            Kind::Put => Collected::Put(value),
            Kind::Append => Collected::Append(value),
            Kind::Delete => Collected::Delete,
        }
    }

    /// The entry of a key; a new one, which the caller sets, if there was none.
    #[inline]
    fn entry(&mut self, key: HashedKey<'_>) -> usize {
        let CollectedWrites { bytes, entries, by_key, .. } = self;
        let is_it = |at: &u32| {
            let entry = &entries[*at as usize];
            entry.hash == key.hash
                && bytes[entry.key as usize..][..entry.key_len as usize] == *key.bytes
        };
        let hash_of = |at: &u32| spread(entries[*at as usize].hash);
        match by_key.entry(spread(key.hash), is_it, hash_of) {
            Slot::Occupied(known) => *known.get() as usize,
            Slot::Vacant(vacant) => {
                let at = entries.len();
                vacant.insert(at as u32);
                let place = bytes.len() as u32;
                bytes.extend_from_slice(key.bytes);
                let value = bytes.len() as u32;
                entries.push(Entry {
                    hash: key.hash,
                    key: place,
                    key_len: key.bytes.len() as u32,
                    value,
                    value_len: 0,
                    value_room: 0,
                    kind: Kind::Put,
                });
                at
            }
        }
    }

    /// Makes `value` that of an entry, in its old place if it fits.
    #[inline]
    fn set(&mut self, at: usize, kind: Kind, value: &[u8]) {
        let entry = &mut self.entries[at];
        self.deletes += usize::from(kind == Kind::Delete);
        self.deletes -= usize::from(entry.kind == Kind::Delete);
        entry.kind = kind;
        entry.value_len = value.len() as u32;
        if value.len() <= entry.value_room as usize {
            self.bytes[entry.value as usize..][..value.len()].copy_from_slice(value);
        } else {
            (entry.value, entry.value_room) = (self.bytes.len() as u32, value.len() as u32);
            self.bytes.extend_from_slice(value);
        }
    }
}

#[cfg(test)]
#[path = "collected_writes_tests.rs"]
mod tests;
