//! The one who deletes: does the I/O for what the registry of objects decides.

use std::collections::BTreeSet;

use weir_state_api::store_requests::{delete_objects, objects_under, remove_empty_folders};
use weir_state_api::{CheckpointId, Error, ObjectRegistry, Origin, Result, StoredObject};

use super::layout;
use super::record::JobCheckpoint;
use super::run::Run;
use super::store::CheckpointStore;

/// Knows the checkpoints of one run and deletes what none of them needs.
#[derive(Debug)]
pub(crate) struct Collector {
    store: CheckpointStore,
    run: Run,
    registry: ObjectRegistry,
    /// Everything is to be listed: once for each run, for what former ones have left.
    all: bool,
    /// Checkpoints that were given up, whose folders are to be listed.
    given_up: BTreeSet<CheckpointId>,
    /// Folders that something was deleted from.
    thinned: BTreeSet<String>,
}

impl Collector {
    pub(crate) fn new(store: CheckpointStore, run: Run) -> Self {
        Collector {
            store,
            run,
            registry: ObjectRegistry::new(run.checkpoint(0)),
            all: true,
            given_up: BTreeSet::new(),
            thinned: BTreeSet::new(),
        }
    }

    /// Takes over the complete checkpoints that former runs have left. Returns them, oldest first.
    /// One that cannot be read is kept, with all it may name.
    pub(crate) async fn adopt_all(&mut self) -> Result<Vec<CheckpointId>> {
        let mut adopted = Vec::new();
        for id in self.store.complete().await?.into_iter().filter(|&id| id < self.run.checkpoint(0))
        {
            match self.store.read(id).await {
                Ok(checkpoint) => {
                    self.registry.adopt(id, checkpoint.objects());
                    adopted.push(id);
                }
                Err(error) => {
                    tracing::warn!(checkpoint = id.0, %error, "a checkpoint cannot be read");
                    self.registry.adopt_unreadable(id);
                }
            }
        }
        Ok(adopted)
    }

    /// A checkpoint begins. Returns the oldest that it may build on.
    pub(crate) fn begin(&mut self, id: CheckpointId) -> CheckpointId {
        self.registry.begin(id)
    }

    /// A checkpoint was given up, or something was still written for one that had been.
    pub(crate) fn given_up(&mut self, id: CheckpointId) {
        self.registry.abort(id);
        self.given_up.insert(id);
    }

    /// Checks what a checkpoint names, and completes it by its record.
    pub(crate) async fn commit(&mut self, checkpoint: &JobCheckpoint) -> Result<()> {
        let run = self.run;
        self.registry
            .admit(checkpoint.id, checkpoint.objects(), |path| layout::origin(run, path))?;
        self.store.commit(checkpoint, run).await?;
        self.registry.complete(checkpoint.id, checkpoint.objects());
        Ok(())
    }

    /// A checkpoint is no longer kept.
    pub(crate) fn subsume(&mut self, id: CheckpointId) {
        self.registry.subsume(id);
    }

    /// Deletes what may be deleted; to be called after a checkpoint was completed, when the run is
    /// known to own the store. What fails is due again.
    pub(crate) async fn collect(&mut self) -> Result<()> {
        let mut result = self.sweep().await;
        // An overtaken run may have completed a checkpoint since this one started. Its record goes
        // before anything that both have named.
        if !self.all {
            result = result.and(self.release().await);
        }
        let folders = std::mem::take(&mut self.thinned);
        remove_empty_folders(self.store.operator(), folders).await;
        result
    }

    /// Deletes by name: records of subsumed checkpoints, then what only they named.
    async fn release(&mut self) -> Result<()> {
        let mut result = Ok(());
        for id in self.registry.due_records() {
            match self.delete_record(id).await {
                Ok(()) => self.registry.record_deleted(id, 0),
                Err(error) => result = result.and(Err(error)),
            }
        }
        let run = self.run;
        let due = self.registry.due_objects(|path| layout::origin(run, path));
        result.and(self.delete(due).await)
    }

    /// Deletes by listing, where there may be something without a name.
    async fn sweep(&mut self) -> Result<()> {
        let mut listing = self.listing().await?;
        let mut result = Ok(());
        for id in self.registry.stale_records(&listing) {
            match self.delete_record(id).await {
                Ok(()) => listing.retain(|object| object.record_of != Some(id)),
                Err(error) => result = result.and(Err(error)),
            }
        }
        let unreachable = self.registry.unreachable(&listing);
        let doomed: Vec<_> =
            unreachable.into_iter().map(|object| (object.path.clone(), object.length)).collect();
        result = result.and(self.delete(doomed).await);
        if result.is_ok() {
            self.all = false;
            self.given_up.clear();
        }
        result
    }

    async fn listing(&self) -> Result<Vec<StoredObject>> {
        let mut folders = Vec::new();
        if self.all {
            folders.push(String::new());
        } else {
            for &id in &self.given_up {
                folders.extend([layout::checkpoint_folder(id), layout::shared_folder(id)]);
            }
        }
        let mut listing = Vec::new();
        for folder in folders {
            let found = objects_under(self.store.operator(), &folder).await?;
            listing.extend(
                found.into_iter().map(|(path, length)| layout::stored(self.run, path, length)),
            );
        }
        Ok(listing)
    }

    async fn delete_record(&mut self, id: CheckpointId) -> Result<()> {
        let path = layout::record_path(id);
        let deleted = self.store.operator().delete(&path).await;
        deleted.map_err(|error| Error::store("delete a checkpoint's record", &path, error))?;
        self.thinned.insert(layout::checkpoint_folder(id));
        Ok(())
    }

    async fn delete(&mut self, objects: Vec<(String, u64)>) -> Result<()> {
        let store = self.store.operator().clone();
        delete_objects(&store, &objects, |gone| self.deleted(gone)).await
    }

    fn deleted(&mut self, objects: &[(String, u64)]) {
        for (path, _) in objects {
            // A running instance writes into its folders; they stay.
            if layout::origin(self.run, path) != Origin::Live {
                let ends = path.match_indices('/').map(|(end, _)| &path[..=end]);
                self.thinned
                    .extend(ends.filter(|folder| !layout::is_fixed(folder)).map(String::from));
            }
        }
        let objects = objects.iter().map(|(path, length)| (path.as_str(), *length));
        self.registry.objects_deleted(objects);
    }
}
