//! Sets of keys, as ranges.

use serde::{Deserialize, Serialize};

/// Disjoint ranges of stored keys, in order; each from its start up to and without its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyRanges(Vec<(Vec<u8>, Vec<u8>)>);

impl KeyRanges {
    /// What lies in at least one of these ranges.
    pub(crate) fn union_of(ranges: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|(from, to)| from < to).collect();
        ranges.sort_unstable();
        let mut union: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (from, to) in ranges {
            match union.last_mut() {
                Some((_, end)) if *end >= from => *end = std::mem::take(end).max(to),
                _ => union.push((from, to)),
            }
        }
        KeyRanges(union)
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let behind = self.0.partition_point(|(from, _)| from.as_slice() <= key);
        let last = behind.checked_sub(1).and_then(|at| self.0.get(at));
        last.is_some_and(|(_, to)| key < to.as_slice())
    }

    /// Whether something lies from `from` up to and without `to`.
    pub(crate) fn overlaps(&self, from: &[u8], to: &[u8]) -> bool {
        self.overlapping(from, to).next().is_some()
    }

    /// The parts that lie from `from` up to and without `to`.
    pub(crate) fn overlapping<'a>(
        &'a self,
        from: &'a [u8],
        to: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let first = self.0.partition_point(|(_, end)| end.as_slice() <= from);
        let rest = self.0.get(first..).unwrap_or_default().iter();
        rest.take_while(move |(start, _)| start.as_slice() < to)
            .map(move |(start, end)| (start.as_slice().max(from), end.as_slice().min(to)))
            .filter(|(start, end)| start < end)
    }

    /// Whether the ranges are as [`union_of`](KeyRanges::union_of) leaves them. To be asked of ranges
    /// that were read.
    pub(crate) fn is_sound(&self) -> bool {
        self.0.iter().all(|(from, to)| from < to)
            && self.0.windows(2).all(|pair| pair[0].1 < pair[1].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_union_is_what_its_parts_are(
            parts in proptest::collection::vec((0..40_u8, 0..40_u8), 0..8),
            (from, to) in (0..40_u8, 0..40_u8),
        ) {
            let ranges = KeyRanges::union_of(parts.iter().map(|(a, b)| (vec![*a], vec![*b])));
            prop_assert!(ranges.is_sound());
            let inside = |key: u8| parts.iter().any(|(a, b)| (*a..*b).contains(&key));
            for key in 0..40 {
                prop_assert_eq!(ranges.contains(&[key]), inside(key));
            }
            prop_assert_eq!(ranges.overlaps(&[from], &[to]), (from..to).any(inside));
            let found: usize = ranges
                .overlapping(&[from], &[to])
                .map(|(a, b)| usize::from(b[0] - a[0]))
                .sum();
            prop_assert_eq!(found, (from..to).filter(|key| inside(*key)).count());
        }
    }
}
