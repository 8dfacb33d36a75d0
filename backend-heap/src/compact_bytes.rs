//! Byte strings that are mostly short: 24 bytes, up to 22 of them the content itself.

use std::cmp::Ordering;
use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

/// The longest content that is stored without an allocation.
pub(crate) const INLINE_LEN: usize = 22;

/// What an `Arc` costs beside its content: two counters.
pub(crate) const ARC_OVERHEAD: usize = 16;

/// A byte string of 24 bytes. Cloning never copies more than those: longer content is shared.
#[derive(Clone)]
pub(crate) enum CompactBytes {
    /// Up to [`INLINE_LEN`] bytes.
    Inline { len: u8, data: [u8; INLINE_LEN] },
    /// A longer one: one pointer away.
    Fixed(Arc<[u8]>),
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
        }
    }

    /// Bytes on the heap.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            CompactBytes::Inline { .. } => 0,
            CompactBytes::Fixed(bytes) => bytes.len() + ARC_OVERHEAD,
        }
    }
}

/// Copies without a call the lengths that are most common: one word, or two.
///
/// Two words are copied one by one. They were often just stored so (a time stamp, a value), and a load
/// of both at once would have to wait until the stores have reached the cache.
#[inline]
pub(crate) fn copy_short(target: &mut [u8], source: &[u8]) {
    let words = (target.split_first_chunk_mut::<8>(), source.split_first_chunk::<8>());
    let (Some((first, target)), Some((word, source))) = words else {
        target.copy_from_slice(source);
        return;
    };
    *first = *word;
    if source.is_empty() {
        return;
    }
    match (target.first_chunk_mut(), <&[u8; 8]>::try_from(source)) {
        (Some(second), Ok(word)) => *second = *word,
        _ => target.copy_from_slice(source),
    }
}

/// Begins to load bytes: a line at their beginning and at their end, the others follow by themselves.
#[inline]
pub(crate) fn touch(bytes: &[u8]) {
    black_box(bytes.first().copied());
    black_box(bytes.last().copied());
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
    fn every_length_is_kept() {
        let content: Vec<u8> = (0..200).collect();
        for len in [0, 1, 8, 21, 22, 23, 24, 63, 64, 65, 200] {
            let wanted = &content[..len];
            assert_eq!(CompactBytes::new(wanted).as_slice(), wanted);
            for cut in [0, len / 2, len] {
                let (first, second) = wanted.split_at(cut);
                assert_eq!(CompactBytes::concat(first, second).as_slice(), wanted);
            }
        }
    }
}
