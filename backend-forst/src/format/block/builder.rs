//! Building blocks.

use super::super::entry::Entry;
use super::super::wire::put_varint;
use super::layout::{
    BUCKET_EMPTY, BUCKET_SHARED, MAX_INDEXED_GROUPS, ROW_LEN, TAIL_LEN, bucket_of, common_prefix,
};

/// Builds one block after the other, in buffers that are kept.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    group_len: usize,
    /// Finished groups; at the end the whole block.
    payload: Vec<u8>,
    heads: Vec<u8>,
    rows: Vec<[u32; 3]>,
    /// The group being filled.
    keys: Vec<u8>,
    values: Vec<u8>,
    group_entries: usize,
    entries: u32,
    /// Of the payload but for the hash index and the tail, if the group ended now.
    len: usize,
    /// Hash and group of each entry, while a hash index is wanted.
    hashes: Vec<(u32, u8)>,
    indexed: bool,
}

impl BlockBuilder {
    /// A builder of blocks with groups of `group_len` entries, one or more.
    pub(crate) fn new(group_len: usize) -> Self {
        BlockBuilder {
            group_len: group_len.max(1),
            payload: Vec::new(),
            heads: Vec::new(),
            rows: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            group_entries: 0,
            entries: 0,
            len: 0,
            hashes: Vec::new(),
            indexed: false,
        }
    }

    /// Whether no entry has been added.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// About how long the block would be, uncompressed.
    #[inline]
    pub(crate) fn estimated_len(&self) -> usize {
        self.len + self.buckets() + TAIL_LEN
    }

    /// Adds an entry, whose key is greater than all before it. `hash` is the hash of its key, or
    /// `None` when it is never looked up; the block gets a hash index when `looked_up` is true for
    /// any of its entries.
    pub(crate) fn add(&mut self, entry: &Entry<'_>, hash: u64, looked_up: bool) {
        if self.group_entries == self.group_len {
            self.end_group();
        }
        let (shared, suffix) = if self.group_entries == 0 {
            let starts = [self.payload.len(), 0, self.heads.len()];
            self.rows.push(starts.map(|at| at as u32));
            self.heads.extend_from_slice(entry.key);
            self.len += ROW_LEN + entry.key.len();
            (entry.key.len(), &[][..])
        } else {
            let head = self.rows.last().map_or(0, |row| row[2] as usize);
            let shared = common_prefix(&self.heads[head..], entry.key);
            (shared, &entry.key[shared..])
        };
        let value = (entry.value.len() as u64) << 2 | u64::from(entry.kind.code());
        let numbers = [shared as u64, suffix.len() as u64, value];
        let before = self.keys.len();
        if numbers.iter().fold(0, |bits, number| bits | number) < 0x80 {
            self.keys.extend_from_slice(&numbers.map(|number| number as u8));
        } else {
            numbers.into_iter().for_each(|number| put_varint(&mut self.keys, number));
        }
        self.keys.extend_from_slice(suffix);
        self.values.extend_from_slice(entry.value);
        self.len += self.keys.len() - before + entry.value.len();
        self.group_entries += 1;
        self.entries += 1;
        self.indexed |= looked_up;
        if self.rows.len() <= MAX_INDEXED_GROUPS {
            self.hashes.push((hash as u32, (self.rows.len() - 1) as u8));
        }
    }

    fn end_group(&mut self) {
        self.payload.extend_from_slice(&self.keys);
        if let Some(row) = self.rows.last_mut() {
            row[1] = self.payload.len() as u32;
        }
        self.payload.extend_from_slice(&self.values);
        self.keys.clear();
        self.values.clear();
        self.group_entries = 0;
    }

    /// How many buckets the hash index has: four for three entries.
    fn buckets(&self) -> usize {
        let fits = self.rows.len() <= MAX_INDEXED_GROUPS;
        if self.indexed && fits { (self.entries as usize * 4).div_ceil(3) } else { 0 }
    }

    /// The block's bytes, before compression. The builder must be [cleared](BlockBuilder::clear)
    /// before it is used again.
    pub(crate) fn finish(&mut self) -> &[u8] {
        if self.group_entries > 0 {
            self.end_group();
        }
        let heads = self.payload.len() as u32;
        self.payload.extend_from_slice(&self.heads);
        for [keys, values, head] in &self.rows {
            for at in [*keys, *values, heads + head] {
                self.payload.extend_from_slice(&at.to_le_bytes());
            }
        }
        let buckets = self.buckets();
        let first = self.payload.len();
        self.payload.resize(first + buckets, BUCKET_EMPTY);
        if buckets > 0 {
            for (hash, group) in &self.hashes {
                let bucket = &mut self.payload[first + bucket_of(u64::from(*hash), buckets as u32)];
                if *bucket == BUCKET_EMPTY {
                    *bucket = *group;
                } else if *bucket != *group {
                    *bucket = BUCKET_SHARED;
                }
            }
        }
        for count in [self.rows.len() as u32, buckets as u32, self.entries] {
            self.payload.extend_from_slice(&count.to_le_bytes());
        }
        &self.payload
    }

    /// Begins the next block.
    pub(crate) fn clear(&mut self) {
        self.payload.clear();
        self.heads.clear();
        self.rows.clear();
        self.keys.clear();
        self.values.clear();
        self.group_entries = 0;
        self.entries = 0;
        self.len = 0;
        self.hashes.clear();
        self.indexed = false;
    }
}

/// Appends a block as it is stored: its bytes, compressed by the method with this code, and what
/// stands behind them. The checksum of it all.
pub(crate) fn seal(stored: &[u8], code: u8, raw_len: u32, out: &mut Vec<u8>) -> u32 {
    let start = out.len();
    out.extend_from_slice(stored);
    out.extend_from_slice(&raw_len.to_le_bytes());
    out.push(code);
    let crc32 = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&crc32.to_le_bytes());
    crc32
}
