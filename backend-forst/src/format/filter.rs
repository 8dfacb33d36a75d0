//! Which keys are certainly not in a table.
//!
//! Two kinds, for two kinds of tables:
//!
//! | kind | a key takes | false positives | for |
//! |---|---|---|---|
//! | binary fuse, fingerprints of 8 bits | 9 bits | 0.4 % | tables that stay: a filter is in memory while its table is open |
//! | blocked Bloom | 12 bits | 0.5 % | tables that were flushed: it is made in a fifth of the time |
//!
//! An answer costs three memory accesses with the first, one or two with the second.
#![deny(clippy::indexing_slicing)]

use weir_state_api::Result;
use xorf::{BinaryFuse8, Descriptor, Filter as _};
use xxhash_rust::xxh3::xxh3_64;

use super::wire::Decoder;

/// The hash of a stored key, or of the prefix that all entries of a map begin with, for filters and
/// hash indexes: computed once for all tables that are asked. XXH3-64.
#[inline]
pub(crate) fn filter_hash(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

const CODE_NONE: u8 = 0;
const CODE_BINARY_FUSE_8: u8 = 1;
const CODE_BLOCKED_BLOOM: u8 = 2;

/// The filter that a table gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterKind {
    None,
    BinaryFuse8,
    BlockedBloom,
}

/// A table's filter.
#[derive(Debug, Clone)]
pub(super) enum Filter {
    /// Says of no key that it is not there.
    None,
    BinaryFuse8(BinaryFuse8),
    BlockedBloom(BlockedBloom),
}

impl Filter {
    /// A filter for these hashes; [`None`](Filter::None) for no hashes, and when construction fails,
    /// which can happen to any set of them and does to about none.
    pub(super) fn build(kind: FilterKind, mut hashes: Vec<u64>) -> Self {
        if hashes.is_empty() || u32::try_from(hashes.len()).is_err() {
            return Filter::None;
        }
        match kind {
            FilterKind::None => Filter::None,
            FilterKind::BinaryFuse8 => {
                // Keys are distinct, so hashes are but for rare collisions. The construction copes with
                // most of them, but for its debug assertions.
                let distinct = if cfg!(debug_assertions) { None } else { fuse(&hashes) };
                let built = distinct.or_else(|| {
                    hashes.sort_unstable();
                    hashes.dedup();
                    fuse(&hashes)
                });
                built.map_or(Filter::None, Filter::BinaryFuse8)
            }
            FilterKind::BlockedBloom => Filter::BlockedBloom(BlockedBloom::build(&hashes)),
        }
    }

    /// About how long the filter for so many hashes is.
    pub(super) fn estimated_len(kind: FilterKind, hashes: usize) -> usize {
        match kind {
            FilterKind::None => 0,
            FilterKind::BinaryFuse8 => hashes + hashes / 6,
            FilterKind::BlockedBloom => {
                BlockedBloom::BLOCK_BYTES * BlockedBloom::blocks_for(hashes)
            }
        }
    }

    /// Whether something with this hash may be there.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        match self {
            Filter::None => true,
            Filter::BinaryFuse8(filter) => filter.contains(&hash),
            Filter::BlockedBloom(filter) => filter.may_contain(hash),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Filter::None => 0,
            Filter::BinaryFuse8(filter) => filter.fingerprints.len(),
            Filter::BlockedBloom(filter) => size_of_val::<[_]>(&filter.blocks),
        }
    }

    /// Whether readers of the first version of table files know it.
    pub(super) fn is_of_version_1(&self) -> bool {
        !matches!(self, Filter::BlockedBloom(_))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Filter::None => out.push(CODE_NONE),
            Filter::BinaryFuse8(BinaryFuse8 { descriptor, fingerprints }) => {
                out.push(CODE_BINARY_FUSE_8);
                out.extend_from_slice(&descriptor.seed.to_le_bytes());
                out.extend_from_slice(&descriptor.segment_length.to_le_bytes());
                out.extend_from_slice(&descriptor.segment_count_length.to_le_bytes());
                out.extend_from_slice(fingerprints);
            }
            Filter::BlockedBloom(filter) => {
                out.push(CODE_BLOCKED_BLOOM);
                filter.encode(out);
            }
        }
    }

    pub(super) fn decode(bytes: &[u8], origin: &str) -> Result<Self> {
        let mut decoder = Decoder::new(bytes, origin);
        let [code] = decoder.array()?;
        match code {
            CODE_NONE => {
                decoder.finish("filter")?;
                Ok(Filter::None)
            }
            CODE_BINARY_FUSE_8 => binary_fuse(decoder).map(Filter::BinaryFuse8),
            CODE_BLOCKED_BLOOM => BlockedBloom::decode(decoder).map(Filter::BlockedBloom),
            _ => Err(decoder.corrupt(format!("{code} is no kind of filter"))),
        }
    }
}

fn fuse(hashes: &[u64]) -> Option<BinaryFuse8> {
    BinaryFuse8::try_from(hashes).ok()
}

fn binary_fuse(mut decoder: Decoder<'_>) -> Result<BinaryFuse8> {
    let seed = decoder.u64()?;
    let (segment_length, segment_count_length) = (decoder.u32()?, decoder.u32()?);
    // A probe looks into three neighbouring segments, the first of them below the count.
    let expected = u64::from(segment_count_length) + 2 * u64::from(segment_length);
    let fits = segment_length.is_power_of_two()
        && segment_count_length > 0
        && segment_count_length.is_multiple_of(segment_length)
        && expected == decoder.len() as u64
        && expected <= u64::from(u32::MAX);
    if !fits {
        return Err(decoder.corrupt(BAD_LAYOUT));
    }
    let descriptor = Descriptor {
        seed,
        segment_length,
        segment_length_mask: segment_length - 1,
        segment_count_length,
    };
    let fingerprints = decoder.take(expected)?.into();
    Ok(BinaryFuse8 { descriptor, fingerprints })
}

const BAD_LAYOUT: &str = "the filter is not laid out as one";

/// A Bloom filter that is cut into blocks as long as a line of the processor's cache: all bits of a hash
/// are in one of them, one bit in each of its words.
#[derive(Debug, Clone)]
pub(super) struct BlockedBloom {
    blocks: Box<[BloomBlock]>,
}

type BloomBlock = [u64; 8];

impl BlockedBloom {
    const BLOCK_BYTES: usize = size_of::<BloomBlock>();

    /// Twelve bits a hash.
    fn blocks_for(hashes: usize) -> usize {
        (hashes * 12).div_ceil(8 * Self::BLOCK_BYTES)
    }

    fn build(hashes: &[u64]) -> Self {
        let mut blocks = vec![BloomBlock::default(); Self::blocks_for(hashes.len())];
        let count = blocks.len();
        for hash in hashes {
            if let Some(block) = blocks.get_mut(place(*hash, count)) {
                block.iter_mut().zip(bits(*hash)).for_each(|(word, bit)| *word |= bit);
            }
        }
        BlockedBloom { blocks: blocks.into_boxed_slice() }
    }

    #[inline]
    fn may_contain(&self, hash: u64) -> bool {
        let block = self.blocks.get(place(hash, self.blocks.len()));
        // Without a branch for each word.
        block.is_none_or(|block| {
            block.iter().zip(bits(hash)).fold(0, |absent, (word, bit)| absent | (bit & !word)) == 0
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        // There are fewer than hashes, which a number of 32 bits counts.
        out.extend_from_slice(&(self.blocks.len() as u32).to_le_bytes());
        out.reserve(self.blocks.len() * Self::BLOCK_BYTES);
        self.blocks.iter().flatten().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }

    fn decode(mut decoder: Decoder<'_>) -> Result<Self> {
        let count = u64::from(decoder.u32()?);
        let len = decoder.len() as u64;
        if count == 0 || count.checked_mul(Self::BLOCK_BYTES as u64) != Some(len) {
            return Err(decoder.corrupt(BAD_LAYOUT));
        }
        let (words, _) = decoder.take(len)?.as_chunks::<8>();
        let (blocks, _) = words.as_chunks::<8>();
        let blocks = blocks.iter().map(|block| block.map(u64::from_le_bytes));
        Ok(BlockedBloom { blocks: blocks.collect() })
    }
}

/// The block, of `count`, that a hash is in: by its upper half.
#[inline]
fn place(hash: u64, count: usize) -> usize {
    (((hash >> 32) * count as u64) >> 32) as usize
}

/// The bit of a hash in each word of its block: by its lower bits, six for each.
#[inline]
fn bits(hash: u64) -> BloomBlock {
    std::array::from_fn(|word| 1 << (hash >> (6 * word) & 63))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [FilterKind; 2] = [FilterKind::BinaryFuse8, FilterKind::BlockedBloom];

    fn hashes(count: u64) -> Vec<u64> {
        (0..count).map(|n| filter_hash(&n.to_be_bytes())).collect()
    }

    fn coded(filter: &Filter) -> Filter {
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        Filter::decode(&bytes, "x").unwrap()
    }

    #[test]
    fn what_was_put_in_is_never_denied() {
        for (count, kind) in (1..200)
            .chain([1_000, 4_095, 4_096, 65_537])
            .flat_map(|count| KINDS.map(|kind| (count, kind)))
        {
            let filter = coded(&Filter::build(kind, hashes(count)));
            assert!(!matches!(filter, Filter::None), "{count} {kind:?}");
            assert!(hashes(count).iter().all(|hash| filter.may_contain(*hash)), "{count} {kind:?}");
        }
    }

    #[test]
    fn false_positives_are_rare() {
        for (kind, bits) in [(FilterKind::BinaryFuse8, 11), (FilterKind::BlockedBloom, 13)] {
            let filter = Filter::build(kind, hashes(20_000));
            let absent = hashes(120_000).into_iter().skip(20_000);
            let wrong = absent.filter(|hash| filter.may_contain(*hash)).count();
            assert!(wrong < 600, "{wrong} of 100,000 {kind:?}");
            assert!(filter.memory_bytes() * 8 < 20_000 * bits);
            let expected = Filter::estimated_len(kind, 20_000);
            assert!(filter.memory_bytes().abs_diff(expected) < expected / 10);
        }
    }

    #[test]
    fn hashes_may_repeat() {
        for kind in KINDS {
            let filter = coded(&Filter::build(kind, [hashes(100), hashes(100)].concat()));
            assert!(hashes(100).iter().all(|hash| filter.may_contain(*hash)));
        }
    }

    #[test]
    fn no_hashes_make_no_filter() {
        for kind in KINDS {
            let filter = coded(&Filter::build(kind, Vec::new()));
            assert!(matches!(filter, Filter::None));
            assert!(filter.may_contain(1));
        }
    }

    proptest! {
        #[test]
        fn odd_bytes_are_an_error_or_a_filter(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), hash: u64) {
            if let Some(kind) = bytes.first_mut() {
                *kind %= 4;
            }
            if let Ok(filter) = Filter::decode(&bytes, "x") {
                filter.may_contain(hash);
            }
        }

        /// With lengths that nearly fit.
        #[test]
        fn lengths_are_checked(segment in 0..9_u32, count in 0..33_u32, len in 0..50_usize, hash: u64) {
            let mut bytes = vec![CODE_BINARY_FUSE_8];
            bytes.extend(7_u64.to_le_bytes());
            bytes.extend(segment.to_le_bytes());
            bytes.extend(count.to_le_bytes());
            bytes.extend(vec![1; len]);
            if let Ok(filter) = Filter::decode(&bytes, "x") {
                filter.may_contain(hash);
            }
        }

        #[test]
        fn numbers_of_blocks_are_checked(count in 0..4_u32, len in 0..200_usize, hash: u64) {
            let mut bytes = vec![CODE_BLOCKED_BLOOM];
            bytes.extend(count.to_le_bytes());
            bytes.extend(vec![0; len]);
            let decoded = Filter::decode(&bytes, "x");
            prop_assert_eq!(decoded.is_ok(), count > 0 && len == 64 * count as usize);
            prop_assert!(!decoded.is_ok_and(|filter| filter.may_contain(hash)));
        }
    }
}
