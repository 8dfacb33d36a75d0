//! What the log goes on from: a snapshot of the wrapped backend, perhaps with a restored log.

use std::collections::HashMap;

use weir_state_api::{CheckpointId, ObjectRef, SnapshotHandle};

use crate::format::LogPosition;
use crate::format::manifest::LogRange;
use crate::local_copies::CopyUse;

/// Where the log goes on from. Everything it names is in the store, and stays as long as each handle
/// of the instance names it.
#[derive(Debug)]
pub(crate) struct Base {
    /// Snapshots of the wrapped backend, of disjoint key groups: one, or those of a restore.
    pub(crate) handles: Vec<SnapshotHandle>,
    /// Logs of former instances that go on from them.
    pub(crate) restored: Vec<RestoredLog>,
    /// Where the instance's own log goes on.
    pub(crate) position: LogPosition,
    /// Keeps the local copies of what was restored.
    #[expect(dead_code, reason = "it is held, not read")]
    pub(crate) copies: Vec<CopyUse>,
}

impl Base {
    /// Batches of former instances that each handle names, and that a restore replays first.
    pub(crate) fn restored_batches(&self) -> usize {
        self.restored.iter().map(|log| log.range.segments.len()).sum()
    }

    /// Their changes.
    pub(crate) fn restored_changes(&self) -> u64 {
        self.restored.iter().map(|log| log.range.changes()).sum()
    }
}

/// A log of a former instance, with the objects it names.
#[derive(Debug, Clone)]
pub(crate) struct RestoredLog {
    /// Its segments count into `objects`.
    pub(crate) range: LogRange,
    pub(crate) objects: Vec<ObjectRef>,
}

/// The snapshot that the wrapped backend may build on, by its own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InnerBase {
    pub(crate) id: CheckpointId,
    /// The checkpoint that must still be kept; none when each handle names its objects.
    pub(crate) kept_by: Option<CheckpointId>,
}

/// The objects of a handle, each once, with their numbers.
#[derive(Debug, Default)]
pub(crate) struct ObjectTable {
    objects: Vec<ObjectRef>,
    numbers: HashMap<String, u32>,
}

impl ObjectTable {
    /// The number of an object, which later handles may name too.
    pub(crate) fn add(&mut self, object: &ObjectRef) -> u32 {
        if let Some(&number) = self.numbers.get(&object.path) {
            return number;
        }
        // A handle with 2^32 objects does not fit into memory.
        let number = self.objects.len() as u32;
        self.numbers.insert(object.path.clone(), number);
        self.objects.push(object.clone().shared());
        number
    }

    pub(crate) fn into_objects(self) -> Vec<ObjectRef> {
        self.objects
    }
}
