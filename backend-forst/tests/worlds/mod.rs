//! Factories that open instances in harder surroundings.
#![allow(dead_code, reason = "each test binary uses some of them")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_backend_forst::{
    ForstBackendFactory, ForstOptions, ForstResources, ForstResourcesBuilder, RequestLimits,
};
use weir_state_api::{
    BackendFactory, BoxFuture, Capabilities, KeyedBackend, OpenRequest, Result, Spawner,
};
use weir_tests::conformance::Case;
use weir_tests::faults::{Faults, StoreOp, When};
use weir_tests::harness::LIVE;

/// Limits so small that everything happens all the time.
pub(crate) fn tiny() -> ForstOptions {
    tiny_with(tiny_resources())
}

/// The same with room for some tables on local disk.
pub(crate) fn tiny_on_disk(folder: &Path) -> ForstOptions {
    tiny_with(tiny_resources().disk_cache(folder, 128 << 10))
}

pub(crate) fn tiny_resources() -> ForstResourcesBuilder {
    let limits = RequestLimits { first_pause: Duration::ZERO, ..RequestLimits::default() };
    ForstResources::builder().cache_bytes(256 << 10).request_limits(limits)
}

pub(crate) fn tiny_with(resources: ForstResourcesBuilder) -> ForstOptions {
    let resources = resources.build().expect("the folder is nobody else's");
    ForstOptions::default()
        .with_resources(resources)
        .with_memtable_bytes(64 << 10)
        .with_stream_out_bytes(8 << 10)
        .with_keep_flushed(false)
        .with_table_bytes(32 << 10)
        .with_block_bytes(1 << 10)
        .with_max_frozen(1)
        .with_inline_tail_bytes(0)
        .with_inline_manifest_bytes(0)
        .with_timers_in_memory(2)
}

/// Where small tables are flushed and compacted all the time, a checkpoint has new objects although little
/// has changed, and requests of the background come between those that a case counts.
fn needs_rest(case: &Case) -> bool {
    matches!(
        case.name,
        "unchanged_state_is_shared_with_a_complete_checkpoint"
            | "misfits_are_refused_up_front"
            | "a_failed_read_fails_the_restore"
    )
}

/// What has been read of an object answers from the block cache, whatever becomes of the object.
fn damages_objects(case: &Case) -> bool {
    matches!(
        case.name,
        "flipped_bytes_are_found_and_named"
            | "truncated_objects_are_found_and_named"
            | "missing_objects_are_found_and_named"
    )
}

/// In worlds with a busy background and a cache.
pub(crate) fn holds_anywhere(case: &Case) -> bool {
    !needs_rest(case) && !damages_objects(case)
}

/// Each instance has a path of its own in the store.
#[derive(Debug)]
pub(crate) struct Live(ForstBackendFactory);

impl Live {
    pub(crate) fn new(options: ForstOptions) -> Self {
        Live(ForstBackendFactory::new(options))
    }

    pub(crate) fn options(&self) -> &ForstOptions {
        self.0.options()
    }
}

impl BackendFactory for Live {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn open(&self, mut request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        request.directory = format!("{LIVE}world-{}/", NEXT.fetch_add(1, Ordering::Relaxed));
        self.0.open(request)
    }
}

/// Background work begins late.
#[derive(Debug)]
pub(crate) struct Slow<F>(F);

impl<F> Slow<F> {
    pub(crate) fn new(inner: F) -> Self {
        Slow(inner)
    }
}

impl<F: BackendFactory> BackendFactory for Slow<F> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn open(&self, mut request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let inner = Arc::clone(&request.environment.spawner);
        request.environment.spawner = Arc::new(Late { inner, count: AtomicU64::new(1) });
        self.0.open(request)
    }
}

#[derive(Debug)]
struct Late {
    inner: Arc<dyn Spawner>,
    count: AtomicU64,
}

impl Spawner for Late {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        // Some a while, some not at all, in no order that anybody could rely on.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let delay = Duration::from_micros(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53);
        self.inner.spawn(Box::pin(async move {
            if delay > Duration::from_micros(500) {
                tokio::time::sleep(delay).await;
            }
            future.await;
        }));
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send + 'static>) {
        self.inner.spawn_blocking(work);
    }
}

/// The store of each instance has faults.
#[derive(Debug)]
pub(crate) struct Faulty<F> {
    inner: F,
    faults: fn() -> Faults,
}

impl<F> Faulty<F> {
    /// Requests fail, some of them after they have taken effect.
    pub(crate) fn lossy(inner: F) -> Self {
        Faulty { inner, faults: failing }
    }

    /// The store refuses half of all requests.
    pub(crate) fn throttled(inner: F) -> Self {
        Faulty { inner, faults: throttling }
    }

    /// The store hands out less than it was asked for, again and again.
    pub(crate) fn short(inner: F) -> Self {
        Faulty { inner, faults: shortening }
    }
}

fn failing() -> Faults {
    let faults = Faults::new();
    for round in 0..2_000 {
        faults.fail(StoreOp::Read, round * 5 + 3, When::Before);
        faults.fail(StoreOp::Write, round * 7 + 2, When::Before);
        faults.fail(StoreOp::Close, round * 4 + 1, When::After);
        faults.fail(StoreOp::Stat, round * 3 + 2, When::Before);
        faults.fail(StoreOp::Delete, round * 2 + 1, When::Before);
    }
    faults
}

fn throttling() -> Faults {
    let faults = Faults::new();
    faults.throttle(4, 8);
    faults
}

fn shortening() -> Faults {
    let faults = Faults::new();
    for round in 0..4_000 {
        faults.shorten(round * 3 + 2, (round % 60) as usize);
    }
    faults
}

impl<F: BackendFactory> BackendFactory for Faulty<F> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn open(&self, mut request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let faults = (self.faults)();
        request.environment.store = request.environment.store.layer(faults.layer());
        self.inner.open(request)
    }
}
