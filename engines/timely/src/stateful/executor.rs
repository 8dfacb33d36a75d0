//! Runs the logic: each record at once when reads never pend, many in flight when they do.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weir_state_api::{
    Admission, Codec, Error, ErrorKind, FiredTimer, InFlight, InFlightLimits, KeyRef, KeyedStore,
    MaxParallelism, Millis, NextTimer, Notification, Ordered, RecordOperator, RecordState, Result,
    Scope, SnapshotRequest, SnapshotTask, StateAccess,
};

use super::logic::{KeyedContext, KeyedLogic, KeyedTimer};
use super::queues::Queues;

type Timers<L> = Arc<Queues<<L as KeyedLogic>::Timer>>;

/// A logic over its store.
pub(super) enum Executor<L: KeyedLogic> {
    Direct(Box<Direct<L>>),
    InFlight(Box<Overlapping<L>>),
}

/// Many records at a time: those whose reads pend are parked.
pub(super) struct Overlapping<L: KeyedLogic> {
    in_flight: InFlight<Parked<L>, L::Key>,
    timers: Timers<L>,
    max_parallelism: MaxParallelism,
    /// The encoded key of the record that is submitted.
    key: Vec<u8>,
}

/// Each record to its end, before the next one.
pub(super) struct Direct<L: KeyedLogic> {
    store: KeyedStore<L::Key>,
    logic: L,
    timers: Timers<L>,
    outputs: Vec<L::Out>,
}

impl<L: KeyedLogic> Executor<L> {
    /// With reads in flight when the backend's may pend.
    pub(super) fn new(
        mut store: KeyedStore<L::Key>,
        logic: L,
        timers: Timers<L>,
        limits: InFlightLimits,
        max_parallelism: MaxParallelism,
    ) -> Self {
        if store.backend().capabilities().never_pends {
            let outputs = Vec::new();
            return Executor::Direct(Box::new(Direct { store, logic, timers, outputs }));
        }
        let parked = Parked { logic, timers: timers.clone() };
        let in_flight = InFlight::new(store, parked, limits);
        let key = Vec::new();
        Executor::InFlight(Box::new(Overlapping { in_flight, timers, max_parallelism, key }))
    }

    /// Handles a record, or gives it back when too many are in flight.
    #[inline]
    pub(super) fn submit(
        &mut self,
        record: L::Record,
        key: impl Fn(&L::Record) -> &L::Key,
    ) -> Result<Option<L::Record>> {
        match self {
            Executor::Direct(direct) => {
                let Direct { store, logic, timers, outputs } = &mut **direct;
                store.set_key(key(&record))?;
                let mut context = AtOnce { store, timers, outputs };
                run_now(logic.process(&record, &mut context))?;
                Ok(None)
            }
            Executor::InFlight(overlapping) => overlapping.submit(record, key),
        }
    }

    /// Whether records are in flight, as far as they were moved.
    #[inline]
    pub(super) fn is_in_flight(&self) -> bool {
        match self {
            Executor::Direct(_) => false,
            Executor::InFlight(overlapping) => !overlapping.in_flight.is_empty(),
        }
    }

    /// Moves records in flight. Ready when none is left.
    pub(super) fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Executor::Direct(_) => Poll::Ready(Ok(())),
            Executor::InFlight(overlapping) => overlapping.in_flight.poll_idle(context),
        }
    }

    /// Moves records in flight. Ready when there is room for another.
    pub(super) fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Executor::Direct(_) => Poll::Ready(Ok(())),
            Executor::InFlight(overlapping) => overlapping.in_flight.poll_room(context),
        }
    }

    /// Notes the event time, and fires the timers that are due. Ready when the last one is done. To be
    /// called when nothing is in flight, with the same time until it is ready.
    pub(super) fn poll_watermark(
        &mut self,
        now: Millis,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        match self {
            Executor::Direct(direct) => Poll::Ready(direct.fire(now)),
            Executor::InFlight(overlapping) => {
                let Overlapping { in_flight, timers, .. } = &mut **overlapping;
                if in_flight.is_empty() {
                    in_flight.with_store(|store| {
                        store.advance_watermark(now);
                        Ok(())
                    })?;
                }
                let record = |key, fired| Event::Timer(timer(key, fired));
                in_flight.poll_timers(&timers.event, now, record, context)
            }
        }
    }

    /// No timer of processing time is due before this; `None` when none is set.
    pub(super) fn next_processing_timer(&self) -> Option<Millis> {
        match self {
            Executor::Direct(direct) => direct.timers.earliest(),
            Executor::InFlight(overlapping) => overlapping.timers.earliest(),
        }
    }

    /// Fires the timers of processing time that are due. To be called with the same time until it is
    /// ready.
    pub(super) fn poll_processing_timers(
        &mut self,
        now: Millis,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        match self {
            Executor::Direct(direct) => Poll::Ready(direct.fire_processing(now)),
            Executor::InFlight(overlapping) => {
                let Overlapping { in_flight, timers, .. } = &mut **overlapping;
                let record = |key, fired| Event::ProcessingTimer(timer(key, fired));
                let fired = in_flight.poll_timers(&timers.processing, now, record, context)?;
                fired.map(|()| in_flight.with_store(|store| timers.look(store, now)))
            }
        }
    }

    /// Hands out what the records that are done have emitted.
    pub(super) fn for_each_output(&mut self, f: impl FnMut(L::Out)) {
        match self {
            Executor::Direct(direct) => direct.outputs.drain(..).for_each(f),
            Executor::InFlight(overlapping) => overlapping.in_flight.outputs().for_each(f),
        }
    }

    /// Pins the state; nothing must be in flight, all outputs handed out.
    pub(super) fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        match self {
            Executor::Direct(direct) => direct.store.snapshot(request),
            Executor::InFlight(overlapping) => overlapping.in_flight.snapshot(request),
        }
    }

    pub(super) fn notify(&mut self, news: Notification) -> Result<()> {
        match self {
            Executor::Direct(direct) => direct.store.notify(news),
            Executor::InFlight(overlapping) => overlapping.in_flight.notify(news),
        }
    }

    /// What made a call fail; the component answers with a summary until the failures are taken.
    pub(super) fn cause(&mut self, error: Error) -> Error {
        match self {
            Executor::Direct(_) => error,
            Executor::InFlight(overlapping) => overlapping
                .in_flight
                .take_failures()
                .into_iter()
                .next()
                .map_or(error, |first| first.error),
        }
    }
}

impl<L: KeyedLogic> Overlapping<L> {
    fn submit(
        &mut self,
        record: L::Record,
        key: impl Fn(&L::Record) -> &L::Key,
    ) -> Result<Option<L::Record>> {
        self.key.clear();
        Ordered.encode(key(&record), &mut self.key)?;
        let group = KeyRef::new(&self.key, self.max_parallelism)?.group();
        match self.in_flight.submit_encoded(&self.key, group, Event::Record(record))? {
            Admission::Full(Event::Record(record)) => Ok(Some(record)),
            Admission::Full(Event::Timer(_) | Event::ProcessingTimer(_))
            | Admission::Done
            | Admission::InFlight => Ok(None),
        }
    }
}

impl<L: KeyedLogic> Direct<L> {
    fn fire(&mut self, now: Millis) -> Result<()> {
        let Direct { store, logic, timers, outputs } = self;
        store.advance_watermark(now);
        if matches!(store.next_timer(&timers.event)?, NextTimer::Empty) {
            return Ok(());
        }
        while let Some(fired) = store.poll_timer(&timers.event, now).wait()? {
            let timer = timer(store.key()?, fired);
            let mut context = AtOnce { store, timers, outputs };
            run_now(logic.on_timer(&timer, &mut context))?;
        }
        Ok(())
    }

    fn fire_processing(&mut self, now: Millis) -> Result<()> {
        let Direct { store, logic, timers, outputs } = self;
        while let Some(fired) = store.poll_timer(&timers.processing, now).wait()? {
            let timer = timer(store.key()?, fired);
            let mut context = AtOnce { store, timers, outputs };
            run_now(logic.on_processing_timer(&timer, &mut context))?;
        }
        timers.look(store, now)
    }
}

fn timer<K, N>(key: K, fired: FiredTimer<N>) -> KeyedTimer<K, N> {
    KeyedTimer { key, time: fired.time, namespace: fired.namespace }
}

/// Runs a future that has nothing to wait for.
#[inline]
fn run_now(future: impl Future<Output = Result<()>>) -> Result<()> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(waits_for_something_else()),
    }
}

#[cold]
fn waits_for_something_else() -> Error {
    Error::new(ErrorKind::UserFunction, "the logic awaits something that is not state")
        .advice("await only state: this backend never pends, so records are not parked")
}

/// The context of a record that runs to its end at once.
struct AtOnce<'a, L: KeyedLogic> {
    store: &'a mut KeyedStore<L::Key>,
    timers: &'a Timers<L>,
    outputs: &'a mut Vec<L::Out>,
}

impl<L: KeyedLogic> StateAccess for AtOnce<'_, L> {
    #[inline]
    fn with<R>(&mut self, f: impl FnOnce(&mut Scope<'_>) -> Result<R>) -> Result<R> {
        self.store.with(f)
    }
}

impl<L: KeyedLogic> KeyedContext<L> for AtOnce<'_, L> {
    #[inline]
    fn emit(&mut self, output: L::Out) {
        self.outputs.push(output);
    }

    fn register_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()> {
        self.timers.event.register(self.store, time, namespace)
    }

    fn delete_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()> {
        self.timers.event.delete(self.store, time, namespace)
    }

    fn processing_time(&self) -> Millis {
        self.timers.now()
    }

    fn register_processing_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()> {
        self.timers.register_processing(self.store, time, namespace)
    }

    fn delete_processing_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()> {
        self.timers.processing.delete(self.store, time, namespace)
    }
}

/// What is in flight.
pub(super) enum Event<L: KeyedLogic> {
    Record(L::Record),
    Timer(KeyedTimer<L::Key, L::Timer>),
    ProcessingTimer(KeyedTimer<L::Key, L::Timer>),
}

/// The logic as the component for records in flight runs it.
pub(super) struct Parked<L: KeyedLogic> {
    logic: L,
    timers: Timers<L>,
}

impl<L: KeyedLogic> RecordOperator for Parked<L> {
    type Record = Event<L>;
    type Output = L::Out;

    async fn process(&self, event: &Event<L>, state: &mut RecordState<'_, L::Out>) -> Result<()> {
        let mut context = OfRecord::<L> { state, timers: &self.timers };
        match event {
            Event::Record(record) => self.logic.process(record, &mut context).await,
            Event::Timer(timer) => self.logic.on_timer(timer, &mut context).await,
            Event::ProcessingTimer(timer) => {
                self.logic.on_processing_timer(timer, &mut context).await
            }
        }
    }
}

/// The context of a record in flight.
struct OfRecord<'a, 'b, L: KeyedLogic> {
    state: &'a mut RecordState<'b, L::Out>,
    timers: &'a Timers<L>,
}

impl<L: KeyedLogic> StateAccess for OfRecord<'_, '_, L> {
    #[inline]
    fn with<R>(&mut self, f: impl FnOnce(&mut Scope<'_>) -> Result<R>) -> Result<R> {
        self.state.with(f)
    }
}

impl<L: KeyedLogic> KeyedContext<L> for OfRecord<'_, '_, L> {
    #[inline]
    fn emit(&mut self, output: L::Out) {
        self.state.emit(output);
    }

    fn register_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()> {
        self.timers.event.register(self.state, time, namespace)
    }

    fn delete_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()> {
        self.timers.event.delete(self.state, time, namespace)
    }

    fn processing_time(&self) -> Millis {
        self.timers.now()
    }

    fn register_processing_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()> {
        self.timers.register_processing(self.state, time, namespace)
    }

    fn delete_processing_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()> {
        self.timers.processing.delete(self.state, time, namespace)
    }
}
