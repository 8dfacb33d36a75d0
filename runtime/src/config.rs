//! How a job is run: parallelism, backend, checkpoints, restarts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use weir_backend_heap::HeapBackendFactory;
use weir_state_api::{
    BackendFactory, CheckpointId, Clock, MaxParallelism, RestoreMode, SystemClock,
};

use crate::report::Progress;
use crate::storage::Storage;

/// When and how checkpoints are taken.
#[derive(Debug, Clone)]
pub struct CheckpointConfig {
    /// Time from the start of a checkpoint to the start of the next one. Default 1 s. Shorter means
    /// less to repeat after a crash and sooner commits, at more work for the store.
    pub interval: Duration,
    /// Time after which a checkpoint that is not complete is given up. Default 10 min.
    pub timeout: Duration,
    /// Number of complete checkpoints that are kept, at least 1. Default 2: should the newest be
    /// damaged, one more is there.
    pub retained: usize,
    /// Number of checkpoints that may fail in a row before the job fails and recovers. Default 3.
    pub tolerable_failures: u32,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        CheckpointConfig {
            interval: Duration::from_secs(1),
            timeout: Duration::from_mins(10),
            retained: 2,
            tolerable_failures: 3,
        }
    }
}

/// What happens when a task fails.
#[derive(Debug, Clone, Copy)]
pub struct RestartStrategy {
    /// Recoveries from the latest complete checkpoint before the job fails for good. Default 3.
    pub max_restarts: u32,
    /// Pause before each. Default 1 s.
    pub delay: Duration,
}

impl Default for RestartStrategy {
    fn default() -> Self {
        RestartStrategy { max_restarts: 3, delay: Duration::from_secs(1) }
    }
}

/// Where a job starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestoreFrom {
    /// At the beginning of its input. Refused when the store holds complete checkpoints.
    #[default]
    Fresh,
    /// At the latest complete checkpoint, or at the beginning when there is none.
    Latest,
    /// At this checkpoint. Output that later checkpoints committed is written again.
    Checkpoint(CheckpointId),
}

type ProgressFn = dyn Fn(&Progress) + Send + Sync;

/// How a job is run.
#[derive(Clone)]
pub struct JobConfig {
    /// Subtasks of every operator. Default 1.
    pub parallelism: u16,
    /// Key groups of every operator, the limit of its parallelism for ever. Default 128.
    pub max_parallelism: MaxParallelism,
    /// Where keyed state lives. Default: heap.
    pub backend: Arc<dyn BackendFactory>,
    /// Where checkpoints go. Default: memory, which a crash of the process does not survive.
    pub storage: Storage,
    /// When checkpoints are taken.
    pub checkpoints: CheckpointConfig,
    /// What happens when a task fails.
    pub restart: RestartStrategy,
    /// Where the job starts.
    pub restore: RestoreFrom,
    /// Whether the checkpoint it starts from becomes its own. Default [`Claim`](RestoreMode::Claim):
    /// it is built upon, and deleted once later ones are complete. With
    /// [`NoClaim`](RestoreMode::NoClaim) it stays: it is marked in the store (`kept/`), no run deletes
    /// it, and the first checkpoint of this one shares nothing with it.
    pub restore_mode: RestoreMode,
    /// Records per batch in channels. Default 512. Larger batches cost latency and memory, smaller
    /// ones throughput.
    pub batch_size: usize,
    /// Batches per channel. Default 8. It bounds how far a sender runs ahead, and so how long a
    /// barrier waits behind records.
    pub channel_capacity: usize,
    /// Processing time.
    pub clock: Arc<dyn Clock>,
    /// Called about ten times a second while the job runs.
    pub on_progress: Option<Arc<ProgressFn>>,
}

impl Default for JobConfig {
    fn default() -> Self {
        JobConfig {
            parallelism: 1,
            max_parallelism: MaxParallelism::default(),
            backend: Arc::new(HeapBackendFactory::default()),
            storage: Storage::in_memory(),
            checkpoints: CheckpointConfig::default(),
            restart: RestartStrategy::default(),
            restore: RestoreFrom::default(),
            restore_mode: RestoreMode::default(),
            batch_size: 512,
            channel_capacity: 8,
            clock: Arc::new(SystemClock),
            on_progress: None,
        }
    }
}

impl fmt::Debug for JobConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobConfig")
            .field("parallelism", &self.parallelism)
            .field("max_parallelism", &self.max_parallelism)
            .field("backend", &self.backend)
            .field("checkpoints", &self.checkpoints)
            .field("restart", &self.restart)
            .field("restore", &self.restore)
            .field("restore_mode", &self.restore_mode)
            .finish_non_exhaustive()
    }
}
