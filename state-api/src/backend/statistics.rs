//! What a backend tells of itself: counters, sizes, steps of clean-up.

/// Counters and sizes of an instance, for tests and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Physical entries over all states: (key, namespace) of point states, map entries, timers.
    pub entries: u64,
    /// Memory held for state, in bytes, as far as the backend accounts for it.
    pub memory_bytes: u64,
    /// Bytes written to the store by snapshots since the instance was opened.
    pub bytes_uploaded: u64,
    /// Bytes that snapshots named without writing them again.
    pub bytes_reused: u64,
    /// Bytes read from the store since (and including) the restore.
    pub bytes_downloaded: u64,
}

/// The outcome of [`KeyedBackend::clean_up`](crate::KeyedBackend::clean_up).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CleanUp {
    /// Physical entries that were looked at.
    pub visited: u64,
    /// Physical entries that were removed.
    pub removed: u64,
    /// Whether the step came to the end of the state. It may have gone on from the beginning.
    pub finished: bool,
}

impl CleanUp {
    /// A step over a state that needs none.
    pub const NOTHING_TO_DO: CleanUp = CleanUp::new(0, 0, true);

    /// An outcome from its parts.
    pub const fn new(visited: u64, removed: u64, finished: bool) -> Self {
        CleanUp { visited, removed, finished }
    }
}
