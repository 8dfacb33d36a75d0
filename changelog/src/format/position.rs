//! Where a change stands in a log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of one log: of one life of one instance. Random, never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LogId(pub(crate) [u8; 16]);

impl LogId {
    /// A name that no log has had.
    pub(crate) fn random() -> Self {
        LogId(*uuid::Uuid::new_v4().as_bytes())
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogId({self})")
    }
}

/// A place between two changes of a log: how many come before it. As the end of a range it is
/// exclusive, as its start inclusive, so ranges that meet share a position and nothing is counted twice.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct LogPosition(pub u64);

impl LogPosition {
    /// Before the first change.
    pub const START: LogPosition = LogPosition(0);
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
