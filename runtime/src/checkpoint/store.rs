//! Where checkpoints live: one folder each, committed by one conditional write.
//!
//! ```text
//! chk-00002-000000007/             objects of checkpoint 7 of run 2, written by the backends
//! chk-00002-000000007/metadata     JobCheckpoint; its existence makes the checkpoint complete
//! ```
//!
//! The metadata is created if absent, and then the run's epoch is checked (see `epoch.rs`), so of
//! two runs that think they own the job only the newer one publishes. Objects have names that are
//! never reused, so a run that died leaves nothing that another one could take for its own.

use std::collections::HashSet;

use opendal::Operator;
use weir_state_api::{CheckpointId, Error, ErrorKind, Result};

use super::epoch::Epoch;
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
        let (epoch, number) = Epoch::split(id);
        format!("chk-{epoch:05}-{number:09}/")
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
        let (epoch, number) = name.strip_prefix("chk-")?.trim_end_matches('/').split_once('-')?;
        Epoch::join(epoch.parse().ok()?, number.parse().ok()?)
    }

    fn metadata_path(id: CheckpointId) -> String {
        format!("{}metadata", Self::directory(id))
    }

    pub(crate) fn id_of(path: &str) -> Option<CheckpointId> {
        Self::parse_directory(path.split_once('/')?.0)
    }

    /// The objects below a folder, at any depth.
    pub(crate) async fn paths_under(&self, folder: &str) -> Result<Vec<String>> {
        let entries = match self.operator.list_with(folder).recursive(true).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == opendal::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::store("list", folder, error)),
        };
        let paths = entries.iter().map(opendal::Entry::path);
        Ok(paths.filter(|path| !path.ends_with('/')).map(String::from).collect())
    }

    /// The complete checkpoints, oldest first.
    ///
    /// # Errors
    /// Those of listing.
    pub async fn complete(&self) -> Result<Vec<CheckpointId>> {
        let mut ids: Vec<_> = self
            .paths_under("")
            .await?
            .iter()
            .filter(|path| path.ends_with("/metadata"))
            .filter_map(|path| Self::id_of(path))
            .collect();
        ids.sort();
        Ok(ids)
    }

    /// Reads a complete checkpoint.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), [`Corrupt`](ErrorKind::Corrupt) or
    /// [`Incompatible`](ErrorKind::Incompatible), naming the metadata object and the other complete
    /// checkpoints.
    pub async fn read(&self, id: CheckpointId) -> Result<JobCheckpoint> {
        let path = Self::metadata_path(id);
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
        let path = Self::metadata_path(checkpoint.id);
        let bytes = checkpoint.to_bytes();
        let written = self.operator.write_with(&path, bytes).if_not_exists(true).await;
        let Err(error) = written else { return Ok(()) };
        // Whatever the error says, the write may have happened: look who owns the name.
        match self.operator.read(&path).await {
            Ok(found) => match JobCheckpoint::from_bytes(&found.to_bytes(), &path) {
                Ok(found) if found.attempt == checkpoint.attempt => Ok(()),
                _ => Err(Error::new(
                    ErrorKind::Fenced,
                    format!("another run has completed checkpoint {}", checkpoint.id),
                )
                .object(path)
                .advice("stop this run: a newer one owns the job")),
            },
            Err(absent) if absent.kind() == opendal::ErrorKind::NotFound => {
                Err(Error::store("complete the checkpoint", &path, error))
            }
            Err(_) => Err(unknown_outcome(
                checkpoint.id,
                Error::store("complete the checkpoint", &path, error),
            )),
        }
    }

    /// Deletes everything that no retained checkpoint needs: first the metadata of checkpoints that
    /// are not retained, then objects that none of `retained` names. Folders from `running` on are
    /// left alone (a running checkpoint's objects are not named anywhere yet), and so are those of
    /// `untouched` checkpoints. Returns the number of objects deleted.
    ///
    /// # Errors
    /// Those of the store; what is left is found by the next collection.
    pub async fn collect(
        &self,
        retained: &[JobCheckpoint],
        untouched: &HashSet<CheckpointId>,
        running: CheckpointId,
    ) -> Result<usize> {
        let doomed = unreachable_paths(&self.paths_under("").await?, retained, untouched, running);
        for path in &doomed {
            self.operator
                .delete(path)
                .await
                .map_err(|error| Error::store("delete an object", path, error))?;
        }
        for id in doomed.iter().filter_map(|path| Self::id_of(path)).collect::<HashSet<_>>() {
            if !retained.iter().any(|checkpoint| checkpoint.id == id) {
                // On stores with real folders an empty one is left; elsewhere this does nothing.
                let directory = Self::directory(id);
                if let Err(error) = self.operator.delete(&directory).await {
                    tracing::debug!(%error, directory, "an empty folder stays");
                }
            }
        }
        Ok(doomed.len())
    }
}

fn unknown_outcome(id: CheckpointId, source: Error) -> Error {
    Error::new(ErrorKind::Indeterminate, "whether the checkpoint is complete is unknown")
        .object(CheckpointStore::directory(id))
        .source(source)
        .advice("look into the store again before acting on either assumption")
}

/// The decision of the collector: everything that is not reachable, metadata first.
fn unreachable_paths(
    paths: &[String],
    retained: &[JobCheckpoint],
    untouched: &HashSet<CheckpointId>,
    running: CheckpointId,
) -> Vec<String> {
    let reachable: HashSet<&str> = retained.iter().flat_map(JobCheckpoint::objects).collect();
    let is_retained = |id: CheckpointId| retained.iter().any(|checkpoint| checkpoint.id == id);
    let is_metadata = |path: &str| path.ends_with("/metadata");
    let mut doomed: Vec<String> = paths
        .iter()
        .filter(|path| {
            let Some(id) = CheckpointStore::id_of(path) else { return false };
            let needed =
                if is_metadata(path) { is_retained(id) } else { reachable.contains(path.as_str()) };
            id < running && !needed && !untouched.contains(&id)
        })
        .cloned()
        .collect();
    doomed.sort_by_key(|path| !is_metadata(path));
    doomed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::TaskSnapshot;
    use weir_state_api::*;

    fn checkpoint(id: u64, objects: &[&str]) -> JobCheckpoint {
        let instance = OpenRequest::new(Environment::in_memory(), "o", CodecId::new("k", 1));
        let request = SnapshotRequest::checkpoint(CheckpointId(id), "");
        let mut keyed = SnapshotHandle::new("b", 1, &instance, &request);
        keyed.objects = objects.iter().map(|path| ObjectRef::new(*path, 1, 0)).collect();
        JobCheckpoint {
            job: "j".into(),
            id: CheckpointId(id),
            attempt: "me".into(),
            parallelism: 1,
            finished: false,
            tasks: vec![TaskSnapshot {
                operator: "o".into(),
                subtask: 0,
                state: OperatorState::new(),
                keyed: Some(keyed),
            }],
        }
    }

    #[test]
    fn only_unreachable_objects_of_finished_checkpoints_go_metadata_first() {
        let paths: Vec<String> = [
            "chk-00000-000000001/a",
            "chk-00000-000000001/shared",
            "chk-00000-000000001/metadata",
            "chk-00000-000000002/aborted",
            "chk-00000-000000003/b",
            "chk-00000-000000003/metadata",
            "chk-00000-000000004/being-written",
            "chk-00000-000000000/unreadable",
            "somebody-elses/file",
        ]
        .map(String::from)
        .into();
        let retained = [checkpoint(3, &["chk-00000-000000003/b", "chk-00000-000000001/shared"])];
        let untouched = HashSet::from([CheckpointId(0)]);
        assert_eq!(
            unreachable_paths(&paths, &retained, &untouched, CheckpointId(4)),
            [
                "chk-00000-000000001/metadata",
                "chk-00000-000000001/a",
                "chk-00000-000000002/aborted"
            ]
        );
    }

    #[test]
    fn of_two_runs_one_completes_a_number_and_repeating_is_harmless() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let mine = checkpoint(1, &[]);
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
        block_on(store.commit(&checkpoint(1, &[]), old)).unwrap();
        let new = block_on(store.claim_epoch("new")).unwrap();
        let error = block_on(store.commit(&checkpoint(2, &[]), old)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        // The new run completes its own, above, and collects what the old one left.
        let first = new.first_checkpoint();
        let mine = JobCheckpoint { id: first, ..checkpoint(0, &[]) };
        block_on(store.commit(&mine, new)).unwrap();
        block_on(store.collect(&[mine], &HashSet::new(), CheckpointId(first.0 + 1))).unwrap();
        assert_eq!(block_on(store.complete()).unwrap(), [first]);
        assert_eq!(
            block_on(store.commit(&checkpoint(1, &[]), old)).unwrap_err().kind(),
            ErrorKind::Fenced
        );
    }

    #[test]
    fn a_damaged_checkpoint_is_named_and_the_others_are_offered() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let epoch = block_on(store.claim_epoch("me")).unwrap();
        block_on(store.commit(&checkpoint(1, &[]), epoch)).unwrap();
        block_on(store.commit(&checkpoint(2, &[]), epoch)).unwrap();
        block_on(store.operator().write("chk-00000-000000002/metadata", "garbage")).unwrap();
        let error = block_on(store.read(CheckpointId(2))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(error.object_path(), Some("chk-00000-000000002/metadata"));
        assert!(error.to_string().contains("beside it: chk-00000-000000001"), "{error}");
        assert_eq!(block_on(store.read(CheckpointId(9))).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(block_on(store.complete()).unwrap(), [CheckpointId(1), CheckpointId(2)]);
    }
}
