use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::memtable::Route;

/// Maps, each with its number as its prefix, and map keys of one byte.
const MAPS: u8 = 9;
const KEYS: u8 = 6;

/// Same hashes for three maps each: what a slot is of is decided by its map.
fn hash(map: u8) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&[map / 3])
}

fn map_route(map: u8) -> MapRoute {
    MapRoute { hash: hash(map), prefix_len: 1 }
}

fn route(map: u8) -> Route {
    Route::Map(map_route(map))
}

#[derive(Debug, Clone)]
enum Step {
    Set(u8, u8, EntryKind, Vec<u8>),
    Append(u8, u8, Vec<u8>),
    /// What the active memtable alone has goes without a trace.
    TakeOut(u8, u8),
    /// Whether there can be anything in what is older.
    DeleteRange(u8, u8, u8, bool),
    Freeze,
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = || proptest::collection::vec(any::<u8>(), 0..20);
    let map = || 0..MAPS;
    let key = || 0..KEYS;
    let put = |(map, key, value)| Step::Set(map, key, EntryKind::Put, value);
    let delete = |(map, key)| Step::Set(map, key, EntryKind::Delete, Vec::new());
    let step = prop_oneof![
        6 => (map(), key(), value()).prop_map(put),
        2 => (map(), key()).prop_map(delete),
        4 => (map(), key(), value()).prop_map(|(map, key, more)| Step::Append(map, key, more)),
        4 => (map(), key()).prop_map(|(map, key)| Step::TakeOut(map, key)),
        4 => (map(), 0..=KEYS, 0..=KEYS, any::<bool>())
            .prop_map(|(map, from, to, older)| Step::DeleteRange(map, from, to, older)),
        2 => (map(), any::<bool>()).prop_map(|(map, older)| Step::DeleteRange(map, 0, KEYS, older)),
        2 => Just(Step::Freeze),
        1 => Just(Step::Forget),
    ];
    proptest::collection::vec(step, 0..300)
}

/// A memtable.
#[derive(Debug, Default)]
struct Model {
    entries: BTreeMap<[u8; 2], (EntryKind, Vec<u8>)>,
    /// Keys that were deleted of what is older.
    deleted: BTreeSet<[u8; 2]>,
}

impl Model {
    fn get(&self, key: [u8; 2]) -> Option<(EntryKind, &[u8])> {
        match self.entries.get(&key) {
            Some((kind, value)) => Some((*kind, value)),
            None => self.deleted.contains(&key).then_some((EntryKind::Delete, &[])),
        }
    }

    fn append(&mut self, key: [u8; 2], more: &[u8]) {
        let is_base = self.deleted.contains(&key);
        let to_nothing = if is_base { EntryKind::Put } else { EntryKind::Append };
        let entry = self.entries.entry(key).or_insert((to_nothing, Vec::new()));
        if entry.0 == EntryKind::Delete {
            entry.0 = EntryKind::Put;
        }
        entry.1.extend_from_slice(more);
    }

    fn entries_of(&self, map: u8) -> impl Iterator<Item = ([u8; 2], &(EntryKind, Vec<u8>))> {
        self.entries.range([map, 0]..[map + 1, 0]).map(|(key, found)| (*key, found))
    }

    fn has_any(&self, map: u8) -> bool {
        self.entries_of(map).next().is_some() || self.has_deleted(map)
    }

    fn has_deleted(&self, map: u8) -> bool {
        self.deleted.range([map, 0]..[map + 1, 0]).next().is_some()
    }
}

/// The newest memtable first.
fn apply(step: Step, tables: &mut Memtables, model: &mut VecDeque<Model>) {
    match step {
        Step::Set(map, key, kind, value) => {
            tables.set(route(map), &[map, key], kind, &value);
            model[0].entries.insert([map, key], (kind, value));
        }
        Step::Append(map, key, more) => {
            tables.append(route(map), &[map, key], &more);
            model[0].append([map, key], &more);
        }
        Step::TakeOut(map, key) => {
            let has = |model: &Model| model.entries.contains_key(&[map, key]);
            let is_young = has(&model[0]) && !model.iter().skip(1).any(has);
            assert_eq!(tables.is_in_active_only(map_route(map), &[map, key]), is_young);
            if is_young {
                tables.take_out(map_route(map), &[map, key]);
                model[0].entries.remove(&[map, key]);
            }
        }
        Step::DeleteRange(map, from, to, older) => {
            let (start, end) = ([map, from], [map, to]);
            let end_of_map = [map + 1];
            let end_bound = if to == KEYS { &end_of_map[..] } else { &end[..] };
            tables.delete_range((hash(map), &[map]), &start, end_bound, older);
            let range = |key: &[u8; 2]| (start..end).contains(key);
            model[0].entries.retain(|key, _| !range(key));
            if older {
                // Behind the last key the map goes on.
                let end = if to == KEYS { KEYS + 1 } else { to };
                model[0].deleted.extend((from..end).map(|key| [map, key]));
            }
        }
        Step::Freeze => {
            tables.freeze();
            model.push_front(Model::default());
        }
        Step::Forget => {
            tables.forget_oldest();
            model.truncate(model.len().saturating_sub(1).max(1));
        }
    }
}

/// What is found of a map, in all memtables that have something of it and in no other.
fn check_map(map: u8, tables: &Memtables, model: &VecDeque<Model>) -> Result<(), TestCaseError> {
    let expected = model.iter().enumerate().filter(|(_, model)| model.has_any(map));
    let versions: Vec<_> = tables.map(hash(map), &[map]).collect();
    // One that was emptied may stay, so that what is older is still found.
    let is_any =
        |version: &&MapVersion<'_>| version.entries().is_some() || version.deleted().is_some();
    let ages = versions.iter().filter(is_any).map(|version| version.age);
    prop_assert!(ages.eq(expected.clone().map(|(age, _)| age)));
    prop_assert!(versions.is_sorted_by(|newer, older| newer.age < older.age));
    let found = versions.iter().filter(is_any).zip(expected);
    for (version, (_, model)) in found {
        let ours = version.entries().into_iter().flat_map(Sequence::iter);
        let ours = ours.map(|entry| (entry.key.to_vec(), (entry.kind, entry.value.to_vec())));
        let theirs = model.entries_of(map).map(|(key, found)| (key.to_vec(), found.clone()));
        prop_assert!(ours.eq(theirs));
        for key in 0..KEYS {
            let found = version.get(&[map, key]).map(|found| (found.kind, found.value));
            prop_assert_eq!(found, model.get([map, key]));
        }
    }
    Ok(())
}

proptest! {
    /// Against sorted maps, two for each memtable.
    #[test]
    fn what_each_memtable_has_of_a_map_is_found(steps in steps()) {
        let mut tables = Memtables::default();
        let mut model = VecDeque::from([Model::default()]);
        for step in steps {
            apply(step, &mut tables, &mut model);
            for map in 0..MAPS {
                check_map(map, &tables, &model)?;
            }
            for (age, model) in model.iter().enumerate() {
                let memtable = age.checked_sub(1).map_or(&tables.active, |age| &tables.older[age]);
                prop_assert_eq!(memtable.len(), model.entries.len());
                let keys = memtable.ordered().iter().map(|entry| entry.key.to_vec());
                prop_assert!(keys.eq(model.entries.keys().map(|key| key.to_vec())));
            }
            let held: usize = tables.maps.held.iter().sum();
            let slots = tables.active.ordered().maps() + held + tables.maps.gone;
            prop_assert_eq!(tables.maps.table.len(), slots);
            prop_assert!(tables.maps.gone <= usize::from(MAPS));
        }
    }
}

/// A map that comes and goes between two freezes takes nothing.
#[test]
fn maps_that_are_emptied_leave_nothing_behind() {
    let mut tables = Memtables::default();
    let clear = |tables: &mut Memtables, map: u8, older| {
        tables.set(route(map), &[map, 1], EntryKind::Put, b"value");
        tables.delete_range((hash(map), &[map]), &[map], &[map + 1], older);
    };
    for round in 0..1_000_u32 {
        clear(&mut tables, (round % 100) as u8, false);
        assert!(tables.map(hash((round % 100) as u8), &[(round % 100) as u8]).next().is_none());
    }
    assert!(tables.active().is_empty());
    assert_eq!((tables.active().memory_bytes(), tables.maps.table.len()), (0, 0));
    // What older ones have of it must stay hidden, once.
    clear(&mut tables, 1, true);
    let bytes = tables.active().memory_bytes();
    clear(&mut tables, 1, true);
    assert_eq!(tables.active().memory_bytes(), bytes);
}
