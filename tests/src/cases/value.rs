//! Values: one per key and namespace.

use weir_state_api::{ErrorKind, Result};

use super::{Case, group};
use crate::harness::{At, Harness};

pub(super) const CASES: &[Case] = group!["value":
    absent_reads_as_none => "absent vs empty",
    set_replaces_and_clear_removes => "value",
    update_reads_changes_and_writes => "value",
    try_update_may_remove => "value",
    keys_and_states_are_isolated => "value",
    many_keys_keep_their_values => "value",
    values_of_all_lengths_survive => "value; size limits",
    get_many_answers_in_the_order_asked => "batched reads",
    access_without_a_key_is_an_error => "no key is set",
];

/// Reading what was never written gives `None`, and clearing it is no error.
fn absent_reads_as_none(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u64>("v")?;
    assert_eq!(value.get(store.at("a")?).wait()?, None);
    value.clear(&mut store)?;
    assert_eq!(value.get(&mut store).wait()?, None);
    assert_eq!(store.keys("v")?.count(), 0);
    Ok(())
}

/// `set` replaces the old value, `clear` makes the state absent, and it can be set again.
fn set_replaces_and_clear_removes(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<String>("v")?;
    store.at("a")?;
    for text in ["one", "a much longer text than the first one was", "two", ""] {
        value.set(&mut store, &text.to_string())?;
        assert_eq!(value.get(&mut store).wait()?.as_deref(), Some(text));
    }
    value.clear(&mut store)?;
    assert_eq!(value.get(&mut store).wait()?, None);
    value.set(&mut store, &"again".to_string())?;
    assert_eq!(value.get(&mut store).wait()?.as_deref(), Some("again"));
    Ok(())
}

/// `update` sees the old value or `None`, stores what it returns, and returns it.
fn update_reads_changes_and_writes(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u64>("v")?;
    store.at("a")?;
    for expected in 1..=100 {
        let new = value.update(&mut store, |old| old.unwrap_or(0) + 1).wait()?;
        assert_eq!(new, expected);
    }
    assert_eq!(value.get(&mut store).wait()?, Some(100));
    Ok(())
}

/// `try_update` that returns `None` removes the value, or leaves it absent.
fn try_update_may_remove(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u64>("v")?;
    store.at("a")?;
    assert_eq!(value.try_update(&mut store, |_| Ok(None)).wait()?, None);
    assert_eq!(store.keys("v")?.count(), 0);
    value.set(&mut store, &1)?;
    let removed = value
        .try_update(&mut store, |old| {
            assert_eq!(old, Some(1));
            Ok(None)
        })
        .wait()?;
    assert_eq!(removed, None);
    assert_eq!(value.get(&mut store).wait()?, None);
    Ok(())
}

/// Writing one key or one state changes no other key and no other state.
fn keys_and_states_are_isolated(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let first = store.value::<u64>("first")?;
    let second = store.value::<u64>("second")?;
    first.set(store.at("a")?, &1)?;
    assert_eq!(second.get(&mut store).wait()?, None);
    assert_eq!(first.get(store.at("b")?).wait()?, None);
    second.set(&mut store, &2)?;
    first.clear(&mut store)?;
    assert_eq!(first.get(store.at("a")?).wait()?, Some(1));
    assert_eq!(second.get(store.at("b")?).wait()?, Some(2));
    Ok(())
}

/// Thousands of keys keep their own values through overwrites and removals.
fn many_keys_keep_their_values(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<String>("v")?;
    for round in 0..2 {
        for number in 0..3_000 {
            value.set(store.at(&format!("key {number}"))?, &format!("{round}:{number}"))?;
        }
    }
    for number in (0..3_000).step_by(3) {
        value.clear(store.at(&format!("key {number}"))?)?;
    }
    for number in 0..3_000 {
        let expected = (number % 3 != 0).then(|| format!("1:{number}"));
        assert_eq!(value.get(store.at(&format!("key {number}"))?).wait()?, expected);
    }
    Ok(())
}

/// Values of any length, growing and shrinking in place, read back as they were written.
fn values_of_all_lengths_survive(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<Vec<u8>>("v")?;
    let lengths = [0, 1, 21, 22, 23, 24, 25, 63, 64, 127, 128, 255, 256, 4_095, 65_535, 300_000];
    let bytes = |length: usize| (0..length).map(|i| (i * 7 % 251) as u8).collect::<Vec<_>>();
    store.at("a")?;
    for length in lengths.into_iter().chain(lengths.into_iter().rev()) {
        value.set(&mut store, &bytes(length))?;
        assert!(value.get(&mut store).wait()? == Some(bytes(length)), "length {length}");
        let half = value.update(&mut store, |old| bytes(old.map_or(0, |old| old.len() / 2)));
        assert!(half.wait()? == bytes(length / 2), "half of length {length}");
        assert!(value.get(&mut store).wait()? == Some(bytes(length / 2)), "length {length}");
    }
    Ok(())
}

/// A batched read answers each key in the order asked, repeated and absent ones too, and leaves the
/// current key alone.
fn get_many_answers_in_the_order_asked(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u64>("v")?;
    value.set(store.at("a")?, &1)?;
    value.set(store.at("b")?, &2)?;
    let keys = ["b", "nobody", "a", "b", "b"].map(String::from);
    let found = store.get_many(&value, &keys).wait()?;
    assert_eq!(found, [Some(2), None, Some(1), Some(2), Some(2)]);
    assert_eq!(store.key()?, "b");
    assert!(store.get_many(&value, &[]).wait()?.is_empty());
    Ok(())
}

/// Keyed state cannot be touched before a key is set.
fn access_without_a_key_is_an_error(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u64>("v")?;
    assert_eq!(value.set(&mut store, &1).unwrap_err().kind(), ErrorKind::InvalidUsage);
    assert_eq!(value.get(&mut store).wait().unwrap_err().kind(), ErrorKind::InvalidUsage);
    Ok(())
}
