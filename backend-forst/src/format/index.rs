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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: BlockPlace = BlockPlace { offset: 0, length: 3, crc32: 7 };

    fn coded(separators: &[Vec<u8>]) -> Index {
        let mut index = Index::default();
        for separator in separators {
            index.push(separator, PLACE);
        }
        let mut bytes = Vec::new();
        index.encode(&mut bytes);
        Index::decode(&bytes, 3 * separators.len() as u64, "x").unwrap()
    }

    #[test]
    fn separators_are_short_and_separate() {
        for (before, first, expected) in [
            (&b"abc"[..], &b"abd1"[..], &b"abd"[..]),
            (b"abc", b"b", b"b"),
            (b"ab", b"abc", b"abc"),
            (b"ab", b"ab\0", b"ab\0"),
            (b"a1234", b"b1234", b"b"),
        ] {
            let found = separator(before, first);
            assert_eq!(found, expected);
            assert!(before < found && found <= first);
        }
    }

    #[test]
    fn blocks_follow_each_other() {
        let index = coded(&[b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(index.place(1), Some(&BlockPlace { offset: 3, ..PLACE }));
        assert_eq!(index.place(2), None);
        assert!(index.memory_bytes() > 0);
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused() {
        let mut index = Index::default();
        index.push(b"a", PLACE);
        let mut bytes = Vec::new();
        index.encode(&mut bytes);
        for wrong in [0, 2, 4, u64::MAX] {
            assert!(Index::decode(&bytes, wrong, "x").is_err());
        }
    }

    /// Few different bytes and long common starts, so that eight bytes often do not decide.
    fn separators() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let byte = prop_oneof![Just(0_u8), Just(1), Just(0xff)];
        let rest = proptest::collection::vec(byte, 0..12);
        (0..12_usize, proptest::collection::btree_set(rest, 0..30)).prop_map(|(common, rests)| {
            rests.into_iter().map(|rest| [&vec![1; common][..], &rest].concat()).collect()
        })
    }

    proptest! {
        #[test]
        fn searches_find_what_comparing_finds(
            separators in separators(),
            probes in proptest::collection::vec(proptest::collection::vec(0..3_u8, 0..24), 0..20),
        ) {
            let index = coded(&separators);
            let longer = separators.iter().map(|separator| [separator, &[0][..]].concat());
            let probes: Vec<_> = probes.into_iter().chain(longer).collect();
            for probe in probes.iter().chain(&separators) {
                let not_behind = separators.iter().filter(|separator| *separator <= probe).count();
                prop_assert_eq!(index.block_of(probe), not_behind.checked_sub(1));
                let before = separators.iter().filter(|separator| *separator < probe).count();
                prop_assert_eq!(index.last_block_before(probe), before.checked_sub(1));
            }
        }

        #[test]
        fn odd_bytes_are_an_error_or_an_index(
            bytes in proptest::collection::vec(0..5_u8, 0..60), len in 0..10_u64, probe: [u8; 2],
        ) {
            if let Ok(index) = Index::decode(&bytes, len, "x") {
                index.block_of(&probe);
                index.last_block_before(&probe);
            }
        }
    }
}
