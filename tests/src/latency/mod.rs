//! A backend whose reads take time: any backend, as if its bytes were far away.
//!
//! Which reads pend, and in which order they complete, follows from a seed, so a failure can be
//! repeated. Each read answers with the state as of its call, as the contract demands.
//!
//! ```
//! use weir_state_api::{KeyedStore, block_on};
//! use weir_tests::latency::{Latency, LatencyFactory};
//! use weir_tests::reference::ReferenceBackendFactory;
//!
//! let latency = Latency::seeded(7);
//! let factory = LatencyFactory::new(ReferenceBackendFactory::default(), latency.clone());
//! let mut store = KeyedStore::<u64>::open_in_memory(&factory)?;
//! let value = store.value::<u64>("value")?;
//! store.set_key(&1)?;
//! let read = value.get(&mut store);
//! value.set(&mut store, &5)?;
//! assert!(!read.is_ready());
//! assert!(latency.complete_one());
//! assert_eq!(block_on(read)?, None);
//! # Ok::<(), weir_state_api::Error>(())
//! ```

mod backend;
mod schedule;

use std::sync::Arc;

use weir_state_api::{BackendFactory, BoxFuture, Capabilities, KeyedBackend, OpenRequest, Result};

pub use schedule::Latency;

/// Opens instances of another factory whose reads take time.
#[derive(Debug, Clone)]
pub struct LatencyFactory {
    inner: Arc<dyn BackendFactory>,
    latency: Latency,
}

impl LatencyFactory {
    /// Delays the reads of what `inner` opens. Opening and snapshots are not delayed.
    pub fn new(inner: impl BackendFactory + 'static, latency: Latency) -> Self {
        LatencyFactory { inner: Arc::new(inner), latency }
    }
}

impl BackendFactory for LatencyFactory {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().with_never_pends(false)
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let (opening, latency) = (self.inner.open(request), self.latency.clone());
        Box::pin(async move {
            let delayed = backend::Delayed::new(opening.await?, latency);
            Ok(Box::new(delayed) as Box<dyn KeyedBackend>)
        })
    }
}
