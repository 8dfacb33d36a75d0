//! Snapshots: hard links now, uploads later, and nothing twice.
//!
//! | module | concept |
//! |---|---|
//! | `manifest` | what a handle says beyond its objects (`docs/formats/rocks-snapshot.md`) |
//! | `identity` | when two files are the same file |
//! | `links` | the synchronous part: RocksDB's checkpoint by hard links |
//! | `plan` | which files are named again, packed, or uploaded alone: a pure decision |
//! | `upload` | writing objects, verified |
//! | `task` | the asynchronous part |

mod identity;
mod links;
mod manifest;
mod plan;
mod task;
mod upload;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_state_api::{
    Millis, Notification, OpenRequest, Result, SnapshotBases, SnapshotHandle, SnapshotRequest,
    SnapshotTask, Statistics,
};

pub(crate) use identity::Identity;
pub(crate) use manifest::{FileEntry, Manifest, ShardManifest};
pub(crate) use plan::{StoredFile, StoredFiles};

use crate::local_copies::LocalCopies;
use crate::shard::Shards;
use crate::work_directory::WorkDirectory;
use links::Links;
use task::Pinned;

/// The backend's name in handles.
pub(crate) const BACKEND_NAME: &str = "rocks";
/// The version of the snapshot format.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Bytes moved between an instance and the store. Shared with the snapshot tasks.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) uploaded: AtomicU64,
    pub(crate) reused: AtomicU64,
    pub(crate) downloaded: AtomicU64,
}

/// What the snapshots of one instance share.
#[derive(Debug)]
pub(crate) struct Snapshots {
    bases: Arc<Mutex<SnapshotBases<Arc<StoredFiles>>>>,
    copies: Option<Arc<LocalCopies>>,
    traffic: Arc<Traffic>,
    directory: Arc<WorkDirectory>,
    store: opendal::Operator,
    parallel_transfers: usize,
}

impl Snapshots {
    pub(crate) fn new(
        bases: SnapshotBases<Arc<StoredFiles>>,
        copies: Option<LocalCopies>,
        traffic: Arc<Traffic>,
        directory: Arc<WorkDirectory>,
        store: opendal::Operator,
        parallel_transfers: usize,
    ) -> Self {
        let bases = Arc::new(Mutex::new(bases));
        let copies = copies.map(Arc::new);
        Snapshots { bases, copies, traffic, directory, store, parallel_transfers }
    }

    /// The synchronous part: flushes and links the files of all databases. `queues` names the timer
    /// queues, each with a time that no timer is before.
    pub(crate) fn begin(
        &self,
        shards: &Shards,
        queues: Vec<(String, Option<Millis>)>,
        handle: SnapshotHandle,
        request: SnapshotRequest,
    ) -> Result<SnapshotTask> {
        let links = Links::create(shards, &self.directory)?;
        let base = lock(&self.bases).base(&request).cloned();
        let pinned = Pinned {
            links,
            queues,
            base,
            handle,
            request,
            bases: Arc::clone(&self.bases),
            copies: self.copies.clone(),
            traffic: Arc::clone(&self.traffic),
            store: self.store.clone(),
            parallel_transfers: self.parallel_transfers,
        };
        Ok(SnapshotTask::new(pinned.write()))
    }

    pub(crate) fn notify(&self, news: Notification) {
        lock(&self.bases).notify(news);
        if let Some(copies) = &self.copies {
            copies.notify(news);
        }
    }

    /// The statistics of transfers.
    pub(crate) fn statistics(&self) -> Statistics {
        let mut statistics = Statistics::default();
        statistics.bytes_uploaded = self.traffic.uploaded.load(Ordering::Relaxed);
        statistics.bytes_reused = self.traffic.reused.load(Ordering::Relaxed);
        statistics.bytes_downloaded = self.traffic.downloaded.load(Ordering::Relaxed);
        statistics
    }
}

/// The bookkeeping is whole after each call, so a panic elsewhere does not spoil it.
fn lock(
    bases: &Mutex<SnapshotBases<Arc<StoredFiles>>>,
) -> MutexGuard<'_, SnapshotBases<Arc<StoredFiles>>> {
    bases.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle of this backend, still without states and objects.
pub(crate) fn new_handle(instance: &OpenRequest, request: &SnapshotRequest) -> SnapshotHandle {
    SnapshotHandle::new(BACKEND_NAME, FORMAT_VERSION, instance, request)
}
