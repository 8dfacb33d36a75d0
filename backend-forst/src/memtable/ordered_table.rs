//! Entries of maps and timer queues: sorted, and pinned at once.
//!
//! Three levels: leaves of some entries, branches of some leaves, and the list of branches. Leaves and
//! branches are shared with scans; the writer copies the leaf it changes, and the branch above it, when
//! somebody else still holds them. So a scan of a map takes a reference to each branch it touches (some
//! thousand entries each), and costs the writer one leaf of copies at most.

use std::sync::Arc;

use super::Found;
use crate::format::EntryKind;

/// A full leaf is cut in two.
const LEAF_ENTRIES: usize = 64;
/// A full branch is cut in two.
const BRANCH_LEAVES: usize = 128;

/// What an entry costs beside its key and value: the entry, two reference counts each.
const ENTRY_OVERHEAD: usize = size_of::<OrderedEntry>() + 32;

/// A version under its stored key. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct OrderedEntry {
    pub(crate) key: Arc<[u8]>,
    pub(crate) kind: EntryKind,
    pub(crate) value: Arc<[u8]>,
}

impl OrderedEntry {
    pub(crate) fn new(key: &[u8], kind: EntryKind, value: &[u8]) -> Self {
        OrderedEntry { key: key.into(), kind, value: value.into() }
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.value.len() + ENTRY_OVERHEAD
    }

    fn set(&mut self, kind: EntryKind, value: &[u8]) {
        self.kind = kind;
        match Arc::get_mut(&mut self.value).filter(|old| old.len() == value.len()) {
            Some(old) => old.copy_from_slice(value),
            None => self.value = value.into(),
        }
    }
}

/// Never empty, but for the only leaf of an empty table.
type Leaf = Vec<OrderedEntry>;
type Branch = Vec<Arc<Leaf>>;

/// The newest version of each stored key that was written to a map or queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct OrderedTable {
    branches: Vec<Arc<Branch>>,
    len: usize,
    bytes: usize,
}

/// Where an entry is, or would be: branch, leaf, entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position(usize, usize, usize);

fn first_key(branch: &Branch) -> &[u8] {
    branch.first().and_then(|leaf| leaf.first()).map_or(&[], |entry| &entry.key)
}

impl OrderedTable {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The place of a key in the leaf that holds it or would.
    fn locate(&self, key: &[u8]) -> Option<(Position, bool)> {
        let behind = self.branches.partition_point(|branch| first_key(branch) <= key);
        let b = behind.saturating_sub(1);
        let branch = self.branches.get(b)?;
        let behind =
            branch.partition_point(|leaf| leaf.first().is_some_and(|entry| &entry.key[..] <= key));
        let l = behind.saturating_sub(1);
        let leaf = branch.get(l)?;
        Some(match leaf.binary_search_by(|entry| entry.key[..].cmp(key)) {
            Ok(e) => (Position(b, l, e), true),
            Err(e) => (Position(b, l, e), false),
        })
    }

    /// The version under a stored key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Found<'_>> {
        let (Position(b, l, e), true) = self.locate(key)? else { return None };
        let entry = &self.branches[b][l][e];
        Some(Found { kind: entry.kind, value: &entry.value })
    }

    /// Replaces what is there, or adds it.
    pub(crate) fn set(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) {
        let Some((position, there)) = self.locate(key) else {
            let entry = OrderedEntry::new(key, kind, value);
            self.bytes += entry.bytes();
            self.len += 1;
            self.branches.push(Arc::new(vec![Arc::new(vec![entry])]));
            return;
        };
        if there {
            let entry = &mut self.leaf_mut(position)[position.2];
            let before = entry.value.len();
            entry.set(kind, value);
            self.bytes = self.bytes - before + value.len();
            return;
        }
        let entry = OrderedEntry::new(key, kind, value);
        self.bytes += entry.bytes();
        self.len += 1;
        let leaf = self.leaf_mut(position);
        leaf.insert(position.2, entry);
        if leaf.len() > LEAF_ENTRIES {
            // Keys mostly come in order or at random: half and half suits both.
            let upper = leaf.split_off(LEAF_ENTRIES / 2);
            let branch = Arc::make_mut(&mut self.branches[position.0]);
            branch.insert(position.1 + 1, Arc::new(upper));
            if branch.len() > BRANCH_LEAVES {
                let upper = branch.split_off(BRANCH_LEAVES / 2);
                self.branches.insert(position.0 + 1, Arc::new(upper));
            }
        }
    }

    /// Appends as [`PointTable::append`](super::PointTable::append) does. `base`: whether nothing older
    /// can be below.
    pub(crate) fn append(&mut self, key: &[u8], more: &[u8], base: bool) {
        let Some((position, true)) = self.locate(key) else {
            let kind = if base { EntryKind::Put } else { EntryKind::Append };
            return self.set(key, kind, more);
        };
        let entry = &mut self.leaf_mut(position)[position.2];
        if entry.kind == EntryKind::Delete {
            entry.kind = EntryKind::Put;
        }
        entry.value = [&entry.value[..], more].concat().into();
        self.bytes += more.len();
    }

    /// Removes all entries from `from` up to `to`.
    pub(crate) fn remove_range(&mut self, from: &[u8], to: &[u8]) {
        while let Some(position) = self.seek(from) {
            let leaf = &self.branches[position.0][position.1];
            let end = leaf.partition_point(|entry| &entry.key[..] < to);
            if end <= position.2 {
                return;
            }
            let removed = self.leaf_mut(position).drain(position.2..end);
            let (count, bytes) =
                removed.fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.bytes()));
            self.len -= count;
            self.bytes -= bytes;
            self.drop_if_empty(position);
        }
    }

    fn drop_if_empty(&mut self, Position(b, l, _): Position) {
        if self.branches[b][l].is_empty() {
            let branch = Arc::make_mut(&mut self.branches[b]);
            branch.remove(l);
            if branch.is_empty() {
                self.branches.remove(b);
            }
        }
    }

    fn leaf_mut(&mut self, Position(b, l, _): Position) -> &mut Leaf {
        Arc::make_mut(&mut Arc::make_mut(&mut self.branches[b])[l])
    }

    /// The first entry at `from` or behind.
    fn seek(&self, from: &[u8]) -> Option<Position> {
        let (position, _) = self.locate(from)?;
        self.settle(position)
    }

    /// Moves from behind the end of a leaf to the start of the next.
    fn settle(&self, Position(b, l, e): Position) -> Option<Position> {
        let branch = self.branches.get(b)?;
        let leaf = branch.get(l)?;
        if e < leaf.len() {
            return Some(Position(b, l, e));
        }
        if l + 1 < branch.len() {
            return Some(Position(b, l + 1, 0));
        }
        (b + 1 < self.branches.len()).then_some(Position(b + 1, 0, 0))
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &OrderedEntry> {
        self.branches.iter().flat_map(|branch| branch.iter()).flat_map(|leaf| leaf.iter())
    }

    /// The part that holds `from..to`, pinned as it is: shares branches with the table.
    pub(crate) fn pin(&self, from: &[u8], to: Option<&[u8]>) -> OrderedTable {
        let start =
            self.branches.partition_point(|branch| first_key(branch) <= from).saturating_sub(1);
        let end = match to {
            Some(to) => self.branches.partition_point(|branch| first_key(branch) < to),
            None => self.branches.len(),
        };
        let branches = self.branches.get(start..end).unwrap_or_default().to_vec();
        OrderedTable { branches, len: 0, bytes: 0 }
    }

    /// Whether an entry lies in the range.
    pub(crate) fn has_any(&self, from: &[u8], to: &[u8]) -> bool {
        self.seek(from).is_some_and(|Position(b, l, e)| &self.branches[b][l][e].key[..] < to)
    }

    /// The first entry at `from` or behind, with its place.
    pub(crate) fn entry_from(&self, from: &[u8]) -> Option<(Place, &OrderedEntry)> {
        let position = self.seek(from)?;
        Some((Place(position), self.at(position)))
    }

    /// The last entry before `to` (all, without one), with its place.
    pub(crate) fn entry_before(&self, to: Option<&[u8]>) -> Option<(Place, &OrderedEntry)> {
        let position = match to {
            Some(to) => self.locate(to)?.0,
            None => {
                let b = self.branches.len().checked_sub(1)?;
                let l = self.branches[b].len().checked_sub(1)?;
                Position(b, l, self.branches[b][l].len())
            }
        };
        let position = self.previous(position)?;
        Some((Place(position), self.at(position)))
    }

    /// The entry behind a place.
    pub(crate) fn after(&self, Place(Position(b, l, e)): Place) -> Option<(Place, &OrderedEntry)> {
        let position = self.settle(Position(b, l, e + 1))?;
        Some((Place(position), self.at(position)))
    }

    /// The entry before a place.
    pub(crate) fn before(&self, Place(position): Place) -> Option<(Place, &OrderedEntry)> {
        let position = self.previous(position)?;
        Some((Place(position), self.at(position)))
    }

    /// The entry at a place.
    pub(crate) fn entry(&self, Place(position): Place) -> &OrderedEntry {
        self.at(position)
    }

    fn at(&self, Position(b, l, e): Position) -> &OrderedEntry {
        &self.branches[b][l][e]
    }

    fn previous(&self, Position(b, l, e): Position) -> Option<Position> {
        if e > 0 {
            return Some(Position(b, l, e - 1));
        }
        let (b, l) = match (b, l) {
            (_, 1..) => (b, l - 1),
            (1.., 0) => (b - 1, self.branches[b - 1].len() - 1),
            (0, 0) => return None,
        };
        Some(Position(b, l, self.branches[b][l].len() - 1))
    }
}

/// Where an entry of a pinned table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(Position);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Set(u16, u8),
        Append(u16, u8),
        RemoveRange(u16, u16),
        Pin,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            20 => (0..2_000_u16, any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
            3 => (0..2_000_u16, any::<u8>()).prop_map(|(key, value)| Step::Append(key, value)),
            1 => (0..2_000_u16, 0..2_000_u16).prop_map(|(a, b)| Step::RemoveRange(a, b)),
            1 => Just(Step::Pin),
        ];
        proptest::collection::vec(step, 0..1_500)
    }

    fn contents(table: &OrderedTable) -> Vec<(Vec<u8>, Vec<u8>)> {
        table.iter().map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_is_a_map_and_pins_stay_as_they_were(steps in steps()) {
            let mut table = OrderedTable::default();
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let mut pins = Vec::new();
            for step in steps {
                match step {
                    Step::Set(key, value) => {
                        let key = key.to_be_bytes();
                        table.set(&key, EntryKind::Put, &[value]);
                        model.insert(key.to_vec(), vec![value]);
                    }
                    Step::Append(key, value) => {
                        let key = key.to_be_bytes();
                        table.append(&key, &[value], true);
                        model.entry(key.to_vec()).or_default().push(value);
                    }
                    Step::RemoveRange(from, to) => {
                        let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
                        table.remove_range(&from, &to);
                        model.retain(|key, _| key[..] < from[..] || key[..] >= to[..]);
                    }
                    Step::Pin => pins.push((table.pin(&[], None), model.clone())),
                }
            }
            pins.push((table.clone(), model.clone()));
            prop_assert_eq!(table.len(), model.len());
            let expected: usize = table.iter().map(OrderedEntry::bytes).sum();
            prop_assert_eq!(table.memory_bytes(), expected);
            for (pin, model) in pins {
                prop_assert_eq!(contents(&pin), model.clone().into_iter().collect::<Vec<_>>());
                for key in [0_u16, 1, 700, 1_999, 2_000] {
                    let key = key.to_be_bytes();
                    prop_assert_eq!(pin.get(&key).map(|found| found.value), model.get(&key[..]).map(|value| &value[..]));
                    let next = pin.entry_from(&key).map(|(_, entry)| entry.key.to_vec());
                    prop_assert_eq!(next, model.range(key.to_vec()..).next().map(|(key, _)| key.clone()));
                    let last = pin.entry_before(Some(&key)).map(|(_, entry)| entry.key.to_vec());
                    prop_assert_eq!(last, model.range(..key.to_vec()).next_back().map(|(key, _)| key.clone()));
                }
                let mut backwards = Vec::new();
                let mut at = pin.entry_before(None);
                while let Some((place, entry)) = at {
                    backwards.push(entry.key.to_vec());
                    at = pin.before(place);
                }
                prop_assert!(backwards.into_iter().eq(model.keys().rev().cloned()));
                let part = pin.pin(&[3, 0], Some(&[4, 0]));
                let inside = |table: &OrderedTable| contents(table).into_iter()
                    .filter(|(key, _)| key[0] == 3).collect::<Vec<_>>();
                prop_assert_eq!(inside(&part), inside(&pin));
            }
        }
    }
}
