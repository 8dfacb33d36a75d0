//! What a run tells about itself.

use std::time::Duration;

use serde::Serialize;
use weir_state_api::{CheckpointId, ObjectCounts};

/// Numbers of a running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Progress {
    /// Records read by sources; records read again after a recovery count again.
    pub records_read: u64,
    /// Records given to sinks.
    pub records_written: u64,
    /// Checkpoints completed by this run.
    pub checkpoints: u64,
    /// Checkpoints that were given up.
    pub failed_checkpoints: u32,
    /// The latest complete checkpoint.
    pub latest: Option<CheckpointId>,
    /// The checkpoint that this run completed last; each is told of at least once.
    pub last_checkpoint: Option<CheckpointStats>,
    /// Recoveries so far.
    pub restarts: u32,
    /// What kept checkpoints name, and what the collector has deleted.
    pub objects: ObjectCounts,
}

/// One completed checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CheckpointStats {
    /// Its number.
    pub id: CheckpointId,
    /// From the trigger to the completed metadata.
    pub duration: Duration,
    /// The longest time it held a task's thread: pinning state, or preparing a sink's output (which
    /// a file sink syncs to the disk). Waiting for full channels is not counted.
    pub longest_hold: Duration,
    /// Bytes of all objects it needs, each once.
    pub bytes: u64,
    /// Bytes among them that no kept checkpoint had named before: what it added to the store.
    pub new_bytes: u64,
}

/// What a finished run did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobReport {
    /// The job's name.
    pub job: String,
    /// Subtasks of every operator.
    pub parallelism: u16,
    /// From the start of the tasks to the end of the last one.
    pub elapsed: Duration,
    /// Records read by sources; records read again after a recovery within the run count again.
    pub records_read: u64,
    /// Records given to sinks.
    pub records_written: u64,
    /// Records that came too late for their window.
    pub records_late: u64,
    /// The checkpoint the run started from.
    pub restored_from: Option<CheckpointId>,
    /// Time from opening the restored checkpoint until all tasks ran.
    pub restore_time: Option<Duration>,
    /// Recoveries within the run.
    pub restarts: u32,
    /// Checkpoints that were given up.
    pub failed_checkpoints: u32,
    /// Checkpoints completed by the run, oldest first.
    pub checkpoints: Vec<CheckpointStats>,
    /// Complete checkpoints that could not be read when the run started. They are left alone, and with
    /// them all older objects that they may share.
    pub unreadable: Vec<CheckpointId>,
    /// What kept checkpoints name, and what the collector has deleted.
    pub objects: ObjectCounts,
}
