//! The backends of Weir that take part, and how their instances are opened.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use clap::ValueEnum;
use tempfile::TempDir;
use weir_backend_heap::{HeapBackendFactory, HeapOptions};
use weir_state_api::{
    BackendFactory, Clock, Codec, Environment, Error, ErrorKind, KeyGroupRange, KeyedStore,
    MaxParallelism, Millis, OpenRequest, Ordered, Result, SystemClock, block_on,
};

/// The memory budget of `RocksDB`.
#[cfg(feature = "rocks")]
pub(crate) const ROCKS_MEMORY: usize = 512 << 20;

/// A backend of Weir.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// State in memory.
    Heap,
    /// State in `RocksDB` (built with `--features rocks`).
    Rocks,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Heap => "weir heap",
            Backend::Rocks => "weir rocks",
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

impl StandingClock {
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
        black_box(SystemClock.coarse_now());
        self.0.load(Relaxed)
    }
}

/// An instance that owns all key groups, and what lives as long as it.
pub(crate) struct Instance {
    pub(crate) store: KeyedStore<i64>,
    /// Stands at 0 until it is set.
    pub(crate) clock: Arc<StandingClock>,
    /// Its local folder; removed after the store is closed.
    #[cfg_attr(not(feature = "rocks"), expect(dead_code, reason = "it is held, not read"))]
    pub(crate) directory: Option<TempDir>,
}

impl Backend {
    /// An empty instance.
    pub(crate) fn open(self, key_groups: u16) -> Result<Instance> {
        let key_codec = Codec::<i64>::id(&Ordered);
        let clock = Arc::new(StandingClock::default());
        let mut environment = Environment::in_memory();
        environment.clock = clock.clone();
        let mut request = OpenRequest::new(environment, "bench", key_codec);
        request.max_parallelism = MaxParallelism::new(key_groups)?;
        request.key_groups = KeyGroupRange::all(request.max_parallelism);
        let (factory, directory) = self.factory(Purpose::Access)?;
        let store = block_on(KeyedStore::open(&*factory, request))?;
        Ok(Instance { store, clock, directory })
    }

    /// Its options, for the report.
    pub(crate) fn options(self) -> Result<String> {
        let (factory, _directory) = self.factory(Purpose::Access)?;
        Ok(format!("{factory:?}"))
    }

    /// What opens its instances, and their local folder if they have one.
    pub(crate) fn factory(
        self,
        purpose: Purpose,
    ) -> Result<(Box<dyn BackendFactory>, Option<TempDir>)> {
        match self {
            Backend::Heap => {
                let incremental = purpose != Purpose::Access;
                let options = HeapOptions::default().with_incremental_snapshots(incremental);
                Ok((Box::new(HeapBackendFactory::new(options)), None))
            }
            Backend::Rocks => rocks(purpose),
        }
    }
}

#[cfg(feature = "rocks")]
fn rocks(purpose: Purpose) -> Result<(Box<dyn BackendFactory>, Option<TempDir>)> {
    use weir_backend_rocks::{RocksBackendFactory, RocksMemory, RocksOptions};

    let directory =
        tempfile::Builder::new().prefix("weir-benches-").tempdir().map_err(|error| {
            Error::new(ErrorKind::Unavailable, "no temporary folder for RocksDB").source(error)
        })?;
    let memory = RocksMemory::new(ROCKS_MEMORY, 0.5);
    let options = RocksOptions::new(directory.path())
        .with_memory(memory)
        .with_local_recovery(purpose == Purpose::CheckpointsHere);
    let factory = RocksBackendFactory::new(options);
    Ok((Box::new(factory), Some(directory)))
}

#[cfg(not(feature = "rocks"))]
fn rocks(_: Purpose) -> Result<(Box<dyn BackendFactory>, Option<TempDir>)> {
    Err(Error::new(ErrorKind::Unsupported, "this build has no RocksDB")
        .advice("cargo run --release -p weir-benches --features rocks -- ..."))
}
