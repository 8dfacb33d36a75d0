//! The instance: finds the table for each call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use weir_state_api::ttl::TtlClock;
use weir_state_api::{
    Address, Capabilities, Change, CleanUp, Error, ErrorKind, KeyGroup, KeyGroupRange, KeyRef,
    KeyedBackend, Lookup, MapRange, Millis, NextTimer, Notification, OpenRequest, Order, Page,
    Result, Scan, ScanStep, SnapshotBases, SnapshotHandle, SnapshotKind, SnapshotRequest,
    SnapshotTask, StateDescriptor, StateId, Statistics, TimerPoll, TimerRef, UpdateFn, Updated,
    ValueLimit, foreign_key, next_state_id, unknown_state,
};

use crate::cell::lock;
use crate::clean_up::Sieve;
use crate::keyed_table::{KeyedTable, Locator, Slot};
use crate::map_slot::MapSlot;
use crate::options::HeapOptions;
use crate::plain_access::plain_word_slot;
use crate::point_slot::PointSlot;
use crate::scan::{KeyScan, begin_scan};
use crate::snapshot::{
    BACKEND_NAME, Chain, FORMAT_VERSION, PinnedInstance, PinnedSection, Written, write_snapshot,
};
use crate::store::{State, Tables};
use crate::stored_timer::StoredTimer;
use crate::timer_queue::TimerQueue;

/// Bytes moved between an instance and the store. Shared with the snapshot tasks.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) uploaded: AtomicU64,
    pub(crate) reused: AtomicU64,
    pub(crate) downloaded: AtomicU64,
}

/// The epoch of everything that a restore brings.
pub(crate) const RESTORED_EPOCH: u32 = 0;

/// A snapshot to build on.
#[derive(Debug, Clone)]
struct Base {
    /// The epoch that ended with it.
    epoch: u32,
    chain: Chain,
}

/// An instance of the memory backend.
pub(crate) struct HeapBackend {
    pub(crate) request: OpenRequest,
    pub(crate) states: Vec<State>,
    pub(crate) traffic: Arc<Traffic>,
    limit: ValueLimit,
    /// The running epoch; one ends with each snapshot.
    epoch: u32,
    /// Shared with the snapshot tasks. `None`: every snapshot stands on its own.
    bases: Option<Arc<Mutex<SnapshotBases<Base>>>>,
    /// Output of update functions, reused.
    buffer: Vec<u8>,
    /// The timer that was polled last, to lend it.
    polled: Option<StoredTimer>,
    clock: TtlClock,
}

impl std::fmt::Debug for HeapBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeapBackend")
            .field("operator", &self.request.operator)
            .field("key_groups", &self.request.key_groups)
            .field("states", &self.states.len())
            .finish_non_exhaustive()
    }
}

/// What instances of this backend can do.
pub(crate) fn capabilities(options: &HeapOptions) -> Capabilities {
    Capabilities::minimal()
        .with_never_pends(true)
        .with_driven_clean_up(true)
        .with_incremental_snapshots(options.incremental_snapshots)
        .with_max_value_len(options.value_limit().bytes())
}

impl HeapBackend {
    /// An instance without states, in the epoch of what a restore brings.
    pub(crate) fn new(request: OpenRequest, options: &HeapOptions) -> Self {
        let clock = TtlClock::new(request.environment.clock.clone(), request.restored_watermark());
        HeapBackend {
            clock,
            request,
            states: Vec::new(),
            traffic: Arc::default(),
            limit: options.value_limit(),
            epoch: RESTORED_EPOCH,
            bases: options.incremental_snapshots.then(Arc::default),
            buffer: Vec::new(),
            polled: None,
        }
    }

    /// Begins the first epoch, after everything is restored; the next snapshot may build on what it
    /// was restored from.
    pub(crate) fn begin(&mut self, restored: &[SnapshotHandle]) -> Result<()> {
        self.begin_epoch(RESTORED_EPOCH + 1);
        let Some(checkpoint) = restored.iter().map(|handle| handle.checkpoint).max() else {
            return Ok(());
        };
        if let Some(bases) = &self.bases
            && restored.iter().all(|handle| handle.kind == SnapshotKind::Checkpoint)
        {
            let mut chain = Chain::default();
            for handle in restored {
                chain = chain.and(Chain::of(handle)?.clipped(self.request.key_groups));
            }
            let base = Base { epoch: RESTORED_EPOCH, chain };
            let mode = self.request.mode;
            *lock(bases) = SnapshotBases::restored(mode, checkpoint, base);
            self.states.iter_mut().for_each(State::record_removals);
        }
        self.agree_on_ttls(restored)
    }

    /// Adds a state of a snapshot, unless one of that name is there.
    pub(crate) fn define(&mut self, descriptor: &StateDescriptor) -> Result<()> {
        if self.states.iter().all(|state| state.descriptor.name != descriptor.name) {
            self.register(descriptor)?;
        }
        Ok(())
    }

    /// Handles may hold a state under different TTLs, if not all subtasks had registered it anew when
    /// the snapshots were taken. What changes here belongs to the first epoch: the objects hold it in
    /// its old form.
    fn agree_on_ttls(&mut self, restored: &[SnapshotHandle]) -> Result<()> {
        let (time, owned) = (self.clock.time(), self.request.key_groups);
        for (handle, stored) in restored.iter().flat_map(|h| h.states.iter().map(move |s| (h, s))) {
            let state = self.states.iter_mut().find(|state| state.descriptor.name == stored.name);
            let groups = handle.key_groups.intersection(owned);
            let (Some(state), Some(first)) = (state, owned.index_of(groups.first())) else {
                continue;
            };
            if state.descriptor.ttl != stored.ttl {
                state.convert_groups(first..first + groups.len(), stored.ttl, time)?;
            }
        }
        Ok(())
    }

    /// What a snapshot may and should build on.
    fn base(&self, request: &SnapshotRequest) -> Option<Base> {
        let bases = lock(self.bases.as_ref()?);
        bases.base(request).filter(|base| base.chain.may_grow()).cloned()
    }

    fn begin_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
        self.states.iter_mut().for_each(|state| state.begin_epoch(epoch));
    }

    /// The index of a key's group, and the state.
    #[inline]
    fn locate(&mut self, state: StateId, key: KeyRef<'_>) -> Result<(usize, &mut State)> {
        let group = self.group_index(key)?;
        Ok((group, self.states.get_mut(state.index()).ok_or_else(|| unknown_state(state))?))
    }

    #[inline]
    fn group_index(&self, key: KeyRef<'_>) -> Result<usize> {
        let owned = self.request.key_groups;
        owned.index_of(key.group()).ok_or_else(|| foreign_key(key, owned))
    }

    /// Writes what an update function has decided on, where writing in place does not do.
    #[inline(never)]
    fn finish_update(&mut self, at: &Address<'_>, change: Change) -> Result<()> {
        match change {
            Change::Keep => Ok(()),
            Change::Delete => self.delete(at),
            Change::Put => {
                let buffer = std::mem::take(&mut self.buffer);
                let result = self.put(at, &buffer);
                self.buffer = buffer;
                result
            }
        }
    }

    #[inline(never)]
    fn get_any(&mut self, at: &Address<'_>) -> Result<Lookup<'_>> {
        let (group, state) = self.locate(at.state, at.key)?;
        if let Tables::Timers(_) = state.tables {
            return Err(state.descriptor.misused("get"));
        }
        let locator = Locator::new(at.key, at.namespace);
        let found = match &mut state.tables {
            Tables::Point(tables) => tables[group].get(locator).map(PointSlot::value),
            Tables::Map(tables) => tables[group].get_entry(locator, at.map_key),
            Tables::Timers(_) => None,
        };
        Ok(lend(found))
    }

    #[inline(never)]
    fn put_any(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        at.check_lengths()?;
        let (group, state) = self.locate(at.state, at.key)?;
        let locator = Locator::new(at.key, at.namespace);
        match &mut state.tables {
            Tables::Point(tables) => tables[group].put(locator, value),
            Tables::Map(tables) => tables[group].put_entry(locator, at.map_key, value),
            Tables::Timers(_) => Err(state.descriptor.misused("put")),
        }
    }

    #[inline(never)]
    fn update_any(
        &mut self,
        at: &Address<'_>,
        f: &mut UpdateFn<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        at.check_lengths()?;
        let limit = self.limit;
        let (group, state) = self.locate(at.state, at.key)?;
        let locator = Locator::new(at.key, at.namespace);
        match &mut state.tables {
            Tables::Point(tables) => tables[group].update(locator, f, buffer, limit),
            Tables::Map(tables) => {
                tables[group].update_entry(locator, at.map_key, f, buffer, limit)
            }
            Tables::Timers(_) => Err(state.descriptor.misused("update")),
        }
    }

    #[inline]
    fn state(&self, state: StateId) -> Result<&State> {
        self.states.get(state.index()).ok_or_else(|| unknown_state(state))
    }

    fn queue(&mut self, queue: StateId, call: &str) -> Result<&mut TimerQueue> {
        let state = self.states.get_mut(queue.index()).ok_or_else(|| unknown_state(queue))?;
        match state.tables {
            Tables::Timers(ref mut queue) => Ok(queue),
            _ => Err(state.descriptor.misused(call)),
        }
    }
}

impl KeyedBackend for HeapBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal().with_never_pends(true).with_max_value_len(self.limit.bytes())
    }

    fn register(&mut self, descriptor: &StateDescriptor) -> Result<StateId> {
        let known = self.states.iter().position(|state| state.descriptor.name == descriptor.name);
        if let Some(index) = known {
            let state = &mut self.states[index];
            state.descriptor.check_compatible(descriptor)?;
            if state.descriptor.ttl != descriptor.ttl {
                state.convert(descriptor.ttl, self.clock.time())?;
            }
        }
        let id = next_state_id(known.unwrap_or(self.states.len()), &descriptor.name)?;
        if known.is_none() {
            let state = State::new(descriptor.clone(), self.request.key_groups, self.epoch);
            self.states.push(state);
        }
        Ok(id)
    }

    fn states(&self) -> Vec<(StateId, StateDescriptor)> {
        let ids = (0..=u16::MAX).map(StateId);
        ids.zip(self.states.iter().map(|state| state.descriptor.clone())).collect()
    }

    fn get(&mut self, at: &Address<'_>) -> Result<Lookup<'_>> {
        if self.is_plain_readable(at) {
            return Ok(lend(self.plain_point_table(at).and_then(|table| table.read(at.key))));
        }
        if self.is_plain_map_readable(at) {
            let map = self.plain_map_table(at).and_then(|table| table.read(at.key));
            return Ok(lend(map.and_then(|map| map.get(at.map_key))));
        }
        self.get_any(at)
    }

    fn put(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        self.limit.check(value.len())?;
        if let Some(table) = self.plain_point_table_mut(at)
            && table.put_word(at.key, value)
        {
            return Ok(());
        }
        if let Some(table) = self.plain_map_table_mut(at)
            && table.put_word(at.key, at.map_key, value)
        {
            return Ok(());
        }
        self.put_any(at, value)
    }

    fn put_entries(&mut self, at: &Address<'_>, entries: &Page) -> Result<()> {
        let limit = self.limit;
        at.check_lengths()?;
        let (group, state) = self.locate(at.state, at.key)?;
        let Tables::Map(tables) = &mut state.tables else {
            return Err(state.descriptor.misused("put_entries"));
        };
        let locator = Locator::new(at.key, at.namespace);
        let allowed = |(map_key, value): &(&[u8], &[u8])| {
            limit.check(value.len()).and(Address { map_key, ..*at }.check_lengths())
        };
        // Those before the first one that is refused.
        let count = entries.iter().take_while(|entry| allowed(entry).is_ok()).count();
        tables[group].put_each(locator, entries.iter().take(count))?;
        entries.iter().nth(count).map_or(Ok(()), |entry| allowed(&entry))
    }

    fn delete(&mut self, at: &Address<'_>) -> Result<()> {
        let (group, state) = self.locate(at.state, at.key)?;
        let locator = Locator::new(at.key, at.namespace);
        match &mut state.tables {
            Tables::Point(tables) => {
                tables[group].remove(locator);
                Ok(())
            }
            Tables::Map(tables) => tables[group].remove_entry(locator, at.map_key),
            Tables::Timers(_) => Err(state.descriptor.misused("delete")),
        }
    }

    fn append(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        at.check_lengths()?;
        let limit = self.limit;
        limit.check(value.len())?;
        let (group, state) = self.locate(at.state, at.key)?;
        let locator = Locator::new(at.key, at.namespace);
        match &mut state.tables {
            Tables::Point(tables) => tables[group].append(locator, value, limit),
            Tables::Map(tables) => tables[group].append_entry(locator, at.map_key, value, limit),
            Tables::Timers(_) => Err(state.descriptor.misused("append")),
        }
    }

    fn update(&mut self, at: &Address<'_>, f: &mut UpdateFn<'_>) -> Result<Updated> {
        let (limit, epoch) = (self.limit, self.epoch);
        let Self { request, states, buffer, .. } = self;
        if let Some(slot) = plain_word_slot(states, request.key_groups, at) {
            buffer.clear();
            let change = f(slot.value_of_word(), buffer)?;
            let in_place = change == Change::Put
                && limit.check(buffer.len()).is_ok()
                && slot.set_small_at(8, buffer, epoch);
            if !in_place {
                self.finish_update(at, change)?;
            }
            return Ok(Updated::Done);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.update_any(at, f, &mut buffer);
        self.buffer = buffer;
        result.map(|()| Updated::Done)
    }

    fn scan(
        &mut self,
        at: &Address<'_>,
        range: MapRange<'_>,
        order: Order,
        page: &mut Page,
    ) -> Result<ScanStep> {
        if self.is_plain_map_readable(at) {
            let map = self.plain_map_table(at).and_then(|table| table.read(at.key));
            return Ok(map.map_or(ScanStep::Last, |map| begin_scan(map, range, order, page)));
        }
        let (group, state) = self.locate(at.state, at.key)?;
        let Tables::Map(tables) = &mut state.tables else {
            return Err(state.descriptor.misused("scan"));
        };
        let map = tables[group].get(Locator::new(at.key, at.namespace)).map(MapSlot::entries);
        Ok(map.map_or(ScanStep::Last, |map| begin_scan(map, range, order, page)))
    }

    fn has_map_keys(&mut self, at: &Address<'_>) -> Result<Option<bool>> {
        let (group, state) = self.locate(at.state, at.key)?;
        let Tables::Map(tables) = &mut state.tables else {
            return Err(state.descriptor.misused("has_map_keys"));
        };
        Ok(Some(tables[group].get(Locator::new(at.key, at.namespace)).is_some()))
    }

    fn delete_range(&mut self, at: &Address<'_>, range: MapRange<'_>) -> Result<()> {
        let (group, state) = self.locate(at.state, at.key)?;
        let Tables::Map(tables) = &mut state.tables else {
            return Err(state.descriptor.misused("delete_range"));
        };
        tables[group].remove_range(Locator::new(at.key, at.namespace), range)
    }

    fn scan_keys(
        &mut self,
        state: StateId,
        namespace: Option<&[u8]>,
        page: &mut Page,
    ) -> Result<ScanStep> {
        let (groups, time) = (self.request.key_groups, self.clock.time());
        let state = self.states.get_mut(state.index()).ok_or_else(|| unknown_state(state))?;
        let sieve = Sieve::new(&state.descriptor, time);
        match &mut state.tables {
            Tables::Point(tables) => scan_tables(tables, groups, namespace, sieve, page),
            Tables::Map(tables) => scan_tables(tables, groups, namespace, sieve, page),
            Tables::Timers(_) => Err(state.descriptor.misused("scan_keys")),
        }
    }

    fn register_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        timer.check_lengths()?;
        let (group, state) = self.locate(timer.queue, timer.key)?;
        let Tables::Timers(queue) = &mut state.tables else {
            return Err(state.descriptor.misused("register_timer"));
        };
        queue.register(group, timer.time, timer.key.bytes(), timer.namespace);
        Ok(())
    }

    fn delete_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        let (group, state) = self.locate(timer.queue, timer.key)?;
        let Tables::Timers(queue) = &mut state.tables else {
            return Err(state.descriptor.misused("delete_timer"));
        };
        queue.delete(group, timer.time, timer.key.bytes(), timer.namespace);
        Ok(())
    }

    fn poll_timer(&mut self, queue: StateId, now: Millis) -> Result<TimerPoll<'_>> {
        let first = self.request.key_groups.first().0;
        let Some((group, timer)) = self.queue(queue, "poll_timer")?.poll(now) else {
            return Ok(TimerPoll::Idle);
        };
        let timer = self.polled.insert(timer);
        let (key, namespace) = timer.key_and_namespace();
        // The index of a group lies in the instance's range, which is one of `u16`s.
        let group = KeyGroup(first + group as u16);
        let key = KeyRef::with_group(key, group)?;
        Ok(TimerPoll::Due(TimerRef { queue, time: timer.time, key, namespace }))
    }

    fn next_timer(&mut self, queue: StateId) -> Result<NextTimer> {
        let head = self.queue(queue, "next_timer")?.next_time();
        Ok(head.map_or(NextTimer::Empty, NextTimer::At))
    }

    fn advance_watermark(&mut self, watermark: Millis) {
        self.clock.advance_watermark(watermark);
    }

    fn clean_up(&mut self, state: StateId, budget: u64) -> Result<CleanUp> {
        let time = self.clock.time();
        let state = self.states.get_mut(state.index()).ok_or_else(|| unknown_state(state))?;
        state.clean_up(time, budget)
    }

    fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        let Some(next_epoch) = self.epoch.checked_add(1) else {
            return Err(Error::new(ErrorKind::Closed, "an instance takes at most 2^32 snapshots")
                .advice("restore the last checkpoint in a new instance"));
        };
        let base = self.base(&request);
        let since = base.as_ref().map(|base| base.epoch);
        let (groups, time) = (self.request.key_groups, self.clock.time());
        let mut sections = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            for (number, state) in self.states.iter_mut().enumerate() {
                if let Some(table) = state.pin(index, since) {
                    let sieve = Sieve::new(&state.descriptor, time);
                    sections.push(PinnedSection { group, state: number, table, sieve });
                }
            }
        }
        let ended = self.epoch;
        self.begin_epoch(next_epoch);
        let mut handle = SnapshotHandle::new(BACKEND_NAME, FORMAT_VERSION, &self.request, &request);
        handle.states = self.states.iter().map(|state| state.descriptor.clone()).collect();
        let bases = self.bases.clone().filter(|_| request.kind == SnapshotKind::Checkpoint);
        let shared = bases.is_some();
        if shared {
            self.states.iter_mut().for_each(State::record_removals);
        }
        let directory = if shared { request.shared_directory } else { request.directory };
        let base = base.map(|base| base.chain);
        let pinned = PinnedInstance { handle, sections, base, directory, shared };
        let environment = self.request.environment.clone();
        let traffic = Arc::clone(&self.traffic);
        Ok(SnapshotTask::new(async move {
            let Written { handle, chain } = write_snapshot(pinned, environment, traffic).await?;
            if let Some(bases) = bases {
                lock(&bases).written(handle.checkpoint, Base { epoch: ended, chain });
            }
            Ok(handle)
        }))
    }

    fn notify(&mut self, notification: Notification) -> Result<()> {
        let Some(bases) = &self.bases else { return Ok(()) };
        let mut bases = lock(bases);
        bases.notify(notification);
        let newest = bases.newest().map(|base| base.epoch);
        drop(bases);
        if let (Some(epoch), Notification::Complete(_)) = (newest, notification) {
            self.states.iter_mut().for_each(|state| state.forget_up_to(epoch));
        }
        Ok(())
    }

    fn physical_entries(&self, state: StateId) -> Result<u64> {
        Ok(self.state(state)?.entries())
    }

    fn statistics(&self) -> Statistics {
        let mut statistics = Statistics::default();
        statistics.entries = self.states.iter().map(State::entries).sum();
        statistics.memory_bytes = self.states.iter().map(State::memory_bytes).sum();
        statistics.bytes_uploaded = self.traffic.uploaded.load(Ordering::Relaxed);
        statistics.bytes_reused = self.traffic.reused.load(Ordering::Relaxed);
        statistics.bytes_downloaded = self.traffic.downloaded.load(Ordering::Relaxed);
        statistics
    }
}

#[inline(always)]
fn lend(found: Option<&[u8]>) -> Lookup<'_> {
    found.map_or(Lookup::Absent, Lookup::Found)
}

/// Freezes the tables and walks them: later writes copy what the walk has not passed yet.
fn scan_tables<S: Slot + Send + Sync + 'static>(
    tables: &mut [KeyedTable<S>],
    groups: KeyGroupRange,
    namespace: Option<&[u8]>,
    sieve: Option<Sieve>,
    page: &mut Page,
) -> Result<ScanStep> {
    let frozen = groups.iter().zip(tables.iter_mut().map(KeyedTable::freeze));
    Box::new(KeyScan::new(frozen, namespace, sieve)).next(page)
}
