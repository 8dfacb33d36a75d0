//! Blocks in memory, one budget for all instances of a process.

use std::hash::{BuildHasher, Hash, Hasher};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::cache_id::CacheId;
use super::traffic::Counter;
use crate::format::Block;

/// A block of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockKey {
    pub(crate) table: CacheId,
    pub(crate) block: u32,
}

/// A shard smaller than this could hold too few blocks to choose well among them.
const MIN_SHARD_BYTES: u64 = 4 << 20;

/// What a cached block takes beyond its bytes: its place in the cache, its reference count.
const ENTRY_BYTES: u64 = 128;

/// Decoded blocks that were read lately and often.
///
/// The policy is that of `quick_cache`: a block that is read once passes through a small part of the cache,
/// and only one that is read again gets a place among the others. So a scan or a bulk load of any
/// length leaves in place what is in use. A hit clones a reference count and allocates nothing.
#[derive(Debug)]
pub(crate) struct BlockCache {
    blocks: Cache<BlockKey, Block, Bytes, KeyHash, DefaultLifecycle<BlockKey, Block>>,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
}

impl BlockCache {
    /// A cache of at most `bytes`. A block larger than its part of the cache (some MiB) is not kept.
    pub(crate) fn new(bytes: u64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = (bytes / MIN_SHARD_BYTES).clamp(1, cores as u64 * 4);
        // Rounds up to a power of two, which could make the shards too small.
        let shards = if shards.is_power_of_two() { shards } else { shards.next_power_of_two() / 2 };
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity((bytes / (16 << 10)).max(32 * shards) as usize)
            .weight_capacity(bytes)
            .build()
            .expect("both capacities are set");
        let blocks = Cache::with_options(options, Bytes, KeyHash, DefaultLifecycle::default());
        BlockCache { blocks, hits: Counter::default(), misses: Counter::default() }
    }

    /// A block, if it is here.
    #[inline]
    pub(crate) fn get(&self, key: BlockKey) -> Option<Block> {
        let block = self.blocks.get(&key);
        if block.is_some() {
            self.hits.add(1);
        } else {
            self.misses.add(1);
        }
        block
    }

    /// A block, if it is here; not counted as a use of it.
    pub(crate) fn peek(&self, key: BlockKey) -> Option<Block> {
        self.blocks.peek(&key)
    }

    /// Offers a block that was read.
    pub(crate) fn insert(&self, key: BlockKey, block: Block) {
        self.blocks.insert(key, block);
    }

    /// Changes the limit; what is over it goes at once.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.blocks.set_capacity(bytes);
    }

    /// What the blocks in it take.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.blocks.weight()
    }
}

/// Weighs blocks by the memory they take.
#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<BlockKey, Block> for Bytes {
    fn weight(&self, _: &BlockKey, block: &Block) -> u64 {
        block.memory_bytes() as u64 + ENTRY_BYTES
    }
}

impl Hash for BlockKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.table.low_bits() ^ u64::from(self.block).wrapping_mul(MIX));
    }
}

/// 2^64 divided by the golden ratio: spreads neighbouring numbers over all bits.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes keys that are one hashed number already.
#[derive(Debug, Clone)]
struct KeyHash;

impl BuildHasher for KeyHash {
    type Hasher = NumberHasher;

    #[inline]
    fn build_hasher(&self) -> NumberHasher {
        NumberHasher(0)
    }
}

#[derive(Debug)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // Folded, so that high and low bits depend on all of the number.
        let wide = u128::from(self.0 ^ number) * u128::from(MIX);
        self.0 = (wide as u64) ^ (wide >> 64) as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
#[path = "block_cache_tests.rs"]
mod tests;
