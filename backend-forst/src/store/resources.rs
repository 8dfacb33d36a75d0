//! What all instances of a process share: memory, local disk, requests in flight.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use weir_state_api::Result;

use super::caches::{Caches, Limits};
use super::disk_cache::{DiskCache, DiskCounters};
use super::retry::RequestLimits;
use super::traffic::Counter;

/// Memory, local disk and requests to the store, shared by all instances that are given the same
/// resources, usually all of a process. Cloning shares them.
///
/// Limits are for all instances together, so their number does not matter: an instance that is idle
/// leaves its part to the others.
///
/// ```
/// use weir_backend_forst::ForstResources;
///
/// # fn main() -> weir_state_api::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// let resources = ForstResources::builder()
///     .cache_bytes(512 << 20)
///     .memtable_bytes(256 << 20)
///     .disk_cache(folder.path(), 100 << 30)
///     .build()?;
/// assert_eq!(resources.usage().disk_cache_bytes, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ForstResources(Arc<Caches>);

/// Settings for [`ForstResources`].
#[derive(Debug, Clone)]
#[must_use = "nothing is shared before it is built"]
pub struct ForstResourcesBuilder(Limits);

impl ForstResources {
    /// Default settings, to be changed one by one.
    pub fn builder() -> ForstResourcesBuilder {
        ForstResourcesBuilder(Limits::default())
    }

    /// What is in use and how well it serves. Costs some locks and no I/O.
    pub fn usage(&self) -> ForstUsage {
        let caches = &self.0;
        let disk = caches.disk.as_deref();
        let counted = |counter: fn(&DiskCounters) -> &Counter| {
            disk.map_or(0, |disk| counter(&disk.counters).get())
        };
        ForstUsage {
            block_cache_bytes: caches.blocks.used_bytes(),
            block_cache_hits: caches.blocks.hits.get(),
            block_cache_misses: caches.blocks.misses.get(),
            pinned_bytes: caches.pinned_bytes(),
            memtable_bytes: caches.memtables.used_bytes(),
            resident_memtable_bytes: caches.memtables.resident_bytes(),
            memtable_stalls: caches.background.memtable_stalls.get(),
            level0_stalls: caches.background.level0_stalls.get(),
            flushes: caches.background.flushes.get(),
            early_freezes: caches.background.early_freezes.get(),
            declined_snapshots: caches.background.declined_snapshots.get(),
            failed_flushes: caches.background.failed_flushes.get(),
            compactions: caches.background.compactions.get(),
            failed_compactions: caches.background.failed_compactions.get(),
            disk_cache_bytes: disk.map_or(0, DiskCache::used_bytes),
            disk_cache_hits: counted(|counters| &counters.hits),
            disk_cache_misses: counted(|counters| &counters.misses),
            disk_cache_evicted_bytes: counted(|counters| &counters.evicted_bytes),
            disk_cache_damaged: counted(|counters| &counters.damaged),
            disk_cache_failures: counted(|counters| &counters.failures),
            hydrated_bytes: caches.hydration.bytes.get(),
            puts: caches.traffic.puts.get(),
            put_bytes: caches.traffic.put_bytes.get(),
            reads: caches.traffic.reads.get(),
            read_bytes: caches.traffic.read_bytes.get(),
            copies: caches.traffic.copies.get(),
            copied_bytes: caches.traffic.copied_bytes.get(),
            deletes: caches.traffic.deletes.get(),
            stats: caches.traffic.stats.get(),
            retries: caches.traffic.retries.get(),
        }
    }

    pub(crate) fn caches(&self) -> &Arc<Caches> {
        &self.0
    }
}

impl Default for ForstResources {
    /// The default settings: no disk cache.
    fn default() -> Self {
        ForstResources(Arc::new(Caches::in_memory(&Limits::default())))
    }
}

impl fmt::Debug for ForstResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ForstResources").field(&self.usage()).finish()
    }
}

impl ForstResourcesBuilder {
    /// Memory for what is read: cached blocks, and the filters and indexes of all tables in use, which
    /// take their place from the blocks (but leave them a quarter). Default: 256 MiB.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.0.cache_bytes = bytes;
        self
    }

    /// Memory for what is written and not yet in a table. It is flushed from this limit on; while that
    /// runs, somewhat more is in use. What is left of it holds what was flushed last, for reads (see
    /// [`keep_flushed`](crate::ForstOptions::keep_flushed)). Default: 256 MiB.
    pub fn memtable_bytes(mut self, bytes: u64) -> Self {
        self.0.memtable_bytes = bytes;
        self
    }

    /// A folder on local disk for up to `bytes` of tables. It is created when it is not there, belongs
    /// to this process alone while that lives, and what is in it serves again after a restart. A full
    /// or broken disk ends its use, nothing else. Default: none; what is not in memory is then read
    /// from the store each time.
    pub fn disk_cache(mut self, folder: impl Into<PathBuf>, bytes: u64) -> Self {
        self.0.disk_cache = Some((folder.into(), bytes));
        self
    }

    /// How fast tables that are read much may be brought to local disk in the background, in bytes per
    /// second; 0 brings none. Default: 32 MiB per second.
    pub fn hydration_bytes_per_second(mut self, bytes: u64) -> Self {
        self.0.hydration_bytes_per_second = bytes;
        self
    }

    /// How many requests to the store may be in flight at once; at least one. Default: 64.
    pub fn requests_in_flight(mut self, requests: usize) -> Self {
        self.0.requests_in_flight = requests;
        self
    }

    /// When failed requests to the store are made again, and when they are given up.
    pub fn request_limits(mut self, limits: RequestLimits) -> Self {
        self.0.request_limits = limits;
        self
    }

    /// Opens what the settings describe.
    ///
    /// # Errors
    /// [`InvalidUsage`](weir_state_api::ErrorKind::InvalidUsage) when the folder for the disk cache
    /// cannot be used, or another process uses it.
    pub fn build(self) -> Result<ForstResources> {
        Ok(ForstResources(Arc::new(Caches::open(&self.0)?)))
    }
}

/// What is in use of [`ForstResources`], and what happened since they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForstUsage {
    /// Memory that cached blocks take.
    pub block_cache_bytes: u64,
    /// Blocks that were asked for and in memory.
    pub block_cache_hits: u64,
    /// Blocks that were asked for and not in memory.
    pub block_cache_misses: u64,
    /// Memory that filters and indexes of tables in use take.
    pub pinned_bytes: u64,
    /// Memory that memtables take which are no tables yet.
    pub memtable_bytes: u64,
    /// Memory that memtables take which are tables already and still answer reads.
    pub resident_memtable_bytes: u64,
    /// How often a write waited for a flush.
    pub memtable_stalls: u64,
    /// How often a write waited for a compaction, because too many flushed tables lay above each other.
    pub level0_stalls: u64,
    /// Memtables that became tables in the background.
    pub flushes: u64,
    /// How often memtables were frozen ahead of a checkpoint, so that it finds less to write.
    pub early_freezes: u64,
    /// Flushes that failed, after all attempts at their requests. What they should have written stays in
    /// memory and is tried again with the next flush; a write that must wait for it gets the error.
    pub failed_flushes: u64,
    /// Snapshots that failed at once, because former ones had left as many memtables as may wait (16, or
    /// [`max_frozen`](crate::ForstOptions::max_frozen) if that is more), and their flush had failed. Nothing was
    /// frozen for them; the flush is tried again each time.
    pub declined_snapshots: u64,
    /// Compactions that ended.
    pub compactions: u64,
    /// Compactions that failed. They are picked again.
    pub failed_compactions: u64,
    /// Local disk that tables take.
    pub disk_cache_bytes: u64,
    /// Reads that local disk answered.
    pub disk_cache_hits: u64,
    /// Reads that it did not.
    pub disk_cache_misses: u64,
    /// Bytes of tables that made way for others.
    pub disk_cache_evicted_bytes: u64,
    /// Files that were found damaged, cut short or gone.
    pub disk_cache_damaged: u64,
    /// Errors of the disk: from the first on, nothing more is written to it, or it is not used at all.
    pub disk_cache_failures: u64,
    /// Bytes that were brought to local disk because they were read much.
    pub hydrated_bytes: u64,
    /// Requests to the store that create an object. As for all requests, attempts that failed count.
    pub puts: u64,
    /// Bytes that were sent with them.
    pub put_bytes: u64,
    /// Requests that read an object or a part of it.
    pub reads: u64,
    /// Bytes that they brought.
    pub read_bytes: u64,
    /// Requests that let the store copy an object.
    pub copies: u64,
    /// Bytes that it copied.
    pub copied_bytes: u64,
    /// Requests that delete an object.
    pub deletes: u64,
    /// Requests that ask for an object's length.
    pub stats: u64,
    /// Requests that repeat one that failed.
    pub retries: u64,
}
