//! What a user can set.

use crate::entry_chunk::MAX_VALUE_LEN;
use weir_state_api::ValueLimit;

/// Options of the memory backend.
///
/// ```
/// use weir_backend_heap::{HeapBackendFactory, HeapOptions};
///
/// let factory = HeapBackendFactory::new(HeapOptions::default().with_max_value_len(64 << 20));
/// # let _ = factory;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapOptions {
    /// The longest value in bytes; a longer one is refused with
    /// [`TooLarge`](weir_state_api::ErrorKind::TooLarge). Default: 1 GiB, the contract's minimum.
    ///
    /// A value is in memory as a whole, and once more while a snapshot writes it. More than 2 GiB less
    /// 256 KiB counts as that.
    pub max_value_len: u64,
    /// Whether a checkpoint writes only what changed since the newest one that is known to be
    /// complete. Default: yes. Costs a record of the removed keys (some 32 bytes for each key removed
    /// since then, within bounds); a restore reads up to half as many bytes again.
    pub incremental_snapshots: bool,
}

impl Default for HeapOptions {
    fn default() -> Self {
        HeapOptions { max_value_len: 1 << 30, incremental_snapshots: true }
    }
}

impl HeapOptions {
    /// The longest value that is accepted.
    pub(crate) fn value_limit(&self) -> ValueLimit {
        ValueLimit::new(self.max_value_len.min(MAX_VALUE_LEN), "HeapOptions")
    }

    /// Sets [`max_value_len`](Self::max_value_len), in bytes.
    #[must_use]
    pub fn with_max_value_len(mut self, bytes: u64) -> Self {
        self.max_value_len = bytes;
        self
    }

    /// Sets [`incremental_snapshots`](Self::incremental_snapshots).
    #[must_use]
    pub fn with_incremental_snapshots(mut self, incremental: bool) -> Self {
        self.incremental_snapshots = incremental;
        self
    }
}
