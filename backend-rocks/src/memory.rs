//! One memory budget for all instances that share it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocksdb::{Cache, LruCacheOptions, WriteBufferManager};

/// The smallest budget: below, RocksDB would flush with every few writes.
const MIN_BYTES: usize = 8 << 20;
/// The smallest part of the cache with a lock and an order of its own. Index and filter of a file of 64 MiB
/// take a few MiB, each in one piece: in RocksDB's own choice, parts from half a MiB on, they push each other
/// out, and each read of a key reads and checks them anew.
const MIN_SHARD_BYTES: usize = 32 << 20;
/// The part of the share for writes that can be taken for what RocksDB does not have yet.
const MAX_TAKEN: usize = 4;
/// Each takes at most this part of what can still be taken.
const TAKERS: usize = 8;
/// RocksDB's own most.
const MAX_SHARD_BITS: u32 = 6;
/// The part for rows that have been read of what is not for writes.
const ROW_SHARE: f64 = 0.125;
/// Memory for rows is taken in this part of all that is for them.
const ROW_STEPS: usize = 64;

/// Memory for all RocksDB instances that are given the same budget, usually all of a process: the
/// blocks they cache, indexes and filters included, what has been written and not flushed, and rows
/// that have been read, which are found without RocksDB.
///
/// Cloning shares it. The budget is kept by RocksDB's block cache, in which written data takes its
/// place from cached blocks. It is exceeded for moments: a block that is being read is never dropped,
/// and data being flushed counts until it is on disk.
///
/// ```
/// use weir_backend_rocks::RocksMemory;
///
/// let memory = RocksMemory::new(512 << 20, 0.5);
/// assert_eq!(memory.used_bytes(), 0);
/// ```
#[derive(Clone)]
pub struct RocksMemory {
    pub(crate) cache: Cache,
    pub(crate) writes: WriteBufferManager,
    bytes: usize,
    /// The limit for RocksDB's write buffers, from which [`take`](RocksMemory::take) takes.
    writes_bytes: usize,
    cache_bytes: usize,
    taken: Arc<Mutex<TakenBytes>>,
}

/// What RocksDB does not have.
#[derive(Debug, Default)]
struct TakenBytes {
    /// For writes that are collected.
    writes: usize,
    /// For rows that have been read.
    rows: usize,
    /// How much can be taken for rows, by so many takers.
    rows_limit: usize,
    row_takers: usize,
}

/// Memory for rows: each taker may have its part of it.
#[derive(Debug)]
pub(crate) struct RowMemory {
    bytes: usize,
    /// It counts among those that share the memory: it has wanted some.
    counts: bool,
    of: RocksMemory,
}

impl RowMemory {
    /// The most that this taker may have now.
    pub(crate) fn share(&self) -> usize {
        let taken = self.of.taken();
        taken.rows_limit / taken.row_takers.max(1)
    }

    /// More than the `granted` bytes, so that `wanted` fit in if possible, and `most` at most.
    pub(crate) fn grow(&mut self, granted: usize, wanted: usize, most: usize) -> usize {
        let mut bytes = 0;
        let is_new = !std::mem::replace(&mut self.counts, true);
        self.of.change_taken(|taken| {
            taken.row_takers += usize::from(is_new);
            let step = (taken.rows_limit / ROW_STEPS).max(wanted.saturating_sub(granted));
            let left = taken.rows_limit.saturating_sub(taken.rows);
            bytes = step.min(left).min(most.saturating_sub(granted));
            taken.rows += bytes;
        });
        self.bytes += bytes;
        granted + bytes
    }

    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.of.change_taken(|taken| taken.rows -= bytes);
    }
}

impl Drop for RowMemory {
    fn drop(&mut self) {
        self.of.change_taken(|taken| {
            taken.rows -= self.bytes;
            taken.row_takers -= usize::from(self.counts);
        });
    }
}

/// Memory that was taken from the share for writes; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    bytes: usize,
    of: RocksMemory,
}

impl Taken {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.change_taken(|taken| taken.writes -= self.bytes);
    }
}

impl RocksMemory {
    /// A budget of `bytes` (at least 8 MiB), of which `write_share` (0.05 to 0.9) may be data that is
    /// not on disk yet. A larger share means fewer, larger files and fewer compactions, a smaller one
    /// more cached blocks; 0.5 suits states that are read and written alike.
    pub fn new(bytes: usize, write_share: f64) -> Self {
        let bytes = bytes.max(MIN_BYTES);
        let share = if write_share.is_finite() { write_share.clamp(0.05, 0.9) } else { 0.5 };
        // RocksDB begins to flush at its limit for writes and takes on new ones meanwhile: half as
        // much again. The two limits are chosen so that the overshoot still fits the budget.
        let writes = (bytes as f64 * share * 2.0 / 3.0) as usize;
        let cache_bytes = bytes - writes / 2;
        let mut cache = LruCacheOptions::default();
        cache.set_capacity(cache_bytes);
        cache.set_num_shard_bits(shard_bits(cache_bytes) as i32);
        let cache = Cache::new_lru_cache_opts(&cache);
        let manager =
            WriteBufferManager::new_write_buffer_manager_with_cache(writes, false, cache.clone());
        RocksMemory {
            cache,
            writes: manager,
            bytes,
            writes_bytes: writes,
            cache_bytes,
            taken: Arc::default(),
        }
        .with_row_share(ROW_SHARE)
    }

    /// The part (0 to 0.5) that rows may take of what is not for writes: values that have been read,
    /// each alone and found by hash, so that a small part answers most reads of the keys that are read
    /// often. What it is not used for is left to cached blocks. 0 reads all from RocksDB. Holds for all
    /// clones, and is best set before instances are opened. Default: an eighth.
    #[must_use]
    pub fn with_row_share(self, share: f64) -> Self {
        let share = if share.is_finite() { share.clamp(0.0, 0.5) } else { ROW_SHARE };
        let for_cache = self.bytes - self.writes_bytes / 2 * 3;
        self.taken().rows_limit = (for_cache as f64 * share) as usize;
        self
    }

    /// Takes up to `wanted` bytes of the share for writes, for writes that RocksDB does not have yet.
    /// A quarter of the share can be taken; where little of that is left, each gets some.
    pub(crate) fn take(&self, wanted: usize) -> Taken {
        let mut bytes = 0;
        self.change_taken(|taken| {
            let left = (self.writes_bytes / MAX_TAKEN).saturating_sub(taken.writes);
            bytes = wanted.min(left / TAKERS);
            taken.writes += bytes;
        });
        Taken { bytes, of: self.clone() }
    }

    /// Room for the rows of one database; nothing of it is taken yet.
    pub(crate) fn for_rows(&self) -> RowMemory {
        RowMemory { bytes: 0, counts: false, of: self.clone() }
    }

    /// RocksDB gets the rest.
    fn change_taken(&self, change: impl FnOnce(&mut TakenBytes)) {
        let mut taken = self.taken();
        change(&mut taken);
        self.writes.set_buffer_size(self.writes_bytes - taken.writes);
        self.cache.clone().set_capacity(self.cache_bytes - taken.writes - taken.rows);
    }

    fn taken(&self) -> MutexGuard<'_, TakenBytes> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taken_bytes(&self) -> usize {
        let taken = self.taken();
        taken.writes + taken.rows
    }

    /// The budget in bytes.
    pub fn budget_bytes(&self) -> usize {
        self.bytes
    }

    /// What is in use now: cached blocks, unflushed writes, and what is set aside for collected writes
    /// and rows.
    pub fn used_bytes(&self) -> usize {
        self.cache.get_usage() + self.taken_bytes()
    }

    /// What unflushed writes use, and what is set aside for those that are collected.
    pub fn write_bytes(&self) -> usize {
        self.writes.get_usage() + self.taken().writes
    }

    /// The limit for one write buffer: a quarter of the share for writes, so that several instances
    /// and states find room, and at most RocksDB's usual 64 MiB.
    pub(crate) fn write_buffer_size(&self) -> usize {
        (self.writes_bytes / 4).clamp(1 << 20, 64 << 20)
    }
}

/// How many parts a cache of `bytes` has, as a power of two.
fn shard_bits(bytes: usize) -> u32 {
    (bytes / MIN_SHARD_BYTES).checked_ilog2().unwrap_or(0).min(MAX_SHARD_BITS)
}

impl Default for RocksMemory {
    /// 256 MiB, half for writes.
    fn default() -> Self {
        RocksMemory::new(256 << 20, 0.5)
    }
}

impl std::fmt::Debug for RocksMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RocksMemory")
            .field("budget_bytes", &self.bytes)
            .field("used_bytes", &self.used_bytes())
            .field("write_bytes", &self.write_bytes())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_and_writes_with_their_overshoot_fit_the_budget() {
        for share in [0.0, 0.1, 0.5, 0.9, 7.0, f64::NAN] {
            let memory = RocksMemory::new(300 << 20, share);
            let writes = memory.writes.get_buffer_size();
            assert!(writes > 0 && writes * 3 / 2 <= 300 << 20, "{share}: {writes}");
        }
        assert_eq!(RocksMemory::new(0, 0.5).budget_bytes(), MIN_BYTES);
    }

    #[test]
    fn what_is_taken_is_taken_from_rocksdb_and_given_back() {
        let memory = RocksMemory::new(300 << 20, 0.5);
        let limits = || (memory.writes.get_buffer_size(), memory.used_bytes());
        let before = limits();
        let taken: Vec<Taken> = (0..100).map(|_| memory.take(1 << 20)).collect();
        assert_eq!(taken[0].bytes(), 1 << 20);
        assert!(taken.iter().all(|taken| taken.bytes() > 0));
        let all: usize = taken.iter().map(Taken::bytes).sum();
        assert!(all <= before.0 / 4, "{all}");
        assert_eq!(limits(), (before.0 - all, before.1 + all));
        drop(taken);
        assert_eq!(limits(), before);
        assert_eq!(memory.take(0).bytes(), 0);
    }

    #[test]
    fn parts_of_the_cache_have_room_for_filters() {
        let bits = [0, 8 << 20, 63 << 20, 64 << 20, 512 << 20, 1 << 40].map(shard_bits);
        assert_eq!(bits, [0, 0, 0, 1, 4, 6]);
    }
}
