//! Checkpoints: what is pinned in the call, and the handle that the task builds.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use weir_state_api::{
    CheckpointId, Error, ErrorKind, Notification, ObjectRef, Result, SnapshotHandle, SnapshotKind,
    SnapshotRequest, SnapshotTask, StateDescriptor, StateId,
};

use crate::backend::ChangelogBackend;
use crate::base::{Base, InnerBase, ObjectTable};
use crate::chunk_list::ChunkList;
use crate::factory::BACKEND_NAME;
use crate::format::manifest::{FORMAT_VERSION, LogRange, LoggedState, Manifest, Segment};
use crate::format::{LogId, LogPosition};
use crate::metrics::count;
use crate::writer::{Chunk, LogObject, Persisted};

/// What an instance shares with the tasks of its snapshots.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lent(Arc<Account>);

#[derive(Debug, Default)]
struct Account {
    named: Mutex<Named>,
    /// Up to where batches were named.
    named_to: AtomicU64,
    uploaded: AtomicU64,
    downloaded: AtomicU64,
}

/// Objects that a handle has named or will name. One that other instances use too is named until they
/// need it no more: an object that is left out may be deleted, although those others will name it later.
#[derive(Debug, Default)]
struct Named {
    objects: Vec<Arc<LogObject>>,
    /// The addresses of these.
    known: HashSet<usize>,
    /// Batches of checkpoints that have begun, whose objects are not known yet.
    pinned: Vec<Arc<Chunk>>,
    /// Up to where all batches of the instance are among them.
    taken_in: u64,
}

impl Named {
    fn add(&mut self, object: &Arc<LogObject>) {
        if self.known.insert(Arc::as_ptr(object).addr()) {
            self.objects.push(Arc::clone(object));
        }
    }

    /// Names those that an instance needs, and forgets the others. The last user of one may be gone at any
    /// time, and asks then whether it was named: it is named first, so that one of the two sees the other.
    fn name_used(&mut self, table: &mut ObjectTable) {
        let Named { objects, known, .. } = self;
        objects.retain(|object| {
            object.name();
            let used = object.is_used();
            if used {
                table.add(object.reference());
            } else {
                known.remove(&Arc::as_ptr(object).addr());
            }
            used
        });
    }

    /// Takes in which objects are known by now.
    fn settle(&mut self) {
        for chunk in std::mem::take(&mut self.pinned) {
            match chunk.stored() {
                Some(stored) => self.add(stored.object.object()),
                // Somebody may store it yet.
                None if Arc::strong_count(&chunk) > 1 => self.pinned.push(chunk),
                None => {}
            }
        }
    }
}

impl Lent {
    /// A checkpoint begins that names these batches, whichever task ends first.
    fn pin(&self, chunks: &ChunkList) {
        let mut named = self.lock();
        named.settle();
        // What was there at the last checkpoint still is: the instance needs its batches.
        let known = named.taken_in;
        let mut new: Vec<_> =
            chunks.newest_first().take_while(|chunk| chunk.to.0 > known).collect();
        new.reverse();
        let mut without_gap = true;
        for chunk in new {
            match chunk.stored() {
                Some(stored) => {
                    named.add(stored.object.object());
                    if without_gap {
                        named.taken_in = chunk.to.0;
                    }
                    continue;
                }
                None if named.pinned.iter().any(|other| Arc::ptr_eq(other, chunk)) => {}
                None => named.pinned.push(Arc::clone(chunk)),
            }
            without_gap = false;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Named> {
        self.0.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of log that this instance has uploaded and downloaded.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        (self.0.uploaded.load(Ordering::Relaxed), self.0.downloaded.load(Ordering::Relaxed))
    }

    pub(crate) fn downloaded(&self, bytes: u64) {
        count(&self.0.downloaded, bytes);
    }

    /// A handle names all objects of its batches, which were pinned, and those that have to be named for
    /// others.
    fn name(&self, table: &mut ObjectTable) {
        let mut named = self.lock();
        named.settle();
        named.name_used(table);
    }

    fn count(&self, chunks: &ChunkList) {
        let Some(LogPosition(to)) = chunks.end() else { return };
        let before = self.0.named_to.fetch_max(to, Ordering::Relaxed);
        let new = chunks.newest_first().take_while(|chunk| chunk.to.0 > before);
        let bytes = new.filter_map(|chunk| chunk.stored()).map(|stored| u64::from(stored.length));
        count(&self.0.uploaded, bytes.sum());
    }
}

/// A checkpoint that builds on a log, as it was when it began.
struct Pinned {
    base: Arc<Base>,
    chunks: ChunkList,
    log: LogId,
    to: LogPosition,
    /// Complete but for states, objects and metadata.
    handle: SnapshotHandle,
    states: Arc<[(StateId, StateDescriptor)]>,
    lent: Lent,
}

impl ChangelogBackend {
    /// The checkpoint as a base and positions; `None` when the log does not reach back to one.
    pub(crate) fn checkpoint_from_log(
        &mut self,
        request: &SnapshotRequest,
    ) -> Option<SnapshotTask> {
        let persisted = self.log.persist();
        // Handing the last changes over may have given the log up.
        if !self.log.is_whole() {
            self.base = None;
        }
        let (persisted, base) = (persisted?, Arc::clone(self.base.as_ref()?));
        let chunks = self.log.chunks().clone();
        self.lent.pin(&chunks);
        let pinned = Pinned {
            chunks,
            base,
            log: self.log.id(),
            to: self.log.position(),
            handle: self.new_handle(request),
            states: Arc::clone(&self.states),
            lent: self.lent.clone(),
        };
        Some(SnapshotTask::new(pinned.run(persisted)))
    }

    /// A checkpoint that is a materialization: the log goes on from it when it is written.
    pub(crate) fn whole_checkpoint(&mut self, request: &SnapshotRequest) -> Result<SnapshotTask> {
        count(&self.shared.counters().whole_checkpoints, 1);
        count(&self.shared.counters().materializations_begun, 1);
        self.materializer.invalidate();
        if !self.log.has_writer() {
            let request = &self.request;
            let (environment, directory) = (request.environment.clone(), request.directory.clone());
            self.log.write_to(self.shared.writer.open(environment, directory)?);
        }
        self.log.restart();
        let begun = self.materializer.begin(Instant::now(), self.log.position());
        // What the wrapped backend may build on goes away with the checkpoint that names it.
        let usable = self
            .inner_base
            .filter(|base| base.kept_by.is_none_or(|checkpoint| request.may_build_on(checkpoint)));
        let reuse_from = usable.map_or(begun.id, |base| base.id);
        let inner = self.inner_request(begun.id, reuse_from, request);
        let task = match self.inner.snapshot(inner) {
            Ok(task) => task,
            Err(error) => {
                self.lose_base();
                return Err(error);
            }
        };
        let outcome = self.materializer.outcome_of(begun);
        let (handle, lent) = (self.new_handle(request), self.lent.clone());
        Ok(SnapshotTask::new(async move {
            let inner = match task.run().await {
                Ok(inner) => inner,
                Err(error) => {
                    let what = "a whole checkpoint could not be written";
                    outcome.is(Err(Error::new(error.kind(), what)));
                    return Err(error);
                }
            };
            outcome.is(Ok(inner.clone()));
            let mut table = ObjectTable::default();
            for object in &inner.objects {
                table.add(object);
            }
            lent.name(&mut table);
            Ok(wrap(handle, inner, table.into_objects()))
        }))
    }

    /// A snapshot of the wrapped backend under the same request.
    pub(crate) fn pass_snapshot_on(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        let handle = self.new_handle(&request);
        self.wrapped_snapshot(handle, request)
    }

    fn wrapped_snapshot(
        &mut self,
        handle: SnapshotHandle,
        request: SnapshotRequest,
    ) -> Result<SnapshotTask> {
        let task = self.inner.snapshot(request)?;
        Ok(SnapshotTask::new(async move {
            let inner = task.run().await?;
            let objects = inner.objects.clone();
            Ok(wrap(handle, inner, objects))
        }))
    }

    /// A savepoint stands on its own, and neither helps nor hinders the log.
    pub(crate) fn savepoint(&mut self, mut request: SnapshotRequest) -> Result<SnapshotTask> {
        let handle = self.new_handle(&request);
        if self.may_log() {
            request.checkpoint = self.materializer.next_id();
            request.reuse_from = None;
        }
        self.wrapped_snapshot(handle, request)
    }

    /// Begins a materialization, if there is something to gain from one and none is under way.
    pub(crate) fn materialize(&mut self, now: Instant) {
        let Some(base) = self.base.as_ref().map(Arc::clone) else { return };
        if self.materializer.is_running() {
            return;
        }
        self.log.hand_over();
        let position = self.log.position();
        if !self.log.is_whole() || (position == base.position && base.restored.is_empty()) {
            self.materializer.skip(now, position);
            return;
        }
        let counters = Arc::clone(self.shared.counters());
        count(&counters.materializations_begun, 1);
        let begun = self.materializer.begin(now, position);
        let reuse_from = self.inner_base.map_or(begun.id, |base| base.id);
        let mut request = SnapshotRequest::checkpoint(begun.id, "");
        request.watermark = self.watermark;
        let inner = self.inner_request(begun.id, reuse_from, &request);
        let outcome = self.materializer.outcome_of(begun);
        match self.inner.snapshot(inner) {
            Ok(task) => {
                let spawner = Arc::clone(&self.request.environment.spawner);
                task.run_on(&*spawner, move |result| outcome.is(result));
            }
            Err(error) => outcome.is(Err(error)),
        }
    }

    /// Takes in what has become of materializations: the log goes on from the newest one. Returns whether
    /// there was one.
    pub(crate) fn adopt(&mut self) -> bool {
        let mut adopted = false;
        for (outcome, usable) in self.materializer.ended() {
            let (begun, counters) = (outcome.materialized, Arc::clone(self.shared.counters()));
            match outcome.result {
                Ok(handle) if usable && self.log.is_whole() => {
                    count(&counters.materializations_done, 1);
                    adopted = true;
                    let (handles, restored) = (vec![handle], Vec::new());
                    let (position, copies) = (begun.position, Vec::new());
                    self.base = Some(Arc::new(Base { handles, restored, position, copies }));
                    let base = InnerBase { id: begun.id, kept_by: None };
                    let before = self.inner_base.replace(base);
                    self.log.truncate(position);
                    // The wrapped backend may build on it: each handle from now on names it, until the
                    // next one takes its place. That news fails concerns later snapshots only.
                    drop(self.inner.notify(Notification::Complete(begun.id)));
                    if let Some(before) = before {
                        drop(self.inner.notify(Notification::Subsumed(before.id)));
                    }
                }
                _ => {
                    count(&counters.materializations_failed, 1);
                    drop(self.inner.notify(Notification::Aborted(begun.id)));
                }
            }
        }
        adopted
    }

    /// Adopts, and deletes the local copies that nobody needs any more.
    pub(crate) fn adopt_and_sweep(&mut self) {
        if self.adopt()
            && let Some(copies) = self.shared.writer.copies()
        {
            copies.sweep(&*self.request.environment.spawner, self.shared.counters());
        }
    }

    /// The first base of an empty instance: a snapshot of nothing.
    pub(crate) async fn begin_empty(&mut self) -> Result<()> {
        count(&self.shared.counters().materializations_begun, 1);
        self.log.restart();
        let begun = self.materializer.begin(Instant::now(), self.log.position());
        let request = SnapshotRequest::checkpoint(begun.id, "");
        let inner = self.inner_request(begun.id, begun.id, &request);
        let result = self.inner.snapshot(inner)?.run().await?;
        self.materializer.outcome_of(begun).is(Ok(result));
        self.adopt();
        Ok(())
    }

    fn new_handle(&self, request: &SnapshotRequest) -> SnapshotHandle {
        SnapshotHandle::new(BACKEND_NAME, FORMAT_VERSION, &self.request, request)
    }

    /// A request for a materialization, whose objects lie where the instance may create them at any time.
    fn inner_request(
        &self,
        id: CheckpointId,
        reuse_from: CheckpointId,
        outer: &SnapshotRequest,
    ) -> SnapshotRequest {
        let mut inner = SnapshotRequest::checkpoint(id, self.request.directory.clone());
        inner.kind = SnapshotKind::Checkpoint;
        inner.ownership = outer.ownership;
        inner.reuse_from = Some(reuse_from);
        inner.watermark = outer.watermark;
        inner
    }
}

impl Pinned {
    async fn run(self, persisted: Persisted) -> Result<SnapshotHandle> {
        persisted.wait().await?;
        let Pinned { base, chunks, log, to, mut handle, states, lent } = self;
        let mut table = ObjectTable::default();
        for object in base.handles.iter().flat_map(|handle| &handle.objects) {
            table.add(object);
        }
        let mut logs = Vec::with_capacity(base.restored.len() + 1);
        for restored in &base.restored {
            let numbers: Vec<u32> =
                restored.objects.iter().map(|object| table.add(object)).collect();
            let mut range = restored.range.clone();
            for segment in &mut range.segments {
                segment.object = numbers.get(segment.object as usize).copied().unwrap_or_default();
            }
            logs.push(range);
        }
        let mut segments = Vec::with_capacity(chunks.len());
        let mut last = None;
        for chunk in chunks.iter().filter(|chunk| chunk.to > base.position) {
            let Some(stored) = chunk.stored() else {
                return Err(Error::new(ErrorKind::Closed, "the log was given up meanwhile")
                    .advice("the next checkpoint stands on its own"));
            };
            let stored_in = stored.object.object();
            // Batches of one object stand together.
            let object = match last {
                Some((same, number)) if Arc::ptr_eq(same, stored_in) => number,
                _ => table.add(stored_in.reference()),
            };
            last = Some((stored_in, object));
            segments.push(Segment {
                object,
                offset: stored.offset,
                length: stored.length,
                from: chunk.from,
                to: chunk.to,
            });
        }
        lent.name(&mut table);
        lent.count(&chunks);
        handle.states = states.iter().map(|(_, state)| state.clone()).collect();
        let logged = |(id, state): &(StateId, StateDescriptor)| LoggedState {
            number: id.0,
            name: state.name.clone(),
            ttl: state.ttl,
        };
        let states = states.iter().map(logged).collect();
        if base.position < to {
            let key_groups = handle.key_groups;
            let (written_for, from) = (key_groups, base.position);
            logs.push(LogRange { log, written_for, key_groups, from, to, states, segments });
        }
        let manifest = Manifest { bases: base.handles.clone(), logs };
        handle.objects = table.into_objects();
        handle.metadata = manifest.encode();
        Ok(handle)
    }
}

/// The handle of a snapshot that is nothing but one of the wrapped backend.
fn wrap(
    mut handle: SnapshotHandle,
    inner: SnapshotHandle,
    objects: Vec<ObjectRef>,
) -> SnapshotHandle {
    handle.states.clone_from(&inner.states);
    handle.objects = objects;
    handle.metadata = Manifest { bases: vec![inner], logs: Vec::new() }.encode();
    handle
}
