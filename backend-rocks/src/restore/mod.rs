//! Restoring: files are taken over whole, never entry by entry.

mod download;
mod shard;

use std::sync::{Arc, Mutex};

use weir_state_api::ttl::TtlClock;
use weir_state_api::{Millis, OpenRequest, Result, SnapshotBases, SnapshotHandle, StateDescriptor};

use crate::database::Database;
use crate::eras::Eras;
use crate::options::RocksOptions;
use crate::shard::Shard;
use crate::snapshot::{Manifest, StoredFile, StoredFiles, Traffic};
use crate::work_directory::WorkDirectory;
use shard::ShardSource;

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
    let source = ShardSource { request, options, directory, clock, traffic };
    let mut wanted = Vec::new();
    for (handle, manifest) in handles.iter().zip(&manifests) {
        for (number, shard) in manifest.shards.iter().enumerate() {
            let groups = shard.groups.intersection(request.key_groups);
            if groups.is_empty() {
                continue;
            }
            wanted.push(source.wanted(handle, number, shard, groups)?);
        }
    }
    // The files of all databases together, so that the store is busy to the end.
    let transfers = wanted.iter().flat_map(|wanted| source.transfers(wanted)).collect();
    download::run(transfers, options.parallel_transfers).await?;
    for wanted in wanted {
        restored.shards.push(source.open(wanted).await?);
    }
    if request.restore.is_empty() {
        let path = directory.fresh("database");
        let (groups, eras) = (request.key_groups, Arc::new(Eras::new(Arc::clone(clock))));
        let database = Database::open(path, options, groups, eras, true, Arc::clone(directory))?;
        restored.shards.push(Shard::new(Arc::new(database), groups, Vec::new(), options));
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
