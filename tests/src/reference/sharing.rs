//! Incremental snapshots of the reference backend: an object per key group, shared for as long as its
//! bytes stay the same.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_state_api::{
    CheckpointId, KeyGroup, Notification, ObjectRef, OpenRequest, RestoreMode, SnapshotBases,
    SnapshotRequest, block_on,
};

use super::{Defect, Options};

/// One key group as it was written.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) object: ObjectRef,
}

/// All key groups with data.
pub(super) type Pieces = BTreeMap<KeyGroup, Arc<Piece>>;

/// What an instance and the tasks of its snapshots know of the snapshots before.
#[derive(Debug)]
pub(super) struct Sharing {
    options: Options,
    bases: Mutex<SnapshotBases<Pieces>>,
    /// For defects that do not wait for news.
    newest: Mutex<Option<(CheckpointId, Pieces)>>,
    uploaded: AtomicU64,
}

impl Sharing {
    /// Of an instance opened with `open`, which found `restored`.
    pub(super) fn new(options: Options, open: &OpenRequest, restored: Pieces) -> Self {
        let bases = match open.restore.first() {
            Some(handle) if options.incremental => {
                let claims = options.has(Defect::NoClaimIsIgnored);
                let mode = if claims { RestoreMode::Claim } else { open.mode };
                SnapshotBases::restored(mode, handle.checkpoint, restored)
            }
            _ => SnapshotBases::new(),
        };
        Sharing {
            options,
            bases: Mutex::new(bases),
            newest: Mutex::new(None),
            uploaded: AtomicU64::new(0),
        }
    }

    /// What a snapshot may share.
    pub(super) fn base(&self, request: &SnapshotRequest) -> Pieces {
        if self.options.has(Defect::UnconfirmedSnapshotsAreBuiltOn)
            && let Some((_, pieces)) = &*lock(&self.newest)
        {
            return pieces.clone();
        }
        let mut request = request.clone();
        if self.options.has(Defect::ReuseFromIsIgnored) {
            request.reuse_from = None;
        }
        lock(&self.bases).base(&request).cloned().unwrap_or_default()
    }

    pub(super) fn uploaded(&self, bytes: u64) {
        self.uploaded.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn bytes_uploaded(&self) -> u64 {
        self.uploaded.load(Ordering::Relaxed)
    }

    /// A snapshot is written; before its handle is given out.
    pub(super) fn written(&self, checkpoint: CheckpointId, pieces: Pieces) {
        *lock(&self.newest) = Some((checkpoint, pieces.clone()));
        lock(&self.bases).written(checkpoint, pieces);
    }

    pub(super) fn notify(&self, news: Notification, open: &OpenRequest) {
        if self.options.has(Defect::SubsumedSnapshotsAreBuiltOn)
            && matches!(news, Notification::Subsumed(_))
        {
            return;
        }
        lock(&self.bases).notify(news);
        if self.options.has(Defect::AbortsDeleteSharedObjects)
            && let Some((newest, pieces)) = &*lock(&self.newest)
            && news == Notification::Aborted(*newest)
        {
            for piece in pieces.values() {
                drop(block_on(open.environment.store.delete(&piece.object.path)));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
