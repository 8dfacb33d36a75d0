//! The checkpoints of a job in its store: found, read, completed by one conditional write.
//!
//! The metadata is created if absent, and then the run's epoch is checked (see `epoch.rs`), so of
//! two runs that think they own the job only the newer one publishes. Objects have names that are
//! never reused, so a run that died leaves nothing that another one could take for its own. What lies
//! where is in `layout.rs`, what is deleted in `collector.rs`.

use std::collections::BTreeSet;

use opendal::Operator;
use weir_state_api::store_requests::{Created, create_or_read, names_in};
use weir_state_api::{CheckpointId, Error, ErrorKind, Result};

use super::epoch::Epoch;
use super::layout;
use super::metadata::JobCheckpoint;

/// The checkpoints of one job in an object store.
#[derive(Debug, Clone)]
pub struct CheckpointStore {
    operator: Operator,
}

impl CheckpointStore {
    /// The checkpoints below the root of `operator`.
    pub fn new(operator: Operator) -> Self {
        CheckpointStore { operator }
    }

    /// The store itself, as backends get it.
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// The folder of a checkpoint.
    pub fn directory(id: CheckpointId) -> String {
        layout::checkpoint_folder(id)
    }

    /// The checkpoint whose folder has this name (with or without a `/` at its end).
    ///
    /// ```
    /// use weir_runtime::CheckpointStore;
    ///
    /// let id = CheckpointStore::parse_directory("chk-00002-000000007").unwrap();
    /// assert_eq!(CheckpointStore::directory(id), "chk-00002-000000007/");
    /// assert_eq!(CheckpointStore::parse_directory("elsewhere"), None);
    /// ```
    pub fn parse_directory(name: &str) -> Option<CheckpointId> {
        layout::parse_checkpoint_folder(name)
    }

    /// The complete checkpoints, oldest first.
    ///
    /// Costs one listing of the names at the top, and one question for each checkpoint folder; there
    /// are few, because what checkpoints share lies elsewhere.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn complete(&self) -> Result<Vec<CheckpointId>> {
        let names = names_in(&self.operator, "").await?;
        let mut ids: Vec<_> =
            names.iter().filter_map(|name| layout::parse_checkpoint_folder(name)).collect();
        ids.sort();
        let mut complete = Vec::new();
        for id in ids {
            let path = layout::metadata_path(id);
            let exists = self.operator.exists(&path).await;
            if exists.map_err(|error| Error::store("look for a checkpoint", &path, error))? {
                complete.push(id);
            }
        }
        Ok(complete)
    }

    /// Reads a complete checkpoint.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), [`Corrupt`](ErrorKind::Corrupt) or
    /// [`Incompatible`](ErrorKind::Incompatible), naming the metadata object and the other complete
    /// checkpoints.
    pub async fn read(&self, id: CheckpointId) -> Result<JobCheckpoint> {
        let path = layout::metadata_path(id);
        let checkpoint = match self.operator.read(&path).await {
            Ok(bytes) => JobCheckpoint::from_bytes(&bytes.to_bytes(), &path),
            Err(error) => Err(Error::store("read the checkpoint's metadata", &path, error)),
        };
        match checkpoint {
            Ok(checkpoint) => Ok(checkpoint),
            Err(error) => {
                let others: Vec<_> = self
                    .complete()
                    .await?
                    .into_iter()
                    .filter(|&other| other != id)
                    .map(|other| Self::directory(other).trim_end_matches('/').to_string())
                    .collect();
                Err(error.advice(if others.is_empty() {
                    "no other checkpoint is complete: start without restoring".to_string()
                } else {
                    format!("complete checkpoints beside it: {}", others.join(", "))
                }))
            }
        }
    }

    /// Completes a checkpoint by creating its metadata, in the name of the run with this epoch.
    ///
    /// # Errors
    /// [`Fenced`](ErrorKind::Fenced) when a newer run owns the store: publish nothing;
    /// [`Indeterminate`](ErrorKind::Indeterminate) when the store does not say whether the write
    /// happened: treat the checkpoint as neither complete nor failed.
    pub async fn commit(&self, checkpoint: &JobCheckpoint, epoch: Epoch) -> Result<()> {
        self.create_metadata(checkpoint).await?;
        self.check_epoch(epoch).await.map_err(|error| match error.kind() {
            ErrorKind::Fenced => error,
            // Complete, but perhaps not ours to publish.
            _ => unknown_outcome(checkpoint.id, error),
        })
    }

    async fn create_metadata(&self, checkpoint: &JobCheckpoint) -> Result<()> {
        let path = layout::metadata_path(checkpoint.id);
        let bytes = checkpoint.to_bytes();
        // What is there and cannot be read is not this run's either.
        let read = |found: &[u8]| Ok(JobCheckpoint::from_bytes(found, &path).ok());
        let created =
            create_or_read(&self.operator, &path, bytes, "complete the checkpoint", read).await;
        match created {
            Ok(Created::Now) => Ok(()),
            Ok(Created::Found(Some(found))) if found.attempt == checkpoint.attempt => Ok(()),
            Ok(Created::Found(_)) => Err(Error::new(
                ErrorKind::Fenced,
                format!("another run has completed checkpoint {}", checkpoint.id),
            )
            .object(path)
            .advice("stop this run: a newer one owns the job")),
            Err(error) if error.kind() == ErrorKind::Indeterminate => {
                Err(unknown_outcome(checkpoint.id, error))
            }
            Err(error) => Err(error),
        }
    }

    /// Marks a complete checkpoint so that it and its objects stay, whatever runs of the job do. Who
    /// deletes the mark gives it to the next run.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn keep(&self, id: CheckpointId) -> Result<()> {
        let path = layout::kept_path(id);
        let written = self.operator.write(&path, Vec::<u8>::new()).await;
        written.map(drop).map_err(|error| Error::store("mark a checkpoint as kept", &path, error))
    }

    /// The checkpoints that are marked to stay.
    ///
    /// # Errors
    /// Those of listing.
    pub async fn kept(&self) -> Result<BTreeSet<CheckpointId>> {
        let names = names_in(&self.operator, layout::KEPT).await?;
        Ok(names.iter().filter_map(|name| layout::parse_checkpoint_folder(name)).collect())
    }
}

fn unknown_outcome(id: CheckpointId, source: Error) -> Error {
    Error::new(ErrorKind::Indeterminate, "whether the checkpoint is complete is unknown")
        .object(CheckpointStore::directory(id))
        .source(source)
        .advice("look into the store again before acting on either assumption")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::collector::Collector;
    use weir_state_api::{Environment, block_on};

    fn checkpoint(id: u64) -> JobCheckpoint {
        JobCheckpoint {
            job: "j".into(),
            id: CheckpointId(id),
            attempt: "me".into(),
            parallelism: 1,
            finished: false,
            tasks: Vec::new(),
        }
    }

    #[test]
    fn of_two_runs_one_completes_a_number_and_repeating_is_harmless() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let mine = checkpoint(1);
        let theirs = JobCheckpoint { attempt: "they".into(), ..mine.clone() };
        let epoch = block_on(store.claim_epoch("me")).unwrap();
        block_on(store.commit(&mine, epoch)).unwrap();
        block_on(store.commit(&mine, epoch)).unwrap();
        let error = block_on(store.commit(&theirs, epoch)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
        assert_eq!(block_on(store.read(CheckpointId(1))).unwrap(), mine);
    }

    #[test]
    fn an_overtaken_run_completes_nothing_and_reusing_a_collected_number_does_not_help() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let old = block_on(store.claim_epoch("old")).unwrap();
        block_on(store.commit(&checkpoint(1), old)).unwrap();
        let new = block_on(store.claim_epoch("new")).unwrap();
        let error = block_on(store.commit(&checkpoint(2), old)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        // The new run completes its own, above, and collects what the old one left.
        let first = new.first_checkpoint();
        let mine = JobCheckpoint { id: first, ..checkpoint(0) };
        let mut collector = Collector::new(store.clone(), new);
        collector.begin(first);
        block_on(store.commit(&mine, new)).unwrap();
        collector.completed(&mine);
        block_on(collector.collect()).unwrap();
        assert_eq!(block_on(store.complete()).unwrap(), [first]);
        assert_eq!(
            block_on(store.commit(&checkpoint(1), old)).unwrap_err().kind(),
            ErrorKind::Fenced
        );
    }

    #[test]
    fn a_damaged_checkpoint_is_named_and_the_others_are_offered() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let epoch = block_on(store.claim_epoch("me")).unwrap();
        block_on(store.commit(&checkpoint(1), epoch)).unwrap();
        block_on(store.commit(&checkpoint(2), epoch)).unwrap();
        block_on(store.operator().write("chk-00000-000000002/metadata", "garbage")).unwrap();
        let error = block_on(store.read(CheckpointId(2))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(error.object_path(), Some("chk-00000-000000002/metadata"));
        assert!(error.to_string().contains("beside it: chk-00000-000000001"), "{error}");
        assert_eq!(block_on(store.read(CheckpointId(9))).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(block_on(store.complete()).unwrap(), [CheckpointId(1), CheckpointId(2)]);
    }
}
