//! Entries of maps and timer queues: each map is found by hash, and sorted for itself.
//!
//! An access to an entry looks into one hash table for its map (for a queue: its part in a key group) and
//! then among the entries of that map, which are few mostly. Maps are brought in order only when all are
//! walked through: by a flush, and by an enumeration of keys.

use std::sync::Arc;

use hashbrown::HashTable;
use weir_state_api::StateId;
use weir_state_api::stored_key::state_of;

use super::Found;
use super::leaf::Sought;
use super::sequence::{Account, Sequence};
use crate::format::{Entry, EntryKind, filter_hash};

/// How an entry of a map or queue is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MapRoute {
    /// Of what the keys of all entries of the map begin with.
    pub(crate) hash: u64,
    /// The length of that.
    pub(crate) prefix_len: usize,
}

impl MapRoute {
    /// To a stored key whose first bytes are those that all of its map begin with.
    #[inline]
    pub(crate) fn to(key: &[u8], prefix_len: usize) -> Self {
        MapRoute { hash: filter_hash(&key[..prefix_len]), prefix_len }
    }
}

/// A map of the index.
#[derive(Debug, Clone)]
struct Map {
    /// So that a growing index need not look at the keys.
    hash: u64,
    entries: Sequence,
}

impl Map {
    #[inline]
    fn is(&self, hash: u64, prefix: &[u8]) -> bool {
        self.hash == hash && self.entries.prefix() == prefix
    }
}

/// What a map costs in the index, which is half full at least.
const INDEX_BYTES: usize = 2 * (size_of::<Map>() + 1);

/// The newest version of each stored key that was written to a map or queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct OrderedTable {
    maps: HashTable<Map>,
    account: Account,
}

impl OrderedTable {
    pub(crate) fn len(&self) -> usize {
        self.account.entries
    }

    /// Bytes held.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.account.bytes + self.maps.len() * INDEX_BYTES
    }

    /// The entries of the map whose keys begin with `prefix`, which has this hash.
    #[inline]
    pub(crate) fn map(&self, hash: u64, prefix: &[u8]) -> Option<&Sequence> {
        self.maps.find(hash, |map| map.is(hash, prefix)).map(|map| &map.entries)
    }

    /// The version under a stored key.
    #[inline]
    pub(crate) fn get(&self, route: MapRoute, key: &[u8]) -> Option<Found<'_>> {
        self.map(route.hash, &key[..route.prefix_len])?.get(key)
    }

    /// Replaces what is there, or adds it.
    #[inline]
    pub(crate) fn set(&mut self, route: MapRoute, key: &[u8], kind: EntryKind, value: &[u8]) {
        let MapRoute { hash, prefix_len } = route;
        let account = &mut self.account;
        match self.maps.find_mut(hash, |map| map.is(hash, &key[..prefix_len])) {
            Some(map) => map.entries.set(key, kind, value, account),
            None => {
                let entries = Sequence::of(Sought::new(key, prefix_len), kind, value, account);
                self.maps.insert_unique(hash, Map { hash, entries }, |map| map.hash);
            }
        }
    }

    /// Appends to what is there: to one that was deleted, as its new value. `base`: whether nothing older
    /// can be below.
    pub(crate) fn append(&mut self, route: MapRoute, key: &[u8], more: &[u8], base: bool) {
        let MapRoute { hash, prefix_len } = route;
        let to_nothing = if base { EntryKind::Put } else { EntryKind::Append };
        match self.maps.find_mut(hash, |map| map.is(hash, &key[..prefix_len])) {
            Some(map) => map.entries.append(key, more, to_nothing, &mut self.account),
            None => self.set(route, key, to_nothing, more),
        }
    }

    /// Removes all entries of a map from `from` up to `to`.
    pub(crate) fn remove_range(&mut self, hash: u64, prefix: &[u8], from: &[u8], to: &[u8]) {
        if let Ok(mut map) = self.maps.find_entry(hash, |map| map.is(hash, prefix))
            && !map.get_mut().entries.remove_range(from, to, &mut self.account)
        {
            map.remove();
        }
    }

    /// Whether an entry of a map lies in the range.
    pub(crate) fn has_any(&self, hash: u64, prefix: &[u8], from: &[u8], to: &[u8]) -> bool {
        self.map(hash, prefix).is_some_and(|map| map.bound(from) < map.bound(to))
    }

    /// All entries of a state, pinned as they are, map by map in the order of their keys.
    pub(crate) fn pin_state(&self, state: StateId) -> Arc<[Sequence]> {
        let of_state = |map: &&Sequence| state_of(map.prefix()) == Some(state);
        self.in_order(of_state).cloned().collect()
    }

    /// How many entries a state has.
    pub(crate) fn count_of(&self, state: StateId) -> usize {
        let maps = self.maps.iter().map(|map| &map.entries);
        let of_state = maps.filter(|map| state_of(map.prefix()) == Some(state));
        of_state.map(|map| map.iter().count()).sum()
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.in_order(|_| true).flat_map(Sequence::iter)
    }

    fn in_order(&self, wanted: impl Fn(&&Sequence) -> bool) -> impl Iterator<Item = &Sequence> {
        let maps = self.maps.iter().map(|map| &map.entries).filter(wanted);
        let mut maps: Vec<(u128, &Sequence)> =
            maps.map(|map| (first_bytes(map.prefix()), map)).collect();
        // Numbers first, as for point states.
        maps.sort_unstable_by(|(a, map), (b, other)| {
            a.cmp(b).then_with(|| map.prefix().cmp(other.prefix()))
        });
        maps.into_iter().map(|(_, map)| map)
    }
}

/// The first bytes as a number: in the order of byte strings, as far as they decide it.
fn first_bytes(bytes: &[u8]) -> u128 {
    match bytes.first_chunk() {
        Some(first) => u128::from_be_bytes(*first),
        None => {
            let mut first = [0; size_of::<u128>()];
            first[..bytes.len()].copy_from_slice(bytes);
            u128::from_be_bytes(first)
        }
    }
}

#[cfg(test)]
#[path = "ordered_table_tests.rs"]
mod tests;
