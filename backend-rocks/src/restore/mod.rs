//! Restoring: files are taken over whole, never entry by entry.

mod download;

use std::path::Path;
use std::sync::{Arc, Mutex};

use weir_state_api::ttl::TtlClock;
use weir_state_api::{Millis, OpenRequest, Result, SnapshotBases, SnapshotHandle, StateDescriptor};

use crate::database::Database;
use crate::eras::Eras;
use crate::error;
use crate::options::RocksOptions;
use crate::shard::Shard;
use crate::snapshot::{Manifest, ShardManifest, StoredFile, StoredFiles, Traffic};
use crate::work_directory::WorkDirectory;
use download::download;

/// What an instance starts from.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) shards: Vec<Shard>,
    /// All states of all handles, each with a time that no timer of it is before, as far as known.
    pub(crate) states: Vec<(StateDescriptor, Option<Millis>)>,
    pub(crate) bases: SnapshotBases<Arc<StoredFiles>>,
}

/// Opens the databases of the request's snapshots, or an empty one.
pub(crate) async fn restore(
    request: &OpenRequest,
    options: &RocksOptions,
    directory: &Arc<WorkDirectory>,
    clock: &Arc<Mutex<TtlClock>>,
    traffic: &Traffic,
) -> Result<Restored> {
    let mut restored = Restored {
        shards: Vec::new(),
        states: restored_states(request),
        bases: SnapshotBases::new(),
    };
    let handles: Vec<&SnapshotHandle> = request.relevant_handles().collect();
    let manifests =
        handles.iter().map(|handle| Manifest::of(handle)).collect::<Result<Vec<_>>>()?;
    for (handle, manifest) in handles.iter().zip(&manifests) {
        for shard in &manifest.shards {
            let groups = shard.groups.intersection(request.key_groups);
            if groups.is_empty() {
                continue;
            }
            let path = directory.fresh("database");
            let store = &request.environment.store;
            download(store, handle, shard, &path, options.parallel_transfers, traffic).await?;
            name_manifest(shard, &path)?;
            let eras = Arc::new(Eras::new(Arc::clone(clock)));
            let mut names = Vec::new();
            for (name, of_state) in &shard.states {
                let known = handle.states.iter().find(|state| state.name == *name);
                // Checked with the manifest.
                let Some(state) = known else { continue };
                eras.add(state.kind, of_state.clone());
                names.push(name.clone());
            }
            let database = Database::open(path, options, groups, eras, Arc::clone(directory))?;
            restored.shards.push(Shard::new(Arc::new(database), groups, names));
        }
    }
    if request.restore.is_empty() {
        let path = directory.fresh("database");
        let (groups, eras) = (request.key_groups, Arc::new(Eras::new(Arc::clone(clock))));
        let database = Database::open(path, options, groups, eras, Arc::clone(directory))?;
        restored.shards.push(Shard::new(Arc::new(database), groups, Vec::new()));
    }
    if let Some(oldest) = handles.iter().map(|handle| handle.checkpoint).min() {
        let files = Arc::new(reusable_files(&handles, &manifests));
        restored.bases = SnapshotBases::restored(request.mode, oldest, files);
    }
    restore_bounds(&mut restored.states, &manifests);
    Ok(restored)
}

/// All states of all handles, whether they have entries here or not.
fn restored_states(request: &OpenRequest) -> Vec<(StateDescriptor, Option<Millis>)> {
    let mut states: Vec<(StateDescriptor, Option<Millis>)> = Vec::new();
    for descriptor in request.restore.iter().flat_map(|handle| &handle.states) {
        if !states.iter().any(|(known, _)| known.name == descriptor.name) {
            states.push((descriptor.clone(), None));
        }
    }
    states
}

/// The earliest time of each queue over all handles, if all know one.
fn restore_bounds(states: &mut [(StateDescriptor, Option<Millis>)], manifests: &[Manifest]) {
    for (descriptor, first) in states {
        let bounds = manifests.iter().filter_map(|manifest| {
            let queue = manifest.queues.iter().find(|(name, _)| *name == descriptor.name);
            queue.map(|(_, first)| *first)
        });
        // Absent sorts first.
        *first = bounds.min().flatten();
    }
}

/// What the next snapshot may name again: objects that were made to be shared.
fn reusable_files(handles: &[&SnapshotHandle], manifests: &[Manifest]) -> StoredFiles {
    let mut files = StoredFiles::new();
    for (handle, manifest) in handles.iter().zip(manifests) {
        for file in manifest.shards.iter().flat_map(|shard| &shard.files) {
            let object = &handle.objects[file.object as usize];
            if object.shared {
                let stored =
                    StoredFile { object: object.clone(), offset: file.offset, crc32: file.crc32 };
                files.insert(file.identity, stored);
            }
        }
    }
    files
}

/// Writes the file by which RocksDB finds its list of files.
fn name_manifest(shard: &ShardManifest, path: &Path) -> Result<()> {
    let Some(manifest) = shard.manifest_files().next() else { return Ok(()) };
    let current = path.join("CURRENT");
    std::fs::write(&current, format!("{}\n", manifest.name))
        .map_err(|source| error::local("write", &current, source))
}
