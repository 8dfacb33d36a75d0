//! State that lives in object storage: a log-structured merge tree of Weir's own. Files are objects
//! of a store; memory and local disk are caches; a checkpoint names files that are already there; a
//! restore downloads nothing.

#![deny(missing_docs)]

mod backend;
mod format;
mod lsm;
mod memtable;
mod store;

pub use backend::{ForstBackendFactory, ForstOptions};
pub use format::Compression;
pub use store::{ForstResources, ForstResourcesBuilder, ForstUsage, RequestLimits};
