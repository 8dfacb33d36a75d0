//! A stored key with its hash, which is computed once for all tables that an access asks.

use xxhash_rust::xxh3::xxh3_64;

/// A stored key and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashedKey<'k> {
    pub(crate) bytes: &'k [u8],
    /// Short, so that tables can keep it beside each entry and grow without a look at the keys.
    pub(crate) hash: u32,
}

impl<'k> From<&'k [u8]> for HashedKey<'k> {
    #[inline]
    fn from(bytes: &'k [u8]) -> Self {
        HashedKey { bytes, hash: xxh3_64(bytes) as u32 }
    }
}

/// The hash as tables want it, which take the place from its low bits and a tag from its high ones.
#[inline]
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
