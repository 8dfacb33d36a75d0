//! Which block a key is in.
//!
//! Of each block the index keeps a **separator**: a byte string that is not greater than any key of
//! the block and greater than all keys before it, as short as possible. Of the first block it is its
//! first key. In memory, separators stand in one arena, and eight bytes of each in an array of their
//! own: a search touches that array, and the arena about once.

use weir_state_api::Result;

use super::block::BlockPlace;
use super::wire::{Decoder, put_bytes, put_varint};

/// The blocks of a table: where they are and what they hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// All separators, one behind the other.
    separators: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
    places: Vec<BlockPlace>,
    /// How many bytes all separators begin with in common.
    common: usize,
    /// The eight bytes behind those, as numbers that sort like them.
    words: Vec<u64>,
}

impl Index {
    /// Adds the next block.
    pub(super) fn push(&mut self, separator: &[u8], place: BlockPlace) {
        self.separators.extend_from_slice(separator);
        self.ends.push(self.separators.len() as u32);
        self.places.push(place);
    }

    pub(super) fn block_count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn place(&self, block: usize) -> Option<&BlockPlace> {
        self.places.get(block)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.separators.len() + self.places.len() * (size_of::<BlockPlace>() + 4 + 8)
    }

    fn separator(&self, block: usize) -> &[u8] {
        let start = block.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.separators[start as usize..self.ends[block] as usize]
    }

    /// Prepares searches, when all blocks have been added.
    fn prepare(&mut self) {
        let Some(last) = self.places.len().checked_sub(1) else { return };
        let (first, last) = (self.separator(0), self.separator(last));
        self.common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        self.words = (0..self.places.len())
            .map(|block| word(&self.separator(block)[self.common..]))
            .collect();
    }

    /// How many separators are less than `key`, or equal to it if `or_equal`.
    #[inline]
    fn rank(&self, key: &[u8], or_equal: bool) -> usize {
        if self.places.is_empty() {
            return 0;
        }
        let Some((start, rest)) = key.split_at_checked(self.common) else {
            // Shorter than what all begin with: before all or behind all.
            return if key < self.separator(0) { 0 } else { self.places.len() };
        };
        match start.cmp(&self.separators[..self.common]) {
            std::cmp::Ordering::Less => return 0,
            std::cmp::Ordering::Greater => return self.places.len(),
            std::cmp::Ordering::Equal => {}
        }
        let wanted = word(rest);
        let (mut from, mut to) = (self.words.partition_point(|word| *word < wanted), 0);
        if self.words.get(from) == Some(&wanted) {
            to = from + self.words[from..].partition_point(|word| *word == wanted);
        }
        while from < to {
            let middle = from + (to - from) / 2;
            let separator = self.separator(middle);
            if separator < key || (or_equal && separator == key) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }

    /// The only block that can hold `key`.
    #[inline]
    pub(super) fn block_of(&self, key: &[u8]) -> Option<usize> {
        self.rank(key, true).checked_sub(1)
    }

    /// The last block that can hold a key before `key`.
    pub(super) fn last_block_before(&self, key: &[u8]) -> Option<usize> {
        self.rank(key, false).checked_sub(1)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.places.len() as u64);
        for (block, place) in self.places.iter().enumerate() {
            put_varint(out, u64::from(place.length));
            out.extend_from_slice(&place.crc32.to_le_bytes());
            put_bytes(out, self.separator(block));
        }
    }

    /// `blocks_len` is how many bytes the blocks take together.
    pub(super) fn decode(bytes: &[u8], blocks_len: u64, origin: &str) -> Result<Self> {
        let mut decoder = Decoder::new(bytes, origin);
        let count = decoder.count(6)?;
        let mut index = Index::default();
        // What follows is no longer than a part of a table, so its lengths fit 32 bits.
        let mut offset = 0;
        let mut before = None;
        for _ in 0..count {
            let place = BlockPlace { offset, length: decoder.number()?, crc32: decoder.u32()? };
            let separator = decoder.bytes()?;
            if before.replace(separator).is_some_and(|before| separator <= before) {
                return Err(decoder.corrupt("the index of blocks is not in order"));
            }
            index.push(separator, place);
            offset += u64::from(place.length);
        }
        if offset != blocks_len {
            let what = format!("the index accounts for {offset} bytes of blocks, not {blocks_len}");
            return Err(decoder.corrupt(what));
        }
        decoder.finish("index")?;
        index.prepare();
        Ok(index)
    }
}

/// The first eight bytes as a number that sorts like them. Shorter strings sort like ones with zeros
/// behind: equal numbers say nothing.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    if let Some(bytes) = bytes.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    let mut padded = [0; 8];
    for (to, from) in padded.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_be_bytes(padded)
}

/// The shortest separator between `before` and the greater `first`.
pub(super) fn separator<'a>(before: &[u8], first: &'a [u8]) -> &'a [u8] {
    let shared = before.iter().zip(first).take_while(|(a, b)| a == b).count();
    first.get(..=shared).unwrap_or(first)
}
