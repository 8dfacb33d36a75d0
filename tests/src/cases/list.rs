//! Lists: appended to without reading.

use weir_state_api::Result;

use super::{Case, group};
use crate::harness::{At, Harness};

pub(super) const CASES: &[Case] = group!["list":
    order_and_duplicates_are_kept => "list",
    set_replaces_and_set_of_nothing_clears => "list: `set([])` is `clear`",
    adding_nothing_creates_nothing => "list: `add_all([])` changes nothing and creates nothing",
    any_bytes_are_elements => "list: elements are framed, never delimited",
    absent_options_are_elements => "absent vs empty",
    units_are_counted => "absent vs empty",
    long_lists_grow_element_by_element => "list",
    lists_of_keys_are_isolated => "list",
    appending_goes_on_after_a_restore => "list; snapshots",
];

/// Elements come back in the order of adding, repeated ones as often as added.
fn order_and_duplicates_are_kept(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.list::<u32>("l")?;
    store.at("a")?;
    assert!(list.get(&mut store).wait()?.is_empty());
    assert!(list.is_empty(&mut store).wait()?);
    list.add(&mut store, &3)?;
    list.add_all(&mut store, &[1, 3])?;
    list.add(&mut store, &2)?;
    assert_eq!(list.get(&mut store).wait()?, [3, 1, 3, 2]);
    assert!(!list.is_empty(&mut store).wait()?);
    Ok(())
}

/// `set` replaces the whole list; setting or clearing to nothing makes the list absent.
fn set_replaces_and_set_of_nothing_clears(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.list::<u32>("l")?;
    store.at("a")?;
    list.add_all(&mut store, &[1, 2, 3])?;
    list.set(&mut store, &[9, 8])?;
    assert_eq!(list.get(&mut store).wait()?, [9, 8]);
    list.add(&mut store, &7)?;
    assert_eq!(list.get(&mut store).wait()?, [9, 8, 7]);
    list.set(&mut store, &[])?;
    assert!(list.is_empty(&mut store).wait()?);
    assert_eq!(store.keys("l")?.count(), 0);
    list.add(&mut store, &1)?;
    list.clear(&mut store)?;
    list.add(&mut store, &2)?;
    assert_eq!(list.get(&mut store).wait()?, [2]);
    Ok(())
}

/// Adding no elements neither creates a list nor changes one.
fn adding_nothing_creates_nothing(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.list::<u32>("l")?;
    store.at("a")?;
    list.add_all(&mut store, &[])?;
    assert!(list.is_empty(&mut store).wait()?);
    assert_eq!(store.keys("l")?.count(), 0);
    list.add(&mut store, &1)?;
    list.add_all(&mut store, &[])?;
    assert_eq!(list.get(&mut store).wait()?, [1]);
    Ok(())
}

/// Empty elements, delimiters, zeros and elements of many lengths stay apart.
fn any_bytes_are_elements(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.list::<Vec<u8>>("l")?;
    store.at("a")?;
    let elements: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b",".to_vec(),
        b"".to_vec(),
        vec![0],
        vec![0xff; 126],
        vec![0xff; 127],
        vec![0xff; 128],
        vec![1; 20_000],
        b"".to_vec(),
    ];
    for element in &elements {
        list.add(&mut store, element)?;
    }
    assert!(list.get(&mut store).wait()? == elements);
    list.clear(&mut store)?;
    list.add(&mut store, &b"x".to_vec())?;
    assert_eq!(list.get(&mut store).wait()?, [b"x"]);
    list.set(&mut store, &elements)?;
    assert!(list.get(&mut store).wait()? == elements);
    Ok(())
}

/// `None` is an element like any other and wipes nothing.
fn absent_options_are_elements(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.list::<Option<u8>>("l")?;
    store.at("a")?;
    for element in [Some(1), None, Some(2), None] {
        list.add(&mut store, &element)?;
    }
    assert_eq!(list.get(&mut store).wait()?, [Some(1), None, Some(2), None]);
    Ok(())
}

/// Elements without any byte are counted.
fn units_are_counted(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.list::<()>("l")?;
    store.at("a")?;
    list.add(&mut store, &())?;
    list.add_all(&mut store, &[(), ()])?;
    assert_eq!(list.get(&mut store).wait()?.len(), 3);
    Ok(())
}

/// A list built by thousands of single appends has all of them, in order.
fn long_lists_grow_element_by_element(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.list::<u32>("l")?;
    store.at("a")?;
    for element in 0..5_000 {
        list.add(&mut store, &element)?;
    }
    assert!(list.get(&mut store).wait()?.into_iter().eq(0..5_000));
    Ok(())
}

/// The list of one key shares nothing with the list of another.
fn lists_of_keys_are_isolated(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.list::<u32>("l")?;
    list.add(store.at("a")?, &1)?;
    list.add(store.at("b")?, &2)?;
    list.add(store.at("a")?, &3)?;
    list.clear(store.at("b")?)?;
    assert_eq!(list.get(store.at("a")?).wait()?, [1, 3]);
    assert!(list.is_empty(store.at("b")?).wait()?);
    Ok(())
}

/// Elements added after a restore follow those from before it.
fn appending_goes_on_after_a_restore(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.list::<String>("l")?;
    list.add_all(store.at("a")?, &["1".to_string(), String::new()])?;
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    let list = restored.list::<String>("l")?;
    list.add(restored.at("a")?, &"3".to_string())?;
    assert_eq!(list.get(&mut restored).wait()?, ["1", "", "3"]);
    Ok(())
}
