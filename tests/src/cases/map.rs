//! Maps: point access and disappearance.

use weir_state_api::{Order, Result};

use super::{Case, group};
use crate::harness::{At, Harness};

pub(super) const CASES: &[Case] = group!["map":
    entries_are_set_read_and_removed => "map",
    a_map_disappears_with_its_last_entry => "map disappears with its last entry",
    clear_removes_all_entries_of_one_map => "map",
    absent_options_and_units_are_entries => "absent vs empty",
    empty_and_odd_map_keys_are_keys => "map",
    entries_can_be_overwritten_with_any_length => "map",
    emptiness_follows_every_change => "map",
];

/// Point operations see what was put last; `put_all` of nothing creates nothing.
fn entries_are_set_read_and_removed(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<String, u32>("m")?;
    store.at("a")?;
    assert_eq!(map.get(&mut store, &"x".into()).wait()?, None);
    assert!(!map.contains(&mut store, &"x".into()).wait()?);
    map.put_all(&mut store, [])?;
    assert!(map.is_empty(&mut store).wait()?);
    assert_eq!(store.keys("m")?.count(), 0);
    let (x, y) = ("x".to_string(), "y".to_string());
    map.put_all(&mut store, [(&x, &1), (&y, &2), (&x, &3)])?;
    assert_eq!(map.get(&mut store, &x).wait()?, Some(3));
    assert!(map.contains(&mut store, &y).wait()?);
    map.remove(&mut store, &x)?;
    map.remove(&mut store, &"never there".into())?;
    assert_eq!(map.get(&mut store, &x).wait()?, None);
    assert_eq!(map.get(&mut store, &y).wait()?, Some(2));
    assert_eq!(map.get(store.at("b")?, &y).wait()?, None);
    Ok(())
}

/// After the last entry is removed the key has no state any more and is not listed.
fn a_map_disappears_with_its_last_entry(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, u32>("m")?;
    store.at("a")?;
    for key in 0..3 {
        map.put(&mut store, &key, &key)?;
    }
    for key in 0..3 {
        assert_eq!(store.keys("m")?.count(), 1);
        map.remove(&mut store, &key)?;
    }
    assert_eq!(store.keys("m")?.count(), 0);
    assert!(map.is_empty(&mut store).wait()?);
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    assert_eq!(restored.keys("m")?.count(), 0);
    Ok(())
}

/// `clear` removes every entry of the current key's map and nothing else; putting works after it.
fn clear_removes_all_entries_of_one_map(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, u32>("m")?;
    let other = store.map::<u32, u32>("other")?;
    for number in 0..300 {
        map.put(store.at("a")?, &number, &number)?;
        other.put(&mut store, &number, &number)?;
        map.put(store.at("b")?, &number, &number)?;
    }
    map.clear(store.at("a")?)?;
    map.clear(store.at("nobody")?)?;
    assert!(map.is_empty(store.at("a")?).wait()?);
    assert_eq!(map.get(&mut store, &7).wait()?, None);
    assert_eq!(other.entries(&mut store).wait()?.count(), 300);
    map.put(&mut store, &5, &6)?;
    assert_eq!(map.entries(&mut store).wait()?.collect::<Result<Vec<_>>>()?, [(5, 6)]);
    assert_eq!(map.entries(store.at("b")?).wait()?.count(), 300);
    Ok(())
}

/// An entry with `None`, with `()` or with zero bytes is there: contained, listed, counted.
fn absent_options_and_units_are_entries(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let options = store.map::<u32, Option<u8>>("options")?;
    let set = store.map::<u32, ()>("set")?;
    store.at("a")?;
    options.put(&mut store, &1, &None)?;
    set.put(&mut store, &1, &())?;
    let handle = h.snapshot(&mut store)?;
    for mut store in [store, h.restore(&[handle])?] {
        let options = store.map::<u32, Option<u8>>("options")?;
        let set = store.map::<u32, ()>("set")?;
        store.at("a")?;
        assert!(options.contains(&mut store, &1).wait()?);
        assert_eq!(options.get(&mut store, &1).wait()?, Some(None));
        assert_eq!(options.get(&mut store, &2).wait()?, None);
        assert_eq!(set.get(&mut store, &1).wait()?, Some(()));
        assert!(!set.is_empty(&mut store).wait()?);
        assert_eq!(set.entries(&mut store).wait()?.collect::<Result<Vec<_>>>()?, [(1, ())]);
    }
    Ok(())
}

/// A map key of zero bytes, and keys that are prefixes of each other, are keys of their own.
fn empty_and_odd_map_keys_are_keys(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let single = store.map::<(), u32>("single")?;
    store.at("a")?;
    single.put(&mut store, &(), &7)?;
    assert_eq!(single.get(&mut store, &()).wait()?, Some(7));
    assert_eq!(single.entries(&mut store).wait()?.collect::<Result<Vec<_>>>()?, [((), 7)]);
    single.remove(&mut store, &())?;
    assert!(single.is_empty(&mut store).wait()?);

    let map = store.map::<Vec<u8>, u32>("m")?;
    let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"\xff\xff"];
    for (value, key) in (0..).zip(keys) {
        map.put(&mut store, &key.to_vec(), &value)?;
    }
    for (value, key) in (0..).zip(keys) {
        assert_eq!(map.get(&mut store, &key.to_vec()).wait()?, Some(value), "{key:?}");
    }
    let listed: Vec<_> = map.entries(&mut store).wait()?.collect::<Result<_>>()?;
    assert!(listed.iter().map(|(key, _)| key.as_slice()).eq(keys), "{listed:?}");
    Ok(())
}

/// Values of entries grow and shrink without touching their neighbours.
fn entries_can_be_overwritten_with_any_length(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, Vec<u8>>("m")?;
    store.at("a")?;
    for length in [0, 1, 30, 3_000, 70_000, 24, 0, 200] {
        for key in [1, 2, 3] {
            map.put(&mut store, &key, &vec![key as u8; length + key as usize])?;
        }
        let lengths: Vec<_> = map
            .range(&mut store, .., Order::Ascending)
            .wait()?
            .map(|entry| entry.map(|(key, value)| value == vec![key as u8; length + key as usize]))
            .collect::<Result<_>>()?;
        assert_eq!(lengths, [true; 3], "length {length}");
    }
    Ok(())
}

/// `is_empty` is true before the first put and after the last remove, and false in between.
fn emptiness_follows_every_change(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, u32>("m")?;
    store.at("a")?;
    assert!(map.is_empty(&mut store).wait()?);
    for key in 0..1_024 {
        map.put(&mut store, &key, &1)?;
        assert!(!map.is_empty(&mut store).wait()?);
    }
    for key in (0..1_024).rev() {
        assert!(!map.is_empty(&mut store).wait()?);
        map.remove(&mut store, &key)?;
    }
    assert!(map.is_empty(&mut store).wait()?);
    Ok(())
}
