//! The record of a complete checkpoint: one small object that names everything else.

use serde::{Deserialize, Serialize};
use weir_state_api::frame::Frame;
use weir_state_api::{CheckpointId, MaxParallelism, ObjectRef, Result, SnapshotHandle};

/// What one operator of one worker contributes to a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskPart {
    /// Keyed state.
    Keyed(Box<SnapshotHandle>),
    /// Splits of a source and how far each was read.
    Offsets(Vec<(u32, u64)>),
    /// Output that a sink has prepared and commits once the checkpoint is complete.
    Prepared(Vec<Vec<u8>>),
}

/// The part of one operator of one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSnapshot {
    /// The operator's name.
    pub operator: String,
    /// The worker's index.
    pub worker: u32,
    /// What it holds.
    pub part: TaskPart,
}

/// A complete checkpoint of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCheckpoint {
    /// The job's name.
    pub job: String,
    /// Its number.
    pub id: CheckpointId,
    /// The name of the run that completed it; decides who won when an answer of the store was lost.
    pub run: String,
    /// The number of workers it was taken with.
    pub workers: u32,
    /// The number of key groups.
    pub max_parallelism: MaxParallelism,
    /// Whether it covers all input: the job has ended, and all timers have fired.
    pub finished: bool,
    /// The parts of all operators of all workers.
    pub tasks: Vec<TaskSnapshot>,
}

impl JobCheckpoint {
    const FRAME: Frame = Frame { magic: *b"WEIRTCHK", version: 1 };

    /// The record's bytes (`docs/formats/frame.md`).
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

    fn of<'a>(&'a self, operator: &'a str) -> impl Iterator<Item = &'a TaskPart> {
        let tasks = self.tasks.iter().filter(move |task| task.operator == operator);
        tasks.map(|task| &task.part)
    }

    /// The handles of an operator's keyed state, of all workers.
    pub fn handles(&self, operator: &str) -> Vec<SnapshotHandle> {
        let handle = |part: &TaskPart| match part {
            TaskPart::Keyed(handle) => Some((**handle).clone()),
            TaskPart::Offsets(_) | TaskPart::Prepared(_) => None,
        };
        self.of(operator).filter_map(handle).collect()
    }

    /// How far each split of a source was read.
    pub fn offsets(&self, source: &str) -> Vec<(u32, u64)> {
        let offsets = |part: &TaskPart| match part {
            TaskPart::Offsets(offsets) => offsets.clone(),
            TaskPart::Keyed(_) | TaskPart::Prepared(_) => Vec::new(),
        };
        self.of(source).flat_map(offsets).collect()
    }

    /// The output that a sink had prepared, of all workers.
    pub fn prepared(&self, sink: &str) -> Vec<Vec<u8>> {
        let prepared = |part: &TaskPart| match part {
            TaskPart::Prepared(prepared) => prepared.clone(),
            TaskPart::Keyed(_) | TaskPart::Offsets(_) => Vec::new(),
        };
        self.of(sink).flat_map(prepared).collect()
    }

    /// All objects that a restore needs. One that several handles name comes several times.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        self.tasks.iter().flat_map(|task| match &task.part {
            TaskPart::Keyed(handle) => handle.objects.as_slice(),
            TaskPart::Offsets(_) | TaskPart::Prepared(_) => &[],
        })
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
            run: "r".into(),
            workers: 2,
            max_parallelism: MaxParallelism::default(),
            finished: true,
            tasks: vec![
                TaskSnapshot {
                    operator: "s".into(),
                    worker: 1,
                    part: TaskPart::Offsets(vec![(4, 5)]),
                },
                TaskSnapshot {
                    operator: "o".into(),
                    worker: 0,
                    part: TaskPart::Prepared(vec![vec![9]]),
                },
            ],
        };
        let bytes = checkpoint.to_bytes();
        assert_eq!(&bytes[..12], b"WEIRTCHK\x01\0\0\0");
        let body =
            [1, b'j', 3, 1, b'r', 2, 128, 1, 1, 2, 1, b's', 1, 1, 1, 4, 5, 1, b'o', 0, 2, 1, 1, 9];
        assert_eq!(bytes[16..bytes.len() - 4], body);
        assert_eq!(JobCheckpoint::from_bytes(&bytes, "x").unwrap(), checkpoint);
        assert_eq!(checkpoint.offsets("s"), [(4, 5)]);
        assert_eq!(checkpoint.prepared("o"), [vec![9]]);
    }
}
