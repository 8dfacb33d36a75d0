//! Opens stores, drives executors, looks into snapshots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use weir_state_api::{
    Admission, BackendFactory, CheckpointId, Codec, Environment, InFlight, InFlightLimits,
    KeyedStore, Millis, OpenRequest, Ordered, Result, SnapshotHandle, SnapshotRequest, Unfinished,
    block_on, waker_fn,
};
use weir_tests::latency::{Latency, LatencyFactory};
use weir_tests::reference::ReferenceBackendFactory;

use crate::operator::{Event, Obedient, Seen, States, WINDOWS};

pub(crate) const KEYS: u8 = 5;

/// An environment, and numbers for snapshots.
pub(crate) struct World {
    request: OpenRequest,
    snapshots: AtomicU64,
}

impl World {
    pub(crate) fn new() -> Self {
        let key_codec = Codec::<u8>::id(&Ordered);
        let request = OpenRequest::new(Environment::in_memory(), "operator", key_codec);
        World { request, snapshots: AtomicU64::new(0) }
    }

    pub(crate) fn open(
        &self,
        factory: &dyn BackendFactory,
        from: Option<SnapshotHandle>,
    ) -> (KeyedStore<u8>, States) {
        let request = self.request.clone().restore_from(from.into_iter().collect());
        let mut store: KeyedStore<u8> = block_on(KeyedStore::open(factory, request)).unwrap();
        let states = States::register(&mut store).unwrap();
        (store, states)
    }

    pub(crate) fn request_snapshot(&self) -> SnapshotRequest {
        let id = self.snapshots.fetch_add(1, Ordering::Relaxed);
        SnapshotRequest::checkpoint(CheckpointId(id), format!("chk-{id}"))
    }

    /// Everything that a snapshot holds, as text that can be compared.
    pub(crate) fn dump(&self, handle: &SnapshotHandle) -> Vec<String> {
        let (mut store, states) =
            self.open(&ReferenceBackendFactory::default(), Some(handle.clone()));
        let mut all = Vec::new();
        for key in 0..KEYS {
            store.set_key(&key).unwrap();
            let windows: Vec<_> = WINDOWS
                .iter()
                .map(|window| states.windows.at(window).unwrap().get(&mut store).wait().unwrap())
                .collect();
            let map: Vec<_> = states.map.entries(&mut store).wait().unwrap().collect();
            all.push(format!(
                "{key}: {:?} {:?} {map:?} {:?} {windows:?}",
                states.value.get(&mut store).wait().unwrap(),
                states.list.get(&mut store).wait().unwrap(),
                states.sum.get(&mut store).wait().unwrap(),
            ));
        }
        while let Some(timer) = store.poll_timer(&states.timers, Millis::MAX).wait().unwrap() {
            all.push(format!("timer {} of {}", timer.time, store.key().unwrap()));
        }
        all
    }
}

/// An executor, driven like by an engine that polls only when it is woken.
pub(crate) struct Job {
    pub(crate) in_flight: InFlight<Obedient, u8>,
    pub(crate) latency: Latency,
    factory: LatencyFactory,
    limits: InFlightLimits,
    woken: Arc<AtomicBool>,
    waker: Waker,
    pub(crate) outputs: Vec<Seen>,
}

impl Job {
    pub(crate) fn new(
        world: &World,
        latency: Latency,
        limits: InFlightLimits,
        from: Option<SnapshotHandle>,
    ) -> Self {
        let factory = LatencyFactory::new(ReferenceBackendFactory::default(), latency.clone());
        let (store, states) = world.open(&factory, from);
        let in_flight = InFlight::new(store, Obedient::new(states), limits);
        let woken = Arc::new(AtomicBool::new(false));
        let waker = waker_fn({
            let woken = woken.clone();
            move || woken.store(true, Ordering::SeqCst)
        });
        Job { in_flight, latency, factory, limits, woken, waker, outputs: Vec::new() }
    }

    /// Polls until ready. Between two polls reads complete until the engine is woken: when none is
    /// left and it was not, a wake-up was lost.
    pub(crate) fn drive(
        &mut self,
        mut poll: impl FnMut(&mut InFlight<Obedient, u8>, &mut Context<'_>) -> Poll<Result<()>>,
    ) {
        loop {
            let polled = poll(&mut self.in_flight, &mut Context::from_waker(&self.waker));
            self.outputs.extend(self.in_flight.outputs());
            assert!(self.in_flight.len() <= self.limits.records, "more in flight than allowed");
            match polled {
                Poll::Ready(result) => return result.unwrap(),
                Poll::Pending => self.until_woken(),
            }
        }
    }

    pub(crate) fn poll_once(
        &mut self,
        poll: impl FnOnce(&mut InFlight<Obedient, u8>, &mut Context<'_>) -> Poll<Result<()>>,
    ) -> bool {
        poll(&mut self.in_flight, &mut Context::from_waker(&self.waker)).is_ready()
    }

    pub(crate) fn until_woken(&mut self) {
        while !self.woken.swap(false, Ordering::SeqCst) {
            assert!(self.latency.complete_one(), "stalled: {:?}", self.in_flight);
        }
    }

    pub(crate) fn submit(&mut self, event: Event) {
        let mut next = event;
        while let Admission::Full(back) = self.in_flight.submit(&next.key(), next.clone()).unwrap()
        {
            next = back;
            self.drive(InFlight::poll_room);
        }
        self.outputs.extend(self.in_flight.outputs());
    }

    pub(crate) fn idle(&mut self) {
        self.drive(InFlight::poll_idle);
    }

    pub(crate) fn fire(&mut self, now: Millis) {
        let timers = self.in_flight.operator().states.timers.clone();
        let event =
            |key, timer: weir_state_api::FiredTimer<()>| Event::Timer { key, time: timer.time };
        self.drive(|in_flight, context| in_flight.poll_timers(&timers, now, event, context));
    }

    pub(crate) fn fire_once(&mut self, now: Millis) -> bool {
        let timers = self.in_flight.operator().states.timers.clone();
        let event =
            |key, timer: weir_state_api::FiredTimer<()>| Event::Timer { key, time: timer.time };
        self.poll_once(|in_flight, context| in_flight.poll_timers(&timers, now, event, context))
    }

    /// Settles and takes a snapshot, with the records that are not done.
    pub(crate) fn snapshot(&mut self, world: &World) -> (SnapshotHandle, Vec<Unfinished<Event>>) {
        self.drive(InFlight::poll_settled);
        let task = self.in_flight.snapshot(world.request_snapshot()).unwrap();
        let unfinished = self.in_flight.unfinished();
        assert_eq!(unfinished.len(), self.in_flight.len());
        let unfinished = unfinished
            .iter()
            .map(|unfinished| Unfinished::new(unfinished.key, unfinished.record.clone()))
            .collect();
        (block_on(task.run()).unwrap(), unfinished)
    }

    /// A new executor from a snapshot and its unfinished records, with the outputs so far.
    pub(crate) fn restored(
        &self,
        world: &World,
        (handle, unfinished): (SnapshotHandle, Vec<Unfinished<Event>>),
        limits: InFlightLimits,
    ) -> Self {
        let mut job = Job::new(world, self.latency.clone(), limits, Some(handle));
        job.factory = self.factory.clone();
        job.in_flight.resubmit(unfinished).unwrap();
        job.outputs.clone_from(&self.outputs);
        job.outputs.extend(job.in_flight.outputs());
        job
    }
}

/// One record after the other, on a store that answers at once.
pub(crate) struct Sequential {
    store: KeyedStore<u8>,
    states: States,
    pub(crate) outputs: Vec<Seen>,
}

impl Sequential {
    pub(crate) fn new(world: &World) -> Self {
        let (store, states) = world.open(&ReferenceBackendFactory::default(), None);
        Sequential { store, states, outputs: Vec::new() }
    }

    pub(crate) fn submit(&mut self, event: &Event) {
        self.store.set_key(&event.key()).unwrap();
        self.handle(event);
    }

    fn handle(&mut self, event: &Event) {
        let seen = block_on(self.states.handle(event, &mut self.store)).unwrap();
        self.outputs.push((event.key(), seen));
    }

    pub(crate) fn fire(&mut self, now: Millis) {
        while let Some(timer) = self.store.poll_timer(&self.states.timers, now).wait().unwrap() {
            let key = self.store.key().unwrap();
            self.handle(&Event::Timer { key, time: timer.time });
        }
    }

    pub(crate) fn snapshot(&mut self, world: &World) -> SnapshotHandle {
        block_on(self.store.snapshot(world.request_snapshot()).unwrap().run()).unwrap()
    }
}

/// The outputs of each key, in order.
pub(crate) fn per_key(outputs: &[Seen]) -> Vec<Vec<&Vec<u64>>> {
    (0..KEYS)
        .map(|key| outputs.iter().filter(|seen| seen.0 == key).map(|seen| &seen.1).collect())
        .collect()
}
