//! Opens instances.

use std::sync::{Arc, Mutex};

use weir_state_api::ttl::TtlClock;
use weir_state_api::{
    BackendFactory, BoxFuture, Capabilities, KeyGroupRange, KeyedBackend, OpenRequest, Result,
    SnapshotHandle,
};

use crate::backend::{self, RocksBackend};
use crate::local_copies::LocalCopies;
use crate::options::RocksOptions;
use crate::restore::{Restored, restore};
use crate::shard::Shards;
use crate::snapshot::{BACKEND_NAME, FORMAT_VERSION, Manifest, Snapshots, Traffic};
use crate::work_directory::WorkDirectory;

/// Opens instances of the RocksDB backend; cheap to clone. All its instances share its memory budget.
#[derive(Debug, Clone)]
pub struct RocksBackendFactory {
    options: Arc<RocksOptions>,
}

impl RocksBackendFactory {
    /// A factory with these options. They are checked when an instance is opened.
    pub fn new(options: RocksOptions) -> Self {
        RocksBackendFactory { options: Arc::new(options) }
    }

    /// The options it was created with.
    pub fn options(&self) -> &RocksOptions {
        &self.options
    }
}

impl BackendFactory for RocksBackendFactory {
    fn name(&self) -> &str {
        BACKEND_NAME
    }

    fn capabilities(&self) -> Capabilities {
        backend::capabilities(&self.options)
    }

    /// Fetches the files that hold the instance's key groups to the local disk and opens them.
    ///
    /// Besides the errors of the interface:
    /// [`InvalidUsage`](weir_state_api::ErrorKind::InvalidUsage) for a RocksDB option that is unknown
    /// or reserved.
    fn open(&self, request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let options = Arc::clone(&self.options);
        Box::pin(async move {
            request.check(BACKEND_NAME, FORMAT_VERSION..=FORMAT_VERSION)?;
            let backend = open(request, options).await?;
            Ok(Box::new(backend) as Box<dyn KeyedBackend>)
        })
    }

    /// Leaves out whole databases; those that hold other key groups too are not looked at there.
    fn clip(&self, handle: &SnapshotHandle, key_groups: KeyGroupRange) -> Result<SnapshotHandle> {
        Ok(Manifest::of(handle)?.clipped(handle, key_groups))
    }
}

async fn open(mut request: OpenRequest, options: Arc<RocksOptions>) -> Result<RocksBackend> {
    let directory = Arc::new(WorkDirectory::create(&options.directory)?);
    let traffic = Arc::new(Traffic::default());
    let watermark = request.restored_watermark();
    let clock = TtlClock::new(Arc::clone(&request.environment.clock), watermark);
    let clock = Arc::new(Mutex::new(clock));
    let Restored { shards, states, bases } =
        restore(&request, &options, &directory, &clock, &traffic).await?;
    request.restore.clear();
    let shards = Shards::new(shards, request.key_groups)?;
    let store = request.environment.store.clone();
    let copies = options.local_recovery.then(|| {
        let operator = request.operator.clone();
        LocalCopies::new(options.directory.clone(), operator, request.key_groups)
    });
    let parallel = options.parallel_transfers;
    let snapshots = Snapshots::new(bases, copies, traffic, directory, store, parallel);
    let mut backend = RocksBackend::new(request, options, shards, snapshots, clock);
    for (descriptor, first) in states {
        backend.add_restored(descriptor, first)?;
    }
    Ok(backend)
}
