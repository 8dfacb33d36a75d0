//! What a table's writer is told of an entry beyond its bytes.

use weir_state_api::StateShape;
use weir_state_api::stored_key::{STATE_PREFIX_LEN, part_len};
use weir_state_api::ttl::expiry;

use super::StateEras;
use crate::format::{Entry, EntryKind, EntryTraits};

/// The traits of an entry whose bytes are of the current era of its state.
pub(crate) fn traits_of(state: &StateEras, entry: Entry<'_>) -> EntryTraits {
    let traits = match state.kind().shape() {
        StateShape::Point => EntryTraits::POINT,
        StateShape::Queue => EntryTraits::TIMER,
        StateShape::Ordered => EntryTraits::map(map_prefix_len(entry.key)),
    };
    match state.ttl() {
        Some(ttl) if entry.kind != EntryKind::Delete => {
            traits.expiring(expiry(state.kind(), ttl, entry.value))
        }
        _ => traits,
    }
}

/// How many bytes of the stored key of a map's entry all keys of its map begin with.
fn map_prefix_len(key: &[u8]) -> usize {
    let part = |from: usize| key.get(from..).and_then(part_len).map(|len| from + len);
    part(STATE_PREFIX_LEN).and_then(part).unwrap_or(key.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_state_api::stored_key::{push_map, push_map_prefix};
    use weir_state_api::{KeyGroup, KeyRef, StateId};

    #[test]
    fn the_prefix_of_a_map_ends_before_its_map_keys() {
        let key = KeyRef::with_group(b"k\0\0", KeyGroup(3)).unwrap();
        for namespace in [&b""[..], b"n\0"] {
            let (mut prefix, mut stored) = (Vec::new(), Vec::new());
            push_map_prefix(StateId(2), key, namespace, &mut prefix);
            push_map(StateId(2), key, namespace, b"\0map key", &mut stored);
            assert_eq!(map_prefix_len(&stored), prefix.len());
        }
    }
}
