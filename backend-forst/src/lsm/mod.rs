//! The log-structured merge tree as pure decisions: no I/O, no clock, no threads.
//!
//! | file | concept |
//! |---|---|
//! | `eras.rs` | how stored bytes are to be read after a TTL has changed |
//! | `resolver.rs` | what the versions of one key come to |
//! | `source.rs`, `merge.rs` | sorted sequences, and several of them as one |
#![expect(dead_code, unused_imports, reason = "used by the backend as it lands")]

mod eras;
mod merge;
mod resolver;
mod source;
#[cfg(test)]
mod vec_source;

pub(crate) use eras::{Era, StateEras};
pub(crate) use merge::Merge;
pub(crate) use resolver::{KeyVersion, Resolved, Resolver};
pub(crate) use source::{Direction, SortedSource};
