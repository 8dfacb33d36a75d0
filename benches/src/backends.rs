//! The backends of Weir that take part, and how their instances are opened.

use std::fmt;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use weir_backend_forst::{ForstBackendFactory, ForstOptions, ForstResources};
use weir_backend_heap::{HeapBackendFactory, HeapOptions};
use weir_state_api::{
    BackendFactory, Clock, Codec, Environment, Error, ErrorKind, KeyGroupRange, KeyedStore,
    MaxParallelism, Millis, OpenRequest, Ordered, Result, SystemClock, TokioSpawner, block_on,
};

/// The memory budget of those who have one, half of it for writes.
pub(crate) const MEMORY: usize = 512 << 20;
/// Memory for writes where the cache is chosen.
const WRITES: u64 = 16 << 20;

/// Memory of a backend or a peer whose state lies elsewhere, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// For what is read.
    pub(crate) cache: u64,
    /// For what is not flushed.
    pub(crate) writes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { cache: MEMORY as u64 / 2, writes: MEMORY as u64 / 2 }
    }
}

impl Budget {
    /// So much of a cache, and little for writes: what was just written is read from it as well.
    pub(crate) fn with_cache(cache: u64) -> Self {
        Budget { cache, writes: WRITES }
    }

    /// All of it.
    pub(crate) fn bytes(self) -> u64 {
        self.cache + self.writes
    }
}
/// Local disk for copies of what is in the store.
const DISK_CACHE: u64 = 64 << 30;

/// A backend of Weir.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Backend {
    /// State in memory.
    Heap,
    /// State in `RocksDB` (built with `--features rocks`).
    Rocks,
    /// State in object storage, with caches in memory and on local disk.
    Forst,
}

impl Backend {
    /// All of them.
    pub(crate) const ALL: [Backend; 3] = [Backend::Heap, Backend::Rocks, Backend::Forst];

    /// Whether its state may be larger than its memory.
    pub(crate) fn has_cache(self) -> bool {
        self != Backend::Heap
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Heap => "weir heap",
            Backend::Rocks => "weir rocks",
            Backend::Forst => "weir forst",
        })
    }
}

/// What instances are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Access to state, with the backend's defaults.
    Access,
    /// Incremental checkpoints; instances come back to their machine, so what is on its disk is kept.
    CheckpointsHere,
    /// Incremental checkpoints, restored elsewhere.
    Checkpoints,
}

/// A clock that stands until it is moved, and costs what the system's costs.
#[derive(Debug, Default)]
pub(crate) struct StandingClock(AtomicI64);

/// Whether standing clocks leave the system's alone.
static LEAVES_SYSTEM_ALONE: AtomicBool = AtomicBool::new(false);

impl StandingClock {
    /// From now on no standing clock reads the system's coarse clock: valgrind cannot run the kernel's
    /// code behind it.
    pub(crate) fn leave_system_alone() {
        LEAVES_SYSTEM_ALONE.store(true, Relaxed);
    }

    pub(crate) fn set(&self, now: Millis) {
        self.0.store(now, Relaxed);
    }

    pub(crate) fn advance(&self, millis: Millis) {
        self.0.fetch_add(millis, Relaxed);
    }
}

impl Clock for StandingClock {
    fn now(&self) -> Millis {
        black_box(SystemClock.now());
        self.0.load(Relaxed)
    }

    fn coarse_now(&self) -> Millis {
        if !LEAVES_SYSTEM_ALONE.load(Relaxed) {
            black_box(SystemClock.coarse_now());
        }
        self.0.load(Relaxed)
    }
}

/// An instance that owns all key groups, and what lives as long as it.
pub(crate) struct Instance {
    pub(crate) store: KeyedStore<i64>,
    /// Stands at 0 until it is set.
    pub(crate) clock: Arc<StandingClock>,
    /// Where its background work runs, if it has any.
    _threads: Option<tokio::runtime::Runtime>,
    /// Its local folder; removed after the store is closed.
    #[cfg_attr(not(feature = "rocks"), expect(dead_code, reason = "it is held, not read"))]
    pub(crate) directory: Option<TempDir>,
}

impl Backend {
    /// An empty instance.
    pub(crate) fn open(self, key_groups: u16) -> Result<Instance> {
        self.open_within(key_groups, Budget::default())
    }

    /// An empty instance with so much memory, if it has a budget.
    pub(crate) fn open_within(self, key_groups: u16, budget: Budget) -> Result<Instance> {
        let key_codec = Codec::<i64>::id(&Ordered);
        let clock = Arc::new(StandingClock::default());
        let mut environment = Environment::in_memory();
        environment.clock = clock.clone();
        let (factory, directory) = self.factory_within(Purpose::Access, budget)?;
        let mut threads = None;
        let mut path = String::new();
        if let (Backend::Forst, Some(directory)) = (self, &directory) {
            let runtime = runtime()?;
            environment.spawner = Arc::new(TokioSpawner::new(runtime.handle().clone()));
            environment.store = folder_store(&directory.path().join("store"))?;
            (threads, path) = (Some(runtime), "live/".into());
        }
        let mut request = OpenRequest::new(environment, "bench", key_codec);
        request.max_parallelism = MaxParallelism::new(key_groups)?;
        request.key_groups = KeyGroupRange::all(request.max_parallelism);
        request.directory = path;
        let store = block_on(KeyedStore::open(&*factory, request))?;
        Ok(Instance { store, clock, _threads: threads, directory })
    }

    /// Its options, for the report.
    pub(crate) fn options(self) -> Result<String> {
        self.options_within(Budget::default())
    }

    /// The same with so much memory.
    pub(crate) fn options_within(self, budget: Budget) -> Result<String> {
        let (factory, _directory) = self.factory_within(Purpose::Access, budget)?;
        if self == Backend::Forst {
            // Resources show what they hold, which is nothing yet; here their limits count.
            let ForstOptions { block_bytes, table_bytes, compression, keep_flushed, .. } =
                ForstOptions::default();
            return Ok(format!(
                "cache_bytes {}, memtable_bytes {}, disk_cache {DISK_CACHE}, compression {compression:?}, \
                 block_bytes {block_bytes}, table_bytes {table_bytes}, keep_flushed {keep_flushed}; the \
                 others by default",
                budget.cache, budget.writes
            ));
        }
        Ok(format!("{factory:?}"))
    }

    /// What opens its instances, and their local folder if they have one.
    pub(crate) fn factory(
        self,
        purpose: Purpose,
    ) -> Result<(Box<dyn BackendFactory>, Option<TempDir>)> {
        self.factory_within(purpose, Budget::default())
    }

    /// The same with so much memory.
    pub(crate) fn factory_within(
        self,
        purpose: Purpose,
        budget: Budget,
    ) -> Result<(Box<dyn BackendFactory>, Option<TempDir>)> {
        match self {
            Backend::Heap => {
                let incremental = purpose != Purpose::Access;
                let options = HeapOptions::default().with_incremental_snapshots(incremental);
                Ok((Box::new(HeapBackendFactory::new(options)), None))
            }
            Backend::Rocks => rocks(purpose, budget),
            Backend::Forst => {
                let directory = local_folder()?;
                let resources = ForstResources::builder()
                    .cache_bytes(budget.cache)
                    .memtable_bytes(budget.writes)
                    .disk_cache(directory.path().join("cache"), DISK_CACHE)
                    .build()?;
                let options = ForstOptions::default().with_resources(resources);
                Ok((Box::new(ForstBackendFactory::new(options)), Some(directory)))
            }
        }
    }
}

/// A folder that is removed when it is dropped.
pub(crate) fn local_folder() -> Result<TempDir> {
    tempfile::Builder::new().prefix("weir-benches-").tempdir().map_err(|error| {
        Error::new(ErrorKind::Unavailable, "no temporary folder for state").source(error)
    })
}

/// A local folder as the store.
pub(crate) fn folder_store(folder: &Path) -> Result<opendal::Operator> {
    let service = opendal::services::Fs::default().root(&folder.to_string_lossy());
    opendal::Operator::new(service).map_err(|error| Error::store("open", "the folder", error))
}

/// Threads for background work.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(
        |error| Error::new(ErrorKind::Unavailable, "no threads for background work").source(error),
    )
}

#[cfg(feature = "rocks")]
fn rocks(purpose: Purpose, budget: Budget) -> Result<(Box<dyn BackendFactory>, Option<TempDir>)> {
    use weir_backend_rocks::{RocksBackendFactory, RocksMemory, RocksOptions};

    let directory = local_folder()?;
    let share = budget.writes as f64 / budget.bytes() as f64;
    let memory = RocksMemory::new(budget.bytes() as usize, share);
    let options = RocksOptions::new(directory.path())
        .with_memory(memory)
        .with_local_recovery(purpose == Purpose::CheckpointsHere);
    let factory = RocksBackendFactory::new(options);
    Ok((Box::new(factory), Some(directory)))
}

#[cfg(not(feature = "rocks"))]
fn rocks(_: Purpose, _: Budget) -> Result<(Box<dyn BackendFactory>, Option<TempDir>)> {
    Err(Error::new(ErrorKind::Unsupported, "this build has no RocksDB")
        .advice("cargo run --release -p weir-benches --features rocks -- ..."))
}
