//! The metadata of a completed checkpoint: one small object that names everything else.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use weir_state_api::frame::Frame;
use weir_state_api::{CheckpointId, ObjectRef, OperatorState, Result, SnapshotHandle};

/// What one subtask contributed to a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSnapshot {
    /// The operator's name.
    pub operator: String,
    /// The subtask, from 0.
    pub subtask: u16,
    /// Its keyed state.
    pub keyed: Option<SnapshotHandle>,
    /// Its state without a key: offsets, prepared output.
    pub state: OperatorState,
}

/// A completed checkpoint of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCheckpoint {
    /// The job's name.
    pub job: String,
    /// Its number.
    pub id: CheckpointId,
    /// The run that completed it; decides who won when an answer of the store was lost.
    pub attempt: String,
    /// The parallelism it was taken with.
    pub parallelism: u16,
    /// Whether it covers all input: the job has ended, all windows are closed.
    pub finished: bool,
    /// Every subtask's contribution.
    pub tasks: Vec<TaskSnapshot>,
}

impl JobCheckpoint {
    const FRAME: Frame = Frame { magic: *b"WEIRCHKP", version: 2 };

    /// The metadata object's bytes (`docs/formats/frame.md`).
    pub fn to_bytes(&self) -> Vec<u8> {
        Self::FRAME.encode(self)
    }

    /// Reads what [`to_bytes`](JobCheckpoint::to_bytes) wrote; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Corrupt`](weir_state_api::ErrorKind::Corrupt) or
    /// [`Incompatible`](weir_state_api::ErrorKind::Incompatible).
    pub fn from_bytes(bytes: &[u8], origin: &str) -> Result<Self> {
        Self::FRAME.decode(bytes, origin)
    }

    /// The handles of one operator's keyed state, of all subtasks.
    pub fn handles(&self, operator: &str) -> Vec<SnapshotHandle> {
        self.of(operator).filter_map(|task| task.keyed.clone()).collect()
    }

    /// The other state of one operator, by subtask.
    pub fn states(&self, operator: &str) -> Vec<OperatorState> {
        let mut tasks: Vec<_> = self.of(operator).collect();
        tasks.sort_by_key(|task| task.subtask);
        tasks.into_iter().map(|task| task.state.clone()).collect()
    }

    fn of(&self, operator: &str) -> impl Iterator<Item = &TaskSnapshot> {
        self.tasks.iter().filter(move |task| task.operator == operator)
    }

    /// All objects that a restore needs. One that the handles of several subtasks name comes several
    /// times.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        let handles = self.tasks.iter().filter_map(|task| task.keyed.as_ref());
        handles.flat_map(|handle| &handle.objects)
    }

    /// Bytes of all objects, each counted once.
    pub fn total_bytes(&self) -> u64 {
        let mut seen = HashSet::new();
        let distinct = self.objects().filter(|object| seen.insert(object.path.as_str()));
        distinct.map(|object| object.length).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let checkpoint = JobCheckpoint {
            job: "j".into(),
            id: CheckpointId(3),
            attempt: "a".into(),
            parallelism: 2,
            finished: false,
            tasks: vec![TaskSnapshot {
                operator: "o".into(),
                subtask: 1,
                keyed: None,
                state: OperatorState::new(),
            }],
        };
        let bytes = checkpoint.to_bytes();
        let body = &bytes[16..bytes.len() - 4];
        assert_eq!(&bytes[..12], b"WEIRCHKP\x02\0\0\0");
        assert_eq!(body, [1, b'j', 3, 1, b'a', 2, 0, 1, 1, b'o', 1, 0, 0]);
        assert_eq!(JobCheckpoint::from_bytes(&bytes, "x").unwrap(), checkpoint);
    }
}
