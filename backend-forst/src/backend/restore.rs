//! A version out of manifests: nothing but them is read.

use std::collections::HashMap;
use std::sync::Arc;

use weir_state_api::{
    Error, ErrorKind, Millis, ObjectRef, OpenRequest, Result, SnapshotBases, SnapshotHandle,
    StateDescriptor,
};

use super::snapshot::{NamedTable, NamedTables};
use super::{Run, Shard, Table, TableView, Version};
use crate::format::{EndPlace, Manifest, ShardManifest, StateManifest, TableEntry, TablePlace};
use crate::lsm::{ShardState, StateEras, TableId, unite};
use crate::store::{EndCopy, Tables};

/// What an instance begins with.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) version: Version,
    /// All states of all handles, each with a time that none of its timers is before.
    pub(crate) states: Vec<(StateDescriptor, Option<Millis>)>,
    pub(crate) bases: SnapshotBases<Arc<NamedTables>>,
}

/// Reads the manifests of all handles that hold some of the key groups, and unites what they say.
///
/// # Errors
/// [`Corrupt`](ErrorKind::Corrupt) and [`NotFound`](ErrorKind::NotFound) name the object; else the
/// store's.
pub(crate) async fn restore(request: &OpenRequest, tables: &Arc<Tables>) -> Result<Restored> {
    if request.restore.is_empty() {
        return Ok(Restored {
            version: Version::empty(request.key_groups),
            states: Vec::new(),
            bases: SnapshotBases::new(),
        });
    }
    let handles: Vec<&SnapshotHandle> = request.relevant_handles().collect();
    let reads = handles.iter().map(|handle| manifest_of(handle, tables));
    let manifests = futures_util::future::try_join_all(reads).await?;
    let mut opened =
        Opened { tables, known: HashMap::new(), ends: HashMap::new(), named: NamedTables::new() };
    let mut shards = Vec::new();
    for (handle, (manifest, origin)) in handles.iter().zip(&manifests) {
        // A handle may have been clipped; its manifest says what the whole snapshot held.
        let groups = handle.key_groups.intersection(request.key_groups);
        for shard in &manifest.shards {
            let shard = opened.shard(handle, manifest, shard, origin)?;
            shards.extend(shard.clipped(groups));
        }
    }
    let version = Version::new(unite(shards), request.key_groups)?;
    let bases = match handles.iter().map(|handle| handle.checkpoint).min() {
        Some(oldest) => SnapshotBases::restored(request.mode, oldest, Arc::new(opened.named)),
        None => SnapshotBases::new(),
    };
    let mut states = restored_states(request);
    restore_bounds(&mut states, &manifests);
    Ok(Restored { version, states, bases })
}

/// The manifest of a handle, and what errors call it.
async fn manifest_of(handle: &SnapshotHandle, tables: &Arc<Tables>) -> Result<(Manifest, String)> {
    if !handle.metadata.is_empty() {
        let origin = match handle.objects.first() {
            Some(object) => format!("the handle of the snapshot with {:?}", object.path),
            None => format!("the handle of snapshot {}", handle.checkpoint),
        };
        return Ok((Manifest::decode(&handle.metadata, &origin)?, origin));
    }
    let Some(object) = handle.objects.last() else {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("the handle of snapshot {} has no manifest", handle.checkpoint),
        )
        .advice("restore another checkpoint"));
    };
    let bytes = tables.store().read_object(object).await?;
    Ok((Manifest::decode(&bytes, &object.path)?, object.path.clone()))
}

/// Tables that were opened, each once.
struct Opened<'t> {
    tables: &'t Arc<Tables>,
    known: HashMap<String, (TableId, Table)>,
    /// Objects with copies of ends.
    ends: HashMap<String, Arc<ObjectRef>>,
    named: NamedTables,
}

impl Opened<'_> {
    fn shard(
        &mut self,
        handle: &SnapshotHandle,
        manifest: &Manifest,
        shard: &ShardManifest,
        origin: &str,
    ) -> Result<Shard> {
        let runs = shard.runs.iter().map(|run| {
            let views: Result<Vec<Option<TableView>>> = run
                .tables
                .iter()
                .map(|stored| self.view(handle, manifest, stored, origin))
                .collect();
            Ok(Run::new(run.level, views?.into_iter().flatten().collect()))
        });
        let runs: Vec<Run> = runs.collect::<Result<_>>()?;
        let states = shard.states.iter().map(|StateManifest { name, eras, .. }| {
            match handle.states.iter().find(|known| known.name == *name) {
                Some(known) => {
                    let eras = StateEras::new(known.kind, eras.clone());
                    Ok(ShardState { name: name.clone(), eras })
                }
                None => Err(damaged(origin, &format!("the state {name:?} is unknown"))),
            }
        });
        let states = Arc::new(states.collect::<Result<Vec<_>>>()?);
        Ok(Shard::new(shard.groups, states, runs))
    }

    fn view(
        &mut self,
        handle: &SnapshotHandle,
        manifest: &Manifest,
        stored: &TableEntry,
        origin: &str,
    ) -> Result<Option<TableView>> {
        let meta = stored.meta;
        let (id, table) = match stored.place {
            TablePlace::Object(position) => {
                let object = handle.objects.get(position as usize).ok_or_else(|| {
                    damaged(origin, &format!("a table is object {position} of the handle"))
                })?;
                if object.length != meta.file_len() {
                    return Err(damaged(origin, &format!("{:?} is no such table", object.path)));
                }
                let end_copy = self.end_copy(handle, stored, origin)?;
                self.open(object, meta, end_copy)
            }
            TablePlace::Inline(position) => {
                let bytes = manifest.inline_tables.get(position as usize).ok_or_else(|| {
                    damaged(origin, &format!("a table is inline table {position}"))
                })?;
                (TableId::unique(), self.tables.open_resident(bytes.clone(), meta)?)
            }
        };
        let properties = Arc::clone(&stored.properties);
        let view = TableView::new(id, table, properties, meta.file_len());
        Ok(view.clipped(stored.visible))
    }

    fn open(
        &mut self,
        object: &ObjectRef,
        meta: crate::format::MetaPlace,
        end_copy: Option<EndCopy>,
    ) -> (TableId, Table) {
        let known = self.known.entry(object.path.clone()).or_insert_with(|| {
            let id = TableId::unique();
            if object.shared {
                let end_copy = end_copy.clone().filter(|copy| copy.object.shared);
                self.named.insert(id, NamedTable { object: object.clone(), end_copy });
            }
            (id, self.tables.open_with(object.clone(), meta, end_copy))
        });
        known.clone()
    }

    /// Where the manifest says that there is a copy of the table's end.
    fn end_copy(
        &mut self,
        handle: &SnapshotHandle,
        stored: &TableEntry,
        origin: &str,
    ) -> Result<Option<EndCopy>> {
        let Some(EndPlace { object: position, offset }) = stored.end_copy else { return Ok(None) };
        let object = handle.objects.get(position as usize);
        let fits = |object: &&ObjectRef| offset + u64::from(stored.meta.length) <= object.length;
        let object = object.filter(fits).ok_or_else(|| {
            damaged(origin, &format!("a table's end is copied to object {position} of the handle"))
        })?;
        let known = self.ends.entry(object.path.clone());
        let object = known.or_insert_with(|| Arc::new(object.clone()));
        Ok(Some(EndCopy { object: Arc::clone(object), offset }))
    }
}

fn restored_states(request: &OpenRequest) -> Vec<(StateDescriptor, Option<Millis>)> {
    let mut states: Vec<(StateDescriptor, Option<Millis>)> = Vec::new();
    for descriptor in request.restore.iter().flat_map(|handle| &handle.states) {
        if !states.iter().any(|(known, _)| known.name == descriptor.name) {
            states.push((descriptor.clone(), None));
        }
    }
    states
}

/// The earliest time of each queue over all handles that have timers in it.
fn restore_bounds(
    states: &mut [(StateDescriptor, Option<Millis>)],
    manifests: &[(Manifest, String)],
) {
    for (descriptor, first) in states {
        let states = manifests
            .iter()
            .flat_map(|(manifest, _)| &manifest.shards)
            .flat_map(|shard| &shard.states);
        *first = states
            .filter(|state| state.name == descriptor.name)
            .filter_map(|state| state.timers_from)
            .min();
    }
}

#[cold]
fn damaged(origin: &str, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the manifest does not fit its handle: {what}"))
        .object(origin)
        .advice("restore another checkpoint")
}
