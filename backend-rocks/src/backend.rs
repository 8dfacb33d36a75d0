//! The instance: what each call does to which database.

use std::sync::{Arc, Mutex, PoisonError};

use weir_state_api::stored_key::{map_bounds, push_map, push_map_prefix, push_point, take_part};
use weir_state_api::ttl::TtlClock;
use weir_state_api::{
    Address, AppendGuard, Capabilities, Change, CleanUp, KeyRef, KeyedBackend, Lookup, MapRange,
    Millis, NextTimer, Notification, OpenRequest, Order, PAGE_ENTRIES, Page, PendingValues, Result,
    Scan, ScanStep, SnapshotRequest, SnapshotTask, StateDescriptor, StateId, StateShape,
    Statistics, TimerPoll, TimerRef, UpdateFn, Updated, ValueLimit, Values,
};

use crate::access::StoredKey;
use crate::clean_up::clean_up;
use crate::eras::store;
use crate::hashed_key::HashedKey;
use crate::metrics;
use crate::multi_get::multi_get;
use crate::options::RocksOptions;
use crate::scan::{KeyScan, MapScan, count_entries, odd_key};
use crate::shard::{Shard, Shards, StoredState};
use crate::snapshot::{Snapshots, new_handle};
use crate::state::{State, States};
use crate::timers::{TimerQueue, time_of_suffix};

/// An instance of the RocksDB backend.
pub(crate) struct RocksBackend {
    request: OpenRequest,
    options: Arc<RocksOptions>,
    states: States,
    shards: Shards,
    snapshots: Snapshots,
    clock: Arc<Mutex<TtlClock>>,
    guard: AppendGuard,
    limit: ValueLimit,
    /// The stored key of the running access.
    key: Vec<u8>,
    /// The value read last, to lend it; or the value to write.
    value: Vec<u8>,
    /// The timer polled last, to lend it.
    polled: PolledTimer,
}

impl RocksBackend {
    pub(crate) fn new(
        request: OpenRequest,
        options: Arc<RocksOptions>,
        shards: Shards,
        snapshots: Snapshots,
        clock: Arc<Mutex<TtlClock>>,
    ) -> Self {
        let limit = ValueLimit::new(options.max_value_len, "RocksOptions");
        RocksBackend {
            request,
            options,
            states: States::default(),
            shards,
            snapshots,
            clock,
            guard: AppendGuard::default(),
            limit,
            key: Vec::new(),
            value: Vec::new(),
            polled: PolledTimer::default(),
        }
    }

    /// Adds a state with timers as they are on disk; `first` is a time that none is before.
    pub(crate) fn add_restored(
        &mut self,
        descriptor: StateDescriptor,
        first: Option<Millis>,
    ) -> Result<()> {
        if self.states.find(&descriptor.name).is_none() {
            let timers = TimerQueue::stored(self.options.timers, first);
            self.add(descriptor, timers)?;
        }
        Ok(())
    }

    fn add(&mut self, descriptor: StateDescriptor, timers: TimerQueue) -> Result<StateId> {
        self.states.next_id(&descriptor.name)?;
        self.shards.add_state(&descriptor)?;
        let shape = descriptor.kind.shape();
        self.states.add(State { descriptor, shape, timers, cursor: None })
    }

    /// Checks an access to a queue.
    fn queue(&mut self, queue: StateId, call: &str) -> Result<(&mut TimerQueue, &Shards)> {
        let state = self.states.get_mut(queue)?;
        state.descriptor.expect(state.shape == StateShape::Queue, call)?;
        Ok((&mut state.timers, &self.shards))
    }
}

/// Finds the shard of an access to a point state or a map, and writes the stored key.
#[inline]
fn locate<'s, 'k>(
    shards: &'s mut Shards,
    states: &States,
    at: &Address<'_>,
    key: &'k mut Vec<u8>,
    call: &str,
) -> Result<(&'s mut Shard, StoredKey<'k>, StoredState)> {
    let shard = shards.of_key_mut(at.key)?;
    let state = states.get(at.state)?;
    let stored = shard.stored(at.state);
    key.clear();
    match state.shape {
        StateShape::Point => push_point(stored.id, at.key, at.namespace, key),
        StateShape::Ordered => push_map(stored.id, at.key, at.namespace, at.map_key, key),
        StateShape::Queue => state.descriptor.expect(false, call)?,
    }
    let prefix_len = key.len().saturating_sub(at.map_key.len());
    let key = HashedKey::from(&key[..]);
    Ok((shard, StoredKey { shape: state.shape, key, prefix_len }, stored))
}

/// The shard of an access that only maps offer; writes what the keys of the map begin with.
fn locate_map<'s>(
    shards: &'s mut Shards,
    states: &States,
    at: &Address<'_>,
    prefix: &mut Vec<u8>,
    call: &str,
) -> Result<(&'s mut Shard, StoredState)> {
    let shard = shards.of_key_mut(at.key)?;
    let state = states.get(at.state)?;
    state.descriptor.expect(state.shape == StateShape::Ordered, call)?;
    let stored = shard.stored(at.state);
    prefix.clear();
    push_map_prefix(stored.id, at.key, at.namespace, prefix);
    Ok((shard, stored))
}

impl std::fmt::Debug for RocksBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RocksBackend")
            .field("operator", &self.request.operator)
            .field("key_groups", &self.request.key_groups)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

/// What instances of this backend can do.
pub(crate) fn capabilities(options: &RocksOptions) -> Capabilities {
    Capabilities::minimal()
        .with_never_pends(true)
        .with_incremental_snapshots(true)
        .with_driven_clean_up(options.driven_clean_up)
        .with_max_value_len(options.max_value_len)
}

impl KeyedBackend for RocksBackend {
    fn capabilities(&self) -> Capabilities {
        capabilities(&self.options)
    }

    fn register(&mut self, descriptor: &StateDescriptor) -> Result<StateId> {
        let Some((id, known)) = self.states.find(&descriptor.name) else {
            return self.add(descriptor.clone(), TimerQueue::empty(self.options.timers));
        };
        known.descriptor.check_compatible(descriptor)?;
        if known.descriptor.ttl != descriptor.ttl {
            self.shards.set_ttl(id, descriptor.ttl)?;
            self.states.get_mut(id)?.descriptor.ttl = descriptor.ttl;
        }
        Ok(id)
    }

    fn states(&self) -> Vec<(StateId, StateDescriptor)> {
        self.states.iter().map(|(id, state)| (id, state.descriptor.clone())).collect()
    }

    fn get(&mut self, at: &Address<'_>) -> Result<Lookup<'_>> {
        let (shard, key, state) = locate(&mut self.shards, &self.states, at, &mut self.key, "get")?;
        let lent = &mut self.value;
        shard.read(key, state, |value| {
            let Some(value) = value else { return Ok(Lookup::Absent) };
            lent.clear();
            lent.extend_from_slice(value);
            Ok(Lookup::Found(lent))
        })
    }

    fn multi_get(
        &mut self,
        addresses: &[Address<'_>],
        values: &mut Values,
    ) -> Result<Option<PendingValues>> {
        values.reset(addresses.len());
        multi_get(&mut self.shards, &self.states, addresses, values)?;
        Ok(None)
    }

    fn put(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        at.check_lengths()?;
        self.limit.check(value.len())?;
        let (shard, key, state) = locate(&mut self.shards, &self.states, at, &mut self.key, "put")?;
        store(value, state.era, &mut self.value);
        shard.put(key, &self.value)
    }

    fn put_entries(&mut self, at: &Address<'_>, entries: &Page) -> Result<()> {
        Address { map_key: b"", ..*at }.check_lengths()?;
        let (shard, state) =
            locate_map(&mut self.shards, &self.states, at, &mut self.key, "put_entries")?;
        let prefix_len = self.key.len();
        for (map_key, value) in entries.iter() {
            Address { map_key, ..*at }.check_lengths()?;
            self.limit.check(value.len())?;
            self.key.truncate(prefix_len);
            self.key.extend_from_slice(map_key);
            store(value, state.era, &mut self.value);
            let key = HashedKey::from(&self.key[..]);
            let key = StoredKey { shape: StateShape::Ordered, key, prefix_len };
            shard.put(key, &self.value)?;
        }
        Ok(())
    }

    fn delete(&mut self, at: &Address<'_>) -> Result<()> {
        let (shard, key, _) = locate(&mut self.shards, &self.states, at, &mut self.key, "delete")?;
        shard.delete(key)
    }

    fn append(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        at.check_lengths()?;
        self.limit.check(value.len())?;
        let (shard, key, state) =
            locate(&mut self.shards, &self.states, at, &mut self.key, "append")?;
        if self.limit.is_exact() || self.guard.must_measure(at.key, value.len(), self.limit.bytes())
        {
            let there = shard.read(key, state, |value| Ok(value.map_or(0, <[u8]>::len)))?;
            self.limit.check(there + value.len())?;
        }
        store(value, state.era, &mut self.value);
        shard.append(key, &self.value)
    }

    fn update(&mut self, at: &Address<'_>, f: &mut UpdateFn<'_>) -> Result<Updated> {
        at.check_lengths()?;
        let (shard, key, state) =
            locate(&mut self.shards, &self.states, at, &mut self.key, "update")?;
        self.value.clear();
        match shard.read(key, state, |value| f(value, &mut self.value))? {
            Change::Keep => {}
            Change::Put => {
                self.limit.check(self.value.len())?;
                self.value.push(state.era);
                shard.put(key, &self.value)?;
            }
            Change::Delete => shard.delete(key)?,
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
        let (shard, state) = locate_map(&mut self.shards, &self.states, at, &mut self.key, "scan")?;
        if range.is_empty() {
            return Ok(ScanStep::Last);
        }
        shard.write_out_map(&self.key)?;
        if order == Order::Ascending && page.limit() == PAGE_ENTRIES {
            return shard.kept_walk.scan(&shard.database, state, &self.key, range, page);
        }
        MapScan::start(&shard.database, state, map_bounds(&self.key, range), order, self.key.len())?
            .first_page(page)
    }

    fn has_map_keys(&mut self, at: &Address<'_>) -> Result<Option<bool>> {
        let (shard, state) =
            locate_map(&mut self.shards, &self.states, at, &mut self.key, "has_map_keys")?;
        shard.write_out_map(&self.key)?;
        shard.kept_walk.finds_any(&shard.database, state, &self.key).map(Some)
    }

    fn delete_range(&mut self, at: &Address<'_>, range: MapRange<'_>) -> Result<()> {
        let (shard, _) =
            locate_map(&mut self.shards, &self.states, at, &mut self.key, "delete_range")?;
        if range.is_empty() {
            return Ok(());
        }
        shard.delete_range(&self.key, map_bounds(&self.key, range))
    }

    fn scan_keys(
        &mut self,
        state: StateId,
        namespace: Option<&[u8]>,
        page: &mut Page,
    ) -> Result<ScanStep> {
        let shape = self.states.get(state)?.shape;
        self.states.get(state)?.descriptor.expect(shape != StateShape::Queue, "scan_keys")?;
        self.shards.iter_mut().try_for_each(|shard| shard.write_out(shape))?;
        Box::new(KeyScan::start(self.shards.iter(), state, shape, namespace)?).next(page)
    }

    fn register_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        timer.check_lengths()?;
        let (queue, shards) = self.queue(timer.queue, "register_timer")?;
        queue.register(timer.queue, timer, shards)
    }

    fn delete_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        let (queue, shards) = self.queue(timer.queue, "delete_timer")?;
        queue.delete(timer.queue, timer, shards)
    }

    fn poll_timer(&mut self, queue: StateId, now: Millis) -> Result<TimerPoll<'_>> {
        let (timers, shards) = self.queue(queue, "poll_timer")?;
        let Some(first) = timers.first(queue, shards)? else { return Ok(TimerPoll::Idle) };
        let (suffix, group) = &first;
        let time = time_of_suffix(suffix);
        if time > now {
            return Ok(TimerPoll::Idle);
        }
        timers.remove(queue, &first, shards)?;
        self.polled.take_suffix(suffix)?;
        let key = KeyRef::with_group(&self.polled.key, *group)?;
        Ok(TimerPoll::Due(TimerRef { queue, time, key, namespace: &self.polled.namespace }))
    }

    fn next_timer(&mut self, queue: StateId) -> Result<NextTimer> {
        let (timers, shards) = self.queue(queue, "next_timer")?;
        Ok(timers.next_time(queue, shards)?.map_or(NextTimer::Empty, NextTimer::At))
    }

    fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        self.shards.iter_mut().for_each(|shard| shard.kept_walk.let_go());
        self.shards.write_out()?;
        let mut queues = Vec::new();
        for (id, state) in self.states.iter_mut() {
            state.timers.write_out(id, &self.shards)?;
            if state.shape == StateShape::Queue {
                queues.push((state.descriptor.name.clone(), state.timers.lower_bound()));
            }
        }
        let mut handle = new_handle(&self.request, &request);
        handle.states = self.states.iter().map(|(_, state)| state.descriptor.clone()).collect();
        self.snapshots.begin(&self.shards, queues, handle, request)
    }

    fn notify(&mut self, notification: Notification) -> Result<()> {
        self.snapshots.notify(notification);
        metrics::export(&self.request.operator, &self.shards, &self.options.memory);
        Ok(())
    }

    fn advance_watermark(&mut self, watermark: Millis) {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner).advance_watermark(watermark);
    }

    fn clean_up(&mut self, state: StateId, budget: u64) -> Result<CleanUp> {
        let known = self.states.get_mut(state)?;
        if known.shape == StateShape::Queue || !self.options.driven_clean_up {
            return Ok(CleanUp::NOTHING_TO_DO);
        }
        clean_up(&mut self.shards, state, known.shape, &mut known.cursor, budget)
    }

    fn physical_entries(&self, state: StateId) -> Result<u64> {
        let known = self.states.get(state)?;
        let mut stored = count_entries(self.shards.iter(), state, known.shape)?;
        for shard in self.shards.iter() {
            stored = stored.saturating_add_signed(shard.entries_to_come(state, known.shape)?);
        }
        Ok(known.timers.count(stored))
    }

    fn statistics(&self) -> Statistics {
        let mut statistics = self.snapshots.statistics();
        for shard in self.shards.iter() {
            let estimated = shard.database.estimated_entries();
            statistics.entries += estimated.saturating_add_signed(shard.collected_entries());
            statistics.memory_bytes += shard.database.memory_bytes();
            statistics.memory_bytes += shard.collected_bytes() + shard.row_bytes();
        }
        for (_, state) in self.states.iter() {
            statistics.entries += state.timers.count(0);
            statistics.memory_bytes += state.timers.memory_bytes();
        }
        statistics
    }
}

/// The timer lent by a poll.
#[derive(Debug, Default)]
struct PolledTimer {
    key: Vec<u8>,
    namespace: Vec<u8>,
}

impl PolledTimer {
    /// Takes the parts of a timer's stored key without key group and queue.
    fn take_suffix(&mut self, suffix: &[u8]) -> Result<()> {
        self.key.clear();
        self.namespace.clear();
        let parts = suffix.get(8..).unwrap_or_default();
        self.namespace.extend_from_slice(take_part(parts, &mut self.key).ok_or_else(odd_key)?);
        Ok(())
    }
}
