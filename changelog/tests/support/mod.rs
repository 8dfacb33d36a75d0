//! Factories for tests: materializations that end before the next call.
#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_backend_forst::{ForstBackendFactory, ForstOptions, ForstResources, RequestLimits};
use weir_backend_heap::HeapBackendFactory;
use weir_changelog::{ChangelogBackendFactory, ChangelogOptions, Materialization};
use weir_state_api::*;

/// Options without waiting, with small batches.
pub(crate) fn options(changes_per_materialization: u64) -> ChangelogOptions {
    ChangelogOptions::default()
        .with_materialization(Materialization::AfterChanges(changes_per_materialization))
        .with_batch_linger(Duration::ZERO)
        .with_chunk_bytes(1_000)
        .with_batch_bytes(20_000)
        .with_retries(3, Duration::from_millis(1))
}

/// A changelog around the memory backend.
pub(crate) fn around_heap(changes_per_materialization: u64) -> Prompt {
    Prompt::around(HeapBackendFactory::default(), changes_per_materialization)
}

/// Limits so small that state is flushed, compacted and read from the store all the time.
pub(crate) fn small_forst() -> ForstBackendFactory {
    // Cases in which the store fails do not wait for it.
    let limits = RequestLimits { first_pause: Duration::ZERO, ..RequestLimits::default() };
    let resources =
        ForstResources::builder().cache_bytes(256 << 10).request_limits(limits).build().unwrap();
    let options = ForstOptions::default()
        .with_resources(resources)
        .with_memtable_bytes(64 << 10)
        .with_table_bytes(32 << 10)
        .with_block_bytes(1 << 10)
        .with_inline_tail_bytes(0)
        .with_inline_manifest_bytes(0);
    ForstBackendFactory::new(options)
}

/// RocksDB, in memory if possible: the tests open thousands of databases, and it syncs each.
#[cfg(feature = "rocks")]
pub(crate) fn rocks(of: &str) -> weir_backend_rocks::RocksBackendFactory {
    let memory = std::path::PathBuf::from("/dev/shm");
    let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let options = weir_backend_rocks::RocksOptions::new(base.join(format!("weir-changelog-{of}")));
    weir_backend_rocks::RocksBackendFactory::new(options)
}

/// A changelog whose background work is done where it is begun: which materialization a checkpoint builds
/// on depends on the program alone.
#[derive(Debug)]
pub(crate) struct Prompt {
    /// An instance is of one of them.
    factories: Vec<ChangelogBackendFactory>,
    opened: AtomicU64,
}

impl Prompt {
    /// Each instance materializes after so many changes.
    pub(crate) fn around(inner: impl BackendFactory + 'static, changes: u64) -> Self {
        let inner: Arc<dyn BackendFactory> = Arc::new(inner);
        Self::of(&inner, &[changes])
    }

    /// Each instance materializes after a number of changes of its own: often, now and then, or hardly
    /// ever, so that checkpoints begin at all distances from a materialization.
    pub(crate) fn at_random(inner: impl BackendFactory + 'static) -> Self {
        let inner: Arc<dyn BackendFactory> = Arc::new(inner);
        Self::of(&inner, &[3, 17, 61, 251, 1_009])
    }

    fn of(inner: &Arc<dyn BackendFactory>, changes: &[u64]) -> Self {
        let around =
            |&changes: &u64| ChangelogBackendFactory::around(Arc::clone(inner), options(changes));
        Prompt { factories: changes.iter().map(around).collect(), opened: AtomicU64::new(0) }
    }
}

impl BackendFactory for Prompt {
    fn name(&self) -> &str {
        self.factories[0].name()
    }

    fn capabilities(&self) -> Capabilities {
        self.factories[0].capabilities()
    }

    fn open(&self, mut request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        // The suite's requests have no folder for objects between snapshots.
        if request.directory.is_empty() {
            request.directory = format!("{}{number}/", weir_tests::harness::LIVE);
        }
        request.environment.spawner = Arc::new(PromptSpawner(tokio::runtime::Handle::current()));
        // The multiplier spreads consecutive numbers.
        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        self.factories[random as usize % self.factories.len()].open(request)
    }

    fn clip(&self, handle: &SnapshotHandle, key_groups: KeyGroupRange) -> Result<SnapshotHandle> {
        self.factories[0].clip(handle, key_groups)
    }
}

/// Runs everything on the calling thread, in the context of a runtime.
#[derive(Debug)]
pub(crate) struct PromptSpawner(pub(crate) tokio::runtime::Handle);

impl Spawner for PromptSpawner {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        let _context = self.0.enter();
        block_on(future);
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send + 'static>) {
        work();
    }
}

/// Runs the writer's uploads at once, and keeps everything else (materializations) until it is told to
/// run it.
#[derive(Debug, Default)]
pub(crate) struct HoldingSpawner {
    held: std::sync::Mutex<Vec<Held>>,
}

struct Held(BoxFuture<'static, ()>);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

impl HoldingSpawner {
    /// Runs the oldest `count` of what is held.
    pub(crate) fn run(&self, count: usize) {
        for _ in 0..count {
            let next = {
                let mut held = self.held.lock().unwrap();
                if held.is_empty() {
                    return;
                }
                held.remove(0)
            };
            block_on(next.0);
        }
    }

    /// How much is held.
    pub(crate) fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }
}

impl Spawner for HoldingSpawner {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        // Reads of a restore are awaited at once.
        if HOLDS.get() {
            self.held.lock().unwrap().push(Held(future));
        } else {
            block_on(future);
        }
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send + 'static>) {
        work();
    }
}

thread_local! {
    /// Whether what this thread spawns is held.
    pub(crate) static HOLDS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Holds what `work` spawns.
pub(crate) fn holding<T>(work: impl FnOnce() -> T) -> T {
    HOLDS.set(true);
    let result = work();
    HOLDS.set(false);
    result
}
