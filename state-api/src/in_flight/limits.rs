//! How much may be in flight.

/// Bounds of an [`InFlight`](super::InFlight). A record counts from its submission until it is
/// done, also while it waits for another one of its key.
///
/// ```
/// use weir_state_api::InFlightLimits;
///
/// let limits = InFlightLimits::default().with_records(500).with_bytes(8 << 20);
/// assert_eq!(limits.reads, 256);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlightLimits {
    /// Records in flight at most; at least one. 4096 by default.
    pub records: usize,
    /// Bytes in flight at most, as [`RecordOperator::weight`](super::RecordOperator::weight) counts
    /// them. A single heavier record is admitted alone. No limit by default.
    pub bytes: usize,
    /// Reads in one call of [`multi_get`](crate::KeyedBackend::multi_get); at least one. 256 by
    /// default. A batch that is not full is sent as soon as nothing else can go on.
    pub reads: usize,
}

impl Default for InFlightLimits {
    fn default() -> Self {
        InFlightLimits { records: 4096, bytes: usize::MAX, reads: 256 }
    }
}

impl InFlightLimits {
    /// Sets [`records`](Self::records).
    #[must_use]
    pub fn with_records(mut self, records: usize) -> Self {
        self.records = records.max(1);
        self
    }

    /// Sets [`bytes`](Self::bytes).
    #[must_use]
    pub fn with_bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets [`reads`](Self::reads).
    #[must_use]
    pub fn with_reads(mut self, reads: usize) -> Self {
        self.reads = reads.max(1);
        self
    }
}
