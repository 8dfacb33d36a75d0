//! Opens instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_state_api::{
    BackendFactory, BoxFuture, Capabilities, Error, ErrorKind, KeyedBackend, OpenRequest, Result,
};

use crate::metrics::{ChangelogMetrics, Counters};
use crate::options::ChangelogOptions;
use crate::restore;
use crate::writer::LogWriter;

/// The name of the changelog in handles, whatever it wraps.
pub(crate) const BACKEND_NAME: &str = "changelog";

/// What all instances of a factory share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Arc<ChangelogOptions>,
    pub(crate) writer: LogWriter,
    /// How often a materialization was asked for.
    pub(crate) requests: Arc<AtomicU64>,
}

impl Shared {
    pub(crate) fn counters(&self) -> &Arc<Counters> {
        self.writer.counters()
    }
}

/// Opens instances of another backend with a log around each.
///
/// All instances of one job in a process should come from one factory and its clones: they share one writer,
/// which packs their batches into common objects. **Each job needs a factory of its own**: a common object
/// lies in the folder of one of its instances, and is deleted by the job whose folder that is. The wrapped backend must be the one that wrote the
/// snapshots that an instance is restored from; its options may differ.
///
/// An instance logs when it may create objects between snapshots: when
/// [`OpenRequest::directory`] is not empty. **Without one there is no log**: the instance is the wrapped
/// backend, its snapshots are that backend's own, and
/// [`instances_without_log`](ChangelogMetrics::instances_without_log) counts it.
///
/// ```
/// use weir_backend_heap::HeapBackendFactory;
/// use weir_changelog::{ChangelogBackendFactory, ChangelogOptions};
/// use weir_state_api::*;
///
/// # fn main() -> Result<()> {
/// let backend =
///     ChangelogBackendFactory::new(HeapBackendFactory::default(), ChangelogOptions::default());
/// let mut request =
///     OpenRequest::new(Environment::in_memory(), "visits", Codec::<String>::id(&Ordered));
/// request.directory = "live/visits-0/".into();
///
/// let mut store: KeyedStore<String> = block_on(KeyedStore::open(&backend, request.clone()))?;
/// let visits = store.value::<u64>("visits")?;
/// store.set_key(&"ann".to_string())?;
/// visits.set(&mut store, &7)?;
///
/// // Only what has changed since the last materialization is uploaded.
/// let task = store.snapshot(SnapshotRequest::checkpoint(CheckpointId(1), "chk-1"))?;
/// let handle = block_on(task.run())?;
///
/// drop(store); // Two instances never share a folder.
/// let mut restored: KeyedStore<String> =
///     block_on(KeyedStore::open(&backend, request.restore_from(vec![handle])))?;
/// let visits = restored.value::<u64>("visits")?;
/// restored.set_key(&"ann".to_string())?;
/// assert_eq!(visits.get(&mut restored).wait()?, Some(7));
/// assert_eq!(backend.control().metrics().changes_replayed, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ChangelogBackendFactory {
    inner: Arc<dyn BackendFactory>,
    shared: Arc<Shared>,
}

impl ChangelogBackendFactory {
    /// Wraps a backend.
    pub fn new(inner: impl BackendFactory + 'static, options: ChangelogOptions) -> Self {
        Self::around(Arc::new(inner), options)
    }

    /// Wraps a backend that is chosen at run time.
    pub fn around(inner: Arc<dyn BackendFactory>, options: ChangelogOptions) -> Self {
        let options = Arc::new(options.within_reason());
        let writer = LogWriter::new(Arc::clone(&options));
        let shared = Arc::new(Shared { options, writer, requests: Arc::default() });
        ChangelogBackendFactory { inner, shared }
    }

    /// The options it was created with.
    pub fn options(&self) -> &ChangelogOptions {
        &self.shared.options
    }

    /// A handle for metrics, and for asking for materializations.
    pub fn control(&self) -> ChangelogControl {
        ChangelogControl(Arc::clone(&self.shared))
    }
}

impl BackendFactory for ChangelogBackendFactory {
    fn name(&self) -> &str {
        BACKEND_NAME
    }

    /// Those of the wrapped backend, and incremental snapshots.
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().with_incremental_snapshots(true)
    }

    /// Opens an instance of the wrapped backend from the materialization, then replays the log. Takes
    /// snapshots of the wrapped backend too: that switches the changelog on.
    fn open(&self, request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let (inner, shared) = (Arc::clone(&self.inner), Arc::clone(&self.shared));
        Box::pin(async move {
            refuse_nesting(&*inner)?;
            let backend = restore::open(inner, shared, request).await?;
            Ok(Box::new(backend) as Box<dyn KeyedBackend>)
        })
    }

    fn clip(
        &self,
        handle: &weir_state_api::SnapshotHandle,
        key_groups: weir_state_api::KeyGroupRange,
    ) -> Result<weir_state_api::SnapshotHandle> {
        restore::clip(&*self.inner, handle, key_groups)
    }
}

/// Reads the counters of a [`ChangelogBackendFactory`] and drives its materializations.
#[derive(Debug, Clone)]
pub struct ChangelogControl(Arc<Shared>);

impl ChangelogControl {
    /// What the changelog has done so far.
    pub fn metrics(&self) -> ChangelogMetrics {
        self.0.writer.metrics()
    }

    /// Asks every instance for a materialization. Each begins one at its next notification or snapshot,
    /// whatever its schedule, unless one is under way or nothing has changed since the last, and takes the
    /// result in at the one that follows its end: nothing happens, and no counter moves, while no instance
    /// is called.
    pub fn materialize(&self) {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// Switches the changelog off: opens snapshots of a changelog, and those of the wrapped backend, as
/// instances of the wrapped backend.
///
/// The materialization is restored and the log replayed; from then on there is neither log nor wrapper,
/// and snapshots are the wrapped backend's own. The first ones may be whole, until one has completed that
/// holds what was replayed.
///
/// ```
/// use weir_backend_heap::HeapBackendFactory;
/// use weir_changelog::ChangelogOff;
/// use weir_state_api::BackendFactory;
///
/// let backend = ChangelogOff::new(HeapBackendFactory::default());
/// assert_eq!(backend.name(), "heap");
/// ```
#[derive(Debug, Clone)]
pub struct ChangelogOff {
    inner: Arc<dyn BackendFactory>,
    counters: Arc<Counters>,
}

impl ChangelogOff {
    /// Opens instances of this backend.
    pub fn new(inner: impl BackendFactory + 'static) -> Self {
        Self::around(Arc::new(inner))
    }

    /// Opens instances of a backend that is chosen at run time.
    pub fn around(inner: Arc<dyn BackendFactory>) -> Self {
        ChangelogOff { inner, counters: Arc::default() }
    }

    /// How far restores are: what there is to replay, what is replayed. The other counters stay at zero.
    pub fn metrics(&self) -> ChangelogMetrics {
        self.counters.read(0)
    }
}

impl BackendFactory for ChangelogOff {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let (inner, counters) = (Arc::clone(&self.inner), Arc::clone(&self.counters));
        Box::pin(async move {
            refuse_nesting(&*inner)?;
            restore::open_off(inner, counters, request).await
        })
    }

    fn clip(
        &self,
        handle: &weir_state_api::SnapshotHandle,
        key_groups: weir_state_api::KeyGroupRange,
    ) -> Result<weir_state_api::SnapshotHandle> {
        restore::clip(&*self.inner, handle, key_groups)
    }
}

fn refuse_nesting(inner: &dyn BackendFactory) -> Result<()> {
    if inner.name() == BACKEND_NAME {
        return Err(Error::new(ErrorKind::InvalidUsage, "a changelog wraps another changelog")
            .advice("wrap the backend that holds the state, once"));
    }
    Ok(())
}
