//! Entries of maps and timer queues: each map (of a queue: its part in a key group) sorted for itself.
//!
//! Where a map is, the index over all memtables knows. An access to an entry looks among the entries of its
//! map only, which are few mostly. Maps are brought in order only when all are walked through: by a flush,
//! and by an enumeration of keys.

use std::sync::Arc;

use weir_state_api::StateId;
use weir_state_api::stored_key::state_of;

use super::index::Link;
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

/// Where a memtable has a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MapPlace(u32);

/// What a memtable has of one map.
#[derive(Debug)]
pub(super) struct Part {
    entries: Entries,
    /// What the memtable before it that has something of the map has.
    pub(super) older: Option<Link<MapPlace>>,
    /// Whether ranges of the map were deleted of what is older than the memtable.
    pub(super) has_deleted: bool,
}

#[derive(Debug)]
enum Entries {
    Some(Sequence),
    /// What their keys would begin with.
    None(Box<[u8]>),
}

impl Part {
    /// Whether the keys of the map begin with this.
    #[inline]
    pub(super) fn is_of(&self, prefix: &[u8]) -> bool {
        match &self.entries {
            Entries::Some(entries) => entries.is_of(prefix),
            Entries::None(of) => **of == *prefix,
        }
    }

    /// Its entries, if there are any.
    #[inline]
    pub(super) fn entries(&self) -> Option<&Sequence> {
        match &self.entries {
            Entries::Some(entries) => Some(entries),
            Entries::None(_) => None,
        }
    }
}

/// What a part costs, in a list that grows by half.
const PART_BYTES: usize = size_of::<Part>() * 3 / 2;

/// The newest version of each stored key that was written to a map or queue.
#[derive(Debug, Default)]
pub(crate) struct OrderedTable {
    parts: Vec<Part>,
    /// Places that no map has any more.
    free: Vec<MapPlace>,
    account: Account,
}

impl OrderedTable {
    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.account.entries
    }

    /// Of how many maps it has something.
    #[inline]
    pub(super) fn maps(&self) -> usize {
        self.parts.len() - self.free.len()
    }

    /// Bytes held.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.account.bytes + self.maps() * PART_BYTES
    }

    /// What it has of a map.
    #[inline]
    pub(super) fn part(&self, MapPlace(place): MapPlace) -> &Part {
        &self.parts[place as usize]
    }

    #[inline]
    fn part_mut(&mut self, MapPlace(place): MapPlace) -> &mut Part {
        &mut self.parts[place as usize]
    }

    /// Adds the first entry of a map.
    pub(super) fn add(
        &mut self,
        (key, prefix_len): (&[u8], usize),
        kind: EntryKind,
        value: &[u8],
        older: Option<Link<MapPlace>>,
    ) -> MapPlace {
        let sought = Sought::new(key, prefix_len);
        let entries = Entries::Some(Sequence::of(sought, kind, value, &mut self.account));
        self.push(Part { entries, older, has_deleted: false })
    }

    /// Adds a map without entries.
    pub(super) fn add_empty(&mut self, prefix: &[u8], older: Option<Link<MapPlace>>) -> MapPlace {
        self.account.bytes += prefix.len();
        self.push(Part { entries: Entries::None(prefix.into()), older, has_deleted: false })
    }

    fn push(&mut self, part: Part) -> MapPlace {
        if let Some(place) = self.free.pop() {
            *self.part_mut(place) = part;
            return place;
        }
        if self.parts.len() == self.parts.capacity() {
            self.parts.reserve_exact((self.parts.len() / 2).max(4));
        }
        self.parts.push(part);
        // Each takes some hundred bytes with its entries.
        MapPlace((self.parts.len() - 1) as u32)
    }

    /// Replaces what is there, or adds it.
    #[inline]
    pub(super) fn set(
        &mut self,
        MapPlace(place): MapPlace,
        (key, prefix_len): (&[u8], usize),
        kind: EntryKind,
        value: &[u8],
    ) {
        match &mut self.parts[place as usize].entries {
            Entries::Some(entries) => entries.set(key, kind, value, &mut self.account),
            none => {
                self.account.bytes -= prefix_len;
                let sought = Sought::new(key, prefix_len);
                *none = Entries::Some(Sequence::of(sought, kind, value, &mut self.account));
            }
        }
    }

    /// Appends to what is there: to one that was deleted, as its new value; to nothing, as an entry of
    /// this kind.
    pub(super) fn append(
        &mut self,
        place: MapPlace,
        (key, prefix_len): (&[u8], usize),
        more: &[u8],
        to_nothing: EntryKind,
    ) {
        match &mut self.parts[place.0 as usize].entries {
            Entries::Some(entries) => entries.append(key, more, to_nothing, &mut self.account),
            Entries::None(_) => self.set(place, (key, prefix_len), to_nothing, more),
        }
    }

    /// Removes all entries of a map from `from` up to `to`. Whether some are left; what is left without any
    /// must be told its name or go.
    pub(super) fn remove_range(&mut self, place: MapPlace, from: &[u8], to: &[u8]) -> bool {
        self.remove_with(place, |entries, account| entries.remove_range(from, to, account))
    }

    /// The same for one key.
    pub(super) fn take_out(&mut self, place: MapPlace, key: &[u8]) -> bool {
        self.remove_with(place, |entries, account| entries.take_out(key, account))
    }

    fn remove_with(
        &mut self,
        place: MapPlace,
        remove: impl FnOnce(&mut Sequence, &mut Account) -> bool,
    ) -> bool {
        let part = &mut self.parts[place.0 as usize];
        let any = match &mut part.entries {
            Entries::Some(entries) => remove(entries, &mut self.account),
            Entries::None(prefix) => {
                self.account.bytes -= prefix.len();
                false
            }
        };
        if !any {
            part.entries = Entries::None(Box::default());
        }
        any
    }

    /// What is left without entries stays.
    pub(super) fn leave_empty(&mut self, place: MapPlace, prefix: &[u8]) {
        self.account.bytes += prefix.len();
        self.part_mut(place).entries = Entries::None(prefix.into());
    }

    /// What is left without entries goes.
    pub(super) fn remove(&mut self, place: MapPlace) {
        let part = self.part_mut(place);
        (part.older, part.has_deleted) = (None, false);
        self.free.push(place);
    }

    /// Ranges of a map were deleted of what is older.
    pub(super) fn mark_deleted(&mut self, place: MapPlace) {
        self.part_mut(place).has_deleted = true;
    }

    fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.parts.iter().filter_map(Part::entries)
    }

    /// All entries of a state, pinned as they are, map by map in the order of their keys.
    pub(crate) fn pin_state(&self, state: StateId) -> Arc<[Sequence]> {
        let of_state = |map: &&Sequence| state_of(map.prefix()) == Some(state);
        self.in_order(of_state).cloned().collect()
    }

    /// How many entries a state has.
    pub(crate) fn count_of(&self, state: StateId) -> usize {
        let of_state = self.sequences().filter(|map| state_of(map.prefix()) == Some(state));
        of_state.map(|map| map.iter().count()).sum()
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.in_order(|_| true).flat_map(Sequence::iter)
    }

    fn in_order(&self, wanted: impl Fn(&&Sequence) -> bool) -> impl Iterator<Item = &Sequence> {
        let maps = self.sequences().filter(wanted);
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
