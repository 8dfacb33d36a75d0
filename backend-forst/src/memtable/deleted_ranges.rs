//! Ranges of stored keys that were deleted as a whole.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Disjoint ranges, each from its first key up to and without its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeletedRanges {
    ends: BTreeMap<Box<[u8]>, Box<[u8]>>,
    bytes: usize,
}

impl DeletedRanges {
    /// Adds a range; what it touches becomes one with it.
    pub(crate) fn add(&mut self, from: &[u8], to: &[u8]) {
        if from >= to {
            return;
        }
        let (mut start, mut end): (Box<[u8]>, Box<[u8]>) = (from.into(), to.into());
        // Only the last that begins at or before the end can reach into it, then the one before it.
        while let Some((other, other_end)) = self.last_from(&end) {
            if *other_end < *start {
                break;
            }
            let (other, other_end): (Box<[u8]>, Box<[u8]>) = (other.into(), other_end.into());
            self.ends.remove(&other);
            self.bytes -= cost(&other, &other_end);
            start = start.min(other);
            end = end.max(other_end);
        }
        self.bytes += cost(&start, &end);
        self.ends.insert(start, end);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether a key lies in one of them.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        !self.ends.is_empty() && self.last_from(key).is_some_and(|(_, end)| key < end)
    }

    /// The last range that begins at this key or before.
    fn last_from(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        let bounds = (Bound::Unbounded, Bound::Included(key));
        let (from, to) = self.ends.range::<[u8], _>(bounds).next_back()?;
        Some((from, to))
    }

    /// All of them in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ends.iter().map(|(from, to)| (&**from, &**to))
    }

    /// Those that reach into `from..to`.
    pub(crate) fn within(&self, from: &[u8], to: Option<&[u8]>) -> DeletedRanges {
        let mut part = DeletedRanges::default();
        if self.is_empty() || to.is_some_and(|to| to <= from) {
            return part;
        }
        // Of those that begin at or before `from`, only the last can reach behind it.
        let reaching = self.last_from(from).filter(|(_, end)| *end > from);
        let first = reaching.map_or(from, |(start, _)| start);
        let bounds = (Bound::Included(first), to.map_or(Bound::Unbounded, Bound::Excluded));
        for (start, end) in self.ends.range::<[u8], _>(bounds) {
            part.ends.insert(start.clone(), end.clone());
        }
        part
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

fn cost(from: &[u8], to: &[u8]) -> usize {
    from.len() + to.len() + 48
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_cover_what_was_added_and_nothing_else(
            ranges in proptest::collection::vec((0..60_u8, 0..60_u8), 0..30),
        ) {
            let mut deleted = DeletedRanges::default();
            for (from, to) in &ranges {
                deleted.add(&[*from], &[*to]);
            }
            for key in 0..61_u8 {
                let expected = ranges.iter().any(|(from, to)| (*from..*to).contains(&key));
                prop_assert_eq!(deleted.covers(&[key]), expected);
            }
            let all: Vec<_> = deleted.iter().collect();
            prop_assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", all);
            prop_assert_eq!(deleted.memory_bytes(), all.iter().map(|(from, to)| cost(from, to)).sum::<usize>());
            let part = deleted.within(&[20], Some(&[30]));
            for key in 20..30_u8 {
                prop_assert_eq!(part.covers(&[key]), deleted.covers(&[key]));
            }
        }
    }
}
