use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::memtable::{Memtables, Position, Route};

#[derive(Debug, Clone)]
enum Step {
    Set(Vec<u8>, EntryKind, Vec<u8>),
    Append(Vec<u8>, Vec<u8>),
    RemoveRange(u8, Vec<u8>, Vec<u8>),
    Pin,
}

type Model = BTreeMap<Vec<u8>, (EntryKind, Vec<u8>)>;

/// The first byte is the map.
fn route(key: &[u8]) -> Route {
    Route::Map(MapRoute::to(key, 1))
}

fn map(tables: &Memtables, map: u8) -> Option<&Sequence> {
    tables.map(filter_hash(&[map]), &[map]).next()?.entries()
}

/// Map keys: numbers, texts with a common beginning that is longer than a head, short ones, zeros.
fn map_keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..2_000_u64).prop_map(|number| number.to_be_bytes().to_vec()),
        4 => (0..200_u8).prop_map(|number| format!("a long text {number}").into_bytes()),
        1 => proptest::collection::vec(0..2_u8, 0..10),
    ]
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    (0..3_u8, map_keys()).prop_map(|(map, key)| [&[map], &key[..]].concat())
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => any::<[u8; 8]>().prop_map(|value| value.to_vec()),
        4 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => proptest::collection::vec(any::<u8>(), 2_000..12_000),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kinds = prop_oneof![9 => Just(EntryKind::Put), 1 => Just(EntryKind::Delete)];
    let step = prop_oneof![
        20 => (keys(), kinds, values()).prop_map(|(key, kind, value)| Step::Set(key, kind, value)),
        3 => (keys(), values()).prop_map(|(key, value)| Step::Append(key, value)),
        1 => (0..3_u8, map_keys(), map_keys())
            .prop_map(|(map, from, to)| Step::RemoveRange(map, from, to)),
        1 => Just(Step::Pin),
    ];
    proptest::collection::vec(step, 0..1_500)
}

fn apply(step: Step, table: &mut Memtables, model: &mut Model) {
    match step {
        Step::Set(key, kind, value) => {
            table.set(route(&key), &key, kind, &value);
            model.insert(key, (kind, value));
        }
        Step::Append(key, more) => {
            table.append(route(&key), &key, &more);
            let entry = model.entry(key).or_insert((EntryKind::Append, Vec::new()));
            if entry.0 == EntryKind::Delete {
                entry.0 = EntryKind::Put;
            }
            entry.1.extend_from_slice(&more);
        }
        Step::RemoveRange(of, from, to) => {
            let (from, to) = ([&[of], &from[..]].concat(), [&[of], &to[..]].concat());
            let there = from < to && model.range(from.clone()..to.clone()).next().is_some();
            let any = map(table, of).is_some_and(|entries| entries.has_any(&from, &to));
            assert_eq!(any, there);
            table.delete_range((filter_hash(&[of]), &[of]), &from, &to, false);
            model.retain(|key, _| *key < from || *key >= to);
        }
        Step::Pin => {}
    }
}

fn owned(entry: Entry<'_>) -> (Vec<u8>, (EntryKind, Vec<u8>)) {
    (entry.key.to_vec(), (entry.kind, entry.value.to_vec()))
}

/// What a walk finds that stops after each third entry.
fn visited(map: &Sequence, mut left: Range<Position>, backwards: bool) -> Model {
    let (mut found, mut last) = (Vec::new(), false);
    while !last {
        let end = found.len() + 3;
        let visit = |entry: Entry<'_>| {
            let more = found.len() < end;
            if more {
                found.push(owned(entry));
            }
            more
        };
        last = match backwards {
            false => map.visit(&mut left, visit),
            true => map.visit_backwards(&mut left, visit),
        };
    }
    if backwards {
        found.reverse();
    }
    assert!(found.is_sorted_by(|(a, _), (b, _)| a < b));
    found.into_iter().collect()
}

fn check(tables: &Memtables, model: &Model) {
    let table = tables.active().ordered();
    assert_eq!(table.len(), model.len());
    let all: Vec<_> = table.iter().map(owned).collect();
    assert!(all.iter().map(|(key, found)| (key, found)).eq(model.iter()));
    for key in model.keys().step_by(7) {
        let get = |key: &[u8]| map(tables, key[0])?.get(key);
        let found = get(key).map(|found| (found.kind, found.value.to_vec()));
        assert_eq!(found.as_ref(), model.get(key));
        let behind = [&key[..], &[0]].concat();
        assert_eq!(get(&behind).is_some(), model.contains_key(&behind));
    }
    let held: usize = table.sequences().map(Sequence::held_bytes).sum();
    assert_eq!(table.account.bytes, held);
}

/// A pin of a range has at least that, and says the same from both ends.
fn check_pin(pin: &Sequence, (from, to): (&[u8], &[u8]), model: &Model) {
    let expected: Model = match from < to {
        true => {
            model.range(from.to_vec()..to.to_vec()).map(|(k, v)| (k.clone(), v.clone())).collect()
        }
        false => Model::new(),
    };
    let expected: Model =
        expected.into_iter().filter(|(key, _)| key.starts_with(pin.prefix())).collect();
    let left = pin.bound(from)..pin.bound(to);
    assert_eq!(visited(pin, left.clone(), false), expected);
    assert_eq!(visited(pin, left.clone(), true), expected);
    let mut at = left.start;
    for key in expected.keys() {
        assert_eq!(pin.entry(at).map(|entry| entry.key), Some(&key[..]));
        let next = pin.next(at);
        assert_eq!(pin.previous(next), Some(at));
        at = next;
    }
    assert!(at >= left.end);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_a_map_of_maps_and_pins_stay_as_they_were(
        steps in steps(),
        bounds in proptest::collection::vec((0..4_u8, proptest::option::of(map_keys())), 8),
    ) {
        let mut table = Memtables::default();
        let mut model = Model::new();
        let mut pins = Vec::new();
        let bound = |(map, key): &(u8, Option<Vec<u8>>)| match key {
            Some(key) => [&[*map], &key[..]].concat(),
            None => vec![*map],
        };
        let bounds: Vec<_> = bounds.iter().map(bound).collect();
        for step in steps {
            if let Step::Pin = step {
                for range in bounds.chunks(2) {
                    let maps = (0..3).filter_map(|number| map(&table, number));
                    let whole = maps.clone().cloned().collect::<Vec<_>>();
                    let part = maps.map(|map| map.pin(&range[0], &range[1])).collect::<Vec<_>>();
                    pins.push((whole, part, range, model.clone()));
                }
            }
            apply(step, &mut table, &mut model);
        }
        check(&table, &model);
        for (whole, part, range, model) in &pins {
            for (whole, part) in whole.iter().zip(part) {
                check_pin(part, (&range[0], &range[1]), model);
                check_pin(whole, (&[], &[9]), model);
                check_pin(whole, (&range[1], &range[0]), model);
            }
        }
    }
}

#[test]
fn a_map_that_is_emptied_holds_nothing() {
    let mut table = Memtables::default();
    for number in 0..20_000_u32 {
        let key = [&[1][..], &number.to_be_bytes()].concat();
        table.set(route(&key), &key, EntryKind::Put, b"value");
    }
    let full = table.active().memory_bytes();
    assert!(full > 20_000 * 10 && full < 20_000 * 110, "{full}");
    table.delete_range((filter_hash(&[1]), &[1]), &[1], &[2], false);
    assert_eq!((table.active().len(), table.active().memory_bytes()), (0, 0));
    assert_eq!(table.active().ordered().iter().count(), 0);
}

/// A value that changes its length over and over does not fill its leaf with what it was.
#[test]
fn outgrown_bytes_are_given_back() {
    let mut table = Memtables::default();
    for round in 0..10_000_usize {
        for key in [[1, 1], [1, 2]] {
            table.set(route(&key), &key, EntryKind::Put, &vec![7; 100 + round % 100]);
        }
    }
    let bytes = table.active().memory_bytes();
    assert!(bytes < 3_000, "{bytes}");
}
