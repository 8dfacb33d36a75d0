//! The caches of a process and what keeps them within their limits.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;
use weir_state_api::Result;

use super::block_cache::{BlockCache, BlockKey};
use super::cache_id::CacheId;
use super::disk_cache::DiskCache;
use super::heat::{Heat, ReadClock};
use super::hydration::Hydration;
use super::memtable_budget::MemtableBudget;
use super::open_table::OpenTable;
use super::priority::Priority;
use super::retry::RequestLimits;
use super::single_flight::Flights;
use super::traffic::{BackgroundCounters, Traffic};
use crate::format::{Block, TableMeta};

/// Settings of [`ForstResources`](super::ForstResources), which documents them.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) cache_bytes: u64,
    pub(crate) memtable_bytes: u64,
    pub(crate) disk_cache: Option<(PathBuf, u64)>,
    pub(crate) hydration_bytes_per_second: u64,
    pub(crate) requests_in_flight: usize,
    pub(crate) request_limits: RequestLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            cache_bytes: 256 << 20,
            memtable_bytes: 256 << 20,
            disk_cache: None,
            hydration_bytes_per_second: 32 << 20,
            requests_in_flight: 64,
            request_limits: RequestLimits::default(),
        }
    }
}

/// Everything that tables of all instances share.
#[derive(Debug)]
pub(crate) struct Caches {
    pub(crate) blocks: BlockCache,
    pub(crate) disk: Option<Arc<DiskCache>>,
    pub(crate) memtables: Arc<MemtableBudget>,
    pub(crate) background: BackgroundCounters,
    pub(crate) priority: Priority,
    pub(crate) hydration: Hydration,
    /// Blocks being read from the store.
    pub(crate) block_reads: Flights<BlockKey, Block>,
    /// Ends of tables being read.
    pub(crate) meta_reads: Flights<CacheId, Arc<TableMeta>>,
    pub(crate) request_slots: Arc<Semaphore>,
    pub(crate) request_limits: RequestLimits,
    pub(crate) traffic: Arc<Traffic>,
    clock: ReadClock,
    open: Mutex<HashMap<CacheId, Weak<OpenTable>>>,
    cache_bytes: u64,
    pinned: AtomicU64,
}

impl Caches {
    pub(crate) fn open(limits: &Limits) -> Result<Self> {
        let mut caches = Caches::in_memory(limits);
        if let Some((folder, bytes)) = &limits.disk_cache {
            caches.disk = Some(Arc::new(DiskCache::open(folder, *bytes, &caches.clock)?));
        }
        Ok(caches)
    }

    /// Without a disk cache.
    pub(crate) fn in_memory(limits: &Limits) -> Self {
        Caches {
            blocks: BlockCache::new(limits.cache_bytes),
            disk: None,
            memtables: MemtableBudget::new(limits.memtable_bytes),
            background: BackgroundCounters::default(),
            priority: Priority::default(),
            hydration: Hydration::new(limits.hydration_bytes_per_second),
            block_reads: Flights::default(),
            meta_reads: Flights::default(),
            request_slots: Arc::new(Semaphore::new(limits.requests_in_flight.max(1))),
            request_limits: limits.request_limits.clone(),
            traffic: Arc::default(),
            clock: ReadClock::default(),
            open: Mutex::default(),
            cache_bytes: limits.cache_bytes,
            pinned: AtomicU64::new(0),
        }
    }

    /// What all handles of a table share: of one that is open, the same.
    pub(crate) fn open_table(self: &Arc<Self>, id: CacheId) -> Arc<OpenTable> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = open.get(&id).and_then(Weak::upgrade) {
            return table;
        }
        let table = Arc::new(OpenTable::new(id, Heat::new(&self.clock), Arc::clone(self)));
        open.insert(id, Arc::downgrade(&table));
        drop(open);
        if let Some(disk) = &self.disk {
            disk.attach(id, &table.heat);
        }
        table
    }

    /// The last handle of a table is gone.
    pub(crate) fn closed(&self, id: CacheId) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have been opened anew meanwhile.
        if open.get(&id).is_some_and(|table| table.strong_count() == 0) {
            open.remove(&id);
        }
    }

    /// Accounts for memory that is not to be dropped while tables are open: blocks make way for it.
    pub(crate) fn pin(&self, bytes: u64) {
        self.pinned.fetch_add(bytes, Ordering::Relaxed);
        self.divide();
    }

    /// Gives it back.
    pub(crate) fn unpin(&self, bytes: u64) {
        self.pinned.fetch_sub(bytes, Ordering::Relaxed);
        self.divide();
    }

    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }

    fn divide(&self) {
        let rest = self.cache_bytes.saturating_sub(self.pinned_bytes());
        self.blocks.set_limit(rest.max(self.cache_bytes / 4));
    }
}
