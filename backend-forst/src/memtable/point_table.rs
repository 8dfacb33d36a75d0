//! Entries of point states: a hash table that is updated in place.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;

use super::Found;
use crate::format::EntryKind;

/// One allocation for key and value: the value stands behind the key, so that a longer one only moves
/// the end.
#[derive(Debug)]
struct PointEntry {
    bytes: Vec<u8>,
    /// Of the stored key, as filters want it; so that a growing table need not look at the keys.
    hash: u64,
    key_len: u32,
    kind: EntryKind,
}

impl PointEntry {
    fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len as usize]
    }

    fn value(&self) -> &[u8] {
        &self.bytes[self.key_len as usize..]
    }
}

/// The newest version of each stored key that was written to a point state.
#[derive(Debug, Default)]
pub(crate) struct PointTable {
    entries: HashTable<PointEntry>,
    /// What the entries hold outside of the table.
    bytes: usize,
}

impl PointTable {
    /// The version under a stored key whose hash is known.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Option<Found<'_>> {
        let entry = self.entries.find(hash, |entry| entry.key() == key)?;
        Some(Found { kind: entry.kind, value: entry.value() })
    }

    /// Replaces what is there, or adds it.
    #[inline]
    pub(crate) fn set(&mut self, hash: u64, key: &[u8], kind: EntryKind, value: &[u8]) {
        let bytes = &mut self.bytes;
        match self.entries.entry(hash, |entry| entry.key() == key, |entry| entry.hash) {
            Place::Occupied(mut place) => {
                let entry = place.get_mut();
                let before = entry.bytes.capacity();
                entry.bytes.truncate(key.len());
                entry.bytes.extend_from_slice(value);
                entry.kind = kind;
                *bytes = *bytes - before + entry.bytes.capacity();
            }
            Place::Vacant(place) => {
                let mut both = Vec::with_capacity(key.len() + value.len());
                both.extend_from_slice(key);
                both.extend_from_slice(value);
                *bytes += both.capacity();
                // Keys have some 128 KiB at most.
                place.insert(PointEntry { bytes: both, hash, key_len: key.len() as u32, kind });
            }
        }
    }

    /// Appends: to a value in place, to nothing as an operand for what may be older.
    pub(crate) fn append(&mut self, hash: u64, key: &[u8], more: &[u8]) {
        let Some(entry) = self.entries.find_mut(hash, |entry| entry.key() == key) else {
            return self.set(hash, key, EntryKind::Append, more);
        };
        let before = entry.bytes.capacity();
        if entry.kind == EntryKind::Delete {
            entry.kind = EntryKind::Put;
        }
        entry.bytes.extend_from_slice(more);
        self.bytes = self.bytes - before + entry.bytes.capacity();
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes held: table and entries.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes + self.entries.capacity() * (size_of::<PointEntry>() + 1)
    }

    /// All entries in the order of their stored keys.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = (&[u8], Found<'_>)> {
        let mut entries: Vec<&PointEntry> = self.entries.iter().collect();
        entries.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        entries
            .into_iter()
            .map(|entry| (entry.key(), Found { kind: entry.kind, value: entry.value() }))
    }

    /// All entries in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Found<'_>)> {
        let entries = self.entries.iter();
        entries.map(|entry| (entry.key(), Found { kind: entry.kind, value: entry.value() }))
    }
}
