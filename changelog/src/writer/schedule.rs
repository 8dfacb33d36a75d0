//! What is uploaded when: a state machine without I/O and without a clock of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_channel::oneshot;
use weir_state_api::{Error, Result};

use super::chunk::Chunk;
use super::pressure::Held;
use super::upload::took_too_long;
use crate::format::LogPosition;
use crate::metrics::{Counters, count};
use crate::options::ChangelogOptions;

/// An instance, as the writer knows it.
pub(crate) type StreamId = u64;
/// An object that is being uploaded.
pub(crate) type UploadId = u64;
/// One attempt to do so; counts up over all uploads.
pub(crate) type AttemptId = u64;

/// Tells a checkpoint that everything before it is in the store, or why not.
pub(crate) type PersistReply = oneshot::Sender<Result<()>>;

/// A batch that is to be uploaded.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) stream: StreamId,
    pub(crate) chunk: Arc<Chunk>,
    /// The encoded batch.
    pub(crate) batch: Vec<u8>,
    /// Keeps the bytes in the account of what is in flight.
    pub(crate) _held: Held,
}

/// What the writer has to do next.
#[derive(Debug)]
pub(crate) enum Action {
    /// Begin an attempt to upload an object.
    Attempt { upload: UploadId, attempt: AttemptId, owner: StreamId, bytes: Bytes, hedge: bool },
}

/// What became of an attempt's report.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The object is there, with these bytes; these batches are in it, at these offsets.
    Done { items: Vec<Placed>, bytes: Bytes },
    /// Another attempt was first: the object is of no use.
    Superfluous,
    /// It failed; another attempt runs or follows.
    Again,
    /// It failed and was the last one. The batches wait again.
    GivenUp,
}

/// A batch in an object.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) item: Item,
    pub(crate) offset: u64,
}

#[derive(Debug)]
struct Upload {
    items: Vec<Placed>,
    bytes: Bytes,
    begun: u32,
    running: BTreeMap<AttemptId, Instant>,
    /// When the next attempt begins, unless one succeeds before.
    next: Option<(Instant, bool)>,
}

#[derive(Debug)]
struct Persist {
    stream: StreamId,
    /// The ends of the chunks that are not in the store yet.
    missing: BTreeSet<u64>,
    reply: PersistReply,
}

/// The batches of all instances that share a store.
#[derive(Debug)]
pub(crate) struct Schedule {
    options: Arc<ChangelogOptions>,
    counters: Arc<Counters>,
    streams: BTreeSet<StreamId>,
    /// Up to where instances need nothing: also of what comes back when an upload fails.
    forgotten: BTreeMap<StreamId, LogPosition>,
    waiting: VecDeque<Item>,
    waiting_bytes: u64,
    /// Since when a checkpoint waits for something that is not under way.
    demanded: Option<Instant>,
    /// Who has asked since the last object was closed.
    asked: BTreeSet<StreamId>,
    persists: Vec<Persist>,
    uploads: BTreeMap<UploadId, Upload>,
    /// Tasks wait for room.
    pressure: bool,
    /// After a failure: nothing is begun before, unless a checkpoint asks.
    paused_until: Option<Instant>,
    next_upload: UploadId,
    next_attempt: AttemptId,
}

impl Schedule {
    pub(crate) fn new(options: Arc<ChangelogOptions>, counters: Arc<Counters>) -> Self {
        Schedule {
            options,
            counters,
            streams: BTreeSet::new(),
            forgotten: BTreeMap::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            demanded: None,
            asked: BTreeSet::new(),
            persists: Vec::new(),
            uploads: BTreeMap::new(),
            pressure: false,
            paused_until: None,
            next_upload: 0,
            next_attempt: 0,
        }
    }

    /// An instance begins.
    pub(crate) fn open(&mut self, stream: StreamId) {
        self.streams.insert(stream);
    }

    /// An instance has ended.
    pub(crate) fn close(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
        self.forget(stream, LogPosition(u64::MAX));
    }

    /// An instance does not need what it has appended before `to`. What checkpoints wait for is still
    /// uploaded, all else is dropped.
    pub(crate) fn forget(&mut self, stream: StreamId, to: LogPosition) {
        let forgotten = self.forgotten.entry(stream).or_insert(to);
        *forgotten = to.max(*forgotten);
        let persists = &self.persists;
        let needed = |item: &Item| {
            item.stream != stream
                || item.chunk.to > to
                || persists.iter().any(|persist| {
                    persist.stream == stream && persist.missing.contains(&item.chunk.to.0)
                })
        };
        self.waiting.retain(needed);
        self.waiting_bytes = self.waiting.iter().map(|item| item.batch.len() as u64).sum();
        if self.waiting.is_empty() {
            // Nobody's demand is left that could be met.
            self.demanded = None;
        }
    }

    /// Whether an instance is open, or something of it is still to be uploaded.
    pub(crate) fn knows(&self, stream: StreamId) -> bool {
        let under_way = self.uploads.values().flat_map(|upload| &upload.items);
        self.streams.contains(&stream)
            || self.waiting.iter().any(|item| item.stream == stream)
            || under_way.into_iter().any(|placed| placed.item.stream == stream)
    }

    /// Forgets what no instance that has ended can need any more.
    pub(crate) fn tidy(&mut self) {
        let ended: Vec<StreamId> =
            self.forgotten.keys().copied().filter(|stream| !self.knows(*stream)).collect();
        for stream in ended {
            self.forgotten.remove(&stream);
            self.asked.remove(&stream);
        }
    }

    /// Whether nothing is left to do for anybody.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.is_empty() && self.waiting.is_empty() && self.uploads.is_empty()
    }

    /// A batch comes in, behind all others of its instance.
    pub(crate) fn append(&mut self, item: Item) {
        self.waiting_bytes += item.batch.len() as u64;
        self.waiting.push_back(item);
    }

    /// A checkpoint waits for all that the instance has appended so far.
    pub(crate) fn persist(&mut self, now: Instant, stream: StreamId, reply: PersistReply) {
        let under_way = self.uploads.values().flat_map(|upload| &upload.items);
        let items = self.waiting.iter().chain(under_way.map(|placed| &placed.item));
        let missing: BTreeSet<u64> =
            items.filter(|item| item.stream == stream).map(|item| item.chunk.to.0).collect();
        self.asked.insert(stream);
        if missing.is_empty() {
            // Whoever asked may have gone: nobody is interested then.
            drop(reply.send(Ok(())));
        } else {
            self.persists.push(Persist { stream, missing, reply });
        }
        if self.waiting.iter().any(|item| item.stream == stream) {
            self.demanded.get_or_insert(now);
        }
    }

    /// Tasks wait for room: what is there goes now.
    pub(crate) fn press(&mut self) {
        self.pressure = true;
    }

    /// What is due.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        self.time_out(now);
        if self.is_due(now) {
            self.pack(now);
        }
        for (&upload, state) in &mut self.uploads {
            let Some((_, hedge)) = state.next.filter(|(at, _)| *at <= now) else { continue };
            let attempt = self.next_attempt;
            self.next_attempt += 1;
            state.begun += 1;
            state.running.insert(attempt, now);
            let more = state.begun < self.options.upload_attempts;
            state.next = more.then_some((now + self.options.hedge_after, true));
            // One that is open, if any is: nothing of a later attempt lies in a former one's folder.
            let mut owners = state.items.iter().map(|placed| placed.item.stream);
            let first = owners.clone().next().unwrap_or(0);
            let owner = owners.find(|stream| self.streams.contains(stream)).unwrap_or(first);
            let bytes = state.bytes.clone();
            actions.push(Action::Attempt { upload, attempt, owner, bytes, hedge });
        }
        actions
    }

    /// When something is due next, if nothing happens before.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let linger = self.demanded.map(|since| since + self.options.batch_linger);
        let wants = self.pressure || self.waiting_bytes >= self.options.batch_bytes;
        let pause = self.paused_until.filter(|_| wants && !self.waiting.is_empty());
        let uploads = self.uploads.values().flat_map(|upload| {
            let timeouts =
                upload.running.values().map(|since| *since + self.options.attempt_timeout);
            timeouts.chain(upload.next.map(|(at, _)| at))
        });
        linger.into_iter().chain(pause).chain(uploads).min()
    }

    /// An attempt has ended. `Err` when it failed.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        upload: UploadId,
        attempt: AttemptId,
        result: Result<()>,
    ) -> Settled {
        match result {
            Ok(()) => {
                let Some(Upload { items, bytes, .. }) = self.uploads.remove(&upload) else {
                    return Settled::Superfluous;
                };
                self.paused_until = None;
                self.stored(&items);
                if self.waiting.is_empty() {
                    self.pressure = false;
                }
                Settled::Done { items, bytes }
            }
            Err(error) => self.failed(now, upload, attempt, &error),
        }
    }

    fn failed(
        &mut self,
        now: Instant,
        upload: UploadId,
        attempt: AttemptId,
        error: &Error,
    ) -> Settled {
        let Some(state) = self.uploads.get_mut(&upload) else { return Settled::Superfluous };
        if state.running.remove(&attempt).is_none() {
            // Timed out before: what it says now changes nothing.
            return Settled::Again;
        }
        count(&self.counters.failed_attempts, 1);
        let more = error.is_retryable() && state.begun < self.options.upload_attempts;
        if more {
            if state.running.is_empty() {
                state.next = Some((now + self.options.retry_pause, false));
            }
            return Settled::Again;
        }
        state.next = None;
        if !state.running.is_empty() {
            return Settled::Again;
        }
        let items = self.uploads.remove(&upload).map(|state| state.items).unwrap_or_default();
        count(&self.counters.failed_uploads, 1);
        self.paused_until = Some(now + self.options.retry_pause);
        self.give_back(items, error);
        Settled::GivenUp
    }

    fn time_out(&mut self, now: Instant) {
        let timeout = self.options.attempt_timeout;
        let late: Vec<(UploadId, AttemptId)> = self
            .uploads
            .iter()
            .flat_map(|(&upload, state)| {
                let late = state.running.iter().filter(|(_, since)| **since + timeout <= now);
                late.map(move |(&attempt, _)| (upload, attempt))
            })
            .collect();
        for (upload, attempt) in late {
            self.settle(now, upload, attempt, Err(took_too_long(timeout)));
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        if let Some(since) = self.demanded {
            let everybody = self.streams.is_subset(&self.asked);
            if everybody || since + self.options.batch_linger <= now {
                return true;
            }
        }
        let paused = self.paused_until.is_some_and(|until| now < until);
        !paused && (self.pressure || self.waiting_bytes >= self.options.batch_bytes)
    }

    /// Makes objects of all that waits.
    fn pack(&mut self, now: Instant) {
        self.demanded = None;
        self.asked.clear();
        self.waiting_bytes = 0;
        let mut items = Vec::new();
        let mut length = 0;
        let waiting = std::mem::take(&mut self.waiting);
        for item in waiting {
            let offset = length;
            length += item.batch.len() as u64;
            items.push(Placed { item, offset });
            if length >= self.options.batch_bytes {
                self.begin(now, std::mem::take(&mut items));
                length = 0;
            }
        }
        if !items.is_empty() {
            self.begin(now, items);
        }
    }

    fn begin(&mut self, now: Instant, items: Vec<Placed>) {
        let length = items.iter().map(|placed| placed.item.batch.len()).sum();
        let mut bytes = Vec::with_capacity(length);
        for placed in &items {
            bytes.extend_from_slice(&placed.item.batch);
        }
        let upload = Upload {
            items,
            bytes: bytes.into(),
            begun: 0,
            running: BTreeMap::new(),
            next: Some((now, false)),
        };
        self.uploads.insert(self.next_upload, upload);
        self.next_upload += 1;
    }

    fn stored(&mut self, items: &[Placed]) {
        for placed in items {
            for persist in &mut self.persists {
                if persist.stream == placed.item.stream {
                    persist.missing.remove(&placed.item.chunk.to.0);
                }
            }
        }
    }

    /// Tells the checkpoints that have nothing left to wait for. Call it after the chunks of a settled
    /// upload were told their places.
    pub(crate) fn answer(&mut self) {
        let waiting = std::mem::take(&mut self.persists);
        for persist in waiting {
            if persist.missing.is_empty() {
                drop(persist.reply.send(Ok(())));
            } else {
                self.persists.push(persist);
            }
        }
    }

    /// Batches wait again, in front; the checkpoints that waited for them fail.
    fn give_back(&mut self, items: Vec<Placed>, error: &Error) {
        let waiting = std::mem::take(&mut self.persists);
        for persist in waiting {
            let concerned = items.iter().any(|placed| {
                persist.stream == placed.item.stream
                    && persist.missing.contains(&placed.item.chunk.to.0)
            });
            if concerned {
                let told = error
                    .again("the log could not be uploaded")
                    .advice("check the store (space, network, permissions); the next checkpoint tries again");
                drop(persist.reply.send(Err(told)));
            } else {
                self.persists.push(persist);
            }
        }
        for placed in items.into_iter().rev() {
            self.waiting_bytes += placed.item.batch.len() as u64;
            self.waiting.push_front(placed.item);
        }
        // What was not needed when it was under way is not needed now.
        let forgotten: Vec<(StreamId, LogPosition)> =
            self.forgotten.iter().map(|(&stream, &to)| (stream, to)).collect();
        forgotten.into_iter().for_each(|(stream, to)| self.forget(stream, to));
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
