//! Snapshots: at most one new object each, its format, and how it is written and read.
//!
//! The format is described byte by byte in `docs/formats/heap-snapshot.md`. `footer` knows the index at
//! the end of an object, `section` the entries of one state in one key group, `chain` which objects
//! make up an incremental snapshot; none of these does I/O. `writer` and `reader` do.

mod chain;
mod footer;
mod reader;
mod section;
mod writer;

pub(crate) use chain::Chain;
pub(crate) use reader::restore;
pub(crate) use writer::{PinnedInstance, PinnedSection, Written, write_snapshot};

/// The backend's name in snapshot handles.
pub(crate) const BACKEND_NAME: &str = "heap";

/// The version of the format, in the handle and in the header of each object.
pub(crate) const FORMAT_VERSION: u32 = 1;
