//! Ranges of keys whose older entries are gone.
#![deny(clippy::indexing_slicing)]

use weir_state_api::Result;

use super::wire::{Decoder, put_bytes, put_varint};

/// The range deletes of a table or a memtable: disjoint ranges in order. They apply to what is older
/// than the table, never to its own entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeDeletes {
    /// From, and the first key that is not deleted.
    ranges: Vec<Range>,
}

type Range = (Box<[u8]>, Box<[u8]>);

impl RangeDeletes {
    /// The union of these ranges: `from` up to and without `to`. Empty ones delete nothing.
    pub(crate) fn union_of(ranges: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let mut sorted: Vec<_> = ranges.into_iter().filter(|(from, to)| from < to).collect();
        sorted.sort_unstable();
        let mut union: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (from, to) in sorted {
            match union.last_mut() {
                Some((_, end)) if *end >= from => {
                    if *end < to {
                        *end = to;
                    }
                }
                _ => union.push((from, to)),
            }
        }
        let ranges =
            union.into_iter().map(|(from, to)| (from.into_boxed_slice(), to.into_boxed_slice()));
        RangeDeletes { ranges: ranges.collect() }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Where the first begins, and where the last ends.
    pub(super) fn bounds(&self) -> Option<(&[u8], &[u8])> {
        let ((from, _), (_, to)) = (self.ranges.first()?, self.ranges.last()?);
        Some((from, to))
    }

    /// Whether a key is in one of them.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        let behind = self.ranges.partition_point(|(from, _)| **from <= *key);
        let last = behind.checked_sub(1).and_then(|at| self.ranges.get(at));
        last.is_some_and(|(_, to)| *key < **to)
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> + Clone {
        self.ranges.iter().map(|(from, to)| (&**from, &**to))
    }

    /// Those that overlap the range from `from` up to and without `to`, in order and as they are:
    /// not cut to it.
    pub(crate) fn overlapping(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> + Clone {
        let first = self.ranges.partition_point(|(_, end)| **end <= *from);
        let behind = self.ranges.partition_point(|(start, _)| **start < *to).max(first);
        let ranges = self.ranges.get(first..behind).unwrap_or_default();
        ranges.iter().map(|(from, to)| (&**from, &**to))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.iter().map(|(from, to)| size_of::<Range>() + from.len() + to.len()).sum()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.ranges.len() as u64);
        for (from, to) in self.iter() {
            put_bytes(out, from);
            put_bytes(out, to);
        }
    }

    pub(super) fn decode(bytes: &[u8], origin: &str) -> Result<Self> {
        let mut decoder = Decoder::new(bytes, origin);
        let count = decoder.count(2)?;
        let mut ranges: Vec<Range> = Vec::new();
        for _ in 0..count {
            let (from, to) = (decoder.bytes()?, decoder.bytes()?);
            if from >= to || ranges.last().is_some_and(|(_, end)| **end >= *from) {
                return Err(decoder.corrupt("the range deletes are not in order"));
            }
            ranges.push((from.into(), to.into()));
        }
        decoder.finish("range deletes")?;
        Ok(RangeDeletes { ranges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn owned(ranges: &[(&[u8], &[u8])]) -> RangeDeletes {
        RangeDeletes::union_of(ranges.iter().map(|(from, to)| (from.to_vec(), to.to_vec())))
    }

    #[test]
    fn the_end_is_not_deleted_and_neighbours_are_joined() {
        let deletes =
            owned(&[(b"c", b"d"), (b"a", b"b"), (b"b", b"b1"), (b"x", b"x"), (b"z", b"y")]);
        let ranges: Vec<_> = deletes.iter().collect();
        assert_eq!(ranges, [(&b"a"[..], &b"b1"[..]), (b"c", b"d")]);
        for (key, covered) in [
            (&b""[..], false),
            (b"a", true),
            (b"b", true),
            (b"b0\xff", true),
            (b"b1", false),
            (b"c", true),
            (b"d", false),
            (b"x", false),
        ] {
            assert_eq!(deletes.covers(key), covered, "{key:?}");
        }
    }

    #[test]
    fn overlapping_ones_are_found() {
        let deletes = owned(&[(b"b", b"d"), (b"f", b"h")]);
        let found = |from: &[u8], to: &[u8]| deletes.overlapping(from, to).count();
        assert_eq!(found(b"a", b"b"), 0);
        assert_eq!(found(b"a", b"b0"), 1);
        assert_eq!(found(b"d", b"f"), 0);
        assert_eq!(found(b"c", b"g"), 2);
        assert_eq!(found(b"h", b"z"), 0);
        assert_eq!(found(b"z", b"a"), 0);
        assert_eq!(found(b"c", b"c"), 1, "an empty range inside one");
    }

    proptest! {
        #[test]
        fn a_union_covers_what_its_parts_cover(
            parts in proptest::collection::vec((0..60_u8, 0..60_u8), 0..12),
        ) {
            let deletes =
                RangeDeletes::union_of(parts.iter().map(|(from, to)| (vec![*from], vec![*to])));
            let covered: BTreeSet<u8> = parts.iter().flat_map(|(from, to)| *from..*to).collect();
            for key in 0..60 {
                prop_assert_eq!(deletes.covers(&[key]), covered.contains(&key));
            }
            let mut bytes = Vec::new();
            deletes.encode(&mut bytes);
            prop_assert_eq!(RangeDeletes::decode(&bytes, "x").unwrap(), deletes);
        }

        #[test]
        fn odd_bytes_are_an_error_or_ranges(bytes in proptest::collection::vec(0..6_u8, 0..30)) {
            if let Ok(deletes) = RangeDeletes::decode(&bytes, "x") {
                let union = RangeDeletes::union_of(
                    deletes.iter().map(|(from, to)| (from.to_vec(), to.to_vec())),
                );
                prop_assert_eq!(union, deletes);
            }
        }
    }
}
