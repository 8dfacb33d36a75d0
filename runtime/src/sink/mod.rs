//! Sinks: where a job's results go, exactly once where the sink can commit.

mod files;
mod vector;

use std::sync::Arc;

use weir_state_api::{CheckpointId, OperatorState, Result};

use crate::record::{Data, Record};

pub use files::FileSink;
pub use vector::VecSink;

/// Opens a writer per subtask.
pub trait Sink<T: Data>: Send + Sync + 'static {
    /// Opens the writer of one subtask, fresh or with the state of a checkpoint.
    ///
    /// On restore, everything that the checkpoint holds as prepared must be committed (again), and
    /// what no checkpoint holds must be removed.
    ///
    /// # Errors
    /// When the target cannot be written, or prepared output is lost.
    fn open(&self, opening: &SinkOpening) -> Result<Box<dyn SinkWriter<T>>>;
}

/// What a sink's writer is told when it is opened.
#[derive(Debug, Clone)]
pub struct SinkOpening {
    /// The writer's subtask, from 0.
    pub subtask: u16,
    /// The number of subtasks.
    pub parallelism: u16,
    /// A name that no other run of the job ever had or will have.
    pub attempt: Arc<str>,
    /// The checkpoint that is restored, if any.
    pub restored: Option<CheckpointId>,
    /// The state that [`SinkWriter::prepare`] returned, redistributed; empty when fresh.
    pub state: OperatorState,
}

/// Writes the records of one subtask in two phases: prepared with the barrier, committed once the
/// checkpoint is complete everywhere.
pub trait SinkWriter<T>: Send {
    /// Writes a batch; nothing of it is visible yet.
    ///
    /// # Errors
    /// Any error fails the task, and the job recovers from the latest checkpoint.
    fn write(&mut self, batch: Vec<Record<T>>) -> Result<()>;

    /// First phase, at the barrier: makes everything written so far durable, so that it can be
    /// committed whatever happens, and returns what is needed for that.
    ///
    /// # Errors
    /// Any error fails the checkpoint and the task.
    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<OperatorState>;

    /// Second phase: makes everything prepared up to `checkpoint` visible. Must be idempotent, and
    /// must not assume that earlier checkpoints were announced.
    ///
    /// # Errors
    /// Any error fails the task; recovery commits again.
    fn commit(&mut self, checkpoint: CheckpointId) -> Result<()>;
}
