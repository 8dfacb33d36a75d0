//! What a run has done so far.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_runtime::{CheckpointStats, Progress};

/// Remembers the progress of a running job, so that a crash can tell of it.
#[derive(Debug)]
pub(crate) struct Recorder {
    begun: Instant,
    so_far: Mutex<SoFar>,
}

/// The progress of a job, with all of its checkpoints.
#[derive(Debug, Clone, Default)]
pub(crate) struct SoFar {
    pub(crate) elapsed: Duration,
    pub(crate) progress: Progress,
    pub(crate) checkpoints: Vec<CheckpointStats>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Recorder { begun: Instant::now(), so_far: Mutex::default() }
    }

    pub(crate) fn note(&self, progress: &Progress) {
        let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        so_far.progress = *progress;
        if let Some(checkpoint) = progress.last_checkpoint
            && so_far.checkpoints.last().is_none_or(|last| last.id != checkpoint.id)
        {
            so_far.checkpoints.push(checkpoint);
        }
    }

    pub(crate) fn so_far(&self) -> SoFar {
        let so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        SoFar { elapsed: self.begun.elapsed(), ..so_far.clone() }
    }
}
