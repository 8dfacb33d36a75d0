//! Which keys are certainly not in a table.
//!
//! A binary fuse filter with fingerprints of 8 bits: about 9 bits a key for 0.4 % false positives,
//! both half of what a Bloom filter needs, and three memory accesses for any answer.
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

const KIND_NONE: u8 = 0;
const KIND_BINARY_FUSE_8: u8 = 1;

/// A table's filter.
#[derive(Debug, Clone)]
pub(super) enum Filter {
    /// Says of no key that it is not there.
    None,
    BinaryFuse8(BinaryFuse8),
}

impl Filter {
    /// A filter for these hashes; [`None`](Filter::None) for no hashes, and when construction fails,
    /// which can happen to any set of them and does to about none.
    pub(super) fn build(mut hashes: Vec<u64>) -> Self {
        hashes.sort_unstable();
        hashes.dedup();
        if hashes.is_empty() || u32::try_from(hashes.len()).is_err() {
            return Filter::None;
        }
        BinaryFuse8::try_from(hashes.as_slice()).map_or(Filter::None, Filter::BinaryFuse8)
    }

    /// About how long the filter for so many hashes is.
    pub(super) fn estimated_len(hashes: usize) -> usize {
        hashes + hashes / 6
    }

    /// Whether something with this hash may be there.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        match self {
            Filter::None => true,
            Filter::BinaryFuse8(filter) => filter.contains(&hash),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Filter::None => 0,
            Filter::BinaryFuse8(filter) => filter.fingerprints.len(),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Filter::None => out.push(KIND_NONE),
            Filter::BinaryFuse8(BinaryFuse8 { descriptor, fingerprints }) => {
                out.push(KIND_BINARY_FUSE_8);
                out.extend_from_slice(&descriptor.seed.to_le_bytes());
                out.extend_from_slice(&descriptor.segment_length.to_le_bytes());
                out.extend_from_slice(&descriptor.segment_count_length.to_le_bytes());
                out.extend_from_slice(fingerprints);
            }
        }
    }

    pub(super) fn decode(bytes: &[u8], origin: &str) -> Result<Self> {
        let mut decoder = Decoder::new(bytes, origin);
        let [kind] = decoder.array()?;
        if kind == KIND_NONE {
            decoder.finish("filter")?;
            return Ok(Filter::None);
        }
        if kind != KIND_BINARY_FUSE_8 {
            return Err(decoder.corrupt(format!("{kind} is no kind of filter")));
        }
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
            return Err(decoder.corrupt("the filter is not laid out as one"));
        }
        let descriptor = Descriptor {
            seed,
            segment_length,
            segment_length_mask: segment_length - 1,
            segment_count_length,
        };
        let fingerprints = decoder.take(expected)?.into();
        Ok(Filter::BinaryFuse8(BinaryFuse8 { descriptor, fingerprints }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        for count in (1..200).chain([1_000, 4_095, 4_096, 65_537]) {
            let filter = coded(&Filter::build(hashes(count)));
            assert!(matches!(filter, Filter::BinaryFuse8(_)), "{count}");
            assert!(hashes(count).iter().all(|hash| filter.may_contain(*hash)), "{count}");
        }
    }

    #[test]
    fn false_positives_are_rare() {
        let filter = Filter::build(hashes(20_000));
        let absent = hashes(120_000).into_iter().skip(20_000);
        let wrong = absent.filter(|hash| filter.may_contain(*hash)).count();
        assert!(wrong < 600, "{wrong} of 100,000");
        assert!(filter.memory_bytes() * 8 < 20_000 * 11);
    }

    #[test]
    fn hashes_may_repeat() {
        let filter = coded(&Filter::build([hashes(100), hashes(100)].concat()));
        assert!(hashes(100).iter().all(|hash| filter.may_contain(*hash)));
    }

    #[test]
    fn no_hashes_make_no_filter() {
        let filter = coded(&Filter::build(Vec::new()));
        assert!(matches!(filter, Filter::None));
        assert!(filter.may_contain(1));
    }

    proptest! {
        #[test]
        fn odd_bytes_are_an_error_or_a_filter(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), hash: u64) {
            if let Some(kind) = bytes.first_mut() {
                *kind %= 3;
            }
            if let Ok(filter) = Filter::decode(&bytes, "x") {
                filter.may_contain(hash);
            }
        }

        /// With lengths that nearly fit.
        #[test]
        fn lengths_are_checked(segment in 0..9_u32, count in 0..33_u32, len in 0..50_usize, hash: u64) {
            let mut bytes = vec![KIND_BINARY_FUSE_8];
            bytes.extend(7_u64.to_le_bytes());
            bytes.extend(segment.to_le_bytes());
            bytes.extend(count.to_le_bytes());
            bytes.extend(vec![1; len]);
            if let Ok(filter) = Filter::decode(&bytes, "x") {
                filter.may_contain(hash);
            }
        }
    }
}
