//! What a backend can do, as data.

/// What a backend can do, as data. The conformance suite skips a case only by naming one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// No read is ever pending: a synchronous engine may rely on it.
    pub never_pends: bool,
    /// Snapshots reuse objects of earlier confirmed ones.
    pub incremental_snapshots: bool,
    /// The longest value in bytes.
    pub max_value_len: u64,
    /// Expired values are removed by [`KeyedBackend::clean_up`](crate::KeyedBackend::clean_up), not by the backend's own work.
    pub driven_clean_up: bool,
}

impl Capabilities {
    /// The contract's minimum: reads may pend, snapshots are full, values up to 1 GiB.
    pub const fn minimal() -> Self {
        Capabilities {
            never_pends: false,
            incremental_snapshots: false,
            max_value_len: 1 << 30,
            driven_clean_up: false,
        }
    }

    /// Sets [`never_pends`](Self::never_pends).
    #[must_use]
    pub const fn with_never_pends(mut self, value: bool) -> Self {
        self.never_pends = value;
        self
    }

    /// Sets [`incremental_snapshots`](Self::incremental_snapshots).
    #[must_use]
    pub const fn with_incremental_snapshots(mut self, value: bool) -> Self {
        self.incremental_snapshots = value;
        self
    }

    /// Sets [`driven_clean_up`](Self::driven_clean_up).
    #[must_use]
    pub const fn with_driven_clean_up(mut self, value: bool) -> Self {
        self.driven_clean_up = value;
        self
    }

    /// Sets [`max_value_len`](Self::max_value_len), in bytes.
    #[must_use]
    pub const fn with_max_value_len(mut self, bytes: u64) -> Self {
        self.max_value_len = bytes;
        self
    }
}
