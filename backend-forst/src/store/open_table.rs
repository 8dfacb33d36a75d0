//! What all handles of one table share.

use std::sync::{Arc, OnceLock};

use super::cache_id::CacheId;
use super::caches::Caches;
use super::heat::Heat;
use crate::format::TableMeta;

/// One table of the process, however many instances and versions have it open: its filter and index are
/// in memory once, and stay there while somebody has it open.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) id: CacheId,
    pub(crate) heat: Arc<Heat>,
    pub(crate) caches: Arc<Caches>,
    meta: OnceLock<Arc<TableMeta>>,
}

impl OpenTable {
    pub(crate) fn new(id: CacheId, heat: Arc<Heat>, caches: Arc<Caches>) -> Self {
        OpenTable { id, heat, caches, meta: OnceLock::new() }
    }

    #[inline]
    pub(crate) fn meta(&self) -> Option<&Arc<TableMeta>> {
        self.meta.get()
    }

    /// Keeps what was read; of several, the first.
    pub(crate) fn set_meta(&self, meta: Arc<TableMeta>) {
        let bytes = meta.memory_bytes() as u64;
        if self.meta.set(meta).is_ok() {
            self.caches.pin(bytes);
        }
    }
}

impl Drop for OpenTable {
    fn drop(&mut self) {
        if let Some(meta) = self.meta.get() {
            self.caches.unpin(meta.memory_bytes() as u64);
        }
        self.caches.closed(self.id);
    }
}
