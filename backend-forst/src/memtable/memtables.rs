//! The memtables of one shard: the one that takes writes, and those that take no more.
//!
//! The entries of point states are found through one index over all memtables, which knows where the
//! newest version of each key is. So an access looks into one hash table, however many memtables there
//! are, and the first write to a key after a freeze makes its slot point to the new version, where a
//! table for each memtable would have to be searched in vain, grow, and take the key in.
//!
//! Earlier versions stay in the logs of their memtables, for flushes and scans. Only an operand needs
//! what it continues: it has a link to it.
//!
//! Maps have an index of their own: see [`MapVersion`](super::MapVersion).

use std::collections::VecDeque;
use std::sync::Arc;

use super::index::{Index, Link, Slot};
use super::ordered_table::MapPlace;
use super::point_log::{NewEntry, Place, PointLog};
use super::{LogEntry, MapRoute, Memtable};
use crate::format::EntryKind;

/// What a memtable takes beside its entries: itself and the rest of its last chunk, measured with one entry
/// each.
const LEAST_BYTES: usize = 6 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Memtables {
    pub(super) active: Memtable,
    /// Those that take no more writes, newest first.
    pub(super) older: VecDeque<Arc<Memtable>>,
    points: Index<Place>,
    pub(super) maps: Index<MapPlace>,
    /// How often a memtable was frozen: the number of the one that takes writes.
    pub(super) epoch: u32,
    /// What happened since [`take_churn`](Self::take_churn), and the number of the first memtable since.
    churn: Churn,
    since: u32,
}

/// How much of what was written did not last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Churn {
    /// Writes, of those that append only the ones to keys that a memtable did not have.
    pub(crate) puts: u64,
    /// Entries of point states that were overwritten in a later memtable.
    pub(crate) superseded: u64,
}

impl Churn {
    /// How many writes were overwritten, where memtables have come to hold so many entries. Those of a map
    /// that were overwritten in a later memtable do not show.
    pub(crate) fn overwritten(self, entries: u64) -> u64 {
        self.puts.saturating_sub(entries) + self.superseded
    }
}

/// How memtables find a stored key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Of a point state: by its hash.
    Point { hash: u64 },
    /// Of a map or queue.
    Map(MapRoute),
}

/// Where the index has a key of a point state, until the next write: whoever has just read it replaces it
/// without looking for it again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointSlot(usize);

/// A version of a key of a point state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointVersion<'m> {
    /// 0 for the memtable that takes writes, 1 for the one frozen last.
    pub(crate) age: usize,
    pub(crate) kind: EntryKind,
    pub(crate) value: &'m [u8],
    link: Option<Link<Place>>,
}

/// The memtable that was frozen so many freezes ago, 0 for the one that takes writes, if it is still there.
#[inline]
pub(super) fn memtable_of<'m>(
    active: &'m Memtable,
    older: &'m VecDeque<Arc<Memtable>>,
    age: u32,
) -> Option<&'m Memtable> {
    match age.checked_sub(1) {
        None => Some(active),
        Some(behind) => older.get(behind as usize).map(|memtable| &**memtable),
    }
}

/// The log of such a memtable.
#[inline]
fn log_of<'m>(
    active: &'m Memtable,
    older: &'m VecDeque<Arc<Memtable>>,
    age: u32,
) -> Option<&'m PointLog> {
    memtable_of(active, older, age).map(|memtable| &memtable.points)
}

impl Memtables {
    /// The memtable that takes writes.
    #[inline]
    pub(crate) fn active(&self) -> &Memtable {
        &self.active
    }

    /// The newest version of a key of a point state, and where it is.
    #[inline]
    pub(crate) fn point(&self, hash: u64, key: &[u8]) -> Option<(PointVersion<'_>, PointSlot)> {
        let slot = self.slot(hash, key)?;
        let version = self.version(self.points.table.get_bucket(slot)?.at)?;
        Some((version, PointSlot(slot)))
    }

    /// The slot of a key, in the index of point states.
    #[inline]
    fn slot(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let Memtables { active, older, epoch, points: Index { table, .. }, .. } = self;
        table.find_bucket_index(hash, |slot| slot.is_of(hash, key, active, older, *epoch))
    }

    /// What an operand continues, as far as it is in a memtable.
    pub(crate) fn before(&self, version: &PointVersion<'_>) -> Option<PointVersion<'_>> {
        self.version(version.link?)
    }

    #[inline]
    fn version(&self, at: Link<Place>) -> Option<PointVersion<'_>> {
        let age = self.epoch - at.epoch;
        let LogEntry { found, link, .. } = log_of(&self.active, &self.older, age)?.get(at.place);
        Some(PointVersion { age: age as usize, kind: found.kind, value: found.value, link })
    }

    /// Makes this the newest version of a key.
    #[inline]
    pub(crate) fn set(&mut self, route: Route, key: &[u8], kind: EntryKind, value: &[u8]) {
        self.churn.puts += 1;
        match route {
            Route::Point { hash } => self.set_point(hash, key, kind, value),
            Route::Map(route) => self.set_in_map(route, key, kind, value),
        }
    }

    /// Makes this value the newest version of a key of a point state that a read has just found.
    #[inline]
    pub(crate) fn set_found(
        &mut self,
        PointSlot(slot): PointSlot,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) {
        self.churn.puts += 1;
        self.renew(slot, NewEntry { hash, key, kind: EntryKind::Put, value, link: None });
    }

    #[inline]
    fn set_point(&mut self, hash: u64, key: &[u8], kind: EntryKind, value: &[u8]) {
        let new = NewEntry { hash, key, kind, value, link: None };
        match self.slot(hash, key) {
            Some(slot) => self.renew(slot, new),
            None => {
                let at = Link { epoch: self.epoch, place: self.active.points.add(new) };
                self.points.insert(hash, at);
            }
        }
    }

    /// The newest version of the key that has this slot is another one.
    #[inline]
    fn renew(&mut self, slot: usize, new: NewEntry<'_>) {
        let Memtables { active, points: Index { table, held, .. }, epoch, churn, since, .. } = self;
        let Slot { at, .. } =
            table.get_bucket_mut(slot).expect("no write has come since the look-up");
        if at.epoch == *epoch {
            at.place = active.points.replace(at.place, new.kind, new.value);
            return;
        }
        held[(*epoch - at.epoch) as usize - 1] -= 1;
        churn.superseded += u64::from(at.epoch >= *since);
        *at = Link { epoch: *epoch, place: active.points.add(new) };
    }

    /// Appends to the newest version of a key, whatever it is.
    pub(crate) fn append(&mut self, route: Route, key: &[u8], more: &[u8]) {
        match route {
            Route::Point { hash } => self.append_point(hash, key, more),
            Route::Map(route) => self.append_in_map(route, key, more),
        }
    }

    /// Appends: to a value in place, to anything older as an operand.
    fn append_point(&mut self, hash: u64, key: &[u8], more: &[u8]) {
        let Memtables { active, older, points: Index { table, held, .. }, epoch, churn, .. } = self;
        let is_of = |slot: &Slot<Place>| slot.is_of(hash, key, active, older, *epoch);
        let Some(slot) = table.find_mut(hash, is_of) else {
            return self.set(Route::Point { hash }, key, EntryKind::Append, more);
        };
        if slot.at.epoch == *epoch {
            slot.at.place = active.points.append(slot.at.place, more);
            return;
        }
        churn.puts += 1;
        held[(*epoch - slot.at.epoch) as usize - 1] -= 1;
        let link = Some(slot.at);
        let operand = NewEntry { hash, key, kind: EntryKind::Append, value: more, link };
        slot.at = Link { epoch: *epoch, place: active.points.add(operand) };
    }

    /// Ends the memtable that takes writes.
    pub(crate) fn freeze(&mut self) -> Arc<Memtable> {
        let frozen = Arc::new(std::mem::take(&mut self.active));
        self.older.push_front(Arc::clone(&frozen));
        self.points.freeze(frozen.points.len());
        self.maps.freeze(frozen.ordered.maps());
        self.epoch += 1;
        frozen
    }

    /// What has become of what was written since the last call. The memtable that takes writes is empty.
    pub(crate) fn take_churn(&mut self) -> Churn {
        self.since = self.epoch;
        std::mem::take(&mut self.churn)
    }

    /// What one of those holds that take no more writes, the newest being the first: its entries, and the
    /// slots that still point to it.
    pub(crate) fn held_bytes(&self, behind: usize) -> usize {
        let slots = self.points.held_bytes(behind) + self.maps.held_bytes(behind);
        slots + self.older.get(behind).map_or(0, |memtable| LEAST_BYTES + memtable.entry_bytes())
    }

    /// Lets go of the oldest one. Its last owner frees its entries, which may be long work.
    pub(crate) fn forget_oldest(&mut self) -> Option<Arc<Memtable>> {
        let oldest = self.older.pop_back();
        let Memtables { older, points, maps, epoch, .. } = self;
        let is_left = |of: u32| (*epoch - of) as usize <= older.len();
        points.forget_oldest(is_left);
        maps.forget_oldest(is_left);
        oldest
    }
}

impl Slot<Place> {
    /// Whether it is of this key. The hash tells nearly always, without a look at the key's memory.
    #[inline]
    fn is_of(
        &self,
        hash: u64,
        key: &[u8],
        active: &Memtable,
        older: &VecDeque<Arc<Memtable>>,
        epoch: u32,
    ) -> bool {
        self.hash == hash
            && log_of(active, older, epoch - self.at.epoch)
                .is_some_and(|log| log.is_of(self.at.place, key))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::memtable::Sorted;

    fn hash(key: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64(key)
    }

    fn point(key: &[u8]) -> Route {
        Route::Point { hash: hash(key) }
    }

    /// Of a map whose keys all begin with the same byte.
    fn map(key: &[u8]) -> Route {
        Route::Map(MapRoute::to(key, 1))
    }

    fn found(tables: &Memtables, route: Route, key: &[u8]) -> Option<(EntryKind, Vec<u8>)> {
        let both = |kind, value: &[u8]| (kind, value.to_vec());
        match route {
            Route::Point { hash } => {
                tables.point(hash, key).map(|(found, _)| both(found.kind, found.value))
            }
            Route::Map(route) => {
                let newest = tables.map(route.hash, &key[..route.prefix_len]).next()?;
                let found = newest.entries()?.get(key);
                found.map(|found| both(found.kind, found.value))
            }
        }
    }

    #[test]
    fn appending_folds_into_what_is_there() {
        for route in [point, map] {
            let mut tables = Memtables::default();
            let key = b"key";
            tables.append(route(key), key, b"a");
            tables.append(route(key), key, b"b");
            assert_eq!(found(&tables, route(key), key), Some((EntryKind::Append, b"ab".to_vec())));
            tables.set(route(key), key, EntryKind::Delete, b"");
            tables.append(route(key), key, b"c");
            assert_eq!(found(&tables, route(key), key), Some((EntryKind::Put, b"c".to_vec())));
            tables.append(route(key), key, b"d");
            assert_eq!(found(&tables, route(key), key), Some((EntryKind::Put, b"cd".to_vec())));
            assert_eq!(found(&tables, route(b"ke"), b"ke"), None);
        }
    }

    /// A range delete and an operand above it never meet in one table.
    #[test]
    fn appending_to_what_a_range_delete_removed_begins_anew() {
        let mut tables = Memtables::default();
        let route = map(b"k");
        tables.append(route, b"k2", b"old");
        tables.delete_range((hash(b"k"), b"k"), b"k1", b"k3", true);
        assert_eq!(found(&tables, route, b"k2"), None);
        tables.append(route, b"k2", b"new");
        assert_eq!(found(&tables, route, b"k2"), Some((EntryKind::Put, b"new".to_vec())));
        tables.append(route, b"k3", b"x");
        assert_eq!(found(&tables, route, b"k3"), Some((EntryKind::Append, b"x".to_vec())));
    }

    #[test]
    fn all_entries_come_in_one_order_and_every_byte_is_counted() {
        let mut tables = Memtables::default();
        let fill = |tables: &mut Memtables, byte| {
            for number in (0..1_000_u16).rev() {
                let key = number.to_be_bytes();
                let route = if number % 3 == 0 { map(&key) } else { point(&key) };
                let value = vec![byte; usize::from(number % 50)];
                tables.set(route, &key, EntryKind::Put, &value);
            }
        };
        fill(&mut tables, 7);
        let sorted = tables.active().sorted().map(|Sorted { hash, key, .. }| (hash, key.to_vec()));
        let keys = (0..1_000_u16).map(u16::to_be_bytes);
        assert!(sorted.eq(keys.map(|key| (hash(&key), key.to_vec()))));
        let before = tables.active().memory_bytes();
        // Overwriting with values of the same length holds no more.
        fill(&mut tables, 8);
        assert_eq!((tables.active().memory_bytes(), tables.active().len()), (before, 1_000));
    }

    #[test]
    fn churn_tells_what_did_not_last() {
        let mut tables = Memtables::default();
        let put = |tables: &mut Memtables, keys: std::ops::Range<u8>| {
            keys.for_each(|key| tables.set(point(&[key]), &[key], EntryKind::Put, b"value"));
        };
        put(&mut tables, 0..10);
        put(&mut tables, 0..4);
        let mut entries = tables.freeze().len() as u64;
        put(&mut tables, 0..3);
        entries += tables.freeze().len() as u64;
        let churn = tables.take_churn();
        assert_eq!(churn, Churn { puts: 17, superseded: 3 });
        assert_eq!((entries, churn.overwritten(entries)), (13, 7));
        // Appending overwrites nothing.
        for _ in 0..3 {
            put(&mut tables, 0..2);
            tables.append(point(&[20]), &[20], b"more");
        }
        let mut entries = tables.freeze().len() as u64;
        tables.append(point(&[20]), &[20], b"more");
        entries += tables.freeze().len() as u64;
        assert_eq!(tables.take_churn().overwritten(entries), 4);
        // What was there at the last call may be overwritten.
        put(&mut tables, 0..10);
        assert_eq!(tables.take_churn(), Churn { puts: 10, superseded: 0 });
    }

    /// A stored key in all memtables, the newest first, one of which may have it.
    type Model = VecDeque<HashMap<u8, (EntryKind, Vec<u8>)>>;

    #[derive(Debug, Clone)]
    enum Step {
        Set(u8, EntryKind, Vec<u8>),
        Append(u8, Vec<u8>),
        Freeze,
        Forget,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let value = || proptest::collection::vec(any::<u8>(), 0..20);
        let step = prop_oneof![
            6 => (0..40_u8, value()).prop_map(|(key, value)| Step::Set(key, EntryKind::Put, value)),
            2 => (0..40_u8).prop_map(|key| Step::Set(key, EntryKind::Delete, Vec::new())),
            6 => (0..40_u8, value()).prop_map(|(key, value)| Step::Append(key, value)),
            1 => Just(Step::Freeze),
            1 => Just(Step::Forget),
        ];
        proptest::collection::vec(step, 0..300)
    }

    /// Same hashes for four keys each: what a slot is of is decided by its key.
    fn poor_hash(key: u8) -> u64 {
        hash(&[key / 4])
    }

    fn poor_route(key: u8) -> Route {
        Route::Point { hash: poor_hash(key) }
    }

    fn apply(step: Step, tables: &mut Memtables, model: &mut Model) {
        match step {
            Step::Set(key, kind, value) => {
                tables.set(poor_route(key), &[key], kind, &value);
                model[0].insert(key, (kind, value));
            }
            Step::Append(key, more) => {
                tables.append(poor_route(key), &[key], &more);
                let entry = model[0].entry(key).or_insert((EntryKind::Append, Vec::new()));
                if entry.0 == EntryKind::Delete {
                    entry.0 = EntryKind::Put;
                }
                entry.1.extend_from_slice(&more);
            }
            Step::Freeze => {
                tables.freeze();
                model.push_front(HashMap::new());
            }
            Step::Forget => {
                tables.forget_oldest();
                model.truncate(model.len().saturating_sub(1).max(1));
            }
        }
    }

    proptest! {
        /// Against a map for each memtable: the newest version of each key, and what operands continue.
        #[test]
        fn the_newest_version_is_found_and_what_it_continues(steps in steps()) {
            let mut tables = Memtables::default();
            let mut model = Model::from([HashMap::new()]);
            for step in steps {
                apply(step, &mut tables, &mut model);
                for key in 0..40_u8 {
                    let mut version = tables.point(poor_hash(key), &[key]).map(|(version, _)| version);
                    for (age, older) in model.iter().enumerate() {
                        let Some((kind, value)) = older.get(&key) else { continue };
                        let found = version.ok_or_else(|| TestCaseError::fail(format!("{key} at {age}")))?;
                        prop_assert_eq!((found.age, found.kind, found.value), (age, *kind, &value[..]));
                        if *kind != EntryKind::Append {
                            version = None;
                            break;
                        }
                        version = tables.before(&found);
                    }
                    prop_assert!(version.is_none(), "{:?} of {}", version, key);
                }
                for (age, model) in model.iter().enumerate() {
                    let memtable = age.checked_sub(1).map_or(&tables.active, |age| &tables.older[age]);
                    let entries = memtable.points().iter().map(|entry| {
                        (entry.key[0], (entry.found.kind, entry.found.value.to_vec()))
                    });
                    prop_assert_eq!(&entries.collect::<HashMap<_, _>>(), model);
                    prop_assert_eq!(memtable.points().len(), model.len());
                }
                let Index { table, held, gone } = &tables.points;
                let held: usize = held.iter().sum();
                prop_assert_eq!(table.len(), tables.active.points().len() + held + gone);
                prop_assert!(*gone <= 40);
            }
        }
    }
}
