//! Keeps appended values from growing without bound, although appending reads nothing.

use crate::KeyRef;

/// Counters; a power of two.
const SLOTS: usize = 1 << 16;

/// An upper bound of what was appended to any one key, in a fixed amount of memory.
///
/// Keys share counters by their hash, so a counter is never below what its keys have been given
/// since the instance was opened. As long as it is below the limit, no value can have grown by more
/// than the limit, and appending needs not look. Beyond, the caller must look at the value itself before
/// it appends.
///
/// For backends whose files bear longer values than the limit, by as much again.
#[derive(Debug, Default)]
pub struct AppendGuard {
    appended: Vec<u64>,
}

impl AppendGuard {
    /// Counts an append of `length` bytes. Whether the value must be measured first.
    pub fn must_measure(&mut self, key: KeyRef<'_>, length: usize, limit: u64) -> bool {
        if self.appended.is_empty() {
            self.appended = vec![0; SLOTS];
        }
        // The low bits decide the key group: neighbours would share counters.
        let slot = (key.hash() >> 32) as usize % SLOTS;
        let appended = &mut self.appended[slot];
        *appended = appended.saturating_add(length as u64);
        *appended > limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyGroup;

    #[test]
    fn a_key_is_measured_before_it_can_exceed_the_limit() {
        let mut guard = AppendGuard::default();
        let key = KeyRef::with_group(b"k", KeyGroup(0)).unwrap();
        let other = KeyRef::with_group(b"other", KeyGroup(0)).unwrap();
        for _ in 0..10 {
            assert!(!guard.must_measure(key, 10, 100));
        }
        assert!(guard.must_measure(key, 1, 100));
        assert!(!guard.must_measure(other, 100, 100));
    }
}
