//! What the next snapshot of one instance may build on.

use std::collections::BTreeMap;

use crate::{CheckpointId, Notification, RestoreMode, SnapshotRequest};

/// Snapshots without news that are remembered. More are only in flight when news gets lost; then
/// forgetting the oldest costs an upload.
const MAX_UNDECIDED: usize = 16;

/// Keeps track of the snapshots of one instance and answers which one the next may build on: the
/// newest that is known to be complete and not known to be gone.
///
/// `T` is what the backend needs to build on a snapshot, for example which local file is which object.
///
/// News is a hint: any of it may be lost, late, repeated or out of order. The answer is then an older
/// snapshot, or none, and the next snapshot uploads more. It is never one whose objects may be gone,
/// if the engine tells in [`reuse_from`](SnapshotRequest::reuse_from) what it keeps; an engine that
/// does not must deliver `Subsumed` before the barrier of the next checkpoint, or check that what a
/// handle names is still there ([`ObjectRegistry::admit`](super::ObjectRegistry::admit) does).
///
/// ```
/// use weir_state_api::{CheckpointId, Notification, SnapshotBases, SnapshotRequest};
///
/// let mut bases = SnapshotBases::new();
/// bases.written(CheckpointId(1), "files of 1");
/// let mut next = SnapshotRequest::checkpoint(CheckpointId(2), "chk-2");
/// assert_eq!(bases.base(&next), None, "not known to be complete");
/// bases.notify(Notification::Complete(CheckpointId(1)));
/// assert_eq!(bases.base(&next), Some(&"files of 1"));
/// next.reuse_from = Some(CheckpointId(2));
/// assert_eq!(bases.base(&next), None, "the engine no longer keeps it");
/// ```
#[derive(Debug, Clone)]
pub struct SnapshotBases<T> {
    confirmed: Option<(CheckpointId, T)>,
    /// Written, without news yet.
    undecided: BTreeMap<CheckpointId, T>,
    /// Nothing up to here may be built on.
    subsumed: Option<CheckpointId>,
}

impl<T> Default for SnapshotBases<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> SnapshotBases<T> {
    /// Of an instance that was opened empty.
    pub fn new() -> Self {
        SnapshotBases { confirmed: None, undecided: BTreeMap::new(), subsumed: None }
    }

    /// Of an instance restored from the snapshots of `checkpoint`, whose content is `restored`. In
    /// mode [`NoClaim`](RestoreMode::NoClaim) nothing is built on them: their objects stay somebody
    /// else's.
    pub fn restored(mode: RestoreMode, checkpoint: CheckpointId, restored: T) -> Self {
        let confirmed = match mode {
            RestoreMode::Claim => Some((checkpoint, restored)),
            RestoreMode::NoClaim => None,
        };
        SnapshotBases { confirmed, ..Self::new() }
    }

    /// The asynchronous part of a snapshot is done. Call it before the handle is given out, so that no
    /// news can come first; news about a snapshot that is not known here is forgotten. Savepoints are
    /// the user's: do not report them.
    pub fn written(&mut self, checkpoint: CheckpointId, content: T) {
        let over = self.confirmed.as_ref().is_some_and(|(confirmed, _)| *confirmed >= checkpoint);
        if over || self.subsumed >= Some(checkpoint) {
            return;
        }
        self.undecided.insert(checkpoint, content);
        if self.undecided.len() > MAX_UNDECIDED {
            self.undecided.pop_first();
        }
    }

    /// Takes news in.
    pub fn notify(&mut self, news: Notification) {
        match news {
            Notification::Complete(id) => {
                if let Some(content) = self.undecided.remove(&id) {
                    self.undecided = self.undecided.split_off(&id);
                    self.confirmed = Some((id, content));
                }
            }
            Notification::Aborted(id) => {
                self.undecided.remove(&id);
                if self.confirmed.as_ref().is_some_and(|(confirmed, _)| *confirmed == id) {
                    self.confirmed = None;
                }
            }
            // Retention goes from the oldest on. Where it does not, this gives up more than it must.
            Notification::Subsumed(id) => self.forget_up_to(id),
        }
    }

    /// What the snapshot of this request may build on: the newest usable one. `None` means that it
    /// uploads everything. A savepoint never builds on anything.
    pub fn base(&self, request: &SnapshotRequest) -> Option<&T> {
        let (id, content) = self.confirmed.as_ref()?;
        request.may_build_on(*id).then_some(content)
    }

    /// What [`base`](SnapshotBases::base) would answer without restrictions: what is older will not be
    /// built on any more.
    pub fn newest(&self) -> Option<&T> {
        self.confirmed.as_ref().map(|(_, content)| content)
    }

    /// The checkpoint that [`base`](SnapshotBases::base) would answer without restrictions.
    pub fn newest_confirmed(&self) -> Option<CheckpointId> {
        self.confirmed.as_ref().map(|(id, _)| *id)
    }

    fn forget_up_to(&mut self, id: CheckpointId) {
        self.subsumed = self.subsumed.max(Some(id));
        self.undecided = self.undecided.split_off(&CheckpointId(id.0.saturating_add(1)));
        if self.confirmed.as_ref().is_some_and(|(confirmed, _)| *confirmed <= id) {
            self.confirmed = None;
        }
    }
}

#[cfg(test)]
#[path = "bases_tests.rs"]
mod tests;
