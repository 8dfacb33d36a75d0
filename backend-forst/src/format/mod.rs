//! The bytes of table files and manifests.
#![expect(dead_code, unused_imports, reason = "used by the backend as it lands")]

mod entry;

pub(crate) use entry::{Entry, EntryKind, EntryTraits};
