//! What a case works with: an environment, a factory, and short ways to open, snapshot, restore.

mod contents;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use opendal::Operator;
use weir_state_api::{
    BackendFactory, CheckpointId, Clock, Codec, Environment, KeyRef, KeyedBackend, KeyedStore,
    ManualClock, MaxParallelism, Millis, ObjectRef, OpenRequest, Ordered, OrderedType, Result,
    SnapshotHandle, SnapshotRequest, SnapshotTask, TokioSpawner, block_on,
};

use crate::faults::Faults;
pub use contents::{Contents, EntryAddress, Scanned, assert_same, descriptor, drain, read};

/// Where instances make objects between snapshots, if the factory under test gives them a
/// [`directory`](OpenRequest::directory): below this folder, or the collector of the cases deletes what
/// running instances need.
pub const LIVE: &str = "live/";

/// A store with string keys, which most cases use.
pub type Store = KeyedStore<String>;

/// One case's world: nothing in it is shared with another case.
pub struct Harness<'f> {
    factory: &'f dyn BackendFactory,
    environment: Environment,
    clock: Arc<ManualClock>,
    faults: Faults,
    bare_store: Operator,
    next_checkpoint: AtomicU64,
    _directory: Option<tempfile::TempDir>,
    _runtime: tokio::runtime::EnterGuard<'static>,
}

/// Drives the I/O of backends that do any; the cases themselves block.
fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime with two threads starts")
    })
}

impl<'f> Harness<'f> {
    /// A fresh world around an in-memory store.
    pub fn new(factory: &'f dyn BackendFactory) -> Self {
        let memory = opendal::services::Memory::default();
        let store = Operator::new(memory).expect("the memory service has no configuration");
        Self::with_store(factory, store, None)
    }

    /// A fresh world around a temporary directory.
    pub fn on_disk(factory: &'f dyn BackendFactory) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be created");
        let root = directory.path().to_str().expect("temporary paths are UTF-8");
        let files = opendal::services::Fs::default().root(root);
        let store = Operator::new(files).expect("the directory exists");
        Self::with_store(factory, store, Some(directory))
    }

    /// A fresh world around a store that has nothing in it, such as an empty part of a bucket.
    pub fn around(factory: &'f dyn BackendFactory, store: Operator) -> Self {
        Self::with_store(factory, store, None)
    }

    fn with_store(
        factory: &'f dyn BackendFactory,
        bare_store: Operator,
        directory: Option<tempfile::TempDir>,
    ) -> Self {
        let (clock, faults) = (Arc::new(ManualClock::new(1_000)), Faults::new());
        let environment = Environment::new(
            clock.clone(),
            bare_store.clone().layer(faults.layer()),
            Arc::new(TokioSpawner::new(runtime().handle().clone())),
        );
        Harness {
            factory,
            environment,
            clock,
            faults,
            bare_store,
            next_checkpoint: AtomicU64::new(1),
            _directory: directory,
            _runtime: runtime().enter(),
        }
    }

    /// Another fresh world for the same factory.
    pub fn sibling(&self) -> Harness<'f> {
        Harness::new(self.factory)
    }

    /// What the environment's clock shows.
    pub fn now(&self) -> Millis {
        self.clock.now()
    }

    /// A second world for the same factory, on disk.
    pub fn also_on_disk(&self) -> Harness<'f> {
        Harness::on_disk(self.factory)
    }

    /// The factory under test.
    pub fn factory(&self) -> &'f dyn BackendFactory {
        self.factory
    }

    /// The clock that the environment shows.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// What the environment's store breaks.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The same objects without faults, for looking at them and damaging them.
    pub fn bare_store(&self) -> &Operator {
        &self.bare_store
    }

    /// A request for an instance with keys of type `K` that owns all key groups.
    pub fn request<K>(&self) -> OpenRequest
    where
        K: OrderedType + Send + 'static,
    {
        OpenRequest::new(self.environment.clone(), "operator", Codec::<K>::id(&Ordered))
    }

    /// An empty instance that owns all key groups.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open(&self) -> Result<Store> {
        self.open_request(self.request::<String>())
    }

    /// An empty instance with keys of another type.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open_keyed<K>(&self) -> Result<KeyedStore<K>>
    where
        K: OrderedType + Send + 'static,
    {
        self.open_request(self.request::<K>())
    }

    /// An instance as requested.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open_request<K>(&self, request: OpenRequest) -> Result<KeyedStore<K>>
    where
        K: OrderedType + Send + 'static,
    {
        block_on(KeyedStore::<K>::open(self.factory, request))
    }

    /// The bare backend, as requested.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open_bytes(&self, request: OpenRequest) -> Result<Box<dyn KeyedBackend>> {
        block_on(self.factory.open(request))
    }

    /// All instances of an operator at `parallelism`, restored from `handles` (none: empty).
    ///
    /// # Errors
    /// Those of opening them.
    pub fn open_all(&self, parallelism: u16, handles: &[SnapshotHandle]) -> Result<Vec<Store>> {
        (0..parallelism)
            .map(|subtask| {
                let request = self
                    .request::<String>()
                    .for_subtask(MaxParallelism::default(), parallelism, subtask)?
                    .restore_from(handles.to_vec());
                self.open_request(request)
            })
            .collect()
    }

    /// One instance that owns all key groups, restored from `handles`.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn restore(&self, handles: &[SnapshotHandle]) -> Result<Store> {
        self.open_request(self.request::<String>().restore_from(handles.to_vec()))
    }

    /// The request of the next checkpoint, in a directory of its own.
    pub fn next_checkpoint(&self) -> SnapshotRequest {
        let number = self.next_checkpoint.fetch_add(1, Ordering::Relaxed);
        SnapshotRequest::checkpoint(CheckpointId(number), format!("chk-{number}"))
    }

    /// The synchronous part of the next checkpoint.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn begin_snapshot(&self, store: &mut Store) -> Result<SnapshotTask> {
        store.snapshot(self.next_checkpoint())
    }

    /// A whole checkpoint of one instance.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn snapshot(&self, store: &mut Store) -> Result<SnapshotHandle> {
        block_on(self.begin_snapshot(store)?.run())
    }

    /// One checkpoint of all instances of an operator.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn snapshot_all(&self, stores: &mut [Store]) -> Result<Vec<SnapshotHandle>> {
        let request = self.next_checkpoint();
        let tasks = stores
            .iter_mut()
            .map(|store| store.snapshot(request.clone()))
            .collect::<Result<Vec<_>>>()?;
        tasks.into_iter().map(|task| block_on(task.run())).collect()
    }

    /// Deletes the objects that the handles in `gone` name and none in `kept` does, as a collector
    /// may once a checkpoint is subsumed. With nothing kept, what a running instance has made between
    /// snapshots stays: an engine keeps at least its newest complete checkpoint.
    ///
    /// # Panics
    /// When the store does not delete one.
    pub fn collect<'a>(
        &self,
        gone: impl IntoIterator<Item = &'a SnapshotHandle>,
        kept: impl IntoIterator<Item = &'a SnapshotHandle>,
    ) {
        let objects = |handle: &'a SnapshotHandle| handle.objects.iter();
        let paths = |object: &'a ObjectRef| object.path.as_str();
        let kept: BTreeSet<&str> = kept.into_iter().flat_map(objects).map(paths).collect();
        let gone: BTreeSet<&str> = gone.into_iter().flat_map(objects).map(paths).collect();
        let stays = |path: &str| kept.is_empty() && path.starts_with(LIVE);
        for path in gone.difference(&kept).filter(|path| !stays(path)) {
            block_on(self.bare_store.delete(path)).expect("the bare store does not fail");
        }
    }

    /// Deletes the objects of a checkpoint that never completed, without those that one of `kept` names:
    /// as a collector may, which leaves to a running instance what it has made between snapshots.
    ///
    /// # Panics
    /// When the store does not delete one.
    pub fn collect_aborted(&self, aborted: &SnapshotHandle, kept: &[&SnapshotHandle]) {
        let mut aborted = aborted.clone();
        aborted.objects.retain(|object| !object.path.starts_with(LIVE));
        self.collect([&aborted], kept.iter().copied());
    }
}

impl fmt::Debug for Harness<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("factory", &self.factory).finish_non_exhaustive()
    }
}

/// Shorthand for cases.
pub trait At {
    /// Sets the current key and returns the store for the access that follows.
    ///
    /// # Errors
    /// Those of [`KeyedStore::set_key`].
    fn at(&mut self, key: &str) -> Result<&mut Store>;
}

impl At for Store {
    fn at(&mut self, key: &str) -> Result<&mut Store> {
        self.set_key(&key.to_string())?;
        Ok(self)
    }
}

/// A key that belongs to no group of a store, and one that does.
pub fn foreign_and_own_key(store: &Store) -> (String, String) {
    let mut keys = (0..).map(|number| format!("key-{number}"));
    let owned = |key: &String| {
        let mut bytes = Vec::new();
        Ordered.encode(key, &mut bytes).expect("strings encode");
        let key = KeyRef::new(&bytes, MaxParallelism::default()).expect("the key is short");
        store.key_groups().contains(key.group())
    };
    let own = keys.clone().find(owned).expect("some key is owned");
    let foreign = keys.find(|key| !owned(key)).expect("some key is foreign");
    (foreign, own)
}
