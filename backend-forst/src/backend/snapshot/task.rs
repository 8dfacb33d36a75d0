//! The asynchronous part of a snapshot.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::future::join;
use futures_util::{StreamExt, TryStreamExt, stream};
use weir_state_api::{BoxFuture, ObjectRef, Result, SnapshotHandle, SnapshotKind, SnapshotRequest};

use super::ends::{self, Stored};
use super::plan::{Candidate, Place, plan};
use super::{NamedTable, NamedTables, QueueBounds, Shared};
use crate::backend::background::{Haste, Mail, begin_flush};
use crate::backend::frozen::{Flushed, Frozen};
use crate::backend::{ShardEdit, Table, TableView, Version};
use crate::format::{
    EndPlace, Manifest, RunManifest, ShardManifest, StateManifest, TableEntry, TablePlace,
};
use crate::lsm::TableId;
use crate::store::{EndCopy, NewObject, ObjectKind, ObjectNames};

/// Tables that one snapshot copies at the same time.
const COPIES_AT_ONCE: usize = 8;

/// An instance as it was when a snapshot began, and where the snapshot goes.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) version: Arc<Version>,
    /// Of each shard, oldest first.
    pub(super) frozen: Vec<Vec<Arc<Frozen>>>,
    pub(super) queues: QueueBounds,
    /// What may be named again.
    pub(super) base: Option<Arc<NamedTables>>,
    /// The handle, complete but for objects and metadata.
    pub(super) handle: SnapshotHandle,
    pub(super) request: SnapshotRequest,
    pub(super) shared: Arc<Shared>,
}

/// Where the tables of a snapshot have come to be.
#[derive(Debug, Default)]
struct Placed {
    objects: NamedTables,
    inline: Vec<(TableId, Bytes)>,
    /// Objects that no handle has named yet.
    new: Vec<String>,
}

impl Pinned {
    /// Ends what is being flushed, stores what the base does not hold and completes the handle.
    pub(super) async fn write(self) -> Result<SnapshotHandle> {
        let version = self.flushed().await?;
        let mut known = HashSet::new();
        let tables = version.tables().filter(|view| known.insert(view.id()));
        let tables: Vec<TableView> = tables.cloned().collect();
        let mut placed = Placed::default();
        let finished = self.finish(&version, &tables, &mut placed).await;
        if finished.is_err() {
            // No handle names them. What cannot be deleted is left to the collector.
            for path in &placed.new {
                drop(self.shared.flusher.tables.store().delete(path).await);
            }
        }
        finished
    }

    /// The version with all that was frozen.
    async fn flushed(&self) -> Result<Version> {
        let mut version = Version::clone(&self.version);
        let begin = |(shard, memtable): (usize, &Arc<Frozen>)| (shard, self.begin_flush(memtable));
        let of_shards = self.frozen.iter().enumerate();
        let frozen = of_shards.flat_map(|(shard, frozen)| frozen.iter().map(move |f| (shard, f)));
        let flushes: Vec<_> = frozen.map(begin).collect();
        for (shard, flush) in flushes {
            if let Some(table) = flush.await?
                && let Some(next) = version.apply(shard, ShardEdit::Flushed(table))
            {
                version = next;
            }
        }
        Ok(version)
    }

    /// What a memtable becomes. The work is done by the spawner's threads: writes may come to wait for it, and
    /// nobody says when this snapshot is polled again.
    fn begin_flush(&self, memtable: &Arc<Frozen>) -> BoxFuture<'static, Result<Flushed>> {
        let Shared { flusher, mailbox, .. } = &*self.shared;
        if let Some(flushed) = memtable.flushed() {
            return Box::pin(std::future::ready(Ok(flushed)));
        }
        if memtable.is_idle() {
            return Box::pin(begin_flush(flusher, mailbox, memtable, Haste::Checkpoint));
        }
        // Somebody does it already, and tells the instance. If he fails, it is tried again.
        Box::pin(flusher.flush_apart(memtable, Haste::Checkpoint))
    }

    fn is_checkpoint(&self) -> bool {
        self.request.kind == SnapshotKind::Checkpoint
    }

    /// The object of a table that this snapshot may name without writing anything.
    fn nameable(&self, view: &TableView) -> Option<ObjectRef> {
        if !self.is_checkpoint() {
            return None;
        }
        if self.shared.flusher.is_own(view.table()) {
            return view.table().object().cloned().map(ObjectRef::shared);
        }
        Some(self.base.as_ref()?.get(&view.id())?.object.clone())
    }

    async fn place(&self, tables: &[TableView], placed: &mut Placed) -> Result<()> {
        let candidates: Vec<Candidate> = tables
            .iter()
            .map(|view| Candidate {
                length: view.length(),
                nameable: self.nameable(view),
                resident: view.table().resident_bytes().is_some(),
            })
            .collect();
        let places = plan(&candidates, self.shared.options.inline_tail_bytes);
        let mut copies = Vec::new();
        for (view, place) in tables.iter().zip(places) {
            match place {
                Place::Named(object) => {
                    self.shared.named.add([view.id()]);
                    self.shared.reused.fetch_add(object.length, Ordering::Relaxed);
                    placed.objects.insert(view.id(), self.named(view.id(), object));
                }
                Place::Inline => {
                    let bytes = view.table().resident_bytes().cloned().unwrap_or_default();
                    placed.inline.push((view.id(), bytes));
                }
                Place::Copied => copies.push((view.id(), Arc::clone(view.table()))),
            }
        }
        let (names, own) = self.names();
        let copies = copies.into_iter().map(|(id, table)| {
            let names = &names;
            async move { Ok::<_, weir_state_api::Error>((id, table.copy_to(names).await?, table)) }
        });
        let copies: Vec<_> = copies.collect();
        let mut copies = stream::iter(copies).buffer_unordered(COPIES_AT_ONCE);
        while let Some((id, object, table)) = copies.try_next().await? {
            self.keep_copy(id, object, &table, own, placed);
        }
        Ok(())
    }

    /// A table with the copy of its end that the base has.
    fn named(&self, id: TableId, object: ObjectRef) -> NamedTable {
        let known = self.base.as_ref().and_then(|base| base.get(&id));
        NamedTable { object, end_copy: known.and_then(|known| known.end_copy.clone()) }
    }

    /// Ends of tables side by side for the first reads after a restore, where that is worth it, and where the
    /// end of each table is.
    fn plan_ends(
        &self,
        version: &Version,
        placed: &Placed,
    ) -> Option<(NewObject, Vec<(TableId, u64)>)> {
        let mut tables: HashMap<TableId, &Table> = HashMap::new();
        let mut stored = Vec::new();
        for (shard, of_shard) in version.shards().iter().enumerate() {
            for (run, view) in of_shard
                .runs()
                .iter()
                .flat_map(|run| run.tables().iter().map(move |view| (run, view)))
            {
                let Some(named) = placed.objects.get(&view.id()) else { continue };
                tables.insert(view.id(), view.table());
                stored.push(Stored {
                    id: view.id(),
                    shard,
                    level: run.level(),
                    visible: view.visible(),
                    length: view.length(),
                    end_length: view.table().meta_place().length.into(),
                    copied: named.end_copy.is_some(),
                    at_hand: view.table().meta_now().is_some(),
                });
            }
        }
        let (mut parts, mut offsets, mut offset) = (Vec::new(), Vec::new(), 0);
        for id in ends::plan(&stored) {
            let end =
                tables.get(&id).and_then(|table| table.meta_now()?.encode(table.meta_place()));
            let Some(end) = end else { continue };
            offsets.push((id, offset));
            offset += end.len() as u64;
            parts.push(Bytes::from(end));
        }
        let (names, _) = self.names();
        (!parts.is_empty()).then(|| (NewObject::new(&names, ObjectKind::Ends, &parts), offsets))
    }

    /// Where copies go, and whether that is the instance's own path.
    fn names(&self) -> (ObjectNames, bool) {
        match (self.is_checkpoint(), self.shared.directory.is_empty()) {
            (false, _) => (ObjectNames::below(&*self.request.directory), false),
            (true, true) => (ObjectNames::below(&*self.request.shared_directory).shared(), false),
            (true, false) => (ObjectNames::below(&*self.shared.directory).shared(), true),
        }
    }

    fn keep_copy(
        &self,
        id: TableId,
        object: ObjectRef,
        table: &Table,
        own: bool,
        placed: &mut Placed,
    ) {
        if own {
            // The instance's own from now on, whatever becomes of this snapshot.
            self.shared.named.add([id]);
            self.shared.mailbox.post(Mail::Moved(id, table.moved_to(object.clone())));
        } else {
            placed.new.push(object.path.clone());
        }
        placed.objects.insert(id, self.named(id, object));
    }

    /// Writes ends, and at the same time what names them.
    async fn put_ends(
        &self,
        version: &Version,
        placed: &mut Placed,
        ends: NewObject,
        offsets: &[(TableId, u64)],
    ) -> Result<SnapshotHandle> {
        let planned = ends.planned();
        placed.refer_to_ends(planned.clone(), offsets);
        let named = self.handle_of(version, placed)?;
        let (names, _) = self.names();
        let store = self.shared.flusher.tables.store();
        let mut manifest = Vec::new();
        let put_ends = store.put_planned(&names, ends);
        let (ends, handle) = join(put_ends, named.put(self, &mut manifest)).await;
        placed.new.extend(ends.iter().map(|object| object.path.clone()));
        if !ends.as_ref().is_ok_and(|ends| *ends != planned) {
            placed.new.append(&mut manifest);
            return ends.and(handle);
        }
        // The manifest names what is not there.
        for path in &manifest {
            drop(store.delete(path).await);
        }
        placed.refer_to_ends(ends?, offsets);
        self.handle_of(version, placed)?.put(self, &mut placed.new).await
    }

    /// The handle, and the manifest that it is to name.
    fn handle_of(&self, version: &Version, placed: &Placed) -> Result<Unnamed> {
        let mut handle = self.handle.clone();
        let manifest = manifest_of(version, &self.queues, placed, &mut handle.objects);
        let bytes = manifest.encode()?;
        if bytes.len() <= self.shared.options.inline_manifest_bytes {
            handle.metadata = bytes;
            return Ok(Unnamed { handle, manifest: None });
        }
        Ok(Unnamed { handle, manifest: Some(bytes.into()) })
    }

    async fn finish(
        &self,
        version: &Version,
        tables: &[TableView],
        placed: &mut Placed,
    ) -> Result<SnapshotHandle> {
        self.place(tables, placed).await?;
        let handle = match self.plan_ends(version, placed) {
            None => self.handle_of(version, placed)?.put(self, &mut placed.new).await?,
            Some((ends, offsets)) => self.put_ends(version, placed, ends, &offsets).await?,
        };
        if self.is_checkpoint() {
            let named = placed.objects.clone();
            self.shared.with_bases(|bases| bases.written(handle.checkpoint, Arc::new(named)));
        }
        Ok(handle)
    }
}

/// A handle that is complete but for its manifest, where that is an object.
struct Unnamed {
    handle: SnapshotHandle,
    manifest: Option<Bytes>,
}

impl Unnamed {
    /// Writes the manifest; `new` gets its path.
    async fn put(self, of: &Pinned, new: &mut Vec<String>) -> Result<SnapshotHandle> {
        let Unnamed { mut handle, manifest } = self;
        if let Some(bytes) = manifest {
            let names = ObjectNames::below(&*of.request.directory);
            let store = of.shared.flusher.tables.store();
            let object = store.put_new(&names, ObjectKind::Manifest, &[bytes]).await?;
            new.push(object.path.clone());
            handle.objects.push(object);
        }
        Ok(handle)
    }
}

impl Placed {
    /// The ends of these tables are in this object.
    fn refer_to_ends(&mut self, object: ObjectRef, offsets: &[(TableId, u64)]) {
        let object = Arc::new(object);
        for (id, offset) in offsets {
            if let Some(named) = self.objects.get_mut(id) {
                named.end_copy = Some(EndCopy { object: Arc::clone(&object), offset: *offset });
            }
        }
    }
}

/// The manifest of a version; fills in the objects of the handle, each once.
fn manifest_of(
    version: &Version,
    queues: &QueueBounds,
    placed: &Placed,
    objects: &mut Vec<ObjectRef>,
) -> Manifest {
    let mut positions: HashMap<TableId, TablePlace> = HashMap::new();
    for (position, (id, _)) in (0..).zip(&placed.inline) {
        positions.insert(*id, TablePlace::Inline(position));
    }
    let mut ends: HashMap<&str, u32> = HashMap::new();
    let mut entry = |view: &TableView| {
        let named = placed.objects.get(&view.id());
        let place = *positions.entry(view.id()).or_insert_with(|| {
            objects.extend(named.map(|named| named.object.clone()));
            TablePlace::Object((objects.len().max(1) - 1) as u32) // far fewer than that
        });
        let end_copy = named.and_then(|named| named.end_copy.as_ref()).map(|copy| {
            let object = *ends.entry(&copy.object.path).or_insert_with(|| {
                objects.push(ObjectRef::clone(&copy.object));
                (objects.len() - 1) as u32 // as above
            });
            EndPlace { object, offset: copy.offset }
        });
        TableEntry {
            end_copy,
            place,
            meta: *view.table().meta_place(),
            visible: view.visible(),
            properties: Arc::clone(view.properties()),
        }
    };
    let shards = version.shards().iter().map(|shard| {
        let states = shard.states().iter().map(|state| StateManifest {
            name: state.name.clone(),
            eras: state.eras.eras().to_vec(),
            timers_from: queues.get(&state.name).copied(),
        });
        let runs = shard.runs().iter().map(|run| RunManifest {
            level: run.level(),
            tables: run.tables().iter().map(&mut entry).collect(),
        });
        ShardManifest { groups: shard.groups(), states: states.collect(), runs: runs.collect() }
    });
    let shards = shards.collect();
    let inline_tables = placed.inline.iter().map(|(_, bytes)| bytes.clone()).collect();
    Manifest { shards, inline_tables }
}
