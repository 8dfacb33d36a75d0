//! Snapshots: memtables frozen now, the rest named, and nothing stored twice.
//!
//! | file | concept |
//! |---|---|
//! | `ends.rs` | whose ends are put side by side for the first reads after a restore: a pure decision |
//! | `plan.rs` | which tables are named again, stored with the manifest, or copied: a pure decision |
//! | `task.rs` | the asynchronous part |

mod ends;
mod plan;
mod task;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_state_api::{
    Millis, Notification, ObjectRef, OpenRequest, Result, SnapshotBases, SnapshotHandle,
    SnapshotRequest, SnapshotTask, StateDescriptor, Statistics,
};

use super::background::{Background, Flusher, Mail};
use super::mailbox::Mailbox;
use super::obsolete::NamedByHandles;
use super::options::ForstOptions;
use super::tree::Tree;
use crate::format::{MANIFEST_VERSION, OLDEST_MANIFEST_VERSION};
use crate::lsm::TableId;
use crate::store::EndCopy;
use task::Pinned;

/// The backend's name in handles.
pub(crate) const BACKEND_NAME: &str = "forst";
/// The version of the snapshot format: that of manifests.
pub(crate) const FORMAT_VERSION: u32 = MANIFEST_VERSION;
/// The oldest version that is restored.
pub(crate) const OLDEST_FORMAT_VERSION: u32 = OLDEST_MANIFEST_VERSION;

/// Which object each table of a checkpoint is, as far as later ones may name it.
pub(crate) type NamedTables = HashMap<TableId, NamedTable>;

/// A table as an object, as checkpoints name it.
#[derive(Debug, Clone)]
pub(crate) struct NamedTable {
    pub(crate) object: ObjectRef,
    /// The copy of its end.
    pub(crate) end_copy: Option<EndCopy>,
}

/// Of each timer queue a time that no timer is before; none for a queue without timers.
pub(crate) type QueueBounds = HashMap<String, Millis>;

/// What the snapshots of one instance share.
#[derive(Debug)]
pub(crate) struct Snapshots {
    shared: Arc<Shared>,
}

/// What snapshots share with their tasks.
#[derive(Debug)]
struct Shared {
    bases: Mutex<SnapshotBases<Arc<NamedTables>>>,
    flusher: Arc<Flusher>,
    mailbox: Arc<Mailbox<Mail>>,
    options: Arc<ForstOptions>,
    named: Arc<NamedByHandles>,
    /// The instance's own path in the store; empty when it has none.
    directory: String,
    /// Bytes that were named without being written.
    reused: AtomicU64,
}

impl Snapshots {
    pub(crate) fn new(
        bases: SnapshotBases<Arc<NamedTables>>,
        background: &Background,
        options: Arc<ForstOptions>,
        directory: String,
    ) -> Self {
        let shared = Shared {
            bases: Mutex::new(bases),
            flusher: Arc::clone(&background.flusher),
            mailbox: Arc::clone(&background.mailbox),
            options,
            named: Arc::clone(&background.named),
            directory,
            reused: AtomicU64::new(0),
        };
        Snapshots { shared: Arc::new(shared) }
    }

    /// The synchronous part, after memtables were frozen: pins the tree.
    pub(crate) fn begin(
        &self,
        instance: &OpenRequest,
        request: SnapshotRequest,
        tree: &mut Tree,
        states: Vec<StateDescriptor>,
        queues: QueueBounds,
    ) -> Result<SnapshotTask> {
        let base = self.shared.with_bases(|bases| bases.base(&request).cloned());
        if let Some(base) = base.as_deref().filter(|_| request.reuse_from.is_some()) {
            self.take_over(base, tree);
        }
        let mut handle = SnapshotHandle::new(BACKEND_NAME, FORMAT_VERSION, instance, &request);
        handle.states = states;
        let frozen = (0..tree.shard_count())
            .map(|shard| tree.frozen(shard).iter().rev().cloned().collect())
            .collect();
        let pinned = Pinned {
            version: Arc::clone(tree.version()),
            frozen,
            queues,
            base,
            handle,
            request,
            shared: Arc::clone(&self.shared),
        };
        Ok(SnapshotTask::new(pinned.write()))
    }

    /// Tables that are in memory, or somebody else's, are read from their copies in the base from now
    /// on. The engine keeps it until this snapshot is decided, and this snapshot names them again.
    fn take_over(&self, base: &NamedTables, tree: &mut Tree) {
        let mut moved = Vec::new();
        for view in tree.version().tables() {
            if let Some(named) = base.get(&view.id())
                && view.table().object() != Some(&named.object)
                && !self.shared.flusher.is_own(view.table())
            {
                moved.push((view.id(), view.table().moved_to(named.object.clone())));
            }
        }
        for (id, table) in moved {
            tree.moved(id, &table);
        }
    }

    pub(crate) fn notify(&self, news: Notification) {
        self.shared.with_bases(|bases| bases.notify(news));
    }

    /// The statistics of transfers.
    pub(crate) fn statistics(&self) -> Statistics {
        let traffic = self.shared.flusher.tables.store().traffic();
        let mut statistics = Statistics::default();
        statistics.bytes_uploaded = traffic.put_bytes.get() + traffic.copied_bytes.get();
        statistics.bytes_reused = self.shared.reused.load(Ordering::Relaxed);
        statistics.bytes_downloaded = traffic.read_bytes.get();
        statistics
    }
}

impl Shared {
    /// The bookkeeping is whole after each call, so a panic elsewhere does not spoil it.
    fn with_bases<R>(&self, call: impl FnOnce(&mut SnapshotBases<Arc<NamedTables>>) -> R) -> R {
        call(&mut self.bases.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
