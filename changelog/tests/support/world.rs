//! A store that fails on demand, a clock, and jobs that count.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unused_self, reason = "called as the world's, whatever it takes")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_backend_heap::HeapBackendFactory;
use weir_changelog::ChangelogBackendFactory;
use weir_state_api::opendal::{Operator, services};
use weir_state_api::*;
use weir_tests::faults::Faults;

use crate::support::{self, HoldingSpawner};

pub(crate) struct World {
    pub(crate) bare: Operator,
    pub(crate) faults: Faults,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) spawner: Arc<HoldingSpawner>,
    environment: Environment,
    next: AtomicU64,
}

/// A store with a counter per key.
pub(crate) struct Job<F = ChangelogBackendFactory> {
    pub(crate) store: KeyedStore<String>,
    counts: ValueState<u64>,
    pub(crate) factory: F,
}

pub(crate) fn memory() -> Operator {
    Operator::new(services::Memory::default()).unwrap()
}

pub(crate) fn list(store: &Operator) -> Vec<String> {
    let entries = block_on(store.list_with("").recursive(true).into_future()).unwrap();
    let files = entries.into_iter().filter(|entry| !entry.path().ends_with('/'));
    files.map(|entry| entry.path().to_string()).collect()
}

pub(crate) fn names(handle: &SnapshotHandle, path: &str) -> bool {
    handle.objects.iter().any(|object| object.path == path)
}

impl World {
    pub(crate) fn new() -> Self {
        let (bare, faults) = (memory(), Faults::new());
        let (clock, spawner) = (Arc::new(ManualClock::new(0)), Arc::new(HoldingSpawner::default()));
        let environment = Environment::new(
            Arc::clone(&clock) as Arc<dyn Clock>,
            bare.clone().layer(faults.layer()),
            Arc::clone(&spawner) as Arc<dyn Spawner>,
        );
        World { bare, faults, clock, spawner, environment, next: AtomicU64::new(1) }
    }

    pub(crate) fn factory(&self, changes_per_materialization: u64) -> ChangelogBackendFactory {
        let options = support::options(changes_per_materialization);
        ChangelogBackendFactory::new(HeapBackendFactory::default(), options)
    }

    pub(crate) fn open_request(&self) -> OpenRequest {
        let codec = Codec::<String>::id(&Ordered);
        let mut request = OpenRequest::new(self.environment.clone(), "op", codec);
        request.directory = format!("live/{}/", self.next.fetch_add(1, Ordering::Relaxed));
        request
    }

    pub(crate) fn open(&self, factory: &ChangelogBackendFactory, from: Vec<SnapshotHandle>) -> Job {
        self.open_with(factory, from)
    }

    pub(crate) fn open_with<F: BackendFactory + Clone>(
        &self,
        factory: &F,
        from: Vec<SnapshotHandle>,
    ) -> Job<F> {
        self.open_as(factory, self.open_request().restore_from(from))
    }

    pub(crate) fn open_subtask(
        &self,
        factory: &ChangelogBackendFactory,
        subtask: u16,
        parallelism: u16,
        from: Vec<SnapshotHandle>,
    ) -> Job {
        let request = self.open_request().restore_from(from);
        let max = MaxParallelism::default();
        self.open_as(factory, request.for_subtask(max, parallelism, subtask).unwrap())
    }

    pub(crate) fn open_as<F: BackendFactory + Clone>(
        &self,
        factory: &F,
        request: OpenRequest,
    ) -> Job<F> {
        self.try_open(factory, request).unwrap()
    }

    pub(crate) fn try_open<F: BackendFactory + Clone>(
        &self,
        factory: &F,
        request: OpenRequest,
    ) -> Result<Job<F>> {
        let mut store = block_on(KeyedStore::open(factory, request))?;
        let counts = store.value("counts")?;
        Ok(Job { store, counts, factory: factory.clone() })
    }

    /// The next checkpoint.
    pub(crate) fn request(&self) -> SnapshotRequest {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        SnapshotRequest::checkpoint(CheckpointId(number), format!("chk-{number}"))
    }

    /// Deletes what `gone` name and `kept` do not.
    pub(crate) fn collect(&self, gone: &[&SnapshotHandle], kept: &[&SnapshotHandle]) {
        fn paths<'h>(handles: &[&'h SnapshotHandle]) -> BTreeSet<&'h str> {
            let objects = handles.iter().flat_map(|handle| &handle.objects);
            objects.map(|object| object.path.as_str()).collect()
        }
        for path in paths(gone).difference(&paths(kept)) {
            block_on(self.bare.delete(path)).unwrap();
        }
    }

    /// Waits for the writer's thread.
    pub(crate) fn wait_until(&self, what: &str, done: impl Fn() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(60), "in vain: {what}");
            std::thread::yield_now();
        }
    }
}

impl<F> Job<F> {
    pub(crate) fn count(&mut self, key: &str) {
        self.store.set_key(&key.to_string()).unwrap();
        self.counts.update(&mut self.store, |old| old.unwrap_or(0) + 1).wait().unwrap();
    }

    pub(crate) fn counted(&mut self, key: &str) -> u64 {
        self.store.set_key(&key.to_string()).unwrap();
        self.counts.get(&mut self.store).wait().unwrap().unwrap_or(0)
    }

    /// A key of a group that the instance owns.
    pub(crate) fn own_key(&mut self) -> String {
        let mut keys = (0..).map(|number: u32| number.to_string());
        keys.find(|key| self.store.set_key(key).is_ok()).unwrap()
    }

    pub(crate) fn checkpoint(&mut self, world: &World) -> SnapshotHandle {
        self.try_checkpoint(world).unwrap()
    }

    pub(crate) fn try_checkpoint(&mut self, world: &World) -> Result<SnapshotHandle> {
        block_on(self.store.snapshot(world.request())?.run())
    }
}

/// One checkpoint of all.
pub(crate) fn checkpoint_all(world: &World, jobs: &mut [Job]) -> Vec<SnapshotHandle> {
    let request = world.request();
    let begin = |job: &mut Job| job.store.snapshot(request.clone()).unwrap();
    let tasks: Vec<SnapshotTask> = jobs.iter_mut().map(begin).collect();
    tasks.into_iter().map(|task| block_on(task.run()).unwrap()).collect()
}

/// The memory backend, and what news it was told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spy {
    heap: HeapBackendFactory,
    news: Arc<Mutex<Vec<Notification>>>,
}

impl Spy {
    pub(crate) fn news(&self) -> Vec<Notification> {
        self.news.lock().unwrap().clone()
    }
}

impl BackendFactory for Spy {
    fn name(&self) -> &str {
        self.heap.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.heap.capabilities()
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let (opening, news) = (self.heap.open(request), Arc::clone(&self.news));
        Box::pin(async move {
            let heap = opening.await?;
            Ok(Box::new(Spied { heap, news }) as Box<dyn KeyedBackend>)
        })
    }
}

#[derive(Debug)]
struct Spied {
    heap: Box<dyn KeyedBackend>,
    news: Arc<Mutex<Vec<Notification>>>,
}

impl KeyedBackend for Spied {
    fn capabilities(&self) -> Capabilities {
        self.heap.capabilities()
    }
    fn register(&mut self, descriptor: &StateDescriptor) -> Result<StateId> {
        self.heap.register(descriptor)
    }
    fn states(&self) -> Vec<(StateId, StateDescriptor)> {
        self.heap.states()
    }
    fn get(&mut self, at: &Address<'_>) -> Result<Lookup<'_>> {
        self.heap.get(at)
    }
    fn put(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        self.heap.put(at, value)
    }
    fn delete(&mut self, at: &Address<'_>) -> Result<()> {
        self.heap.delete(at)
    }
    fn append(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        self.heap.append(at, value)
    }
    fn scan(
        &mut self,
        at: &Address<'_>,
        range: MapRange<'_>,
        order: Order,
        page: &mut Page,
    ) -> Result<ScanStep> {
        self.heap.scan(at, range, order, page)
    }
    fn delete_range(&mut self, at: &Address<'_>, range: MapRange<'_>) -> Result<()> {
        self.heap.delete_range(at, range)
    }
    fn scan_keys(
        &mut self,
        state: StateId,
        namespace: Option<&[u8]>,
        page: &mut Page,
    ) -> Result<ScanStep> {
        self.heap.scan_keys(state, namespace, page)
    }
    fn register_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        self.heap.register_timer(timer)
    }
    fn delete_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        self.heap.delete_timer(timer)
    }
    fn poll_timer(&mut self, queue: StateId, now: Millis) -> Result<TimerPoll<'_>> {
        self.heap.poll_timer(queue, now)
    }
    fn next_timer(&mut self, queue: StateId) -> Result<NextTimer> {
        self.heap.next_timer(queue)
    }
    fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        self.heap.snapshot(request)
    }
    fn notify(&mut self, notification: Notification) -> Result<()> {
        self.news.lock().unwrap().push(notification);
        self.heap.notify(notification)
    }
    fn physical_entries(&self, state: StateId) -> Result<u64> {
        self.heap.physical_entries(state)
    }
    fn statistics(&self) -> Statistics {
        self.heap.statistics()
    }
}
