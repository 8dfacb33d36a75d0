//! The one who deletes: does the I/O for what the registry of objects decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_state_api::store_requests::{delete_objects, objects_under, remove_empty_folders};
use weir_state_api::{
    CheckpointId, Error, ObjectCounts, ObjectRegistry, Origin, Result, StoredObject,
};

use super::epoch::Epoch;
use super::layout::{self, Reader};
use super::metadata::JobCheckpoint;
use super::store::CheckpointStore;

/// Knows the checkpoints of one run and deletes what none of them needs.
///
/// [`release`](Collector::release) deletes by name what subsumed checkpoints leave. What has no name,
/// the leftovers of aborted checkpoints and former attempts, [`sweep`](Collector::sweep) finds by
/// listing: everything once for each attempt, later only the folders of checkpoints that were given up.
#[derive(Debug)]
pub(crate) struct Collector {
    store: CheckpointStore,
    epoch: Epoch,
    attempt: Arc<str>,
    registry: ObjectRegistry,
    /// Everything is to be listed.
    all: bool,
    /// Checkpoints that were given up, whose folders are to be listed.
    given_up: BTreeSet<CheckpointId>,
    /// Folders that something was deleted from.
    thinned: BTreeSet<String>,
}

impl Collector {
    pub(crate) fn new(store: CheckpointStore, epoch: Epoch) -> Self {
        Collector {
            store,
            epoch,
            attempt: Arc::from(""),
            registry: ObjectRegistry::new(epoch.first_checkpoint()),
            all: true,
            given_up: BTreeSet::new(),
            thinned: BTreeSet::new(),
        }
    }

    /// A complete checkpoint was found; it is the run's to build on and to delete.
    pub(crate) fn adopt(&mut self, checkpoint: &JobCheckpoint) {
        self.registry.adopt(checkpoint.id, checkpoint.objects());
    }

    /// A complete checkpoint was found that is marked to stay.
    pub(crate) fn keep(&mut self, checkpoint: &JobCheckpoint) {
        self.registry.keep(checkpoint.id, checkpoint.objects());
    }

    /// A complete checkpoint was found that nobody can read.
    pub(crate) fn adopt_unreadable(&mut self, id: CheckpointId) {
        self.registry.adopt_unreadable(id);
    }

    /// An attempt starts; all that former ones were about is over.
    pub(crate) fn attempt_starts(&mut self, attempt: Arc<str>) {
        self.registry.abort_all();
        self.attempt = attempt;
        self.all = true;
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

    /// Checks what a checkpoint names, before it is completed. Returns the bytes it adds.
    pub(crate) fn admit(&self, checkpoint: &JobCheckpoint) -> Result<u64> {
        let reader = self.reader();
        self.registry.admit(checkpoint.id, checkpoint.objects(), |path| reader.origin(path))
    }

    /// A checkpoint was completed.
    pub(crate) fn completed(&mut self, checkpoint: &JobCheckpoint) {
        self.registry.complete(checkpoint.id, checkpoint.objects());
    }

    /// A checkpoint is no longer kept.
    pub(crate) fn subsume(&mut self, id: CheckpointId) {
        self.registry.subsume(id);
    }

    pub(crate) fn counts(&self) -> ObjectCounts {
        self.registry.counts()
    }

    /// Deletes what may be deleted. Call it right after a checkpoint was completed and the run's epoch
    /// was checked.
    ///
    /// # Errors
    /// The first of the store's; the rest was tried. What is left is due again.
    pub(crate) async fn collect(&mut self) -> Result<()> {
        let mut result = self.sweep().await;
        // A run that was overtaken may have completed a checkpoint since this one started. Its record
        // goes before anything that both have named.
        if !self.all {
            result = result.and(self.release().await);
        }
        let folders = std::mem::take(&mut self.thinned);
        remove_empty_folders(self.store.operator(), folders).await;
        result
    }

    /// What [`collect`](Collector::collect) would delete by listing: a dry run.
    ///
    /// # Errors
    /// Those of listing.
    pub(crate) async fn unreachable(&self) -> Result<Vec<StoredObject>> {
        let mut listing = self.listing().await?;
        let stale = self.registry.stale_records(&listing);
        let is_stale =
            |object: &StoredObject| object.record_of.is_some_and(|id| stale.contains(&id));
        let mut doomed: Vec<_> = listing.extract_if(.., |object| is_stale(object)).collect();
        doomed.extend(self.registry.unreachable(&listing).into_iter().cloned());
        Ok(doomed)
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
        let reader = Reader { epoch: self.epoch, attempt: &self.attempt };
        let due = self.registry.due_objects(|path| reader.origin(path));
        result.and(self.delete(due).await)
    }

    /// Deletes by listing, if there may be something without a name.
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
        let doomed = unreachable.into_iter().map(|object| (object.path.clone(), object.length));
        let doomed: Vec<_> = doomed.collect();
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
        let reader = self.reader();
        let mut listing = Vec::new();
        for folder in folders {
            let found = objects_under(self.store.operator(), &folder).await?;
            listing.extend(found.into_iter().map(|(path, length)| reader.stored(path, length)));
        }
        Ok(listing)
    }

    async fn delete_record(&mut self, id: CheckpointId) -> Result<()> {
        let path = layout::metadata_path(id);
        let deleted = self.store.operator().delete(&path).await;
        deleted.map_err(|error| Error::store("delete a checkpoint's metadata", &path, error))?;
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
            if self.reader().origin(path) != Origin::Live {
                let ends = path.match_indices('/').map(|(end, _)| &path[..=end]);
                self.thinned
                    .extend(ends.filter(|folder| !layout::is_fixed(folder)).map(String::from));
            }
        }
        let objects = objects.iter().map(|(path, length)| (path.as_str(), *length));
        self.registry.objects_deleted(objects);
    }

    fn reader(&self) -> Reader<'_> {
        Reader { epoch: self.epoch, attempt: &self.attempt }
    }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
