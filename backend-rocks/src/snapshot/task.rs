//! The asynchronous part of a snapshot.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt, TryStreamExt, stream};
use opendal::Operator;
use weir_state_api::{
    Millis, ObjectRef, Result, SnapshotBases, SnapshotHandle, SnapshotKind, SnapshotRequest,
};

use crate::local_copies::LocalCopies;

use super::links::{LinkedFile, Links};
use super::manifest::FileEntry;
use super::plan::{Plan, StoredFile, StoredFiles, plan};
use super::upload::{Uploaded, upload};
use super::{Identity, Manifest, ShardManifest, Traffic, lock};

/// An instance as it was when a snapshot began, and where the snapshot goes.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) links: Links,
    pub(crate) queues: Vec<(String, Option<Millis>)>,
    /// What may be named again.
    pub(crate) base: Option<Arc<StoredFiles>>,
    /// The handle, complete but for objects and metadata.
    pub(crate) handle: SnapshotHandle,
    pub(crate) request: SnapshotRequest,
    pub(crate) bases: Arc<Mutex<SnapshotBases<Arc<StoredFiles>>>>,
    pub(crate) copies: Option<Arc<LocalCopies>>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) store: Operator,
    pub(crate) parallel_transfers: usize,
}

impl Pinned {
    /// Uploads what the base does not hold and completes the handle.
    pub(crate) async fn write(self) -> Result<SnapshotHandle> {
        let mut files: Vec<LinkedFile> = Vec::new();
        let mut counts = Vec::new();
        for shard in &self.links.shards {
            let of_shard = shard.files()?;
            counts.push(of_shard.len());
            files.extend(of_shard);
        }
        let identities =
            files.iter().map(|file| Identity::of(&file.path)).collect::<Result<Vec<Identity>>>()?;
        let plan = plan(&identities, self.base.as_deref());
        let stored = self.transfer(&files, &identities, plan).await?;

        let mut objects = Objects::default();
        let mut entries =
            files.into_iter().zip(&identities).zip(&stored).map(|((file, identity), stored)| {
                FileEntry {
                    name: file.name,
                    identity: *identity,
                    crc32: stored.crc32,
                    object: objects.index_of(&stored.object),
                    offset: stored.offset,
                    extent: file.extent,
                }
            });
        let shards = self.links.shards.iter().zip(counts).map(|(shard, count)| ShardManifest {
            groups: shard.groups,
            states: shard.states.clone(),
            files: entries.by_ref().take(count).collect(),
        });
        let manifest = Manifest { shards: shards.collect(), queues: self.queues };
        let mut handle = self.handle;
        handle.metadata = manifest.encode();
        handle.objects = objects.list;
        if handle.kind == SnapshotKind::Checkpoint {
            if let Some(copies) = &self.copies {
                copies.keep(&handle, &self.links.path);
            }
            let files: StoredFiles = identities.into_iter().zip(stored).collect();
            lock(&self.bases).written(handle.checkpoint, Arc::new(files));
        }
        Ok(handle)
    }

    /// Carries the plan out; where each file is afterwards.
    async fn transfer(
        &self,
        files: &[LinkedFile],
        identities: &[Identity],
        plan: Plan,
    ) -> Result<Vec<StoredFile>> {
        let mut stored: HashMap<usize, StoredFile> = HashMap::new();
        for (index, file) in plan.reused {
            self.traffic.reused.fetch_add(identities[index].length, Ordering::Relaxed);
            stored.insert(index, file);
        }
        let alone = plan.alone.into_iter().map(|index| vec![index]);
        let new: Vec<(String, Vec<usize>)> =
            plan.packs.into_iter().chain(alone).map(|indexes| (self.new_path(), indexes)).collect();
        // Futures do nothing until the stream polls them, some at a time.
        let transfers: Vec<_> =
            new.iter().map(|(path, indexes)| self.upload(path, indexes, files)).collect();
        let uploads = stream::iter(transfers).buffer_unordered(self.parallel_transfers.max(1));
        let uploads: Result<Vec<(&Vec<usize>, Uploaded)>> = uploads.try_collect().await;
        let uploads = match uploads {
            Ok(uploads) => uploads,
            Err(error) => {
                self.discard(new.iter().map(|(path, _)| path)).await;
                return Err(error);
            }
        };
        for (indexes, Uploaded { object, crc32s }) in uploads {
            let object = self.owned(object);
            let mut offset = 0;
            for (&index, crc32) in indexes.iter().zip(crc32s) {
                stored.insert(index, StoredFile { object: object.clone(), offset, crc32 });
                offset += identities[index].length;
            }
        }
        // Every index is in exactly one part of the plan.
        Ok((0..files.len()).filter_map(|index| stored.remove(&index)).collect())
    }

    async fn upload<'n>(
        &self,
        path: &str,
        indexes: &'n Vec<usize>,
        files: &[LinkedFile],
    ) -> Result<(&'n Vec<usize>, Uploaded)> {
        let paths: Vec<PathBuf> = indexes.iter().map(|&index| files[index].path.clone()).collect();
        let uploaded = upload(&self.store, path, &paths).await?;
        self.traffic.uploaded.fetch_add(uploaded.object.length, Ordering::Relaxed);
        Ok((indexes, uploaded))
    }

    /// A name that is never used again.
    fn new_path(&self) -> String {
        let directory = match self.request.kind {
            SnapshotKind::Checkpoint => &self.request.shared_directory,
            _ => &self.request.directory,
        };
        format!("{directory}rocks-{}", uuid::Uuid::new_v4().simple())
    }

    /// Later checkpoints may name the objects of a checkpoint; those of a savepoint are its own.
    fn owned(&self, object: ObjectRef) -> ObjectRef {
        if self.request.kind == SnapshotKind::Checkpoint { object.shared() } else { object }
    }

    /// Deletes what a failed snapshot has written: no handle ever named it. What cannot be deleted is
    /// left to the collector.
    async fn discard(&self, paths: impl Iterator<Item = &String>) {
        for path in paths {
            drop(self.store.delete(path).await);
        }
    }
}

/// The objects of a handle, each once.
#[derive(Debug, Default)]
struct Objects {
    list: Vec<ObjectRef>,
    indexes: HashMap<String, u32>,
}

impl Objects {
    fn index_of(&mut self, object: &ObjectRef) -> u32 {
        *self.indexes.entry(object.path.clone()).or_insert_with(|| {
            self.list.push(object.clone());
            (self.list.len() - 1) as u32 // far fewer than that fit into a handle
        })
    }
}
