//! Sorted maps: ends, prefixes, removal of ranges.

use std::time::Duration;

use weir_state_api::{ErrorKind, Order, Result, SortedMapState, Ttl};

use super::{Case, group};
use crate::harness::{At, Harness, Store};

pub(super) const CASES: &[Case] = group!["sorted_map":
    ends_follow_every_change => "sorted map: first, last",
    prefixes_select_strings_and_tuples => "sorted map: prefix",
    ranges_and_prefixes_are_removed => "sorted map: range delete",
    a_sorted_map_disappears_with_its_last_entry => "sorted map",
    sorted_maps_survive_a_rescale => "sorted map",
    a_map_is_no_sorted_map => "registration: another kind is an error",
    expired_ends_are_passed_over => "sorted map: TTL",
    namespaces_keep_sorted_maps_apart => "sorted map: namespaces",
];

type Numbers = SortedMapState<i64, u32>;

fn filled(store: &mut Store, keys: impl IntoIterator<Item = i64>) -> Result<Numbers> {
    let map = store.sorted_map::<i64, u32>("m")?;
    store.at("a")?;
    for key in keys {
        map.put(store, &key, &1)?;
    }
    Ok(map)
}

fn keys(store: &mut Store, map: &Numbers) -> Result<Vec<i64>> {
    map.entries(store).wait()?.map(|entry| entry.map(|(key, _)| key)).collect()
}

/// The first and the last entry are those of the moment, negative keys before positive ones, in maps
/// of a few entries and of many pages.
fn ends_follow_every_change(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = filled(&mut store, [])?;
    assert_eq!(map.first(&mut store).wait()?, None);
    assert_eq!(map.last(&mut store).wait()?, None);
    for key in (-500..500).rev() {
        map.put(&mut store, &key, &(key + 500).unsigned_abs().try_into().unwrap_or(0))?;
        assert_eq!(map.first(&mut store).wait()?.map(|(key, _)| key), Some(key));
    }
    assert_eq!(map.last(&mut store).wait()?, Some((499, 999)));
    for key in (0..500).rev() {
        assert_eq!(map.last(&mut store).wait()?.map(|(key, _)| key), Some(key));
        map.remove(&mut store, &key)?;
    }
    map.put(&mut store, &i64::MAX, &7)?;
    map.put(&mut store, &i64::MIN, &8)?;
    assert_eq!(map.last(&mut store).wait()?, Some((i64::MAX, 7)));
    assert_eq!(map.first(&mut store).wait()?, Some((i64::MIN, 8)));
    assert_eq!(map.first(store.at("b")?).wait()?, None, "another key's map");
    Ok(())
}

/// A prefix selects what begins like it and nothing else, in both directions: strings with zero
/// bytes and other odd characters, tuples by whole parts.
fn prefixes_select_strings_and_tuples(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let strings = store.sorted_map::<String, u32>("strings")?;
    let pairs = store.sorted_map::<(String, i64), u32>("pairs")?;
    store.at("a")?;
    let texts = ["", "\0", "\0\0", "a", "a\0", "a\0b", "a\u{1}", "ab", "b", "\u{10ffff}"];
    for text in texts {
        strings.put(&mut store, &text.to_string(), &1)?;
        pairs.put(&mut store, &(text.to_string(), -1), &1)?;
        pairs.put(&mut store, &(text.to_string(), 1), &1)?;
    }
    for prefix in texts {
        let expected: Vec<_> = texts.into_iter().filter(|text| text.starts_with(prefix)).collect();
        for order in [Order::Ascending, Order::Descending] {
            let found = strings.prefix(&mut store, &prefix, order).wait()?;
            let mut found: Vec<_> =
                found.map(|entry| entry.map(|(key, _)| key)).collect::<Result<_>>()?;
            if order == Order::Descending {
                found.reverse();
            }
            assert_eq!(found, expected, "prefix {prefix:?}");
        }
        let found = pairs.prefix(&mut store, &(prefix.to_string(),), Order::Ascending).wait()?;
        let found: Vec<_> = found.map(|entry| entry.map(|(key, _)| key)).collect::<Result<_>>()?;
        assert_eq!(found, [(prefix.to_string(), -1), (prefix.to_string(), 1)]);
    }
    Ok(())
}

/// Removing a range removes what lies in it, ends as given, and nothing of other maps.
fn ranges_and_prefixes_are_removed(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = filled(&mut store, 0..300)?;
    map.put(store.at("b")?, &5, &1)?;
    store.at("a")?;
    map.remove_range(&mut store, 10..20)?;
    map.remove_range(&mut store, 30..=39)?;
    map.remove_range(&mut store, 290..)?;
    map.remove_range(&mut store, ..2)?;
    #[expect(clippy::reversed_empty_ranges, reason = "crossed ends are what is tested")]
    map.remove_range(&mut store, 100..50)?;
    let gone = |key: &i64| !matches!(key, 0..2 | 10..20 | 30..40 | 290..);
    assert_eq!(keys(&mut store, &map)?, (0..300).filter(gone).collect::<Vec<_>>());
    assert_eq!(keys(store.at("b")?, &map)?, [5]);

    let names = store.sorted_map::<String, u32>("names")?;
    for name in ["we", "wei", "weir", "weird", "wet"] {
        names.put(&mut store, &name.to_string(), &1)?;
    }
    names.remove_prefix(&mut store, &"wei")?;
    let left: Vec<_> =
        names.entries(&mut store).wait()?.map(|e| e.map(|(k, _)| k)).collect::<Result<_>>()?;
    assert_eq!(left, ["we", "wet"]);
    Ok(())
}

/// Whatever removes the last entry removes the map.
fn a_sorted_map_disappears_with_its_last_entry(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = filled(&mut store, 0..200)?;
    assert_eq!(store.keys("m")?.count(), 1);
    map.remove_range(&mut store, 0..200)?;
    assert!(map.is_empty(&mut store).wait()?);
    assert_eq!(store.keys("m")?.count(), 0);
    Ok(())
}

/// Each key's entries come back in order on whatever instance owns the key.
fn sorted_maps_survive_a_rescale(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.sorted_map::<i64, u32>("m")?;
    let names: Vec<String> = (0..20).map(|n| format!("key {n}")).collect();
    for (number, name) in names.iter().enumerate() {
        store.at(name)?;
        for key in -(number as i64)..100 {
            map.put(&mut store, &key, &1)?;
        }
        map.remove_range(&mut store, 50..90)?;
    }
    let handle = h.snapshot(&mut store)?;
    let mut found = 0;
    for mut part in h.open_all(3, &[handle])? {
        let map = part.sorted_map::<i64, u32>("m")?;
        for (number, name) in names.iter().enumerate() {
            if part.at(name).is_err() {
                continue;
            }
            let expected: Vec<_> = (-(number as i64)..50).chain(90..100).collect();
            assert_eq!(keys(&mut part, &map)?, expected, "{name}");
            assert_eq!(map.last(&mut part).wait()?, Some((99, 1)));
            found += 1;
        }
    }
    assert_eq!(found, names.len());
    Ok(())
}

/// The order is part of what is stored: the name of a map is not that of a sorted map.
fn a_map_is_no_sorted_map(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    store.map::<i64, u32>("m")?;
    let error = super::refusal(store.sorted_map::<i64, u32>("m"), "another kind");
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    let text = error.to_string();
    assert!(text.contains("kind map") && text.contains("kind sorted map"), "{text}");
    Ok(())
}

/// Entries that have expired are no ends.
fn expired_ends_are_passed_over(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let ttl = Ttl::new(Duration::from_millis(100));
    let map = store.with_ttl(ttl).sorted_map::<i64, u32>("m")?;
    store.at("a")?;
    for key in 0..200 {
        let ttl = Duration::from_millis(if (50..60).contains(&key) { 1_000 } else { 10 });
        map.put_with_ttl(&mut store, &key, &1, ttl)?;
    }
    h.clock().advance(500);
    assert_eq!(map.first(&mut store).wait()?, Some((50, 1)));
    assert_eq!(map.last(&mut store).wait()?, Some((59, 1)));
    h.clock().advance(500);
    assert_eq!(map.first(&mut store).wait()?, None);
    Ok(())
}

/// Each namespace has a sorted map of its own.
fn namespaces_keep_sorted_maps_apart(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let maps = store.namespaced::<u32>().sorted_map::<i64, u32>("m")?;
    store.at("a")?;
    for namespace in 0..3 {
        maps.at(&namespace)?.put(&mut store, &i64::from(namespace), &namespace)?;
    }
    maps.at(&1)?.remove_range(&mut store, ..)?;
    assert_eq!(maps.at(&0)?.last(&mut store).wait()?, Some((0, 0)));
    assert_eq!(maps.at(&1)?.last(&mut store).wait()?, None);
    assert_eq!(maps.at(&2)?.first(&mut store).wait()?, Some((2, 2)));
    Ok(())
}
