//! The checkpoints of a job in its store: found, read, completed by one conditional write.

use opendal::Operator;
use weir_state_api::store_requests::{Created, create_or_read, names_in};
use weir_state_api::{CheckpointId, Error, ErrorKind, Result};

use super::layout;
use super::record::JobCheckpoint;
use super::run::{Run, check_job};

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

    pub(super) fn operator(&self) -> &Operator {
        &self.operator
    }

    /// The complete checkpoints, oldest first.
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
            let path = layout::record_path(id);
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
    /// [`Incompatible`](ErrorKind::Incompatible), naming the record.
    pub async fn read(&self, id: CheckpointId) -> Result<JobCheckpoint> {
        let path = layout::record_path(id);
        match self.operator.read(&path).await {
            Ok(bytes) => JobCheckpoint::from_bytes(&bytes.to_bytes(), &path),
            Err(error) => Err(Error::store("read the checkpoint's record", &path, error)),
        }
    }

    /// Reads a checkpoint that is to be restored by `job`.
    pub(crate) async fn read_for(&self, id: CheckpointId, job: &str) -> Result<JobCheckpoint> {
        let checkpoint = self.read(id).await?;
        check_job(job, &checkpoint.job, &layout::record_path(id))?;
        Ok(checkpoint)
    }

    /// Completes a checkpoint by creating its record, in the name of this run.
    ///
    /// [`Fenced`](ErrorKind::Fenced): a newer run owns the store, publish nothing.
    /// [`Indeterminate`](ErrorKind::Indeterminate): whether it is complete is unknown; only a fresh
    /// start can tell.
    pub(crate) async fn commit(&self, checkpoint: &JobCheckpoint, run: Run) -> Result<()> {
        self.create_record(checkpoint).await?;
        self.check_run(run).await.map_err(|error| match error.kind() {
            ErrorKind::Fenced => error,
            // Complete, but perhaps not ours to publish.
            _ => unknown_outcome(checkpoint.id, error),
        })
    }

    async fn create_record(&self, checkpoint: &JobCheckpoint) -> Result<()> {
        let path = layout::record_path(checkpoint.id);
        let bytes = checkpoint.to_bytes();
        // What is there and cannot be read is not this run's either.
        let read = |found: &[u8]| Ok(JobCheckpoint::from_bytes(found, &path).ok());
        let created =
            create_or_read(&self.operator, &path, bytes, "complete the checkpoint", read).await;
        match created {
            Ok(Created::Now) => Ok(()),
            Ok(Created::Found(Some(found))) if found.run == checkpoint.run => Ok(()),
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
}

fn unknown_outcome(id: CheckpointId, source: Error) -> Error {
    Error::new(ErrorKind::Indeterminate, "whether the checkpoint is complete is unknown")
        .object(layout::record_path(id))
        .source(source)
        .advice("start the job again: it looks into the store")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_state_api::{Environment, MaxParallelism, block_on};

    fn checkpoint(id: CheckpointId) -> JobCheckpoint {
        JobCheckpoint {
            job: "j".into(),
            id,
            run: "me".into(),
            workers: 1,
            max_parallelism: MaxParallelism::default(),
            finished: false,
            tasks: Vec::new(),
        }
    }

    #[test]
    fn of_two_runs_one_completes_a_number_and_repeating_is_harmless() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let run = block_on(store.claim_run("j", "me")).unwrap();
        let mine = checkpoint(run.checkpoint(0));
        let theirs = JobCheckpoint { run: "they".into(), ..mine.clone() };
        block_on(store.commit(&mine, run)).unwrap();
        block_on(store.commit(&mine, run)).unwrap();
        let error = block_on(store.commit(&theirs, run)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
        assert_eq!(block_on(store.read(mine.id)).unwrap(), mine);
        assert_eq!(block_on(store.complete()).unwrap(), [mine.id]);
    }

    #[test]
    fn a_zombie_completes_nothing_that_counts() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let old = block_on(store.claim_run("j", "old")).unwrap();
        let new = block_on(store.claim_run("j", "new")).unwrap();
        let error = block_on(store.commit(&checkpoint(old.checkpoint(0)), old)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        let mine = checkpoint(new.checkpoint(0));
        block_on(store.commit(&mine, new)).unwrap();
        assert_eq!(block_on(store.complete()).unwrap().last(), Some(&mine.id));
    }

    #[test]
    fn damage_and_another_job_are_typed_errors() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let run = block_on(store.claim_run("j", "me")).unwrap();
        let id = run.checkpoint(0);
        block_on(store.commit(&checkpoint(id), run)).unwrap();
        let error = block_on(store.read_for(id, "other")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        block_on(store.operator().write(&layout::record_path(id), "garbage")).unwrap();
        assert_eq!(block_on(store.read(id)).unwrap_err().kind(), ErrorKind::Corrupt);
        let missing = block_on(store.read(run.checkpoint(9))).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}
