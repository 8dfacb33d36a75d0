//! Conformance suite for state backends: the contract as code.
//!
//! A backend that passes keeps what [`weir_state_api`] promises to engines and users. Any author
//! can run it on their own backend from their own crate:
//!
//! ```
//! // tests/conformance.rs of the backend
//! # use weir_tests::reference::ReferenceBackendFactory as MyBackendFactory;
//! weir_tests::conformance_tests!(MyBackendFactory::default());
//! # fn main() {}
//! ```
//!
//! That makes one `#[test]` per case, and one that shows the [`matrix`] of what the backend passes. From code, [`conformance::run`] gives a report:
//!
//! ```no_run
//! # use weir_tests::reference::ReferenceBackendFactory as MyBackendFactory;
//! weir_tests::conformance::run(&MyBackendFactory::default()).assert_passed();
//! ```
//!
//! A case is skipped only for a capability that the backend says it lacks
//! ([`Capabilities`](weir_state_api::Capabilities)).
//!
//! | module | what it is for |
//! |---|---|
//! | [`conformance`] | the cases and their runner |
//! | [`matrix`] | kind of state × TTL × snapshot × rescaling, shown as a table |
//! | [`model`] | random programs against a plain model, with crashes and rescaling |
//! | [`harness`] | what a case works with; useful for a backend's own tests too |
//! | [`faults`] | a store that fails on demand |
//! | [`latency`] | any backend, with reads that pend and complete in random order |
//! | `s3_server` (feature `s3`) | a real S3 server on this machine |
//! | [`mod@reference`] | a naive backend, correct or with a planted defect: proof that the suite can fail |
#![allow(clippy::unwrap_used, reason = "a test library: a failed unwrap is a failed case")]

mod cases;
pub mod conformance;
pub mod faults;
pub mod harness;
pub mod latency;
mod macros;
pub mod matrix;
pub mod model;
pub mod reference;
#[cfg(feature = "s3")]
pub mod s3_server;

#[doc(hidden)]
pub use weir_state_api as state_api;
