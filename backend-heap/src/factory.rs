//! Opens instances.

use weir_state_api::{
    BackendFactory, BoxFuture, Capabilities, KeyGroupRange, KeyedBackend, OpenRequest, Result,
    SnapshotHandle,
};

use crate::backend::{self, HeapBackend};
use crate::options::HeapOptions;
use crate::snapshot::{BACKEND_NAME, Chain, FORMAT_VERSION, restore};

/// Opens instances of the memory backend; cheap to create and to clone.
#[derive(Debug, Clone, Default)]
pub struct HeapBackendFactory {
    options: HeapOptions,
}

impl HeapBackendFactory {
    /// A factory with these options.
    pub fn new(options: HeapOptions) -> Self {
        HeapBackendFactory { options }
    }

    /// The options it was created with.
    pub fn options(&self) -> &HeapOptions {
        &self.options
    }
}

impl BackendFactory for HeapBackendFactory {
    fn name(&self) -> &str {
        BACKEND_NAME
    }

    fn capabilities(&self) -> Capabilities {
        backend::capabilities(&self.options)
    }

    /// Reads all state of the instance's key groups into memory, and nothing else.
    fn open(&self, request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let options = self.options.clone();
        Box::pin(async move {
            request.check(BACKEND_NAME, FORMAT_VERSION..=FORMAT_VERSION)?;
            let mut backend = HeapBackend::new(request, &options);
            restore(&mut backend).await?;
            Ok(Box::new(backend) as Box<dyn KeyedBackend>)
        })
    }

    /// Of each object, the handle then counts the remaining key groups only.
    fn clip(&self, handle: &SnapshotHandle, key_groups: KeyGroupRange) -> Result<SnapshotHandle> {
        let key_groups = handle.key_groups.intersection(key_groups);
        let chain = Chain::of(handle)?.clipped(key_groups);
        let mut clipped = handle.clone();
        clipped.key_groups = key_groups;
        clipped.objects = chain.objects();
        clipped.metadata = chain.to_metadata();
        Ok(clipped)
    }
}
