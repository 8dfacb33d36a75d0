//! Barriers, watermarks, timers, snapshots: what comes between records.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::executor::{InFlight, Phase};
use super::record_state::{Traces, interrupted};
use super::run::Goes;
use super::{Failure, RecordOperator, Unfinished, UnfinishedRef};
use crate::{
    Codec, Error, ErrorKind, FiredTimer, Key, Millis, Notification, Result, SnapshotRequest,
    SnapshotTask, TimerPoll, TimerRef, TimerState, block_on,
};

/// The records between two calls of [`InFlight::close_epoch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

/// Counts the records in flight of each epoch.
#[derive(Debug)]
pub(super) struct Epochs {
    first: u64,
    /// Of the epochs from `first` on; the last one is open.
    in_flight: VecDeque<usize>,
}

impl Epochs {
    pub(super) fn new() -> Self {
        Epochs { first: 0, in_flight: VecDeque::from([0]) }
    }

    /// Counts a record into the open epoch.
    pub(super) fn begin(&mut self) -> u64 {
        let last = self.in_flight.len() - 1;
        self.in_flight[last] += 1;
        self.first + last as u64
    }

    pub(super) fn end(&mut self, epoch: u64) {
        self.in_flight[(epoch - self.first) as usize] -= 1;
        self.trim();
    }

    fn close(&mut self) -> u64 {
        let closed = self.first + self.in_flight.len() as u64 - 1;
        self.in_flight.push_back(0);
        self.trim();
        closed
    }

    fn trim(&mut self) {
        while self.in_flight.len() > 1 && self.in_flight.front() == Some(&0) {
            self.in_flight.pop_front();
            self.first += 1;
        }
    }
}

/// Why no further timer was started.
enum Firing {
    Started,
    NoneDue,
    Wait,
}

impl<O, K, C> InFlight<O, K, C>
where
    O: RecordOperator,
    K: Send + 'static,
    C: Codec<K>,
{
    /// Closes the epoch: for what must come after the records before it and need not hold back the
    /// records behind it, such as a watermark that no timer waits for, or an acknowledgement.
    /// Whatever touches keyed state needs [`poll_idle`](InFlight::poll_idle) instead.
    pub fn close_epoch(&mut self) -> Epoch {
        Epoch(self.epochs.close())
    }

    /// Whether all records of this epoch, and of those before it, have ended.
    pub fn is_through(&self, epoch: Epoch) -> bool {
        epoch.0 < self.epochs.first
    }

    /// Moves what can move. Ready when [the epoch is through](InFlight::is_through).
    ///
    /// # Errors
    /// While there is a failure.
    pub fn poll_through(&mut self, epoch: Epoch, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.advance(context.waker(), Goes::All);
        self.check_failures()?;
        if self.is_through(epoch) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Fires the timers that are due at `now`; ready when the last one is done, and all records
    /// before. `record` makes a record of a timer: it is submitted for the timer's key.
    ///
    /// The timers of one key fire one by one, after the records before them, each seeing what the one
    /// before did to state and timers; those of different keys overlap. From the first call on no record is admitted: those that come
    /// now are behind the watermark. Call it with the same arguments until it is ready.
    ///
    /// Where states expire in event time, records before the watermark must not see it: wait until
    /// the executor is [idle](InFlight::poll_idle), then advance the watermark of the store
    /// ([`with_store`](InFlight::with_store)), then fire the timers.
    ///
    /// ```
    /// # use weir_backend_heap::HeapBackendFactory;
    /// # use weir_state_api::*;
    /// enum Event { Click, Timeout(Millis) }
    /// struct Sessions { clicks: ValueState<u64>, timers: TimerState }
    ///
    /// impl RecordOperator for Sessions {
    ///     type Record = Event;
    ///     type Output = u64;
    ///
    ///     async fn process(&self, event: &Event, state: &mut RecordState<'_, u64>) -> Result<()> {
    ///         match event {
    ///             Event::Click => {
    ///                 self.clicks.update(state, |old| old.unwrap_or(0) + 1).await?;
    ///                 self.timers.register(state, 100, &())?;
    ///             }
    ///             Event::Timeout(_) => {
    ///                 if let Some(clicks) = self.clicks.get(state).await? {
    ///                     state.emit(clicks);
    ///                 }
    ///                 self.clicks.clear(state)?;
    ///             }
    ///         }
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
    /// let operator = Sessions { clicks: store.value("clicks")?, timers: store.timers("timers")? };
    /// let mut in_flight = InFlight::new(store, operator, InFlightLimits::default());
    /// for _ in 0..3 {
    ///     assert!(matches!(in_flight.submit(&"ann".to_string(), Event::Click)?, Admission::Done));
    /// }
    /// let timers = in_flight.operator().timers.clone();
    /// in_flight.wait_timers(&timers, 100, |_, timer| Event::Timeout(timer.time))?;
    /// assert_eq!(in_flight.outputs().collect::<Vec<_>>(), [3]);
    /// # Ok::<(), weir_state_api::Error>(())
    /// ```
    ///
    /// # Errors
    /// While there is a failure; those of polling timers. It can be called again after both.
    pub fn poll_timers<N: Send + 'static, NC: Codec<N>>(
        &mut self,
        timers: &TimerState<N, NC>,
        now: Millis,
        mut record: impl FnMut(K, FiredTimer<N>) -> O::Record,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        if self.phase == Phase::Taken {
            return Poll::Ready(Err(out_of_order()));
        }
        self.phase = Phase::Firing;
        loop {
            let firing = self.fire(timers, now, &mut record, context)?;
            self.check_failures()?;
            if matches!(firing, Firing::Started) {
                continue;
            }
            let ended = self.ended;
            self.advance(context.waker(), Goes::All);
            self.check_failures()?;
            if self.ended > ended {
                continue;
            }
            if matches!(firing, Firing::NoneDue) && self.records == 0 {
                self.phase = Phase::Open;
                return Poll::Ready(Ok(()));
            }
            return Poll::Pending;
        }
    }

    /// Starts the first timer that is due, unless it has to wait.
    fn fire<N: Send + 'static, NC: Codec<N>>(
        &mut self,
        timers: &TimerState<N, NC>,
        now: Millis,
        record: &mut impl FnMut(K, FiredTimer<N>) -> O::Record,
        context: &mut Context<'_>,
    ) -> Result<Firing> {
        if !self.has_room_for(0) || self.blocked_timer.is_some_and(|key| self.runs(key)) {
            return Ok(Firing::Wait);
        }
        self.blocked_timer = None;
        if let Some(head) = &mut self.timer_head {
            let Poll::Ready(read) = head.as_mut().poll(context) else { return Ok(Firing::Wait) };
            self.timer_head = None;
            read?;
        }
        let mut shared = self.store.lock().map_err(|_| interrupted())?;
        let backend = shared.store.backend();
        let (key, time, namespace) = match backend.poll_timer(timers.slot.state, now)? {
            TimerPoll::Idle => return Ok(Firing::NoneDue),
            TimerPoll::Pending(head) => {
                drop(shared);
                self.timer_head = Some(head);
                return self.fire(timers, now, record, context);
            }
            TimerPoll::Due(timer) => {
                (Key::from_ref(timer.key), timer.time, timer.namespace.to_vec())
            }
        };
        let mut put_back = || {
            let (queue, key) = (timers.slot.state, key.as_ref());
            backend.register_timer(&TimerRef { queue, time, key, namespace: &namespace })
        };
        if let Some(lane) = self.lanes.of_key(key.as_ref()) {
            // A record or timer of the key that still runs may delete this one, or register one before
            // it: until it is done, this one has not been polled.
            put_back()?;
            self.blocked_timer = self.lanes.get(lane).ticket.map(|ticket| (lane, ticket.sequence));
            return Ok(Firing::Wait);
        }
        let typed = self.keys.codec.decode(key.as_ref().bytes());
        let (typed, fired) = match (typed, timers.codec.decode(&namespace)) {
            (Ok(typed), Ok(fired)) => (typed, fired),
            (Err(error), _) | (_, Err(error)) => {
                // It cannot be delivered, and it must not be lost.
                return put_back().and(Err(timers.slot.blame(error)));
            }
        };
        drop(shared);
        let record = record(typed, FiredTimer { time, namespace: fired });
        self.reenter(&key, record);
        Ok(Firing::Started)
    }

    /// Whether this very record still runs in its lane.
    fn runs(&self, (lane, sequence): (usize, u64)) -> bool {
        self.lanes.get(lane).ticket.is_some_and(|ticket| ticket.sequence == sequence)
    }

    /// Moves what has changed state, and nothing else. Ready when no record in flight has changed
    /// state: then a snapshot may be taken. Records that have only read stay in flight and belong
    /// into the snapshot as [`unfinished`](InFlight::unfinished); their reads go on.
    ///
    /// An engine that stores no records in snapshots uses [`poll_idle`](InFlight::poll_idle).
    ///
    /// # Errors
    /// While there is a failure.
    pub fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.advance(context.waker(), Goes::Writers);
        self.check_failures()?;
        if !self.is_settled() {
            return Poll::Pending;
        }
        if !self.woken.is_empty() {
            // Those were held back; an engine that waits for a call must poll for them.
            context.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    /// Whether no record in flight has changed state.
    pub fn is_settled(&self) -> bool {
        self.lanes.running().all(|(_, lane)| !lane.admitted.traces.has_written())
    }

    /// The records in flight that have not changed state, in the order of their arrival, fired timers
    /// among them. While the executor [is settled](InFlight::is_settled), that is all of them: a
    /// snapshot taken now, and these records submitted again after it is restored
    /// ([`resubmit`](InFlight::resubmit)), give what this run gives.
    pub fn unfinished(&self) -> Vec<UnfinishedRef<'_, O::Record>> {
        let mut all = Vec::with_capacity(self.records);
        for (_, lane) in self.lanes.running() {
            let key = lane.admitted.key.as_ref();
            if let (Some(ticket), Some(record)) = (lane.ticket, &lane.admitted.record)
                && !lane.admitted.traces.has_written()
            {
                all.push((ticket.sequence, UnfinishedRef { key, record }));
            }
            let waiting = lane.waiting.iter();
            all.extend(waiting.map(|waiting| {
                (waiting.ticket.sequence, UnfinishedRef { key, record: &waiting.record })
            }));
        }
        all.sort_unstable_by_key(|&(sequence, _)| sequence);
        all.into_iter().map(|(_, record)| record).collect()
    }

    /// Takes the [`unfinished`](InFlight::unfinished) records back, for an engine that stops or hands
    /// over: their futures are dropped, they leave no trace. Records that have changed state stay in
    /// flight until they are done. Nothing is admitted before [`resubmit`](InFlight::resubmit).
    pub fn take_unfinished(&mut self) -> Vec<Unfinished<O::Record>> {
        let mut all = Vec::with_capacity(self.records);
        let running: Vec<_> = self.lanes.running().map(|(index, _)| index).collect();
        for index in running {
            let lane = self.lanes.get_mut(index);
            let written = lane.admitted.traces.has_written();
            let key = lane.admitted.key.clone();
            let mut taken = Vec::with_capacity(1 + lane.waiting.len());
            if !written {
                self.futures.cancel(index);
                let admitted = Arc::make_mut(&mut lane.admitted);
                taken.extend(admitted.record.take().zip(lane.ticket.take()));
                admitted.traces = Traces::default();
            }
            let waiting = lane.waiting.drain(..);
            taken.extend(waiting.map(|waiting| (waiting.record, waiting.ticket)));
            if !written {
                self.lanes.leave(index);
            }
            for (record, ticket) in taken {
                self.count_out(ticket);
                all.push((ticket.sequence, Unfinished { key: key.clone(), record }));
            }
        }
        self.phase = Phase::Taken;
        all.sort_unstable_by_key(|&(sequence, _)| sequence);
        all.into_iter().map(|(_, record)| record).collect()
    }

    /// Submits unfinished records again, in the order given: those that were taken, or those of a
    /// restored snapshot, before any other record. They were admitted once, so limits do not hold
    /// them back.
    ///
    /// # Errors
    /// While there is a failure. When other records have been submitted since, or records that had
    /// changed state are still in flight, each record becomes a failure
    /// ([`InvalidUsage`](ErrorKind::InvalidUsage)).
    pub fn resubmit(
        &mut self,
        records: impl IntoIterator<Item = Unfinished<O::Record>>,
    ) -> Result<()> {
        let fresh = self.phase == Phase::Open && self.arrived == self.resubmitted;
        if !fresh && (self.phase != Phase::Taken || self.records > 0) {
            self.failures.extend(records.into_iter().map(|Unfinished { key, record }| Failure {
                record,
                key,
                error: out_of_order(),
                has_written: false,
            }));
            return Err(out_of_order());
        }
        self.phase = Phase::Open;
        for Unfinished { key, record } in records {
            self.reenter(&key, record);
        }
        self.resubmitted = self.arrived;
        self.check_failures()
    }

    /// Takes a record in whose key was encoded before.
    fn reenter(&mut self, key: &Key, record: O::Record) {
        let weight = self.operator.weight(&record);
        let key = key.as_ref();
        self.enter(record, weight, |keys, into| keys.take_encoded(key.bytes(), key.group(), into));
    }

    /// Pins the state for a snapshot; see [`poll_settled`](InFlight::poll_settled).
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) unless the executor is settled and all
    /// [`outputs`](InFlight::outputs) are handed on: an output of the state before the barrier must
    /// go before it. Those of [`KeyedBackend::snapshot`](crate::KeyedBackend::snapshot).
    pub fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        self.check_failures()?;
        if !self.is_settled() {
            return Err(Error::new(
                ErrorKind::InvalidUsage,
                "a record in flight has changed state and is not done",
            )
            .advice("poll until the executor is settled"));
        }
        if !self.outputs.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidUsage,
                format!("{} outputs were not handed on before the snapshot", self.outputs.len()),
            )
            .advice("send them before the barrier"));
        }
        self.lock()?.store.snapshot(request)
    }

    /// Passes news about a checkpoint on to the backend, at any time.
    ///
    /// # Errors
    /// Those of [`KeyedBackend::notify`](crate::KeyedBackend::notify).
    pub fn notify(&mut self, notification: Notification) -> Result<()> {
        self.lock()?.store.notify(notification)
    }

    /// Blocks until all due timers have fired; see [`poll_timers`](InFlight::poll_timers).
    ///
    /// # Errors
    /// As for [`poll_timers`](InFlight::poll_timers).
    pub fn wait_timers<N: Send + 'static, NC: Codec<N>>(
        &mut self,
        timers: &TimerState<N, NC>,
        now: Millis,
        mut record: impl FnMut(K, FiredTimer<N>) -> O::Record,
    ) -> Result<()> {
        block_on(poll_fn(|context| self.poll_timers(timers, now, &mut record, context)))
    }

    /// Blocks until a snapshot may be taken; see [`poll_settled`](InFlight::poll_settled).
    ///
    /// # Errors
    /// While there is a failure.
    pub fn wait_settled(&mut self) -> Result<()> {
        block_on(poll_fn(|context| self.poll_settled(context)))
    }
}

#[cold]
fn out_of_order() -> Error {
    Error::new(
        ErrorKind::InvalidUsage,
        "unfinished records come before all others, and after those that have written",
    )
    .advice("resubmit into a new executor, or after take_unfinished and poll_idle")
}
