//! What a backend is given from outside: time, a store, an executor.
//!
//! Nothing in Weir reads the system's clock, opens a store or spawns a task behind the caller's
//! back, so a test can control all three.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::BoxFuture;

/// Milliseconds since the Unix epoch, as event and processing times count them.
pub type Millis = i64;

/// A source of processing time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The current processing time in milliseconds since the Unix epoch.
    fn now(&self) -> Millis;

    /// The same, some milliseconds old at most, where that is cheaper to read. Asked for at every
    /// access to a state with a TTL.
    fn coarse_now(&self) -> Millis {
        self.now()
    }
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now(&self) -> Millis {
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
    }

    /// The kernel's last tick: up to 10 ms old, read without asking the hardware.
    #[cfg(target_os = "linux")]
    #[inline]
    fn coarse_now(&self) -> Millis {
        let tick = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        tick.tv_sec.saturating_mul(1_000).saturating_add(tick.tv_nsec / 1_000_000)
    }
}

/// A clock that stands until it is set; for tests and simulations.
///
/// ```
/// use weir_state_api::{Clock, ManualClock};
///
/// let clock = ManualClock::new(1_000);
/// clock.advance(500);
/// assert_eq!(clock.now(), 1_500);
/// ```
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: Millis) -> Self {
        ManualClock(AtomicI64::new(now))
    }

    /// Sets the time; it may jump backwards, as real clocks do.
    pub fn set(&self, now: Millis) {
        self.0.store(now, Ordering::SeqCst);
    }

    /// Moves the time forward by `millis`.
    pub fn advance(&self, millis: Millis) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        self.0.load(Ordering::SeqCst)
    }
}

/// Runs background work: uploads, remote reads, compactions.
///
/// Plain closures and futures, no executor's types, so any engine can implement it.
///
/// What is spawned must go on while the thread that called a backend is blocked: a backend may wait for it,
/// for instance when too much is on its way to the store. So it runs on other threads, or at once
/// ([`InlineSpawner`]).
pub trait Spawner: Send + Sync + std::fmt::Debug {
    /// Starts a future; it runs to its end on its own.
    fn spawn(&self, future: BoxFuture<'static, ()>);

    /// Starts work that uses the CPU or blocks.
    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send + 'static>);
}

/// Spawns onto a tokio runtime.
///
/// A current-thread runtime does nothing while its thread is blocked, so for the handle of one, work goes to
/// two threads of the process that all such spawners share. Stores whose clients belong to a runtime work
/// from there too.
#[cfg(feature = "tokio")]
#[derive(Debug, Clone)]
pub struct TokioSpawner(tokio::runtime::Handle);

#[cfg(feature = "tokio")]
impl TokioSpawner {
    /// A spawner for the given runtime.
    ///
    /// # Panics
    /// For a current-thread runtime, when the system has no threads to give.
    pub fn new(handle: tokio::runtime::Handle) -> Self {
        match handle.runtime_flavor() {
            tokio::runtime::RuntimeFlavor::CurrentThread => TokioSpawner(threads_beside()),
            _ => TokioSpawner(handle),
        }
    }
}

/// A runtime that goes on while the thread of another one is blocked; it lives as long as the process.
#[cfg(feature = "tokio")]
fn threads_beside() -> tokio::runtime::Handle {
    static BESIDE: std::sync::LazyLock<tokio::runtime::Runtime> = std::sync::LazyLock::new(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("weir-background")
            .enable_all()
            .build()
            .expect("the system has threads to give")
    });
    BESIDE.handle().clone()
}

#[cfg(feature = "tokio")]
impl Spawner for TokioSpawner {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        drop(self.0.spawn(future));
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send + 'static>) {
        drop(self.0.spawn_blocking(work));
    }
}

/// Runs everything at once on the calling thread: deterministic, for tests on an in-memory store.
/// Stores that need a runtime (local files, HTTP) panic outside of one; give them [`TokioSpawner`].
#[derive(Debug, Clone, Copy, Default)]
pub struct InlineSpawner;

impl Spawner for InlineSpawner {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        crate::block_on(future);
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send + 'static>) {
        work();
    }
}

/// Everything a backend takes from outside, shared by all instances of a process.
///
/// Snapshots in a local folder: OpenDAL's service for files works inside a tokio runtime, so the
/// runtime runs the background work and whatever waits for the store.
///
/// ```
/// use std::sync::Arc;
/// use weir_backend_heap::HeapBackendFactory;
/// use weir_state_api::opendal::{Operator, services};
/// use weir_state_api::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path().to_str().ok_or("a strange folder")?;
/// let runtime = tokio::runtime::Runtime::new()?;
/// // Needs the feature `services-fs` of opendal. Objects appear whole or not at all.
/// let files = services::Fs::default().root(folder).atomic_write_dir(&format!("{folder}/.staging"));
/// let environment = Environment::new(
///     Arc::new(SystemClock),
///     Operator::new(files)?,
///     Arc::new(TokioSpawner::new(runtime.handle().clone())),
/// );
/// let request = OpenRequest::new(environment, "visits", Codec::<String>::id(&Ordered));
///
/// // One instance, then two: each gets all handles and takes its share.
/// let backend = HeapBackendFactory::default();
/// let mut store: KeyedStore<String> =
///     runtime.block_on(KeyedStore::open(&backend, request.clone()))?;
/// let visits = store.value::<u64>("visits")?;
/// for user in ["ann", "bob", "cyd"] {
///     store.set_key(&user.to_string())?;
///     visits.set(&mut store, &1)?;
/// }
/// let task = store.snapshot(SnapshotRequest::checkpoint(CheckpointId(1), "chk-1"))?;
/// let handle = runtime.block_on(task.run())?;
///
/// let max = request.max_parallelism;
/// for subtask in 0..2 {
///     let share = request.clone().for_subtask(max, 2, subtask)?.restore_from(vec![handle.clone()]);
///     let mut store: KeyedStore<String> = runtime.block_on(KeyedStore::open(&backend, share))?;
///     for entry in store.keys("visits")? {
///         let (user, _) = entry?;
///         let group = key_group_of(&Ordered, &user, max)?;
///         assert_eq!(subtask_of_group(max, 2, group), subtask);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Environment {
    /// Processing time.
    pub clock: Arc<dyn Clock>,
    /// Where snapshots go and come from.
    pub store: opendal::Operator,
    /// Where background work runs.
    pub spawner: Arc<dyn Spawner>,
}

impl Environment {
    /// An environment from its three parts.
    pub fn new(clock: Arc<dyn Clock>, store: opendal::Operator, spawner: Arc<dyn Spawner>) -> Self {
        Environment { clock, store, spawner }
    }

    /// An in-memory store, a standing clock and an inline spawner: all a test or an example needs.
    pub fn in_memory() -> Self {
        let store = opendal::Operator::new(opendal::services::Memory::default())
            .expect("the memory service has no configuration that could fail");
        Environment {
            clock: Arc::new(ManualClock::new(0)),
            store,
            spawner: Arc::new(InlineSpawner),
        }
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use super::*;

    /// Whoever waits on the thread of a current-thread runtime would wait for ever otherwise.
    #[test]
    fn what_is_spawned_goes_on_while_the_callers_thread_is_blocked() {
        let current = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let many = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        for runtime in [current, many] {
            let spawner = TokioSpawner::new(runtime.handle().clone());
            let (done, wait) = std::sync::mpsc::channel();
            runtime.block_on(async {
                let also = done.clone();
                spawner.spawn(Box::pin(async move { done.send("future").unwrap() }));
                spawner.spawn_blocking(Box::new(move || also.send("work").unwrap()));
                let mut ran: Vec<_> = wait.iter().collect();
                ran.sort_unstable();
                assert_eq!(ran, ["future", "work"]);
            });
        }
    }
}
