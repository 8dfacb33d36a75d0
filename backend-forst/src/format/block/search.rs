//! Decoded blocks, and finding a key in one.

use std::ops::Range;

use bytes::Bytes;
use weir_state_api::{Error, Result};

use super::super::compression::{decompress, is_plain};
use super::super::entry::EntryKind;
#[cfg(test)]
use super::super::filter::filter_hash;
use super::super::wire::corrupt;
use super::BlockPlace;
use super::layout::{
    BUCKET_EMPTY, BUCKET_SHARED, MAX_INDEXED_GROUPS, ROW_LEN, TAIL_LEN, TRAILER_LEN, bucket_of,
    common_prefix, take_number, u32_at,
};

/// A decoded block. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    payload: Bytes,
    groups: u32,
    buckets: u32,
    #[cfg(test)]
    entries: u32,
    rows_at: u32,
}

/// A group's part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) keys: usize,
    pub(super) values: usize,
    pub(super) end: usize,
    head: usize,
    head_end: usize,
}

/// An entry as it stands in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawEntry<'a> {
    /// So many bytes of the head begin its key.
    pub(super) shared: usize,
    /// The rest of its key.
    pub(super) suffix: &'a [u8],
    pub(super) kind: EntryKind,
    pub(super) value_len: usize,
}

/// Takes the next entry off the keys of a group; `None` when none stands there.
#[inline]
pub(super) fn take_entry<'a>(keys: &mut &'a [u8]) -> Option<RawEntry<'a>> {
    let (shared, suffix_len, value, rest) = match *keys {
        // Most of them are short.
        [shared, suffix_len, value, rest @ ..] if (*shared | *suffix_len | *value) < 0x80 => {
            (usize::from(*shared), usize::from(*suffix_len), usize::from(*value), rest)
        }
        keys => {
            let (shared, rest) = take_number(keys)?;
            let (suffix_len, rest) = take_number(rest)?;
            let (value, rest) = take_number(rest)?;
            (shared, suffix_len, value, rest)
        }
    };
    let (suffix, rest) = rest.split_at_checked(suffix_len)?;
    *keys = rest;
    let kind = EntryKind::of((value & 3) as u8)?;
    Some(RawEntry { shared, suffix, kind, value_len: value >> 2 })
}

/// A block whose checksum is right, before it is looked into.
enum Opened<'s> {
    /// It was not compressed.
    Plain(&'s [u8]),
    Decompressed(Vec<u8>),
}

fn open<'s>(stored: &'s [u8], place: &BlockPlace, origin: &str) -> Result<Opened<'s>> {
    let damaged = |what: &str| Err(damaged(place, origin, what));
    if stored.len() != place.length as usize {
        return damaged(&format!("has {} bytes, {} are expected", stored.len(), place.length));
    }
    let Some(checksummed) = stored.len().checked_sub(4).filter(|len| *len >= TRAILER_LEN - 4)
    else {
        return damaged("is too short");
    };
    let crc32 = crc32fast::hash(&stored[..checksummed]);
    if crc32 != u32_at(stored, checksummed) {
        return damaged("fails its checksum");
    }
    if crc32 != place.crc32 {
        return damaged("is intact, but another one than the index names");
    }
    let compressed = &stored[..stored.len() - TRAILER_LEN];
    let raw_len = u32_at(stored, compressed.len());
    let code = stored[compressed.len() + 4];
    if !is_plain(code) {
        return Ok(Opened::Decompressed(decompress(compressed, code, raw_len, origin)?));
    }
    if compressed.len() != raw_len as usize {
        return damaged("has not the length it states");
    }
    Ok(Opened::Plain(compressed))
}

#[cold]
fn damaged(place: &BlockPlace, origin: &str, what: &str) -> Error {
    corrupt(origin, format!("the block at offset {} {what}", place.offset))
}

impl Block {
    /// Verifies and decompresses a block as it is stored at `place` of the file `origin`. One that is
    /// not compressed stays a part of `stored`.
    ///
    /// # Errors
    /// [`Corrupt`](weir_state_api::ErrorKind::Corrupt) when it fails its checksum, is another block
    /// than the one at that place, or its parts do not fit together. What this returns can be read
    /// without further errors.
    pub(crate) fn decode(stored: &Bytes, place: &BlockPlace, origin: &str) -> Result<Block> {
        let payload = match open(stored, place, origin)? {
            Opened::Plain(plain) => stored.slice_ref(plain),
            Opened::Decompressed(payload) => Bytes::from(payload),
        };
        Self::verified(payload, place, origin)
    }

    /// As [`decode`](Block::decode), of a block that is a part of something larger, which should not be
    /// kept with it.
    ///
    /// # Errors
    /// As for [`decode`](Block::decode).
    pub(crate) fn decode_copy(stored: &[u8], place: &BlockPlace, origin: &str) -> Result<Block> {
        let payload = match open(stored, place, origin)? {
            Opened::Plain(plain) => Bytes::copy_from_slice(plain),
            Opened::Decompressed(payload) => Bytes::from(payload),
        };
        Self::verified(payload, place, origin)
    }

    fn verified(payload: Bytes, place: &BlockPlace, origin: &str) -> Result<Block> {
        Self::verify(payload).ok_or_else(|| damaged(place, origin, "is not laid out as a block"))
    }

    /// Checks that all that accessors rely on is so.
    fn verify(payload: Bytes) -> Option<Block> {
        let tail = payload.len().checked_sub(TAIL_LEN)?;
        let [groups, buckets, entries] = [0, 4, 8].map(|at| u32_at(&payload, tail + at));
        let buckets_at = tail.checked_sub(buckets as usize)?;
        let rows_at = buckets_at.checked_sub((groups as usize).checked_mul(ROW_LEN)?)?;
        let block = Block {
            groups,
            buckets,
            #[cfg(test)]
            entries,
            rows_at: u32::try_from(rows_at).ok()?,
            payload,
        };
        if groups == 0 || block.keys_start(0) != 0 {
            return None;
        }
        let mut counted = 0;
        for group in 0..groups {
            let row = block.row(group);
            let heads_at = block.head_start(0);
            let ordered = row.keys < row.values
                && row.values <= row.end
                && row.end <= heads_at
                && row.head <= row.head_end
                && row.head_end <= rows_at;
            if !ordered {
                return None;
            }
            let head_len = row.head_end - row.head;
            let mut keys = &block.payload[row.keys..row.values];
            let mut values = row.end - row.values;
            let mut first = true;
            while !keys.is_empty() {
                let entry = take_entry(&mut keys)?;
                let whole_head = entry.shared == head_len && entry.suffix.is_empty();
                if entry.shared > head_len || (first && !whole_head) {
                    return None;
                }
                values = values.checked_sub(entry.value_len)?;
                counted += 1;
                first = false;
            }
            if values != 0 {
                return None;
            }
        }
        let indexed = buckets == 0
            || (groups as usize <= MAX_INDEXED_GROUPS
                && block.payload[buckets_at..tail]
                    .iter()
                    .all(|bucket| u32::from(*bucket) < groups || *bucket >= BUCKET_SHARED));
        (indexed && counted == entries).then_some(block)
    }

    fn row_start(&self, group: u32) -> usize {
        self.rows_at as usize + ROW_LEN * group as usize
    }

    /// Where a group's keys begin; of the one behind the last, where the heads do.
    #[inline]
    fn keys_start(&self, group: u32) -> usize {
        let row = if group < self.groups { self.row_start(group) } else { self.row_start(0) + 8 };
        u32_at(&self.payload, row) as usize
    }

    /// Where a group's head begins; of the one behind the last, where the rows do.
    #[inline]
    fn head_start(&self, group: u32) -> usize {
        if group < self.groups {
            u32_at(&self.payload, self.row_start(group) + 8) as usize
        } else {
            self.rows_at as usize
        }
    }

    #[inline]
    pub(super) fn row(&self, group: u32) -> Row {
        Row {
            keys: self.keys_start(group),
            values: u32_at(&self.payload, self.row_start(group) + 4) as usize,
            end: self.keys_start(group + 1),
            head: self.head_start(group),
            head_end: self.head_start(group + 1),
        }
    }

    #[inline]
    pub(super) fn head(&self, group: u32) -> &[u8] {
        &self.payload[self.head_start(group)..self.head_start(group + 1)]
    }

    pub(super) fn groups(&self) -> u32 {
        self.groups
    }

    pub(super) fn payload(&self) -> &Bytes {
        &self.payload
    }

    #[cfg(test)]
    /// How many entries it holds, at least one.
    pub(crate) fn len(&self) -> usize {
        self.entries as usize
    }

    /// The memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Block>() + self.payload.len()
    }

    /// The last group whose head is not behind `key`: the only one that can hold it.
    pub(super) fn group_of(&self, key: &[u8]) -> Option<u32> {
        let (mut from, mut to) = (0, self.groups);
        while from < to {
            let middle = from + (to - from) / 2;
            if self.head(middle) <= key {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from.checked_sub(1)
    }

    #[cfg(test)]
    /// The entry with this key. Allocates nothing.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<(EntryKind, &[u8])> {
        self.get_hashed(key, filter_hash(key))
    }

    /// The entry with this key, whose [`filter_hash`] is known already.
    #[inline]
    pub(crate) fn get_hashed(&self, key: &[u8], hash: u64) -> Option<(EntryKind, &[u8])> {
        let (kind, value) = self.find(key, hash)?;
        Some((kind, &self.payload[value]))
    }

    #[cfg(test)]
    /// Like [`get`](Block::get); the value keeps the block's memory alive.
    pub(crate) fn get_bytes(&self, key: &[u8]) -> Option<(EntryKind, Bytes)> {
        let (kind, value) = self.find(key, filter_hash(key))?;
        Some((kind, self.payload.slice(value)))
    }

    #[inline]
    fn find(&self, key: &[u8], hash: u64) -> Option<(EntryKind, Range<usize>)> {
        let mut bucket = BUCKET_SHARED;
        if self.buckets > 0 {
            let buckets_at = self.row_start(self.groups);
            bucket = self.payload[buckets_at + bucket_of(hash, self.buckets)];
        }
        match bucket {
            BUCKET_EMPTY => None,
            BUCKET_SHARED => self.find_in(self.group_of(key)?, key),
            group => self.find_in(u32::from(group), key),
        }
    }

    #[inline]
    fn find_in(&self, group: u32, key: &[u8]) -> Option<(EntryKind, Range<usize>)> {
        let row = self.row(group);
        let common = common_prefix(&self.payload[row.head..row.head_end], key);
        let mut keys = &self.payload[row.keys..row.values];
        let mut value = row.values;
        while !keys.is_empty() {
            let entry = take_entry(&mut keys)?;
            if entry.shared <= common && entry.suffix == &key[entry.shared..] {
                return Some((entry.kind, value..value + entry.value_len));
            }
            if entry.shared < common {
                // It leaves the head where the key still follows it: it is behind the key.
                return None;
            }
            value += entry.value_len;
        }
        None
    }
}
