//! A timer as it is stored.

use std::cmp::Ordering;

use weir_state_api::Millis;

use crate::compact_bytes::CompactBytes;

/// A stored timer, ordered by time, key bytes, namespace bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredTimer {
    /// When it is due.
    pub(crate) time: Millis,
    key_len: u32,
    /// The key followed by the namespace.
    bytes: CompactBytes,
}

impl StoredTimer {
    pub(crate) fn new(time: Millis, key: &[u8], namespace: &[u8]) -> Self {
        // Keys have at most 64 KiB.
        StoredTimer { time, key_len: key.len() as u32, bytes: CompactBytes::concat(key, namespace) }
    }

    /// The key and the namespace.
    pub(crate) fn key_and_namespace(&self) -> (&[u8], &[u8]) {
        self.bytes.as_slice().split_at(self.key_len as usize)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.heap_bytes()
    }
}

impl PartialOrd for StoredTimer {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StoredTimer {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let by_place = || self.key_and_namespace().cmp(&other.key_and_namespace());
        self.time.cmp(&other.time).then_with(by_place)
    }
}
