//! The contract holds when reads are slow, whether they come one by one or deferred.

use weir_tests::latency::{Latency, LatencyFactory};
use weir_tests::reference::ReferenceBackendFactory;

weir_tests::conformance_tests!(LatencyFactory::new(
    ReferenceBackendFactory::default(),
    Latency::seeded(1).with_hits(30).by_itself()
));
