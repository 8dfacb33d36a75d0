//! The instance: passes each call on, and records what changes.

use std::sync::Arc;
use std::time::Instant;

use weir_state_api::ttl::StateTtl;
use weir_state_api::{
    Address, Capabilities, CleanUp, DeferredValues, KeyedBackend, Lookup, MapRange, Millis,
    NextTimer, Notification, OpenRequest, Order, Page, PendingValues, Result, ScanStep,
    SnapshotKind, SnapshotRequest, SnapshotTask, StateDescriptor, StateId, Statistics, TimeDomain,
    TimerPoll, TimerRef, UpdateFn, Updated, Values,
};

use crate::base::{Base, InnerBase};
use crate::checkpoint::Lent;
use crate::factory::Shared;
use crate::format::record;
use crate::kept::{Kept, Left};
use crate::log::InstanceLog;
use crate::materializer::Materializer;
use crate::metrics::count;

/// An instance of a changelog around one of the wrapped backend.
pub(crate) struct ChangelogBackend {
    pub(crate) inner: Box<dyn KeyedBackend>,
    pub(crate) log: InstanceLog,
    /// What the log goes on from; without it the next checkpoint is a whole snapshot.
    pub(crate) base: Option<Arc<Base>>,
    pub(crate) inner_base: Option<InnerBase>,
    pub(crate) materializer: Materializer,
    /// As it was opened, without what it was restored from.
    pub(crate) request: OpenRequest,
    pub(crate) shared: Arc<Shared>,
    pub(crate) lent: Lent,
    pub(crate) watermark: Option<Millis>,
    pub(crate) kept: Kept,
    /// Of the wrapped backend, as checkpoints share them.
    pub(crate) states: Arc<[(StateId, StateDescriptor)]>,
}

impl std::fmt::Debug for ChangelogBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangelogBackend")
            .field("inner", &self.inner)
            .field("log", &self.log.id())
            .field("position", &self.log.position())
            .finish_non_exhaustive()
    }
}

impl ChangelogBackend {
    /// Whether it may create objects between snapshots: without that there is no log.
    pub(crate) fn may_log(&self) -> bool {
        !self.request.directory.is_empty()
    }

    /// The log before is useless: the next checkpoint is a whole snapshot, from which it begins anew.
    pub(crate) fn lose_base(&mut self) {
        self.base = None;
        self.materializer.invalidate();
        self.log.stop();
    }

    /// No checkpoint is left that keeps what the log goes on from.
    fn lose_what_was_named(&mut self) -> Result<()> {
        self.lose_base();
        match self.inner_base.take() {
            Some(base) => self.inner.notify(Notification::Subsumed(base.id)),
            None => Ok(()),
        }
    }

    /// Whether a materialization is to be begun. One that has taken too long has failed.
    fn materialization_is_due(&mut self, now: Instant) -> bool {
        if let Some(late) = self.materializer.give_up_late(now) {
            count(&self.shared.counters().materializations_failed, 1);
            // It concerns later materializations only.
            drop(self.inner.notify(Notification::Aborted(late)));
        }
        self.materializer.is_due(now, self.batches())
    }

    /// Batches that a handle names.
    fn batches(&self) -> usize {
        let restored = self.base.as_ref().map_or(0, |base| base.restored_batches());
        self.log.batches() + restored
    }

    /// After a change, with a schedule by changes.
    #[inline]
    fn changed(&mut self) {
        if self.materializer.is_due_at(self.log.position()) {
            self.materialize(Instant::now());
        }
    }
}

impl KeyedBackend for ChangelogBackend {
    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        if self.may_log() { inner.with_incremental_snapshots(true) } else { inner }
    }

    /// A changed TTL converts stored values by the time of the call, which a replay could not repeat:
    /// the log begins anew.
    fn register(&mut self, descriptor: &StateDescriptor) -> Result<StateId> {
        let id = self.inner.register(descriptor)?;
        let before = std::mem::replace(&mut self.states, self.inner.states().into());
        let changed =
            |state: &StateDescriptor| state.name == descriptor.name && state.ttl != descriptor.ttl;
        if before.iter().any(|(_, state)| changed(state)) {
            self.lose_base();
        }
        Ok(id)
    }

    fn states(&self) -> Vec<(StateId, StateDescriptor)> {
        self.states.to_vec()
    }

    #[inline]
    fn get(&mut self, at: &Address<'_>) -> Result<Lookup<'_>> {
        self.inner.get(at)
    }

    #[inline]
    fn get_or_defer(&mut self, at: &Address<'_>) -> Result<Option<Lookup<'_>>> {
        self.inner.get_or_defer(at)
    }

    fn send_deferred(&mut self) -> Option<DeferredValues> {
        self.inner.send_deferred()
    }

    fn get_into(&mut self, at: &Address<'_>, buffer: &mut [u8]) -> Result<Option<usize>> {
        self.inner.get_into(at, buffer)
    }

    fn multi_get(
        &mut self,
        addresses: &[Address<'_>],
        values: &mut Values,
    ) -> Result<Option<PendingValues>> {
        self.inner.multi_get(addresses, values)
    }

    #[inline]
    fn put(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        self.inner.put(at, value)?;
        self.log.record(|out| record::push_put(at, value, out));
        self.changed();
        Ok(())
    }

    /// When one is refused, those before it are stored, and nobody says how many they are: they are put
    /// again, one by one.
    fn put_entries(&mut self, at: &Address<'_>, entries: &Page) -> Result<()> {
        let each = |(map_key, value)| (Address { map_key, ..*at }, value);
        if let Err(error) = self.inner.put_entries(at, entries) {
            entries.iter().map(each).try_for_each(|(at, value)| self.put(&at, value))?;
            return Err(error);
        }
        for (at, value) in entries.iter().map(each) {
            self.log.record(|out| record::push_put(&at, value, out));
        }
        self.changed();
        Ok(())
    }

    fn delete(&mut self, at: &Address<'_>) -> Result<()> {
        self.inner.delete(at)?;
        self.log.record(|out| record::push_delete(at, out));
        self.changed();
        Ok(())
    }

    fn append(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        self.inner.append(at, value)?;
        self.log.record(|out| record::push_append(at, value, out));
        self.changed();
        Ok(())
    }

    /// What the function decides is recorded while its output is at hand, and taken back when the
    /// wrapped backend refuses it.
    fn update(&mut self, at: &Address<'_>, f: &mut UpdateFn<'_>) -> Result<Updated> {
        let Self { inner, log, .. } = self;
        let mark = log.mark();
        let updated = inner.update(at, &mut |old, output| {
            let change = f(old, output)?;
            log.record_update(at, change, output);
            Ok(change)
        });
        match updated {
            Ok(Updated::Done) => log.check_length(),
            Ok(Updated::Pending(_)) | Err(_) => log.roll_back(mark),
        }
        self.changed();
        updated
    }

    fn scan(
        &mut self,
        at: &Address<'_>,
        range: MapRange<'_>,
        order: Order,
        page: &mut Page,
    ) -> Result<ScanStep> {
        self.inner.scan(at, range, order, page)
    }

    fn has_map_keys(&mut self, at: &Address<'_>) -> Result<Option<bool>> {
        self.inner.has_map_keys(at)
    }

    fn delete_range(&mut self, at: &Address<'_>, range: MapRange<'_>) -> Result<()> {
        self.inner.delete_range(at, range)?;
        self.log.record(|out| record::push_delete_range(at, range, out));
        self.changed();
        Ok(())
    }

    fn scan_keys(
        &mut self,
        state: StateId,
        namespace: Option<&[u8]>,
        page: &mut Page,
    ) -> Result<ScanStep> {
        self.inner.scan_keys(state, namespace, page)
    }

    fn register_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        self.inner.register_timer(timer)?;
        self.log.record(|out| record::push_register_timer(timer, out));
        self.changed();
        Ok(())
    }

    fn delete_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        self.inner.delete_timer(timer)?;
        self.log.record(|out| record::push_delete_timer(timer, out));
        self.changed();
        Ok(())
    }

    fn poll_timer(&mut self, queue: StateId, now: Millis) -> Result<TimerPoll<'_>> {
        let Self { inner, log, .. } = self;
        let poll = inner.poll_timer(queue, now)?;
        if let TimerPoll::Due(timer) = &poll {
            log.record(|out| record::push_delete_timer(timer, out));
        }
        Ok(poll)
    }

    fn next_timer(&mut self, queue: StateId) -> Result<NextTimer> {
        self.inner.next_timer(queue)
    }

    /// Values written before the first watermark count from it: what they mean changes with this call,
    /// which a replay could not repeat.
    fn advance_watermark(&mut self, watermark: Millis) {
        self.inner.advance_watermark(watermark);
        if watermark == Millis::MIN {
            return;
        }
        if self.watermark.is_none() {
            let by_event_time = |ttl: StateTtl| ttl.domain == TimeDomain::Event;
            if self.states.iter().any(|(_, state)| state.ttl.is_some_and(by_event_time)) {
                self.lose_base();
            }
        }
        self.watermark = self.watermark.max(Some(watermark));
    }

    /// Not recorded: what it removes has expired, and a replay that brings it back brings it back
    /// expired.
    fn clean_up(&mut self, state: StateId, budget: u64) -> Result<CleanUp> {
        self.inner.clean_up(state, budget)
    }

    fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        self.adopt_and_sweep();
        if request.kind != SnapshotKind::Checkpoint {
            return self.savepoint(request);
        }
        if !self.may_log() {
            return self.pass_snapshot_on(request);
        }
        if self.kept.begin(&request) == Left::Nothing {
            self.lose_what_was_named()?;
        }
        match self.checkpoint_from_log(&request) {
            Some(task) => {
                let now = Instant::now();
                if self.materialization_is_due(now) && self.materializer.is_overdue() {
                    self.materialize(now);
                }
                Ok(task)
            }
            None => self.whole_checkpoint(&request),
        }
    }

    fn notify(&mut self, notification: Notification) -> Result<()> {
        if !self.may_log() {
            return self.inner.notify(notification);
        }
        self.adopt_and_sweep();
        if self.kept.hear(notification) == Left::Nothing {
            self.lose_what_was_named()?;
        }
        let now = Instant::now();
        if self.materialization_is_due(now) {
            self.materialize(now);
        }
        Ok(())
    }

    fn physical_entries(&self, state: StateId) -> Result<u64> {
        self.inner.physical_entries(state)
    }

    fn statistics(&self) -> Statistics {
        let mut statistics = self.inner.statistics();
        let (uploaded, downloaded) = self.lent.traffic();
        statistics.bytes_uploaded += uploaded;
        statistics.bytes_downloaded += downloaded;
        statistics
    }
}
