//! Stored keys of point states, maps and timers.

use super::STATE_PREFIX_LEN;
use super::part::{push_part, take_part};
use crate::{KeyGroup, KeyRef, Millis, StateId, StateShape};

const TIME_END: usize = STATE_PREFIX_LEN + 8;

/// Appends what all keys of a key group begin with.
#[inline]
pub fn push_group(group: KeyGroup, out: &mut Vec<u8>) {
    out.extend_from_slice(&group.0.to_be_bytes());
}

/// Appends what all keys of a state in a key group begin with.
#[inline]
pub fn push_state(group: KeyGroup, state: StateId, out: &mut Vec<u8>) {
    let ([g0, g1], [s0, s1]) = (group.0.to_be_bytes(), state.0.to_be_bytes());
    out.extend_from_slice(&[g0, g1, s0, s1]);
}

/// Appends the key of an entry of a point state.
#[inline]
pub fn push_point(state: StateId, key: KeyRef<'_>, namespace: &[u8], out: &mut Vec<u8>) {
    push_state(key.group(), state, out);
    push_part(key.bytes(), out);
    out.extend_from_slice(namespace);
}

/// Appends what the keys of all entries of one map begin with.
#[inline]
pub fn push_map_prefix(state: StateId, key: KeyRef<'_>, namespace: &[u8], out: &mut Vec<u8>) {
    push_state(key.group(), state, out);
    push_part(key.bytes(), out);
    push_part(namespace, out);
}

/// Appends the key of an entry of a map.
#[inline]
pub fn push_map(
    state: StateId,
    key: KeyRef<'_>,
    namespace: &[u8],
    map_key: &[u8],
    out: &mut Vec<u8>,
) {
    push_map_prefix(state, key, namespace, out);
    out.extend_from_slice(map_key);
}

/// Appends the key of a timer.
#[inline]
pub fn push_timer(
    queue: StateId,
    time: Millis,
    key: KeyRef<'_>,
    namespace: &[u8],
    out: &mut Vec<u8>,
) {
    push_timers_from(key.group(), queue, time, out);
    push_part(key.bytes(), out);
    out.extend_from_slice(namespace);
}

/// Appends where the timers of a key group that are due at `time` or later begin.
#[inline]
pub fn push_timers_from(group: KeyGroup, queue: StateId, time: Millis, out: &mut Vec<u8>) {
    push_state(group, queue, out);
    out.extend_from_slice(&(time ^ Millis::MIN).to_be_bytes());
}

/// The key group of a stored key; `None` for what is too short to be one.
#[inline]
pub fn group_of(stored: &[u8]) -> Option<KeyGroup> {
    let group = stored.get(..2)?.try_into().ok()?;
    Some(KeyGroup(u16::from_be_bytes(group)))
}

/// The state of a stored key; `None` for what is too short to be one.
#[inline]
pub fn state_of(stored: &[u8]) -> Option<StateId> {
    let state = stored.get(2..STATE_PREFIX_LEN)?.try_into().ok()?;
    Some(StateId(u16::from_be_bytes(state)))
}

/// The time of a timer's stored key; `None` for what is too short to be one.
#[inline]
pub fn time_of(stored: &[u8]) -> Option<Millis> {
    let time = stored.get(STATE_PREFIX_LEN..TIME_END)?.try_into().ok()?;
    Some(Millis::from_be_bytes(time) ^ Millis::MIN)
}

/// Gives a stored key to another state: keys that move between instances that number their states
/// differently. What is too short to be a stored key stays as it is.
pub fn replace_state(stored: &mut [u8], state: StateId) {
    if let Some(place) = stored.get_mut(2..STATE_PREFIX_LEN) {
        place.copy_from_slice(&state.0.to_be_bytes());
    }
}

/// A stored key taken apart. Its buffers are reused from key to key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DecodedAddress {
    /// The key's bytes.
    pub key: Vec<u8>,
    /// The namespace's bytes.
    pub namespace: Vec<u8>,
    /// Where the map key begins in the stored key: its end for all but maps.
    pub map_key_start: usize,
}

/// Takes key and namespace out of a stored key. `None` when it has not the layout of `shape`; the
/// target is then unspecified.
pub fn decode(shape: StateShape, stored: &[u8], into: &mut DecodedAddress) -> Option<()> {
    into.key.clear();
    into.namespace.clear();
    let start = if shape == StateShape::Queue { TIME_END } else { STATE_PREFIX_LEN };
    let rest = take_part(stored.get(start..)?, &mut into.key)?;
    if shape == StateShape::Ordered {
        let map_key = take_part(rest, &mut into.namespace)?;
        into.map_key_start = stored.len() - map_key.len();
    } else {
        into.namespace.extend_from_slice(rest);
        into.map_key_start = stored.len();
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(group: u16, bytes: &[u8]) -> KeyRef<'_> {
        KeyRef::with_group(bytes, KeyGroup(group)).unwrap()
    }

    /// On disk in users' checkpoints; may only change together with the formats that use it.
    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        push_point(StateId(2), key(0x0101, b"k\0"), b"n\0", &mut out);
        assert_eq!(out, b"\x01\x01\0\x02k\0\x01n\0");
        out.clear();
        push_map(StateId(2), key(127, b""), b"\xff", b"\0m", &mut out);
        assert_eq!(out, b"\0\x7f\0\x02\0\0\xff\0\0\0m");
        out.clear();
        push_timer(StateId(3), -1, key(128, b"k"), b"n", &mut out);
        assert_eq!(out, b"\0\x80\0\x03\x7f\xff\xff\xff\xff\xff\xff\xffk\0\0n");
        assert_eq!((group_of(&out), state_of(&out)), (Some(KeyGroup(128)), Some(StateId(3))));
        replace_state(&mut out, StateId(0x0405));
        assert_eq!((state_of(&out), time_of(&out)), (Some(StateId(0x0405)), Some(-1)));
    }

    #[test]
    fn short_or_odd_keys_are_refused() {
        let mut into = DecodedAddress::default();
        for stored in [&b""[..], b"\0", b"\0\0\0", b"\0\0\0\0", b"\0\0\0\0k"] {
            for shape in [StateShape::Point, StateShape::Ordered, StateShape::Queue] {
                assert_eq!(decode(shape, stored, &mut into), None, "{stored:?}");
            }
            assert_eq!(time_of(stored), None);
        }
        assert_eq!(group_of(b"\0"), None);
        assert_eq!(state_of(b"\0\0\0"), None);
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0_u8), Just(0xff), Just(1), any::<u8>()];
        proptest::collection::vec(byte, 0..5)
    }

    proptest! {
        #[test]
        fn addresses_round_trip(
            group in any::<u16>(), state in any::<u16>(),
            k in bytes(), namespace in bytes(), map_key in bytes(), time in any::<i64>(),
        ) {
            let (state, k) = (StateId(state), key(group, &k));
            let mut into = DecodedAddress::default();
            let mut stored = Vec::new();
            push_map(state, k, &namespace, &map_key, &mut stored);
            prop_assert_eq!(decode(StateShape::Ordered, &stored, &mut into), Some(()));
            prop_assert_eq!((&into.key[..], &into.namespace), (k.bytes(), &namespace));
            prop_assert_eq!(&stored[into.map_key_start..], &map_key[..]);
            stored.clear();
            push_point(state, k, &namespace, &mut stored);
            prop_assert_eq!(decode(StateShape::Point, &stored, &mut into), Some(()));
            prop_assert_eq!((&into.key[..], &into.namespace), (k.bytes(), &namespace));
            stored.clear();
            push_timer(state, time, k, &namespace, &mut stored);
            prop_assert_eq!(decode(StateShape::Queue, &stored, &mut into), Some(()));
            prop_assert_eq!((&into.key[..], &into.namespace), (k.bytes(), &namespace));
            prop_assert_eq!(time_of(&stored), Some(time));
            prop_assert_eq!((group_of(&stored), state_of(&stored)), (Some(k.group()), Some(state)));
        }

        /// Map keys of one map are contiguous and in order; no other address lies between them.
        #[test]
        fn maps_do_not_run_together(
            a in (bytes(), bytes(), bytes()), b in (bytes(), bytes(), bytes()),
        ) {
            let stored = |(k, namespace, map_key): &(Vec<u8>, Vec<u8>, Vec<u8>)| {
                let (mut prefix, mut whole) = (Vec::new(), Vec::new());
                push_map_prefix(StateId(1), key(1, k), namespace, &mut prefix);
                push_map(StateId(1), key(1, k), namespace, map_key, &mut whole);
                (prefix, whole)
            };
            let ((prefix, whole), (_, other)) = (stored(&a), stored(&b));
            prop_assert_eq!((&a.0, &a.1) == (&b.0, &b.1), other.starts_with(&prefix));
            prop_assert_eq!(a.cmp(&b), whole.cmp(&other));
        }

        /// Timers sort by time, then key, then namespace.
        #[test]
        fn timers_sort_as_they_fire(
            a in (any::<i64>(), bytes(), bytes()), b in (-2..2_i64, bytes(), bytes()),
        ) {
            let stored = |(time, k, namespace): &(i64, Vec<u8>, Vec<u8>)| {
                let mut whole = Vec::new();
                push_timer(StateId(1), *time, key(1, k), namespace, &mut whole);
                whole
            };
            prop_assert_eq!(a.cmp(&b), stored(&a).cmp(&stored(&b)));
        }
    }
}
