//! Changes that an instance has handed to the writer.

use std::sync::OnceLock;

use super::object::ObjectUse;
use crate::format::LogPosition;

/// Consecutive changes of one log: a batch, once it is in an object.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) from: LogPosition,
    pub(crate) to: LogPosition,
    stored: OnceLock<Stored>,
}

/// Where a batch is.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) object: ObjectUse,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Chunk {
    pub(crate) fn new(from: LogPosition, to: LogPosition) -> Self {
        Chunk { from, to, stored: OnceLock::new() }
    }

    /// Where it is; nothing before it is in the store.
    pub(crate) fn stored(&self) -> Option<&Stored> {
        self.stored.get()
    }

    /// It is in the store. A second place is not taken.
    pub(crate) fn store(&self, stored: Stored) {
        drop(self.stored.set(stored));
    }
}
