//! What went to the store and came from it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Requests to the store and the bytes they moved. Attempts that failed count too.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) puts: Counter,
    pub(crate) put_bytes: Counter,
    pub(crate) reads: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) copies: Counter,
    pub(crate) copied_bytes: Counter,
    pub(crate) deletes: Counter,
    pub(crate) stats: Counter,
    /// Attempts beyond the first.
    pub(crate) retries: Counter,
}

/// What background work of all instances has come to.
#[derive(Debug, Default)]
pub(crate) struct BackgroundCounters {
    pub(crate) flushes: Counter,
    pub(crate) failed_flushes: Counter,
    pub(crate) compactions: Counter,
    pub(crate) failed_compactions: Counter,
    /// How often memtables were frozen ahead of a checkpoint.
    pub(crate) early_freezes: Counter,
    /// Snapshots that failed at once, because too many memtables could not be flushed.
    pub(crate) declined_snapshots: Counter,
    /// How often a write waited for a flush.
    pub(crate) memtable_stalls: Counter,
    /// How often a write waited for a compaction.
    pub(crate) level0_stalls: Counter,
}

/// A number that grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
