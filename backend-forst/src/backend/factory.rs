//! Opens instances.

use std::sync::Arc;

use weir_state_api::ttl::TtlClock;
use weir_state_api::{
    BackendFactory, BoxFuture, Capabilities, KeyGroupRange, KeyedBackend, OpenRequest, Result,
    SnapshotHandle,
};

use super::background::{Background, Flusher};
use super::instance::{self, ForstBackend};
use super::options::ForstOptions;
use super::restore::{Restored, restore};
use super::snapshot::{BACKEND_NAME, FORMAT_VERSION, OLDEST_FORMAT_VERSION, Snapshots};
use super::tree::Tree;
use crate::store::Tables;

/// Opens instances of this backend; cheap to clone. All its instances share its resources.
///
/// ```
/// use weir_backend_forst::ForstBackendFactory;
/// use weir_state_api::KeyedStore;
///
/// let mut store = KeyedStore::<String>::open_in_memory(&ForstBackendFactory::default())?;
/// let visits = store.value::<u64>("visits")?;
/// store.set_key(&"ann".to_string())?;
/// visits.update(&mut store, |old| old.unwrap_or(0) + 1).wait()?;
/// assert_eq!(visits.get(&mut store).wait()?, Some(1));
/// # Ok::<(), weir_state_api::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ForstBackendFactory {
    options: Arc<ForstOptions>,
}

impl ForstBackendFactory {
    /// A factory with these options.
    pub fn new(options: ForstOptions) -> Self {
        ForstBackendFactory { options: Arc::new(options) }
    }

    /// The options it was created with.
    pub fn options(&self) -> &ForstOptions {
        &self.options
    }
}

impl BackendFactory for ForstBackendFactory {
    fn name(&self) -> &str {
        BACKEND_NAME
    }

    fn capabilities(&self) -> Capabilities {
        instance::capabilities(&self.options)
    }

    /// Reads the manifests of the snapshots to restore from, at most one object for each. Tables are
    /// read when they are asked for.
    fn open(&self, request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let options = Arc::clone(&self.options);
        Box::pin(async move {
            request.check(BACKEND_NAME, OLDEST_FORMAT_VERSION..=FORMAT_VERSION)?;
            let backend = open(request, options).await?;
            Ok(Box::new(backend) as Box<dyn KeyedBackend>)
        })
    }

    /// A handle says which key groups of its manifest count.
    fn clip(&self, handle: &SnapshotHandle, key_groups: KeyGroupRange) -> Result<SnapshotHandle> {
        let mut clipped = handle.clone();
        clipped.key_groups = handle.key_groups.intersection(key_groups);
        Ok(clipped)
    }
}

async fn open(mut request: OpenRequest, options: Arc<ForstOptions>) -> Result<ForstBackend> {
    let tables = Tables::new(&request.environment, &options.resources);
    let watermark = request.restored_watermark();
    let clock = TtlClock::new(Arc::clone(&request.environment.clock), watermark);
    let Restored { version, states, bases } = restore(&request, &tables).await?;
    request.restore.clear();
    let flusher = Flusher::new(tables, &options, &request.directory, &version);
    let tree = Tree::new(version, request.key_groups);
    let background = Background::new(flusher, &options, clock);
    let directory = request.directory.clone();
    let snapshots = Snapshots::new(bases, &background, Arc::clone(&options), directory);
    let mut backend = ForstBackend::new(request, options, tree, background, snapshots);
    for (descriptor, first) in states {
        backend.add_restored(descriptor, first)?;
    }
    Ok(backend)
}
