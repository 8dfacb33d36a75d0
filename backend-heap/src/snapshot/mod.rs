//! Snapshots: one object each, its format, and how it is written and read.
//!
//! The format is described byte by byte in `docs/formats/heap-snapshot.md`. `bytes` knows numbers,
//! `footer` the index at the end of an object, `section` the entries of one state in one key group;
//! none of the three does I/O. `writer` and `reader` do.

mod bytes;
mod footer;
mod reader;
mod section;
mod writer;

pub(crate) use reader::restore;
pub(crate) use writer::{FrozenInstance, FrozenSection, write_snapshot};

/// The backend's name in snapshot handles.
pub(crate) const BACKEND_NAME: &str = "heap";

/// The version of the format, in the handle and in the header of each object.
pub(crate) const FORMAT_VERSION: u32 = 1;
