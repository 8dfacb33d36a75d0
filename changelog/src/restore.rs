//! Opening an instance: the materialization first, then the log.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use weir_state_api::{
    BackendFactory, CheckpointId, ErrorKind, KeyGroupRange, KeyedBackend, Millis, OpenRequest,
    RestoreMode, Result, SnapshotHandle, SnapshotKind,
};

use crate::backend::ChangelogBackend;
use crate::base::{Base, InnerBase, RestoredLog};
use crate::checkpoint::Lent;
use crate::factory::{BACKEND_NAME, Shared};
use crate::format::manifest::{FORMAT_VERSION, LogRange, Manifest};
use crate::kept::Kept;
use crate::local_copies::{CopyUse, LocalCopies};
use crate::log::InstanceLog;
use crate::materializer::Materializer;
use crate::metrics::{Counters, count};
use crate::replay::{Replay, replay};

/// What a request's handles come to.
struct Plan {
    /// Snapshots of the wrapped backend, to restore first.
    bases: Vec<SnapshotHandle>,
    /// What to replay then.
    logs: Vec<RestoredLog>,
    /// Whether later checkpoints can go on from both.
    goes_on: bool,
    /// The newest checkpoint among the handles.
    newest: Option<CheckpointId>,
    /// The newest snapshot that the wrapped backend has seen.
    newest_inner: CheckpointId,
}

/// Opens an instance with a log.
pub(crate) async fn open(
    inner: Arc<dyn BackendFactory>,
    shared: Arc<Shared>,
    mut request: OpenRequest,
) -> Result<ChangelogBackend> {
    check(&request, inner.name())?;
    let mut plan = Plan::of(&*inner, &request)?;
    if request.directory.is_empty() {
        plan.number_by_the_engine();
    }
    let watermark = request.restored_watermark().filter(|watermark| *watermark != Millis::MIN);
    let lent = Lent::default();
    let outside = Replay {
        store: request.environment.store.clone(),
        spawner: Arc::clone(&request.environment.spawner),
        clock: Arc::clone(&request.environment.clock),
        copies: shared.writer.copies().cloned(),
        counters: Arc::clone(shared.counters()),
        lent: lent.clone(),
    };
    let copies = outside.copies.iter().flat_map(|copies| plan.needed(copies)).collect();
    let restored = restore(&*inner, &plan, &request, &outside, watermark).await?;
    let handles = std::mem::take(&mut request.restore);
    let stream = if request.directory.is_empty() {
        None
    } else {
        Some(shared.writer.open(request.environment.clone(), request.directory.clone())?)
    };
    let log = InstanceLog::new(stream, shared.options.chunk_bytes);
    let materializer = Materializer::new(
        &shared.options,
        plan.newest_inner,
        log.id(),
        Arc::clone(&shared.requests),
    );
    let claimed = request.mode == RestoreMode::Claim;
    let goes_on = plan.goes_on && restored.as_stored && claimed;
    let states = restored.backend.states().into();
    let mut backend = ChangelogBackend {
        inner: restored.backend,
        log,
        base: None,
        inner_base: None,
        materializer,
        request,
        shared,
        lent,
        watermark,
        states,
        kept: Kept::restored(plan.newest.filter(|_| claimed)),
    };
    if !backend.may_log() {
        count(&backend.shared.counters().instances_without_log, 1);
        return Ok(backend);
    }
    if handles.is_empty() {
        backend.begin_empty().await?;
    } else if goes_on {
        backend.log.restart();
        let position = backend.log.position();
        let base = Base { handles: plan.bases, restored: plan.logs, position, copies };
        backend.materializer.goes_on(Instant::now(), position, base.restored_changes());
        backend.base = Some(Arc::new(base));
        backend.inner_base = Some(InnerBase { id: plan.newest_inner, kept_by: None });
    } else if claimed {
        let id = plan.newest_inner;
        backend.inner_base = Some(InnerBase { id, kept_by: plan.newest });
    }
    Ok(backend)
}

/// Opens an instance without a log, from snapshots with or without one.
pub(crate) async fn open_off(
    inner: Arc<dyn BackendFactory>,
    counters: Arc<Counters>,
    mut request: OpenRequest,
) -> Result<Box<dyn KeyedBackend>> {
    check(&request, inner.name())?;
    let mut plan = Plan::of(&*inner, &request)?;
    plan.number_by_the_engine();
    let watermark = request.restored_watermark().filter(|watermark| *watermark != Millis::MIN);
    let outside = Replay {
        store: request.environment.store.clone(),
        spawner: Arc::clone(&request.environment.spawner),
        clock: Arc::clone(&request.environment.clock),
        copies: None,
        counters,
        lent: Lent::default(),
    };
    let restored = restore(&*inner, &plan, &request, &outside, watermark).await?;
    request.restore.clear();
    Ok(restored.backend)
}

/// The same snapshot for fewer key groups.
pub(crate) fn clip(
    inner: &dyn BackendFactory,
    handle: &SnapshotHandle,
    key_groups: KeyGroupRange,
) -> Result<SnapshotHandle> {
    if handle.backend != BACKEND_NAME {
        return inner.clip(handle, key_groups);
    }
    let mut manifest = Manifest::of(handle)?;
    let groups = handle.key_groups.intersection(key_groups);
    let clipped = manifest.bases.iter().map(|base| clip_base(inner, base, groups));
    manifest.bases = clipped.filter_map(Result::transpose).collect::<Result<_>>()?;
    manifest.logs.retain_mut(|log| {
        log.key_groups = log.key_groups.intersection(groups);
        !log.key_groups.is_empty()
    });
    let mut clipped = handle.clone();
    clipped.key_groups = groups;
    clipped.metadata = manifest.encode();
    Ok(clipped)
}

/// A materialization for the key groups that are needed; `None` when that is none.
fn clip_base(
    inner: &dyn BackendFactory,
    base: &SnapshotHandle,
    groups: KeyGroupRange,
) -> Result<Option<SnapshotHandle>> {
    let needed = base.key_groups.intersection(groups);
    if needed.is_empty() {
        Ok(None)
    } else if needed == base.key_groups {
        Ok(Some(base.clone()))
    } else {
        inner.clip(base, needed).map(Some)
    }
}

/// Checks all that the handles say themselves: those of the wrapped backend pass as ours here, and are
/// checked by it afterwards.
fn check(request: &OpenRequest, inner: &str) -> Result<()> {
    let mut request = request.clone();
    for handle in &mut request.restore {
        if handle.backend == inner {
            handle.backend = BACKEND_NAME.into();
            handle.backend_format = FORMAT_VERSION;
        }
    }
    request.check(BACKEND_NAME, FORMAT_VERSION..=FORMAT_VERSION)
}

impl Plan {
    fn of(inner: &dyn BackendFactory, request: &OpenRequest) -> Result<Self> {
        let mut plan = Plan {
            bases: Vec::new(),
            logs: Vec::new(),
            goes_on: true,
            newest: request.restore.iter().map(|handle| handle.checkpoint).max(),
            newest_inner: CheckpointId(0),
        };
        for handle in request.relevant_handles() {
            let groups = handle.key_groups.intersection(request.key_groups);
            if handle.backend == BACKEND_NAME {
                // A savepoint is somebody else's, as are objects that only one handle may name.
                plan.goes_on &= handle.kind == SnapshotKind::Checkpoint
                    && handle.objects.iter().all(|object| object.shared);
                plan.add(inner, handle, groups)?;
            } else {
                plan.goes_on = false;
                plan.bases.push(handle.clone());
            }
        }
        let seen = plan.bases.iter().map(|base| base.checkpoint).max();
        plan.newest_inner = seen.unwrap_or(CheckpointId(0));
        // Several materializations make up one snapshot: the wrapped backend may build on all of them, or
        // on none.
        plan.bases.iter_mut().for_each(|base| base.checkpoint = plan.newest_inner);
        Ok(plan)
    }

    /// The wrapped backend hears the engine's numbers from now on, and not those of materializations.
    /// Where several of these make up one checkpoint, that is the newest.
    fn number_by_the_engine(&mut self) {
        if let Some(newest) = self.newest {
            self.bases.iter_mut().for_each(|base| base.checkpoint = newest);
        }
    }

    /// Keeps the copies of its logs.
    fn needed<'p>(&'p self, copies: &'p LocalCopies) -> impl Iterator<Item = CopyUse> + 'p {
        let objects = self.logs.iter().flat_map(|log| &log.objects);
        objects.map(|object| copies.need(&object.path))
    }

    fn add(
        &mut self,
        inner: &dyn BackendFactory,
        handle: &SnapshotHandle,
        groups: KeyGroupRange,
    ) -> Result<()> {
        let Manifest { bases, logs } = Manifest::of(handle)?;
        for base in bases {
            match clip_base(inner, &base, groups) {
                Ok(base) => self.bases.extend(base),
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    self.goes_on = false;
                    self.bases.push(base);
                }
                Err(error) => return Err(error),
            }
        }
        for mut range in logs {
            range.key_groups = range.key_groups.intersection(groups);
            if !range.key_groups.is_empty() {
                let objects = own_objects(&mut range, handle);
                self.logs.push(RestoredLog { range, objects });
            }
        }
        Ok(())
    }
}

/// The objects that a log names, to which its segments count from now on.
fn own_objects(range: &mut LogRange, handle: &SnapshotHandle) -> Vec<weir_state_api::ObjectRef> {
    let mut numbers = Vec::new();
    for segment in &mut range.segments {
        let known = numbers.iter().rposition(|&number| number == segment.object);
        segment.object = known.unwrap_or_else(|| {
            numbers.push(segment.object);
            numbers.len() - 1
        }) as u32;
    }
    // The manifest was checked: they are there.
    numbers.iter().filter_map(|&number| handle.objects.get(number as usize)).cloned().collect()
}

struct Restored {
    backend: Box<dyn KeyedBackend>,
    /// Whether every value is as it is stored: none had to be converted to another TTL.
    as_stored: bool,
}

async fn restore(
    inner: &dyn BackendFactory,
    plan: &Plan,
    request: &OpenRequest,
    outside: &Replay,
    watermark: Option<Millis>,
) -> Result<Restored> {
    let mut inner_request = request.clone();
    inner_request.restore.clone_from(&plan.bases);
    let mut backend = inner.open(inner_request).await?;
    if let Some(watermark) = watermark {
        backend.advance_watermark(watermark);
    }
    let mut as_stored = true;
    let bases = plan.bases.iter().flat_map(|base| &base.states);
    let states = backend.states().into_iter();
    let mut ttls: HashMap<_, _> = states.map(|(_, state)| (state.name, state.ttl)).collect();
    for state in request.relevant_handles().flat_map(|handle| &handle.states) {
        if let Entry::Vacant(unknown) = ttls.entry(state.name.clone()) {
            backend.register(state)?;
            unknown.insert(state.ttl);
        }
    }
    for stored in bases {
        as_stored &= ttls.get(&stored.name) == Some(&stored.ttl);
    }
    for log in &plan.logs {
        as_stored &= replay(&mut *backend, log, request, outside, watermark).await?;
    }
    Ok(Restored { backend, as_stored })
}
