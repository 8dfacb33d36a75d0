//! Factories for tests: materializations that end before the next call.
#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

static NEXT_INSTANCE: AtomicU64 = AtomicU64::new(0);

/// A changelog whose background work is done where it is begun: which materialization a checkpoint builds
/// on depends on the program alone.
#[derive(Debug)]
pub(crate) struct Prompt(pub(crate) ChangelogBackendFactory);

impl Prompt {
    pub(crate) fn around(inner: impl BackendFactory + 'static, changes: u64) -> Self {
        Prompt(ChangelogBackendFactory::new(inner, options(changes)))
    }
}

impl BackendFactory for Prompt {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn open(&self, mut request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        // The suite's requests have no folder for objects between snapshots.
        if request.directory.is_empty() {
            let number = NEXT_INSTANCE.fetch_add(1, Ordering::Relaxed);
            request.directory = format!("{}{number}/", weir_tests::harness::LIVE);
        }
        request.environment.spawner =
            std::sync::Arc::new(PromptSpawner(tokio::runtime::Handle::current()));
        self.0.open(request)
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
