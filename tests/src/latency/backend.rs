//! Delays the reads of the backend within; everything else is passed on.

use bytes::Bytes;
use weir_state_api::{
    Address, Capabilities, CleanUp, DeferredValues, KeyedBackend, Lookup, MapRange, Millis,
    NextTimer, Notification, Order, Page, PendingValues, Result, Scan, ScanStep, SnapshotRequest,
    SnapshotTask, StateDescriptor, StateId, Statistics, TimerPoll, TimerRef, UpdateFn, Updated,
    Values,
};

use super::Latency;

#[derive(Debug)]
pub(super) struct Delayed {
    inner: Box<dyn KeyedBackend>,
    latency: Latency,
    /// What reads that wait to be sent have seen.
    deferred: Vec<Option<Bytes>>,
    /// The head of the timer queue was read, and can be polled.
    head_is_read: bool,
}

impl Delayed {
    pub(super) fn new(inner: Box<dyn KeyedBackend>, latency: Latency) -> Self {
        Delayed { inner, latency, deferred: Vec::new(), head_is_read: false }
    }

    /// A pending read of what is there now.
    fn pending(&mut self, at: &Address<'_>) -> Result<Lookup<'_>> {
        let value = match self.inner.get(at)? {
            Lookup::Absent => None,
            Lookup::Found(value) => Some(value.to_vec().into()),
            Lookup::Pending(future) => return Ok(Lookup::Pending(future)),
        };
        Ok(Lookup::Pending(self.latency.delay(value)))
    }
}

impl KeyedBackend for Delayed {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().with_never_pends(false)
    }

    fn register(&mut self, descriptor: &StateDescriptor) -> Result<StateId> {
        self.inner.register(descriptor)
    }

    fn states(&self) -> Vec<(StateId, StateDescriptor)> {
        self.inner.states()
    }

    fn get(&mut self, at: &Address<'_>) -> Result<Lookup<'_>> {
        if self.latency.is_hit() { self.inner.get(at) } else { self.pending(at) }
    }

    fn get_or_defer(&mut self, at: &Address<'_>) -> Result<Option<Lookup<'_>>> {
        if self.latency.is_hit() {
            return self.inner.get(at).map(Some);
        }
        if self.latency.defers() {
            let value = match self.inner.get(at)? {
                Lookup::Absent => None,
                Lookup::Found(value) => Some(value.to_vec().into()),
                Lookup::Pending(future) => weir_state_api::block_on(future)?,
            };
            self.deferred.push(value);
            return Ok(None);
        }
        self.pending(at).map(Some)
    }

    fn send_deferred(&mut self) -> Option<DeferredValues> {
        if self.deferred.is_empty() {
            return None;
        }
        self.latency.note_batch(self.deferred.len());
        Some(self.latency.delay(std::mem::take(&mut self.deferred)))
    }

    fn get_into(&mut self, at: &Address<'_>, buffer: &mut [u8]) -> Result<Option<usize>> {
        self.inner.get_into(at, buffer)
    }

    fn multi_get(
        &mut self,
        addresses: &[Address<'_>],
        values: &mut Values,
    ) -> Result<Option<PendingValues>> {
        values.reset(addresses.len());
        let mut late = Vec::new();
        for (index, at) in addresses.iter().enumerate() {
            let hit = self.latency.is_hit();
            match self.inner.get(at)? {
                Lookup::Absent if hit => {}
                Lookup::Found(value) if hit => values.set(index, value),
                Lookup::Absent => late.push((index, None)),
                Lookup::Found(value) => late.push((index, Some(value.to_vec().into()))),
                Lookup::Pending(future) => {
                    late.push((index, weir_state_api::block_on(future)?));
                }
            }
        }
        Ok((!late.is_empty()).then(|| self.latency.delay(late)))
    }

    fn put(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        self.inner.put(at, value)
    }

    fn delete(&mut self, at: &Address<'_>) -> Result<()> {
        self.inner.delete(at)
    }

    fn append(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        self.inner.append(at, value)
    }

    fn update(&mut self, at: &Address<'_>, f: &mut UpdateFn<'_>) -> Result<Updated> {
        if self.latency.is_hit() {
            return self.inner.update(at, f);
        }
        match self.pending(at)? {
            Lookup::Pending(future) => Ok(Updated::Pending(future)),
            Lookup::Absent | Lookup::Found(_) => self.inner.update(at, f),
        }
    }

    fn scan(
        &mut self,
        at: &Address<'_>,
        range: MapRange<'_>,
        order: Order,
        page: &mut Page,
    ) -> Result<ScanStep> {
        let mut filled = Page::new();
        let step = self.inner.scan(at, range, order, &mut filled)?;
        Ok(late(&self.latency, step, filled, page))
    }

    fn delete_range(&mut self, at: &Address<'_>, range: MapRange<'_>) -> Result<()> {
        self.inner.delete_range(at, range)
    }

    fn scan_keys(
        &mut self,
        state: StateId,
        namespace: Option<&[u8]>,
        page: &mut Page,
    ) -> Result<ScanStep> {
        let mut filled = Page::new();
        let step = self.inner.scan_keys(state, namespace, &mut filled)?;
        Ok(late(&self.latency, step, filled, page))
    }

    fn register_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        self.inner.register_timer(timer)
    }

    fn delete_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        self.inner.delete_timer(timer)
    }

    fn poll_timer(&mut self, queue: StateId, now: Millis) -> Result<TimerPoll<'_>> {
        if !std::mem::take(&mut self.head_is_read) && !self.latency.is_hit() {
            self.inner.next_timer(queue)?;
            self.head_is_read = true;
            return Ok(TimerPoll::Pending(self.latency.delay(())));
        }
        self.inner.poll_timer(queue, now)
    }

    fn next_timer(&mut self, queue: StateId) -> Result<NextTimer> {
        self.inner.next_timer(queue)
    }

    fn advance_watermark(&mut self, watermark: Millis) {
        self.inner.advance_watermark(watermark);
    }

    fn clean_up(&mut self, state: StateId, budget: u64) -> Result<CleanUp> {
        self.inner.clean_up(state, budget)
    }

    fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        self.inner.snapshot(request)
    }

    fn notify(&mut self, notification: Notification) -> Result<()> {
        self.inner.notify(notification)
    }

    fn physical_entries(&self, state: StateId) -> Result<u64> {
        self.inner.physical_entries(state)
    }

    fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }
}

/// A scan whose pages come late.
struct LateScan {
    inner: Box<dyn Scan>,
    latency: Latency,
}

impl Scan for LateScan {
    fn next(self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        let mut filled = Page::new();
        let step = self.inner.next(&mut filled)?;
        Ok(late(&self.latency, step, filled, page))
    }
}

/// Hands `filled` on, now or later.
fn late(latency: &Latency, step: ScanStep, filled: Page, page: &mut Page) -> ScanStep {
    let step = match step {
        ScanStep::More(inner) => {
            ScanStep::More(Box::new(LateScan { inner, latency: latency.clone() }))
        }
        step @ (ScanStep::Last | ScanStep::Pending(_)) => step,
    };
    if matches!(step, ScanStep::Pending(_)) {
        return step;
    }
    if latency.is_hit() {
        *page = filled;
        return step;
    }
    let delayed = latency.delay((filled, step));
    ScanStep::Pending(delayed)
}
