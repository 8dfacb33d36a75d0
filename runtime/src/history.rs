//! What outlives an attempt: the checkpoints of the job, as this run knows them.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_state_api::{CheckpointId, Result};

use crate::checkpoint::{CheckpointStore, Collector, Epoch, JobCheckpoint};
use crate::report::CheckpointStats;

/// The job's checkpoints, and what this run has done.
pub(crate) struct History {
    pub(crate) store: CheckpointStore,
    pub(crate) epoch: Epoch,
    pub(crate) next_id: CheckpointId,
    /// Complete checkpoints that are kept until newer ones push them out, oldest first.
    pub(crate) retained: VecDeque<CheckpointId>,
    pub(crate) collector: Collector,
    /// Checkpoints whose metadata cannot be read; left for a person to look at.
    pub(crate) unreadable: Vec<CheckpointId>,
    pub(crate) completed: Vec<CheckpointStats>,
    pub(crate) failed: u32,
    pub(crate) restarts: u32,
}

impl History {
    /// Reads the checkpoints that former runs have completed.
    pub(crate) async fn load(
        store: CheckpointStore,
        epoch: Epoch,
        complete: &[CheckpointId],
    ) -> Result<Self> {
        let kept = store.kept().await?;
        let mut history = History {
            collector: Collector::new(store.clone(), epoch),
            store,
            epoch,
            next_id: epoch.first_checkpoint(),
            retained: VecDeque::new(),
            unreadable: Vec::new(),
            completed: Vec::new(),
            failed: 0,
            restarts: 0,
        };
        for &id in complete {
            match history.store.read(id).await {
                Ok(checkpoint) if kept.contains(&id) => history.collector.keep(&checkpoint),
                Ok(checkpoint) => history.adopt(&checkpoint),
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    tracing::warn!(checkpoint = id.0, %error, "unreadable, left alone");
                    history.unreadable.push(id);
                    history.collector.adopt_unreadable(id);
                }
            }
        }
        Ok(history)
    }

    fn adopt(&mut self, checkpoint: &JobCheckpoint) {
        self.retained.push_back(checkpoint.id);
        self.collector.adopt(checkpoint);
    }

    /// Where an attempt starts after a failure: at the newest checkpoint that this run has
    /// completed (only the store knows: an answer may have been lost), otherwise where the run
    /// itself started. A damaged one is an error: its output is published already, so silently
    /// starting before it would publish that again.
    pub(crate) async fn recovery_point(
        &mut self,
        start: Option<&Arc<JobCheckpoint>>,
    ) -> Result<Option<Arc<JobCheckpoint>>> {
        // A run that was overtaken must not publish again what the newer one is about to repeat.
        self.store.check_epoch(self.epoch).await?;
        let first = self.epoch.first_checkpoint();
        let newest = self.store.complete().await?.into_iter().rfind(|&id| id >= first);
        let Some(newest) = newest else { return Ok(start.cloned()) };
        let checkpoint = self.store.read(newest).await?;
        if self.retained.back().is_none_or(|&last| last < newest) {
            self.adopt(&checkpoint);
        }
        Ok(Some(Arc::new(checkpoint)))
    }
}
