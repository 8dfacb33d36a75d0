//! What outlives an attempt: the checkpoints of the job, as this run knows them.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_state_api::{CheckpointId, Result, StoredObject};

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

impl CheckpointStore {
    /// What no checkpoint needs: all that the next run of the job will delete after its first
    /// checkpoint. A dry run of the collector: nothing is deleted, and no run is fenced.
    ///
    /// For a job that is not running. What a running one has just written and not yet named is among the
    /// result; never delete by it what belongs to a job that runs.
    ///
    /// Costs a listing of the whole store, and one read for each complete checkpoint.
    ///
    /// ```
    /// use weir_runtime::CheckpointStore;
    /// use weir_state_api::{Environment, block_on};
    ///
    /// # fn main() -> weir_state_api::Result<()> {
    /// let store = CheckpointStore::new(Environment::in_memory().store);
    /// # let write = store.operator().write("live/00001-ab/table", "left by a crash");
    /// # block_on(write).expect("memory takes it");
    /// // A table that a crashed instance has left behind.
    /// let doomed = block_on(store.unreachable())?;
    /// assert_eq!((&*doomed[0].path, doomed[0].length), ("live/00001-ab/table", 15));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the store.
    pub async fn unreachable(&self) -> Result<Vec<StoredObject>> {
        let complete = self.complete().await?;
        let epoch = self.next_epoch().await?;
        let history = History::load(self.clone(), epoch, &complete).await?;
        history.collector.unreachable().await
    }
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
