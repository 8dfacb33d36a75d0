//! Registration: names, kinds, codecs, and states nobody asks for.

use weir_state_api::{ErrorKind, Native, Ordered, Postcard, Result};

use super::{Case, group};
use crate::harness::{At, Contents, Harness, Store, assert_same};

pub(super) const CASES: &[Case] = group!["registration":
    the_same_registration_gives_the_same_state => "registration",
    another_kind_or_codec_is_refused => "registration: an error that names both",
    a_refusal_changes_nothing => "registration",
    restored_states_refuse_other_registrations => "registration; schema evolution",
    unregistered_states_are_carried_along => "registration: carried along in later snapshots",
    states_without_data_are_in_the_snapshot => "registration; snapshots",
    a_late_state_starts_empty => "registration",
];

/// Registering twice gives two handles to one state.
fn the_same_registration_gives_the_same_state(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let first = store.value::<u32>("v")?;
    first.set(store.at("a")?, &1)?;
    let second = store.value::<u32>("v")?;
    assert_eq!(second.get(&mut store).wait()?, Some(1));
    second.set(&mut store, &2)?;
    assert_eq!(first.get(&mut store).wait()?, Some(2));
    assert_eq!(store.backend().states().len(), 1);
    Ok(())
}

fn refused<T: std::fmt::Debug>(result: Result<T>, stored: &str, requested: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    let text = error.to_string();
    for part in ["\"s\"", stored, requested] {
        assert!(text.contains(part), "the message lacks {part:?}: {text}");
    }
}

fn check_refusals(store: &mut Store) {
    refused(store.list::<u32>("s"), "kind map", "kind list");
    refused(store.value::<u32>("s"), "kind map", "kind value");
    refused(store.timers::<()>("s"), "kind map", "kind timers");
    refused(store.map::<u32, u64>("s"), "u32 v1", "u64 v1");
    refused(store.map::<u64, u32>("s"), "ordered:u32", "ordered:u64");
    refused(
        store.map_with::<u32, u32, _, _>("s", Ordered, Postcard::schema("X", 2)),
        "u32 v1",
        "postcard:X v2",
    );
    refused(
        store.namespaced::<i64>().map_with::<u32, u32, _, _>("s", Ordered, Native),
        "ordered:unit",
        "ordered:i64",
    );
}

/// Another kind, value codec, map-key codec or namespace codec under the same name is an error
/// that names the state, what is stored and what was requested.
fn another_kind_or_codec_is_refused(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    store.map::<u32, u32>("s")?;
    check_refusals(&mut store);
    Ok(())
}

/// After a refused registration the state is as it was.
fn a_refusal_changes_nothing(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, u32>("s")?;
    map.put(store.at("a")?, &1, &2)?;
    check_refusals(&mut store);
    assert_eq!(map.get(&mut store, &1).wait()?, Some(2));
    assert_eq!(store.map::<u32, u32>("s")?.get(&mut store, &1).wait()?, Some(2));
    assert_eq!(store.backend().states().len(), 1);
    Ok(())
}

/// A restored state refuses what does not fit, and is readable for what does.
fn restored_states_refuse_other_registrations(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, u32>("s")?;
    map.put(store.at("a")?, &1, &2)?;
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    check_refusals(&mut restored);
    let map = restored.map::<u32, u32>("s")?;
    assert_eq!(map.get(restored.at("a")?, &1).wait()?, Some(2));
    Ok(())
}

/// States that are restored but not registered are complete in the next snapshot, and the one
/// after.
fn unregistered_states_are_carried_along(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    let map = store.map::<u32, u32>("m")?;
    let timers = store.timers::<u8>("t")?;
    for number in 0..100 {
        value.set(store.at(&number.to_string())?, &number)?;
        map.put(&mut store, &number, &number)?;
        timers.register(&mut store, i64::from(number), &1)?;
    }
    let first = h.snapshot(&mut store)?;
    let mut restored = h.restore(std::slice::from_ref(&first))?;
    // Only one state is asked for, and a new one comes.
    restored.value::<u32>("v")?;
    restored.value::<u32>("new")?;
    let second = h.snapshot(&mut restored)?;
    let third = h.snapshot(&mut h.restore(&[second])?)?;
    let mut expected = Contents::take(&mut h.restore(&[first])?)?;
    expected.states.insert("new".into());
    assert_same(&Contents::take(&mut h.restore(&[third])?)?, &expected);
    Ok(())
}

/// A registered state without data is known after a restore: its codec is checked then.
fn states_without_data_are_in_the_snapshot(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    store.map::<u32, u32>("s")?;
    let handle = h.snapshot(&mut store)?;
    assert_eq!(handle.states.len(), 1);
    check_refusals(&mut h.restore(&[handle])?);
    Ok(())
}

/// A state registered after others hold data is empty, also when it is registered after a restore.
fn a_late_state_starts_empty(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let early = store.value::<u32>("early")?;
    early.set(store.at("a")?, &1)?;
    let late = store.value::<u32>("late")?;
    assert_eq!(late.get(&mut store).wait()?, None);
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    let later = restored.value::<u32>("a name that sorts first")?;
    assert_eq!(later.get(restored.at("a")?).wait()?, None);
    later.set(&mut restored, &3)?;
    let early = restored.value::<u32>("early")?;
    assert_eq!(early.get(&mut restored).wait()?, Some(1));
    assert_eq!(restored.value::<u32>("late")?.get(&mut restored).wait()?, None);
    Ok(())
}
