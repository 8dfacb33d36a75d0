//! Enumeration of the keys that have state.

use std::collections::BTreeSet;

use weir_state_api::{Error, ErrorKind, Native, Ordered, Result, StateKind};

use super::{Case, group};
use crate::harness::{At, Harness, Store, drain};

pub(super) const CASES: &[Case] = group!["enumeration":
    each_key_is_listed_once => "enumeration: distinct keys",
    each_namespace_lists_its_own_keys => "enumeration",
    maps_list_their_key_once => "enumeration: distinct keys",
    restored_states_are_listed_before_registration => "enumeration: right after a restore",
    cleared_keys_are_not_listed => "enumeration",
    listing_sees_the_state_as_of_the_call => "iteration",
    each_key_may_be_changed_while_visited => "enumeration: `f` may change the state",
    an_error_ends_the_visit => "enumeration",
    keys_come_by_key_group => "enumeration: ordered by key group",
    unknown_names_have_no_keys_and_timers_none => "enumeration",
];

fn listed(store: &mut Store, name: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let mut keys = store.keys(name)?.collect::<Result<Vec<_>>>()?;
    keys.sort();
    Ok(keys)
}

fn plain(keys: impl IntoIterator<Item = String>) -> Vec<(String, Vec<u8>)> {
    let mut keys: Vec<_> = keys.into_iter().map(|key| (key, Vec::new())).collect();
    keys.sort();
    keys
}

/// A thousand keys are listed exactly once each, however often they were written.
fn each_key_is_listed_once(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    for _ in 0..2 {
        for number in 0..1_000 {
            value.set(store.at(&number.to_string())?, &number)?;
        }
    }
    assert_eq!(listed(&mut store, "v")?, plain((0..1_000).map(|number| number.to_string())));
    Ok(())
}

/// Keys of one namespace, and (key, namespace) pairs of all, also for the default namespace.
fn each_namespace_lists_its_own_keys(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.namespaced::<u8>().list_with::<u32, _>("l", Native)?;
    for number in 0..300_u32 {
        store.at(&number.to_string())?;
        list.at(&1)?.add(&mut store, &1)?;
        if number % 3 == 0 {
            list.at(&2)?.add(&mut store, &1)?;
        }
    }
    assert_eq!(store.keys("l")?.count(), 400);
    let distinct: BTreeSet<_> = listed(&mut store, "l")?.into_iter().collect();
    assert_eq!(distinct.len(), 400);
    assert_eq!(store.keys_in_namespace("l", &[1])?.count(), 300);
    let second: Vec<_> = store.keys_in_namespace("l", &[2])?.collect::<Result<_>>()?;
    assert_eq!(second.len(), 100);
    assert!(second.iter().all(|(_, namespace)| namespace == &[2]));
    assert_eq!(store.keys_in_namespace("l", &[3])?.count(), 0);
    assert_eq!(store.keys_in_namespace("l", &[])?.count(), 0);
    Ok(())
}

/// A map with many entries, even over many pages, has one key.
fn maps_list_their_key_once(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.namespaced::<u8>().map_with::<u32, u32, _, _>("m", Ordered, Native)?;
    for (key, namespace, entries) in [("a", 1, 500), ("a", 2, 1), ("b", 1, 3)] {
        store.at(key)?;
        for entry in 0..entries {
            map.at(&namespace)?.put(&mut store, &entry, &1)?;
        }
    }
    let expected = [("a", 1), ("a", 2), ("b", 1)].map(|(key, n)| (key.to_string(), vec![n]));
    assert_eq!(listed(&mut store, "m")?, expected);
    assert_eq!(store.keys_in_namespace("m", &[1])?.count(), 2);
    Ok(())
}

/// A restored state lists its keys before anybody has registered it.
fn restored_states_are_listed_before_registration(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    let map = store.map::<u32, u32>("m")?;
    for number in 0..200 {
        value.set(store.at(&number.to_string())?, &number)?;
        map.put(&mut store, &number, &number)?;
    }
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    let expected = plain((0..200).map(|number| number.to_string()));
    assert_eq!(listed(&mut restored, "v")?, expected);
    assert_eq!(listed(&mut restored, "m")?, expected);
    Ok(())
}

/// Cleared keys and emptied lists are listed no more; cleared and set again they are.
fn cleared_keys_are_not_listed(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    let list = store.list::<u32>("l")?;
    for key in ["a", "b", "c"] {
        value.set(store.at(key)?, &1)?;
        list.add(&mut store, &1)?;
    }
    value.clear(store.at("b")?)?;
    list.set(&mut store, &[])?;
    value.clear(store.at("c")?)?;
    value.set(&mut store, &2)?;
    assert_eq!(listed(&mut store, "v")?, plain(["a", "c"].map(String::from)));
    assert_eq!(listed(&mut store, "l")?, plain(["a", "c"].map(String::from)));
    Ok(())
}

/// Keys added or cleared after the call do not change what a running enumeration yields.
fn listing_sees_the_state_as_of_the_call(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    for number in 0..400 {
        value.set(store.at(&number.to_string())?, &number)?;
    }
    let keys = store.keys("v")?;
    for number in 0..400 {
        value.clear(store.at(&number.to_string())?)?;
        value.set(store.at(&format!("new {number}"))?, &number)?;
    }
    let mut found = keys.collect::<Result<Vec<_>>>()?;
    found.sort();
    assert_eq!(found, plain((0..400).map(|number| number.to_string())));
    Ok(())
}

/// The visiting function may update, clear and add keys; each key of the call is visited once.
fn each_key_may_be_changed_while_visited(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    for number in 0..300 {
        value.set(store.at(&number.to_string())?, &number)?;
    }
    let mut visited = 0;
    store.for_each_key("v", |store, key| {
        visited += 1;
        assert_eq!(store.key()?, key);
        let number = value.get(store).wait()?.expect("a visited key has a value");
        assert_eq!(number.to_string(), key);
        match number % 3 {
            0 => value.clear(store),
            1 => value.set(store, &(number + 1_000)),
            _ => value.set(store.at(&format!("new {number}"))?, &number),
        }
    })?;
    assert_eq!(visited, 300);
    assert_eq!(store.keys("v")?.count(), 300);
    assert_eq!(value.get(store.at("1")?).wait()?, Some(1_001));
    assert_eq!(value.get(store.at("new 2")?).wait()?, Some(2));
    Ok(())
}

/// The first error of the visiting function is returned; what was done before stays.
fn an_error_ends_the_visit(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    for key in ["a", "b", "c"] {
        value.set(store.at(key)?, &1)?;
    }
    let mut visited = 0;
    let error = store
        .for_each_key("v", |store, _| {
            visited += 1;
            value.clear(store)?;
            if visited == 2 {
                return Err(Error::new(ErrorKind::UserFunction, "enough"));
            }
            Ok(())
        })
        .unwrap_err();
    assert_eq!((error.kind(), visited), (ErrorKind::UserFunction, 2));
    assert_eq!(store.keys("v")?.count(), 1);
    Ok(())
}

/// At the byte level every listed key comes with its key group, groups ascending.
fn keys_come_by_key_group(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    for number in 0..500 {
        value.set(store.at(&number.to_string())?, &number)?;
    }
    let backend = store.backend();
    let (id, _) = backend.states().pop().expect("one state is registered");
    let keys = drain(|page| backend.scan_keys(id, None, page))?;
    assert_eq!(keys.len(), 500);
    let groups: Vec<_> = keys.iter().map(|(group, _, _)| group.expect("a key group")).collect();
    assert!(groups.is_sorted());
    for (group, key, _) in keys {
        let key = weir_state_api::KeyRef::new(&key, weir_state_api::MaxParallelism::default())?;
        assert_eq!(group, Some(key.group()));
    }
    Ok(())
}

/// An unknown name lists nothing; a timer queue cannot be listed.
fn unknown_names_have_no_keys_and_timers_none(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    assert_eq!(store.keys("nothing of that name")?.count(), 0);
    store.timers::<()>("t")?;
    assert_eq!(store.backend().states()[0].1.kind, StateKind::Timers);
    assert_eq!(store.keys("t").unwrap_err().kind(), ErrorKind::InvalidUsage);
    Ok(())
}
