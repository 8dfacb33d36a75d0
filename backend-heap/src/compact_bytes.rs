//! Byte strings that are mostly short: 24 bytes, up to 22 of them the content itself.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The longest content that is stored without an allocation.
pub(crate) const INLINE_LEN: usize = 22;

/// The smallest buffer of a value that outgrows its inline form by appending.
const MIN_GROWABLE: usize = 64;

/// What an `Arc` costs beside its content: two counters.
pub(crate) const ARC_OVERHEAD: usize = 16;

/// A byte string of 24 bytes. Cloning never copies more than those: longer content is shared, and
/// copied only when it is changed while somebody else (a snapshot, a scan) still holds it.
#[derive(Clone)]
pub(crate) enum CompactBytes {
    /// Up to [`INLINE_LEN`] bytes.
    Inline { len: u8, data: [u8; INLINE_LEN] },
    /// A longer value, written whole: one pointer away.
    Fixed(Arc<[u8]>),
    /// A longer value that was appended to: its buffer has room for more.
    Growable(Arc<Vec<u8>>),
}

impl CompactBytes {
    /// A copy of `bytes`.
    #[inline]
    pub(crate) fn new(bytes: &[u8]) -> Self {
        if bytes.len() <= INLINE_LEN {
            Self::inline(bytes, &[])
        } else {
            CompactBytes::Fixed(Arc::from(bytes))
        }
    }

    /// `first` followed by `second`.
    #[inline]
    pub(crate) fn concat(first: &[u8], second: &[u8]) -> Self {
        if first.len() + second.len() <= INLINE_LEN {
            return Self::inline(first, second);
        }
        let mut bytes = Vec::with_capacity(first.len() + second.len());
        bytes.extend_from_slice(first);
        bytes.extend_from_slice(second);
        CompactBytes::Fixed(Arc::from(bytes))
    }

    /// The caller has checked that both fit.
    #[inline]
    fn inline(first: &[u8], second: &[u8]) -> Self {
        let len = first.len() + second.len();
        let mut data = [0; INLINE_LEN];
        copy_short(&mut data[..first.len()], first);
        data[first.len()..len].copy_from_slice(second);
        CompactBytes::Inline { len: len as u8, data }
    }

    /// The content.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            // The `min` never bites; it spares the panicking branch of the bounds check.
            CompactBytes::Inline { len, data } => &data[..usize::from(*len).min(INLINE_LEN)],
            CompactBytes::Fixed(bytes) => bytes,
            CompactBytes::Growable(bytes) => bytes,
        }
    }

    /// Replaces the content, in place when it fits and nobody else holds it.
    #[inline]
    pub(crate) fn set(&mut self, value: &[u8]) {
        if let CompactBytes::Inline { len, data } = self
            && let Some(target) = data.get_mut(..value.len())
        {
            copy_short(target, value);
            *len = value.len() as u8;
            return;
        }
        self.set_long(value);
    }

    fn set_long(&mut self, value: &[u8]) {
        match self {
            CompactBytes::Fixed(bytes) if bytes.len() == value.len() => {
                if let Some(bytes) = Arc::get_mut(bytes) {
                    bytes.copy_from_slice(value);
                    return;
                }
            }
            CompactBytes::Growable(bytes) if value.len() > INLINE_LEN => {
                if let Some(bytes) = Arc::get_mut(bytes)
                    && (bytes.capacity() / 4..=bytes.capacity()).contains(&value.len())
                {
                    bytes.clear();
                    bytes.extend_from_slice(value);
                    return;
                }
            }
            _ => {}
        }
        *self = CompactBytes::new(value);
    }

    /// Appends to the content: amortised O(appended) while nobody else holds it.
    pub(crate) fn append(&mut self, more: &[u8]) {
        match self {
            CompactBytes::Inline { len, data } => {
                let start = usize::from(*len);
                if let Some(target) = data.get_mut(start..start + more.len()) {
                    target.copy_from_slice(more);
                    *len += more.len() as u8;
                    return;
                }
            }
            CompactBytes::Growable(bytes) => {
                if let Some(bytes) = Arc::get_mut(bytes) {
                    bytes.extend_from_slice(more);
                    return;
                }
            }
            CompactBytes::Fixed(_) => {}
        }
        let old = self.as_slice();
        let len = old.len() + more.len();
        // Room for as much again: the next appends do not copy the whole.
        let mut bytes = Vec::with_capacity((len + len / 2).max(MIN_GROWABLE));
        bytes.extend_from_slice(old);
        bytes.extend_from_slice(more);
        *self = CompactBytes::Growable(Arc::new(bytes));
    }

    /// Bytes on the heap.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            CompactBytes::Inline { .. } => 0,
            CompactBytes::Fixed(bytes) => bytes.len() + ARC_OVERHEAD,
            CompactBytes::Growable(bytes) => bytes.capacity() + ARC_OVERHEAD + size_of::<Vec<u8>>(),
        }
    }
}

/// Copies without a call the lengths that are most common: one word, one or two.
#[inline]
pub(crate) fn copy_short(target: &mut [u8], source: &[u8]) {
    if let (Some(target), Ok(source)) = (target.first_chunk_mut(), <&[u8; 8]>::try_from(source)) {
        *target = *source;
    } else {
        target.copy_from_slice(source);
    }
}

impl PartialEq for CompactBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for CompactBytes {}

impl PartialOrd for CompactBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CompactBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl fmt::Debug for CompactBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_three_words() {
        assert_eq!(size_of::<CompactBytes>(), 24);
    }

    #[test]
    fn every_length_is_kept_by_every_way_to_write_it() {
        let content: Vec<u8> = (0..200).collect();
        for len in [0, 1, 8, 21, 22, 23, 24, 63, 64, 65, 200] {
            let wanted = &content[..len];
            assert_eq!(CompactBytes::new(wanted).as_slice(), wanted);
            for cut in [0, len / 2, len] {
                let (first, second) = wanted.split_at(cut);
                assert_eq!(CompactBytes::concat(first, second).as_slice(), wanted);
                let mut appended = CompactBytes::new(first);
                appended.append(second);
                assert_eq!(appended.as_slice(), wanted);
            }
            for before in [0, 5, 22, 23, len, 199] {
                let mut bytes = CompactBytes::new(&content[..before]);
                bytes.append(b"x");
                bytes.set(wanted);
                assert_eq!(bytes.as_slice(), wanted, "{before} to {len}");
                let mut bytes = CompactBytes::new(&content[..before]);
                bytes.set(wanted);
                assert_eq!(bytes.as_slice(), wanted);
            }
        }
    }

    #[test]
    fn clones_do_not_see_later_changes() {
        for len in [3, 22, 40] {
            let mut bytes = CompactBytes::new(&vec![1; len]);
            let first = bytes.clone();
            bytes.append(&[2; 10]);
            let second = bytes.clone();
            bytes.append(&[3; 10]);
            bytes.set(&[4; 40]);
            let third = bytes.clone();
            bytes.set(&[5; 40]);
            assert_eq!(first.as_slice(), vec![1; len]);
            assert_eq!(second.as_slice(), [vec![1; len], vec![2; 10]].concat());
            assert_eq!(third.as_slice(), [4; 40]);
            assert_eq!(bytes.as_slice(), [5; 40]);
        }
    }

    #[test]
    fn appending_does_not_reallocate_each_time() {
        let mut bytes = CompactBytes::new(&[]);
        let (mut reallocations, mut last) = (0, 0);
        for _ in 0..10_000 {
            bytes.append(&[7; 8]);
            let heap = bytes.heap_bytes();
            reallocations += usize::from(heap != last);
            last = heap;
        }
        assert_eq!(bytes.as_slice().len(), 80_000);
        assert!(reallocations < 30, "{reallocations}");
    }
}
