//! The calls of the interface.

use std::sync::Arc;

use weir_state_api::stored_key::{push_map_bounds, push_map_prefix, push_point, take_part};
use weir_state_api::ttl::TtlTime;
use weir_state_api::{
    Address, AppendGuard, Capabilities, Change, DeferredValues, KeyRef, KeyedBackend, Lookup,
    MapRange, Millis, NextTimer, Notification, OpenRequest, Order, Page, PendingValues, Result,
    Scan, ScanStep, SnapshotRequest, SnapshotTask, StateDescriptor, StateId, StateShape,
    Statistics, TimerPoll, TimerRef, UpdateFn, Updated, ValueLimit, Values,
};

use super::background::Background;
use super::deferred::DeferredReads;
use super::key_scan::{KeyScan, odd_key};
use super::lookup::read_one;
use super::multi_get::multi_get;
use super::options::ForstOptions;
use super::read::{Read, Target, pending, read, read_to_write};
use super::scan::scan_map;
use super::snapshot::{QueueBounds, Snapshots};
use super::sources::{KeyRange, MapPart};
use super::states::{State, States};
use super::timers::{QueueHead, TimerQueue, time_of_suffix};
use super::tree::Tree;
use crate::format::{EntryKind, filter_hash};
use crate::lsm::Direction;
use crate::memtable::{MapRoute, Route};

/// An instance of the backend.
pub(crate) struct ForstBackend {
    request: OpenRequest,
    options: Arc<ForstOptions>,
    states: States,
    tree: Tree,
    background: Background,
    snapshots: Snapshots,
    guard: AppendGuard,
    limit: ValueLimit,
    deferred: DeferredReads,
    /// The stored key of the running access.
    key: Vec<u8>,
    /// The map of the running access.
    map: MapPart,
    /// The value read last, to lend it.
    value: Vec<u8>,
    /// The value that a function wrote.
    output: Vec<u8>,
    /// The timer polled last, to lend it.
    polled: PolledTimer,
}

impl ForstBackend {
    pub(crate) fn new(
        request: OpenRequest,
        options: Arc<ForstOptions>,
        tree: Tree,
        background: Background,
        snapshots: Snapshots,
    ) -> Self {
        let limit = ValueLimit::new(options.max_value_len, "ForstOptions");
        ForstBackend {
            request,
            options,
            states: States::default(),
            tree,
            background,
            snapshots,
            guard: AppendGuard::default(),
            limit,
            deferred: DeferredReads::default(),
            key: Vec::new(),
            map: MapPart::nothing(),
            value: Vec::new(),
            output: Vec::new(),
            polled: PolledTimer::default(),
        }
    }

    /// Adds a state with timers as they are in the tree; `first` is a time that none is before.
    pub(crate) fn add_restored(
        &mut self,
        descriptor: StateDescriptor,
        first: Option<Millis>,
    ) -> Result<()> {
        if self.states.find(&descriptor.name).is_none() {
            let timers = TimerQueue::stored(self.options.timers_in_memory, first);
            self.add(descriptor, timers)?;
        }
        Ok(())
    }

    fn add(&mut self, descriptor: StateDescriptor, timers: TimerQueue) -> Result<StateId> {
        self.states.next_id(&descriptor.name)?;
        self.tree.add_state(&descriptor, self.background.clock.time())?;
        let shape = descriptor.kind.shape();
        self.states.add(State { descriptor, shape, timers })
    }

    /// Makes room for a write.
    #[inline]
    fn make_room(&mut self) -> Result<()> {
        self.background.make_room(&mut self.tree)
    }

    #[inline]
    fn locate(&mut self, at: &Address<'_>, call: &str) -> Result<Target> {
        locate(&self.tree, &self.states, at, &mut self.key, call)
    }

    /// Finds where an access goes that only maps offer. Whether the range has any keys.
    #[inline]
    fn locate_map(&mut self, at: &Address<'_>, range: MapRange<'_>, call: &str) -> Result<bool> {
        let shard = self.tree.shard_of(at.key)?;
        let state = self.states.get(at.state)?;
        state.descriptor.expect(state.shape == StateShape::Ordered, call)?;
        if range.is_empty() {
            return Ok(false);
        }
        let KeyRange { from, to } = &mut self.map.range;
        self.map.shard = shard;
        self.map.state = self.tree.stored(shard, at.state);
        from.clear();
        push_map_prefix(self.map.state, at.key, at.namespace, from);
        (self.map.hash, self.map.prefix_len) = (filter_hash(from), from.len());
        push_map_bounds(range, from, to);
        Ok(true)
    }

    /// The timers of a queue.
    fn queue(&mut self, queue: StateId, call: &str) -> Result<(&mut TimerQueue, &mut Tree)> {
        let state = self.states.get_mut(queue)?;
        state.descriptor.expect(state.shape == StateShape::Queue, call)?;
        Ok((&mut state.timers, &mut self.tree))
    }

    fn set(&mut self, target: Target, kind: EntryKind, value: &[u8]) {
        self.tree.set(target.shard, target.route, &self.key, kind, value);
    }

    /// Refuses an append that would make a value too long, as far as its length is known.
    fn check_append(&mut self, at: &Address<'_>, target: Target, more: usize) -> Result<()> {
        self.limit.check(more)?;
        let measure =
            self.limit.is_exact() || self.guard.must_measure(at.key, more, self.limit.bytes());
        if measure && let Read::Found(there) = read(&self.tree, target, &self.key, &mut self.value)?
        {
            self.limit.check(there.len() + more)?;
        }
        Ok(())
    }

    /// The time, for what is decided by it now.
    fn time(&mut self) -> TtlTime {
        self.background.clock.time()
    }
}

/// Finds where an access to a point state or a map goes, and writes the stored key.
#[inline]
pub(crate) fn locate(
    tree: &Tree,
    states: &States,
    at: &Address<'_>,
    key: &mut Vec<u8>,
    call: &str,
) -> Result<Target> {
    let shard = tree.shard_of(at.key)?;
    let state = states.get(at.state)?;
    state.descriptor.expect(state.shape != StateShape::Queue, call)?;
    let stored = tree.stored(shard, at.state);
    key.clear();
    let route = match state.shape {
        StateShape::Point => {
            push_point(stored, at.key, at.namespace, key);
            Route::Point { hash: filter_hash(key) }
        }
        StateShape::Ordered | StateShape::Queue => {
            push_map_prefix(stored, at.key, at.namespace, key);
            let route = MapRoute::to(key, key.len());
            key.extend_from_slice(at.map_key);
            Route::Map(route)
        }
    };
    Ok(Target { shard, state: stored, route })
}

impl std::fmt::Debug for ForstBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForstBackend")
            .field("operator", &self.request.operator)
            .field("key_groups", &self.request.key_groups)
            .finish_non_exhaustive()
    }
}

/// What instances of this backend can do.
pub(crate) fn capabilities(options: &ForstOptions) -> Capabilities {
    Capabilities::minimal()
        .with_incremental_snapshots(true)
        .with_max_value_len(options.max_value_len)
}

impl KeyedBackend for ForstBackend {
    fn capabilities(&self) -> Capabilities {
        capabilities(&self.options)
    }

    fn register(&mut self, descriptor: &StateDescriptor) -> Result<StateId> {
        let Some((id, known)) = self.states.find(&descriptor.name) else {
            let timers = TimerQueue::empty(self.options.timers_in_memory);
            return self.add(descriptor.clone(), timers);
        };
        known.descriptor.check_compatible(descriptor)?;
        if known.descriptor.ttl != descriptor.ttl {
            let time = self.time();
            self.tree.set_ttl(id, descriptor.ttl, time)?;
            self.states.get_mut(id)?.descriptor.ttl = descriptor.ttl;
            self.background.flush_frozen(&mut self.tree);
        }
        Ok(id)
    }

    fn states(&self) -> Vec<(StateId, StateDescriptor)> {
        self.states.iter().map(|(id, state)| (id, state.descriptor.clone())).collect()
    }

    fn get(&mut self, at: &Address<'_>) -> Result<Lookup<'_>> {
        self.background.take_mail(&mut self.tree);
        let target = self.locate(at, "get")?;
        Ok(match read(&self.tree, target, &self.key, &mut self.value)? {
            Read::Found(value) => Lookup::Found(value),
            Read::Absent => Lookup::Absent,
            Read::Pending(search) => {
                let read = pending(&self.tree, target, &self.key, search);
                Lookup::Pending(Box::pin(read_one(read)))
            }
        })
    }

    fn get_or_defer(&mut self, at: &Address<'_>) -> Result<Option<Lookup<'_>>> {
        self.background.take_mail(&mut self.tree);
        let target = self.locate(at, "get")?;
        Ok(match read(&self.tree, target, &self.key, &mut self.value)? {
            Read::Found(value) => Some(Lookup::Found(value)),
            Read::Absent => Some(Lookup::Absent),
            Read::Pending(search) => {
                self.deferred.push(self.tree.version(), target, &self.key, search);
                None
            }
        })
    }

    fn send_deferred(&mut self) -> Option<DeferredValues> {
        self.deferred.send()
    }

    fn multi_get(
        &mut self,
        addresses: &[Address<'_>],
        values: &mut Values,
    ) -> Result<Option<PendingValues>> {
        self.background.take_mail(&mut self.tree);
        values.reset(addresses.len());
        multi_get(&self.tree, &self.states, addresses, values)
    }

    fn put(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        at.check_lengths()?;
        self.limit.check(value.len())?;
        let target = self.locate(at, "put")?;
        self.make_room()?;
        self.set(target, EntryKind::Put, value);
        Ok(())
    }

    fn put_entries(&mut self, at: &Address<'_>, entries: &Page) -> Result<()> {
        let Some((map_key, _)) = entries.get(0) else { return Ok(()) };
        at.check_lengths()?;
        let target = self.locate(&Address { map_key, ..*at }, "put_entries")?;
        let Route::Map(MapRoute { prefix_len, .. }) = target.route else {
            return entries.iter().try_for_each(|(_, value)| self.put(at, value));
        };
        // A page has little room.
        self.make_room()?;
        for (map_key, value) in entries.iter() {
            Address { map_key, ..*at }.check_lengths()?;
            self.limit.check(value.len())?;
            self.key.truncate(prefix_len);
            self.key.extend_from_slice(map_key);
            self.set(target, EntryKind::Put, value);
        }
        Ok(())
    }

    fn delete(&mut self, at: &Address<'_>) -> Result<()> {
        let target = self.locate(at, "delete")?;
        self.make_room()?;
        self.tree.delete(target.shard, target.route, &self.key);
        Ok(())
    }

    fn append(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        at.check_lengths()?;
        let target = self.locate(at, "append")?;
        self.make_room()?;
        self.check_append(at, target, value.len())?;
        self.tree.append(target.shard, target.route, &self.key, value);
        Ok(())
    }

    fn update(&mut self, at: &Address<'_>, f: &mut UpdateFn<'_>) -> Result<Updated> {
        at.check_lengths()?;
        let target = self.locate(at, "update")?;
        self.make_room()?;
        self.output.clear();
        let (found, slot) = read_to_write(&self.tree, target, &self.key, &mut self.value)?;
        let change = match found {
            Read::Found(value) => f(Some(value), &mut self.output)?,
            Read::Absent => f(None, &mut self.output)?,
            Read::Pending(search) => {
                let read = pending(&self.tree, target, &self.key, search);
                return Ok(Updated::Pending(Box::pin(read_one(read))));
            }
        };
        match change {
            Change::Keep => {}
            Change::Put => {
                self.limit.check(self.output.len())?;
                self.tree.set_found(slot, target, &self.key, &self.output);
            }
            Change::Delete => self.tree.delete(target.shard, target.route, &self.key),
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
        self.background.take_mail(&mut self.tree);
        if !self.locate_map(at, range, "scan")? {
            return Ok(ScanStep::Last);
        }
        let direction = match order {
            Order::Ascending => Direction::Forward,
            Order::Descending => Direction::Backward,
        };
        scan_map(&self.tree, &mut self.map, direction, page)
    }

    fn has_map_keys(&mut self, at: &Address<'_>) -> Result<Option<bool>> {
        self.locate_map(at, MapRange::ALL, "has_map_keys")?;
        Ok(self.tree.has_entries(&self.map))
    }

    fn delete_range(&mut self, at: &Address<'_>, range: MapRange<'_>) -> Result<()> {
        if self.locate_map(at, range, "delete_range")? {
            self.make_room()?;
            self.tree.delete_range(&self.map);
        }
        Ok(())
    }

    fn scan_keys(
        &mut self,
        state: StateId,
        namespace: Option<&[u8]>,
        page: &mut Page,
    ) -> Result<ScanStep> {
        self.background.take_mail(&mut self.tree);
        let shape = self.states.get(state)?.shape;
        self.states.get(state)?.descriptor.expect(shape != StateShape::Queue, "scan_keys")?;
        let time = self.time();
        let views = self.tree.pin_state(state, shape);
        Box::new(KeyScan::new(views.into_iter(), shape, namespace, time)).next(page)
    }

    fn register_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        timer.check_lengths()?;
        self.make_room()?;
        let (queue, tree) = self.queue(timer.queue, "register_timer")?;
        queue.register(timer.queue, timer, tree)
    }

    fn delete_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        self.make_room()?;
        let (queue, tree) = self.queue(timer.queue, "delete_timer")?;
        queue.delete(timer.queue, timer, tree)
    }

    fn poll_timer(&mut self, queue: StateId, now: Millis) -> Result<TimerPoll<'_>> {
        self.background.take_mail(&mut self.tree);
        let (timers, tree) = self.queue(queue, "poll_timer")?;
        let first = match timers.first(queue, tree)? {
            QueueHead::Empty => return Ok(TimerPoll::Idle),
            QueueHead::Pending(future) => return Ok(TimerPoll::Pending(future)),
            QueueHead::First(first) => first,
        };
        let (suffix, group) = &first;
        let time = time_of_suffix(suffix);
        if time > now {
            return Ok(TimerPoll::Idle);
        }
        timers.remove(queue, &first, tree);
        self.polled.take_suffix(suffix)?;
        let key = KeyRef::with_group(&self.polled.key, *group)?;
        Ok(TimerPoll::Due(TimerRef { queue, time, key, namespace: &self.polled.namespace }))
    }

    fn next_timer(&mut self, queue: StateId) -> Result<NextTimer> {
        let (timers, tree) = self.queue(queue, "next_timer")?;
        Ok(match timers.next_time(queue, tree)? {
            None => NextTimer::Unknown,
            Some(None) => NextTimer::Empty,
            Some(Some(time)) => NextTimer::At(time),
        })
    }

    fn advance_watermark(&mut self, watermark: Millis) {
        self.background.clock.advance_watermark(watermark);
    }

    fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        self.background.take_mail_quietly(&mut self.tree);
        let mut queues = QueueBounds::new();
        for (id, state) in self.states.iter_mut() {
            state.timers.write_out(id, &mut self.tree);
            if let Some(first) = state.timers.lower_bound() {
                queues.insert(state.descriptor.name.clone(), first);
            }
        }
        // The task begins the flush.
        if let Err(declined) = self.background.freeze_for_snapshot(&mut self.tree) {
            return Ok(SnapshotTask::new(std::future::ready(Err(declined))));
        }
        let descriptors = self.states.iter().map(|(_, state)| state.descriptor.clone()).collect();
        self.snapshots.begin(&self.request, request, &mut self.tree, descriptors, queues)
    }

    fn notify(&mut self, notification: Notification) -> Result<()> {
        self.background.take_mail(&mut self.tree);
        self.snapshots.notify(notification);
        self.background.clean_up();
        Ok(())
    }

    fn physical_entries(&self, state: StateId) -> Result<u64> {
        let known = self.states.get(state)?;
        Ok(known.timers.count(self.tree.versions_of(state)))
    }

    fn statistics(&self) -> Statistics {
        let mut statistics = self.snapshots.statistics();
        let (bytes, keys) = self.tree.in_memory();
        let tables = self.tree.version().tables();
        let entries = tables.map(|view| view.properties().entries()).sum::<u64>();
        statistics.entries = keys + entries;
        statistics.memory_bytes = bytes;
        for view in self.tree.version().tables() {
            let resident = view.table().resident_bytes().map_or(0, bytes::Bytes::len);
            let meta = view.table().meta_now().map_or(0, |meta| meta.memory_bytes());
            statistics.memory_bytes += (resident + meta) as u64;
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
