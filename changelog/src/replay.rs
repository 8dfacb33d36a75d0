//! Replaying a log: batches are read and checked in parallel, changes applied in their order.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use opendal::Operator;
use weir_state_api::ttl::{TtlClock, TtlTime, Verdict, convert};
use weir_state_api::wire::corrupt;
use weir_state_api::{
    Address, Clock, Error, ErrorKind, KeyHashVersion, KeyRef, KeyedBackend, MapRange, Millis,
    ObjectRef, OpenRequest, Result, Spawned, Spawner, StateId, StateKind, StateTtl, TimerRef,
};

use crate::base::RestoredLog;
use crate::checkpoint::Lent;
use crate::format::LogPosition;
use crate::format::batch;
use crate::format::manifest::Segment;
use crate::format::record::{Change, Record, Records};
use crate::local_copies::LocalCopies;
use crate::metrics::{Counters, count};

/// How many objects are read and decompressed while changes are applied.
const AHEAD: usize = 4;

/// What a replay takes from outside.
pub(crate) struct Replay {
    pub(crate) store: Operator,
    pub(crate) spawner: Arc<dyn Spawner>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) copies: Option<LocalCopies>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) lent: Lent,
}

/// The changes of a batch.
struct Batch {
    segment: Segment,
    changes: Vec<u8>,
}

/// Applies a log to an instance. Returns whether all values could be stored as they were logged.
pub(crate) async fn replay(
    backend: &mut dyn KeyedBackend,
    log: &RestoredLog,
    request: &OpenRequest,
    outside: &Replay,
    watermark: Option<Millis>,
) -> Result<bool> {
    let mut progress = Progress::begin(&outside.counters, log.range.changes());
    let time = TtlClock::new(Arc::clone(&outside.clock), watermark).time();
    let target = Target::new(backend, log, time)?;
    let as_stored = target.as_stored();
    let needed = log.range.segments.iter().filter(|segment| segment.to > log.range.from);
    let segments: Vec<Segment> = needed.copied().collect();
    let mut rest = segments.chunk_by(|a, b| a.object == b.object);
    let mut reading: VecDeque<(ObjectRef, Spawned<Vec<Batch>>)> = VecDeque::new();
    loop {
        while reading.len() < AHEAD
            && let Some(group) = rest.next()
        {
            reading.extend(start_reading(group, log, outside));
        }
        let Some((object, batches)) = reading.pop_front() else { return Ok(as_stored) };
        for batch in batches.await? {
            let applied = target.apply(backend, &batch, log, request, &object.path)?;
            progress.add(applied);
        }
    }
}

/// How far a replay is. What one that fails leaves is not to be replayed any more.
struct Progress<'a> {
    counters: &'a Counters,
    left: u64,
}

impl<'a> Progress<'a> {
    fn begin(counters: &'a Counters, changes: u64) -> Self {
        count(&counters.changes_to_replay, changes);
        Progress { counters, left: changes }
    }

    fn add(&mut self, changes: u64) {
        self.left = self.left.saturating_sub(changes);
        count(&self.counters.changes_replayed, changes);
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.counters.changes_to_replay.fetch_sub(self.left, Ordering::Relaxed);
    }
}

/// Begins to read the batches of one object.
fn start_reading(
    segments: &[Segment],
    log: &RestoredLog,
    outside: &Replay,
) -> Option<(ObjectRef, Spawned<Vec<Batch>>)> {
    let number = segments.first()?.object as usize;
    let object = log.objects.get(number)?.clone();
    let source = Source {
        object: object.clone(),
        store: outside.store.clone(),
        copies: outside.copies.clone(),
        counters: Arc::clone(&outside.counters),
        lent: outside.lent.clone(),
    };
    let (id, segments) = (log.range.log, segments.to_vec());
    let batches = Spawned::future(&*outside.spawner, async move {
        let stored = source.read(&segments).await?;
        let mut batches = Vec::with_capacity(segments.len());
        for (segment, bytes) in segments.into_iter().zip(stored) {
            let (header, changes) = batch::decode(&bytes, &source.object.path)?;
            let records = segment.to.0 - segment.from.0;
            if header.log != id
                || header.first != segment.from
                || u64::from(header.records) != records
            {
                let what = format!(
                    "a batch of log {} with {} changes from {} on stands where log {id} is due, \
                     with {records} from {} on",
                    header.log, header.records, header.first, segment.from
                );
                return Err(corrupt(&source.object.path, what));
            }
            batches.push(Batch { segment, changes });
        }
        Ok(batches)
    });
    Some((object, batches))
}

/// An object and where it may be read.
struct Source {
    object: ObjectRef,
    store: Operator,
    copies: Option<LocalCopies>,
    counters: Arc<Counters>,
    lent: Lent,
}

impl Source {
    /// The bytes of these batches.
    async fn read(&self, segments: &[Segment]) -> Result<Vec<Bytes>> {
        let path = &self.object.path;
        let found = self.store.stat(path).await.map_err(|e| Error::store("stat", path, e))?;
        if found.content_length() != self.object.length {
            let what = format!(
                "the object has {} bytes, {} were written",
                found.content_length(),
                self.object.length
            );
            return Err(corrupt(path, what));
        }
        // Only now: the next handles name the object again, and others restore them without the copy.
        if let Some(copies) = &self.copies
            && let Some(whole) = copies.read(&self.object).await
        {
            count(&self.counters.local_reads, segments.len() as u64);
            count(&self.counters.bytes_replayed, whole.len() as u64);
            return Ok(cut(&whole, 0, segments));
        }
        let needed: u64 = segments.iter().map(|segment| u64::from(segment.length)).sum();
        let start = segments.iter().map(|segment| segment.offset).min().unwrap_or_default();
        let last = segments.iter().map(end).max().unwrap_or_default();
        // One request for all of it, unless most of it is of other instances.
        if needed.saturating_mul(2) >= last - start {
            let bytes = self.read_range(start..last).await?;
            return Ok(cut(&bytes, start, segments));
        }
        let mut parts = Vec::with_capacity(segments.len());
        for segment in segments {
            parts.push(self.read_range(segment.offset..end(segment)).await?);
        }
        Ok(parts)
    }

    async fn read_range(&self, range: Range<u64>) -> Result<Bytes> {
        let path = &self.object.path;
        let length = range.end - range.start;
        let read = self.store.read_with(path).range(range).await;
        let bytes = read.map_err(|error| Error::store("read", path, error))?.to_bytes();
        if bytes.len() as u64 != length {
            let what = format!("the store returned {} bytes, {length} were asked for", bytes.len());
            return Err(corrupt(path, what));
        }
        self.lent.downloaded(length);
        count(&self.counters.bytes_replayed, length);
        Ok(bytes)
    }
}

fn end(segment: &Segment) -> u64 {
    segment.offset + u64::from(segment.length)
}

/// The parts of `bytes`, which begin at `start` of the object.
fn cut(bytes: &Bytes, start: u64, segments: &[Segment]) -> Vec<Bytes> {
    let part = |segment: &Segment| {
        let from = (segment.offset - start) as usize;
        let to = from + segment.length as usize;
        if to <= bytes.len() { bytes.slice(from..to) } else { Bytes::new() }
    };
    segments.iter().map(part).collect()
}

/// A state of the log in the instance.
#[derive(Debug, Clone, Copy)]
struct TargetState {
    id: StateId,
    kind: StateKind,
    logged: Option<StateTtl>,
    now: Option<StateTtl>,
}

/// Where the changes of a log go.
struct Target {
    states: HashMap<u16, TargetState>,
    time: TtlTime,
}

impl Target {
    fn new(backend: &mut dyn KeyedBackend, log: &RestoredLog, time: TtlTime) -> Result<Self> {
        let known = backend.states();
        let mut states = HashMap::new();
        for logged in &log.range.states {
            let Some((id, state)) = known.iter().find(|(_, state)| state.name == logged.name)
            else {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    "the log has a state that no handle describes",
                )
                .state(&logged.name)
                .advice("restore another checkpoint"));
            };
            let (kind, now) = (state.kind, state.ttl);
            let target = TargetState { id: *id, kind, logged: logged.ttl, now };
            states.insert(logged.number, target);
        }
        Ok(Target { states, time })
    }

    fn as_stored(&self) -> bool {
        self.states.values().all(|state| state.logged == state.now)
    }

    /// Applies a batch; returns how many changes are in it from the log's beginning on.
    fn apply(
        &self,
        backend: &mut dyn KeyedBackend,
        batch: &Batch,
        log: &RestoredLog,
        request: &OpenRequest,
        object: &str,
    ) -> Result<u64> {
        let range = &log.range;
        let mut at = batch.segment.from.0;
        let mut applied = 0;
        let mut records = Records::new(&batch.changes, object);
        let malformed = |at: u64, what: &str| {
            corrupt(object, format!("the change at position {at} of log {} {what}", range.log))
        };
        while let Some(record) =
            records.next().map_err(|error| malformed(at, "does not decode").source(error))?
        {
            let position = LogPosition(at);
            if position >= batch.segment.to {
                return Err(malformed(at, "is one more than the handle states"));
            }
            at += 1;
            if position < range.from {
                continue;
            }
            applied += 1;
            if !range.written_for.contains(record.group) {
                return Err(malformed(position.0, "is of a key group that the log cannot hold"));
            }
            if !range.key_groups.contains(record.group) {
                continue;
            }
            let Some(&state) = self.states.get(&record.state.0) else {
                return Err(malformed(position.0, "is of a state that the log does not name"));
            };
            let key = match request.key_hash {
                KeyHashVersion::EngineGroups => KeyRef::with_group(record.key, record.group)?,
                _ => KeyRef::new(record.key, request.max_parallelism)?,
            };
            if key.group() != record.group {
                return Err(malformed(position.0, "has a key of another key group"));
            }
            self.apply_one(backend, state, key, &record).map_err(|error| {
                Error::new(error.kind(), "a change of the log could not be replayed")
                    .object(object)
                    .source(error)
            })?;
        }
        if at < batch.segment.to.0 {
            return Err(malformed(at, "is missing"));
        }
        Ok(applied)
    }

    fn apply_one(
        &self,
        backend: &mut dyn KeyedBackend,
        state: TargetState,
        key: KeyRef<'_>,
        record: &Record<'_>,
    ) -> Result<()> {
        let (namespace, id) = (record.namespace, state.id);
        let at = |map_key| Address { state: id, key, namespace, map_key };
        match record.change {
            Change::Put { map_key, value } => match self.convert(state, value) {
                Verdict::Keep => backend.put(&at(map_key), value),
                Verdict::Replace(value) => backend.put(&at(map_key), &value),
                // What it replaces must not come to light.
                Verdict::Drop => backend.delete(&at(map_key)),
            },
            Change::Append { map_key, value } => match self.convert(state, value) {
                Verdict::Keep => append(backend, &at(map_key), value),
                Verdict::Replace(value) => append(backend, &at(map_key), &value),
                Verdict::Drop => Ok(()),
            },
            Change::Delete { map_key } => backend.delete(&at(map_key)),
            Change::DeleteRange { from, to } => {
                backend.delete_range(&at(&[]), MapRange { from, to })
            }
            Change::RegisterTimer { time } => {
                backend.register_timer(&TimerRef { queue: id, time, key, namespace })
            }
            Change::DeleteTimer { time } => {
                backend.delete_timer(&TimerRef { queue: id, time, key, namespace })
            }
        }
    }

    /// A logged value as the instance stores it.
    fn convert(&self, state: TargetState, value: &[u8]) -> Verdict {
        if state.logged == state.now {
            return Verdict::Keep;
        }
        convert(state.kind, state.logged.as_ref(), state.now.as_ref(), value, &self.time)
    }
}

/// A list that clean-up had shortened may be too long now, before it is cleaned up again.
fn append(backend: &mut dyn KeyedBackend, at: &Address<'_>, value: &[u8]) -> Result<()> {
    match backend.append(at, value) {
        Err(error) if error.kind() == ErrorKind::TooLarge => {
            backend.clean_up(at.state, u64::MAX)?;
            backend.append(at, value)
        }
        result => result,
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
