//! Ends of ranges of stored keys.

use std::ops::Bound;

use crate::MapRange;

/// Turns `prefix` into the smallest byte string greater than everything that begins with it.
/// `false`, and an empty buffer, when there is none: `prefix` is empty or nothing but 0xff.
///
/// ```
/// use weir_state_api::stored_key::successor;
///
/// let mut end = b"a\xff\xff".to_vec();
/// assert!(successor(&mut end));
/// assert_eq!(end, b"b");
/// assert!(!successor(&mut vec![0xff, 0xff]));
/// ```
pub fn successor(prefix: &mut Vec<u8>) -> bool {
    while let Some(last) = prefix.pop() {
        if let Some(next) = last.checked_add(1) {
            prefix.push(next);
            return true;
        }
    }
    false
}

/// The stored keys of a range of map keys: from the first, up to and without the second. `prefix`
/// is what [`push_map_prefix`](super::push_map_prefix) wrote.
pub fn map_bounds(prefix: &[u8], range: MapRange<'_>) -> (Vec<u8>, Vec<u8>) {
    let (mut from, mut to) = (prefix.to_vec(), Vec::new());
    push_map_bounds(range, &mut from, &mut to);
    (from, to)
}

/// The same into buffers: `from` holds the prefix, the content of `to` is replaced.
pub fn push_map_bounds(range: MapRange<'_>, from: &mut Vec<u8>, to: &mut Vec<u8>) {
    let push = |map_key: &[u8], behind: bool, bound: &mut Vec<u8>| {
        bound.extend_from_slice(map_key);
        if behind {
            // The very next byte string.
            bound.push(0);
        }
    };
    to.clone_from(from);
    match range.from {
        Bound::Unbounded => {}
        Bound::Included(map_key) => push(map_key, false, from),
        Bound::Excluded(map_key) => push(map_key, true, from),
    }
    match range.to {
        Bound::Unbounded => {
            // A prefix ends with the code that ends a part, so it has a successor.
            successor(to);
        }
        Bound::Included(map_key) => push(map_key, true, to),
        Bound::Excluded(map_key) => push(map_key, false, to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_key::push_map_prefix;
    use crate::{KeyGroup, KeyRef, StateId};
    use proptest::prelude::*;

    #[test]
    fn successors_carry() {
        let next = |bytes: &[u8]| {
            let mut end = bytes.to_vec();
            successor(&mut end).then_some(end)
        };
        assert_eq!(next(b""), None);
        assert_eq!(next(b"\xff"), None);
        assert_eq!(next(b"\0"), Some(vec![1]));
        assert_eq!(next(b"\x7f"), Some(vec![0x80]));
        assert_eq!(next(b"a\xfe"), Some(b"a\xff".to_vec()));
        assert_eq!(next(b"a\xff"), Some(b"b".to_vec()));
    }

    proptest! {
        #[test]
        fn nothing_lies_between_a_prefix_and_its_successor(
            prefix in proptest::collection::vec(any::<u8>(), 1..5),
            other in proptest::collection::vec(any::<u8>(), 0..6),
        ) {
            let mut end = prefix.clone();
            let bounded = successor(&mut end);
            let inside = other >= prefix && (!bounded || other < end);
            prop_assert_eq!(inside, other.starts_with(&prefix));
        }

        #[test]
        fn bounds_hold_exactly_the_range(
            map_key in proptest::collection::vec(any::<u8>(), 0..3),
            from in proptest::collection::vec(any::<u8>(), 0..3),
            to in proptest::collection::vec(any::<u8>(), 0..3),
            kinds in (0..3_u8, 0..3_u8),
        ) {
            let bound = |kind, key| match kind {
                0 => Bound::Unbounded,
                1 => Bound::Included(key),
                _ => Bound::Excluded(key),
            };
            let range = MapRange { from: bound(kinds.0, &from[..]), to: bound(kinds.1, &to[..]) };
            let mut prefix = Vec::new();
            let key = KeyRef::with_group(b"k\xff\0", KeyGroup(3)).unwrap();
            push_map_prefix(StateId(0xffff), key, b"", &mut prefix);
            let (first, end) = map_bounds(&prefix, range);
            let stored = [&prefix[..], &map_key].concat();
            let inside = first <= stored && stored < end;
            let expected = (kinds.0 == 0 || map_key > from || kinds.0 == 1 && map_key == from)
                && (kinds.1 == 0 || map_key < to || kinds.1 == 1 && map_key == to);
            prop_assert_eq!(inside, expected);
        }
    }
}
