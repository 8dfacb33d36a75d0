//! The backend as a record sees it: its own key only, writes noted, reads gathered.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::reads::Reads;
use super::record_state::Traces;
use crate::{
    Address, BoxFuture, Capabilities, Change, CleanUp, Error, ErrorKind, KeyRef, KeyedBackend,
    Lookup, MapRange, Millis, NextTimer, Notification, Order, Page, PendingValues, Result,
    ScanStep, SnapshotRequest, SnapshotTask, StateDescriptor, StateId, Statistics, TimerPoll,
    TimerRef, UpdateFn, Updated, Values,
};

/// A view on a backend for one call of one record.
#[derive(Debug)]
pub(super) struct OwnKey<'a> {
    backend: &'a mut dyn KeyedBackend,
    key: KeyRef<'a>,
    reads: &'a mut Reads,
    traces: &'a Traces,
}

impl<'a> OwnKey<'a> {
    #[inline]
    pub(super) fn new(
        backend: &'a mut dyn KeyedBackend,
        key: KeyRef<'a>,
        reads: &'a mut Reads,
        traces: &'a Traces,
    ) -> Self {
        OwnKey { backend, key, reads, traces }
    }

    /// Two records of one key never run at once; that is worth nothing when a record reaches for
    /// another one's key.
    #[inline]
    fn check_own(&self, key: KeyRef<'_>) -> Result<()> {
        let same = std::ptr::eq(key.bytes(), self.key.bytes()) || key == self.key;
        if same { Ok(()) } else { Err(another_key()) }
    }

    /// The backend, for a write.
    #[inline]
    fn for_write(&mut self, key: KeyRef<'_>) -> Result<&mut dyn KeyedBackend> {
        self.check_own(key)?;
        Ok(self.backend)
    }

    /// Notes a write that succeeded; one that failed has changed nothing.
    #[inline]
    fn note_write<T>(&self, written: Result<T>) -> Result<T> {
        if written.is_ok() {
            self.traces.wrote.store(true, Ordering::Relaxed);
        }
        written
    }
}

/// Puts a read that the backend has deferred into the open batch.
fn deferred(reads: &mut Reads, traces: &Traces) -> BoxFuture<'static, Result<Option<Bytes>>> {
    traces.deferred.store(true, Ordering::Relaxed);
    reads.add_deferred()
}

impl KeyedBackend for OwnKey<'_> {
    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    fn register(&mut self, _: &StateDescriptor) -> Result<StateId> {
        Err(not_for_records("register states"))
    }

    fn states(&self) -> Vec<(StateId, StateDescriptor)> {
        self.backend.states()
    }

    #[inline]
    fn get(&mut self, at: &Address<'_>) -> Result<Lookup<'_>> {
        self.check_own(at.key)?;
        match self.backend.get_or_defer(at)? {
            Some(lookup) => Ok(lookup),
            None => Ok(Lookup::Pending(deferred(self.reads, self.traces))),
        }
    }

    fn get_or_defer(&mut self, at: &Address<'_>) -> Result<Option<Lookup<'_>>> {
        self.get(at).map(Some)
    }

    fn get_into(&mut self, at: &Address<'_>, buffer: &mut [u8]) -> Result<Option<usize>> {
        self.check_own(at.key)?;
        self.backend.get_into(at, buffer)
    }

    fn multi_get(
        &mut self,
        addresses: &[Address<'_>],
        values: &mut Values,
    ) -> Result<Option<PendingValues>> {
        addresses.iter().try_for_each(|at| self.check_own(at.key))?;
        self.backend.multi_get(addresses, values)
    }

    #[inline]
    fn put(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        let written = self.for_write(at.key)?.put(at, value);
        self.note_write(written)
    }

    fn put_entries(&mut self, at: &Address<'_>, entries: &Page) -> Result<()> {
        let written = self.for_write(at.key)?.put_entries(at, entries);
        self.note_write(written)
    }

    #[inline]
    fn delete(&mut self, at: &Address<'_>) -> Result<()> {
        let written = self.for_write(at.key)?.delete(at);
        self.note_write(written)
    }

    #[inline]
    fn append(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        let written = self.for_write(at.key)?.append(at, value);
        self.note_write(written)
    }

    #[inline]
    fn update(&mut self, at: &Address<'_>, f: &mut UpdateFn<'_>) -> Result<Updated> {
        if self.backend.capabilities().never_pends {
            let updated = self.for_write(at.key)?.update(at, f);
            return self.note_write(updated);
        }
        self.check_own(at.key)?;
        // A part of what all records share: updates are many, and need not allocate.
        self.reads.output.clear();
        let output = &mut self.reads.output;
        let change = match self.backend.get_or_defer(at)? {
            Some(Lookup::Absent) => f(None, output)?,
            Some(Lookup::Found(value)) => f(Some(value), output)?,
            Some(Lookup::Pending(future)) => return Ok(Updated::Pending(future)),
            None => return Ok(Updated::Pending(deferred(self.reads, self.traces))),
        };
        match change {
            Change::Keep => {}
            Change::Put => {
                let written = self.backend.put(at, &self.reads.output);
                self.note_write(written)?;
            }
            Change::Delete => self.delete(at)?,
        }
        Ok(Updated::Done)
    }

    fn scan(
        &mut self,
        at: &Address<'_>,
        range: MapRange<'_>,
        order: Order,
        page: &mut Page,
    ) -> Result<ScanStep> {
        self.check_own(at.key)?;
        self.backend.scan(at, range, order, page)
    }

    fn has_map_keys(&mut self, at: &Address<'_>) -> Result<Option<bool>> {
        self.check_own(at.key)?;
        self.backend.has_map_keys(at)
    }

    fn delete_range(&mut self, at: &Address<'_>, range: MapRange<'_>) -> Result<()> {
        let written = self.for_write(at.key)?.delete_range(at, range);
        self.note_write(written)
    }

    fn scan_keys(&mut self, _: StateId, _: Option<&[u8]>, _: &mut Page) -> Result<ScanStep> {
        Err(not_for_records("list keys"))
    }

    fn register_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        let written = self.for_write(timer.key)?.register_timer(timer);
        self.note_write(written)
    }

    fn delete_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        let written = self.for_write(timer.key)?.delete_timer(timer);
        self.note_write(written)
    }

    fn poll_timer(&mut self, _: StateId, _: Millis) -> Result<TimerPoll<'_>> {
        Err(not_for_records("poll timers"))
    }

    fn next_timer(&mut self, _: StateId) -> Result<NextTimer> {
        Err(not_for_records("look at timers"))
    }

    fn advance_watermark(&mut self, _: Millis) {
        // It cannot be refused. A record is no watermark, so there is nothing to pass on.
    }

    fn clean_up(&mut self, state: StateId, budget: u64) -> Result<CleanUp> {
        // Accesses to states with a TTL set the pace. Of other keys it removes what nobody sees.
        self.backend.clean_up(state, budget)
    }

    fn snapshot(&mut self, _: SnapshotRequest) -> Result<SnapshotTask> {
        Err(not_for_records("take snapshots"))
    }

    fn notify(&mut self, _: Notification) -> Result<()> {
        Err(not_for_records("pass on notifications"))
    }

    fn physical_entries(&self, state: StateId) -> Result<u64> {
        self.backend.physical_entries(state)
    }

    fn statistics(&self) -> Statistics {
        self.backend.statistics()
    }
}

#[cold]
fn another_key() -> Error {
    Error::new(ErrorKind::InvalidUsage, "a record in flight reached for the state of another key")
        .advice("send a record to that key; its own records may be half-way")
}

#[cold]
fn not_for_records(what: &str) -> Error {
    Error::new(ErrorKind::InvalidUsage, format!("a record in flight cannot {what}"))
        .advice("the engine does it between records, by InFlight")
}
