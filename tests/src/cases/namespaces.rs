//! Namespaces: isolation, and merging in all constellations.

use weir_state_api::{Native, Result};

use super::folding::Join;
use super::{Case, group};
use crate::harness::{At, Harness};

pub(super) const CASES: &[Case] = group!["namespaces":
    namespaces_are_isolated => "namespaces",
    long_and_composed_namespaces_work => "namespaces: any encodable type",
    lists_merge_in_the_order_of_the_sources => "namespaces: merge",
    values_merge_through_a_function => "namespaces: merge, also for value-like states",
    reduced_values_and_accumulators_merge => "namespaces: merge",
    a_target_among_its_sources_counts_once => "namespaces: merge, target survives exactly once",
    a_source_named_twice_counts_once => "namespaces: merge",
    merging_nothing_stays_nothing => "namespaces: nothing anywhere stays nothing",
    merging_leaves_no_residue => "namespaces: sources vanish",
    other_keys_do_not_merge => "namespaces: merge",
];

/// Every kind of state keeps a content of its own per namespace.
fn namespaces_are_isolated(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.namespaced::<i64>().value::<i64>("v")?;
    let list = store.namespaced::<i64>().list_with::<i64, _>("l", Native)?;
    let map = store.namespaced::<i64>().map_with::<i64, i64, _, _>(
        "m",
        weir_state_api::Ordered,
        Native,
    )?;
    let sum = store.namespaced::<i64>().reducing_with("r", Native, |a: i64, b| Ok(a + b))?;
    store.at("a")?;
    for namespace in [-1, 0, 1] {
        value.at(&namespace)?.set(&mut store, &namespace)?;
        list.at(&namespace)?.add_all(&mut store, &[namespace, 7])?;
        map.at(&namespace)?.put(&mut store, &namespace, &1)?;
        sum.at(&namespace)?.add(&mut store, namespace).wait()?;
    }
    value.at(&0)?.clear(&mut store)?;
    list.at(&0)?.clear(&mut store)?;
    map.at(&0)?.clear(&mut store)?;
    sum.at(&0)?.clear(&mut store)?;
    for namespace in [-1, 0, 1] {
        let there = namespace != 0;
        assert_eq!(value.at(&namespace)?.get(&mut store).wait()?, there.then_some(namespace));
        let elements = if there { vec![namespace, 7] } else { Vec::new() };
        assert_eq!(list.at(&namespace)?.get(&mut store).wait()?, elements);
        let entries: Vec<_> =
            map.at(&namespace)?.entries(&mut store).wait()?.collect::<Result<_>>()?;
        assert_eq!(entries, if there { vec![(namespace, 1)] } else { Vec::new() });
        assert_eq!(sum.at(&namespace)?.get(&mut store).wait()?, there.then_some(namespace));
    }
    Ok(())
}

/// Windows, tuples and long texts are namespaces as good as any.
fn long_and_composed_namespaces_work(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let windows = store.namespaced::<(i64, i64)>().value::<u32>("w")?;
    let texts = store.namespaced::<String>().value::<u32>("t")?;
    store.at("a")?;
    let long = "n".repeat(5_000);
    for number in 0..50 {
        windows.at(&(i64::from(number), i64::from(number) + 10))?.set(&mut store, &number)?;
        texts.at(&format!("{long}{number}"))?.set(&mut store, &number)?;
    }
    for number in 0..50 {
        let window = windows.at(&(i64::from(number), i64::from(number) + 10))?;
        assert_eq!(window.get(&mut store).wait()?, Some(number));
        let text = texts.at(&format!("{long}{number}"))?;
        assert_eq!(text.get(&mut store).wait()?, Some(number));
    }
    Ok(())
}

/// The target's elements come first, then those of the sources in the order given.
fn lists_merge_in_the_order_of_the_sources(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.namespaced::<u8>().list_with::<u32, _>("l", Native)?;
    store.at("a")?;
    list.at(&1)?.add_all(&mut store, &[10, 11])?;
    list.at(&2)?.add_all(&mut store, &[20])?;
    list.at(&3)?.add_all(&mut store, &[30, 30])?;
    list.merge(&mut store, &1, &[3, 9, 2]).wait()?;
    assert_eq!(list.at(&1)?.get(&mut store).wait()?, [10, 11, 30, 30, 20]);
    assert!(list.at(&2)?.is_empty(&mut store).wait()?);
    assert!(list.at(&3)?.is_empty(&mut store).wait()?);
    // An absent target becomes the merged source.
    list.merge(&mut store, &7, &[1]).wait()?;
    assert_eq!(list.at(&7)?.get(&mut store).wait()?, [10, 11, 30, 30, 20]);
    assert!(list.at(&1)?.is_empty(&mut store).wait()?);
    Ok(())
}

/// Values combine through the caller's function, target first, in the order of the sources.
fn values_merge_through_a_function(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.namespaced::<u8>().value::<String>("v")?;
    store.at("a")?;
    for (namespace, text) in [(1, "a"), (2, "b"), (3, "c")] {
        value.at(&namespace)?.set(&mut store, &text.to_string())?;
    }
    value.merge(&mut store, &1, &[3, 4, 2], |a, b| Ok(a + &b)).wait()?;
    assert_eq!(value.at(&1)?.get(&mut store).wait()?.as_deref(), Some("acb"));
    value.merge(&mut store, &5, &[2, 1], |a, b| Ok(a + &b)).wait()?;
    assert_eq!(value.at(&5)?.get(&mut store).wait()?.as_deref(), Some("acb"));
    for namespace in [1, 2, 3, 4] {
        assert_eq!(value.at(&namespace)?.get(&mut store).wait()?, None);
    }
    Ok(())
}

/// Reduced values combine with the reduce function, accumulators with the merge function.
fn reduced_values_and_accumulators_merge(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let sum = store.namespaced::<u8>().reducing_with("r", Native, |a: i64, b| Ok(a + b))?;
    let joined = store.namespaced::<u8>().aggregating_with("a", Native, Join)?;
    // As Flink's contract test: values all over, in none, only in the target, only in a source.
    let constellations: [&[u8]; 5] = [&[1, 2, 3], &[1, 3], &[], &[1], &[3]];
    for (key, namespaces) in constellations.iter().enumerate() {
        store.at(&format!("key {key}"))?;
        for &namespace in *namespaces {
            sum.at(&namespace)?.add(&mut store, 10).wait()?;
            sum.at(&namespace)?.add(&mut store, i64::from(namespace)).wait()?;
            joined.at(&namespace)?.add(&mut store, namespace.to_string()).wait()?;
        }
        sum.merge(&mut store, &1, &[2, 3]).wait()?;
        joined.merge(&mut store, &1, &[2, 3]).wait()?;
        let total: i64 = namespaces.iter().map(|&namespace| 10 + i64::from(namespace)).sum();
        let text: String = namespaces.iter().map(u8::to_string).collect();
        let some = !namespaces.is_empty();
        assert_eq!(sum.at(&1)?.get(&mut store).wait()?, some.then_some(total));
        let expected = some.then(|| format!("{}:{text}", namespaces.len()));
        assert_eq!(joined.at(&1)?.get(&mut store).wait()?, expected);
        for source in [2, 3] {
            assert_eq!(sum.at(&source)?.get(&mut store).wait()?, None);
            assert_eq!(joined.at(&source)?.get(&mut store).wait()?, None);
        }
    }
    Ok(())
}

/// A target that is named among the sources survives, and counts once.
fn a_target_among_its_sources_counts_once(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.namespaced::<u8>().value::<u32>("v")?;
    let list = store.namespaced::<u8>().list_with::<u32, _>("l", Native)?;
    let sum = store.namespaced::<u8>().reducing_with("r", Native, |a: u32, b| Ok(a + b))?;
    store.at("a")?;
    for namespace in [1_u8, 2] {
        value.at(&namespace)?.set(&mut store, &namespace.into())?;
        list.at(&namespace)?.add(&mut store, &namespace.into())?;
        sum.at(&namespace)?.add(&mut store, namespace.into()).wait()?;
    }
    value.merge(&mut store, &1, &[1, 2, 1], |a, b| Ok(a + b)).wait()?;
    list.merge(&mut store, &1, &[1, 2, 1]).wait()?;
    sum.merge(&mut store, &1, &[1, 2, 1]).wait()?;
    assert_eq!(value.at(&1)?.get(&mut store).wait()?, Some(3));
    assert_eq!(list.at(&1)?.get(&mut store).wait()?, [1, 2]);
    assert_eq!(sum.at(&1)?.get(&mut store).wait()?, Some(3));
    // Alone it is left as it was.
    list.merge(&mut store, &1, &[1]).wait()?;
    sum.merge(&mut store, &1, &[]).wait()?;
    assert_eq!(list.at(&1)?.get(&mut store).wait()?, [1, 2]);
    assert_eq!(sum.at(&1)?.get(&mut store).wait()?, Some(3));
    Ok(())
}

/// A source that is named twice is one source.
fn a_source_named_twice_counts_once(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.namespaced::<u8>().value::<u32>("v")?;
    let list = store.namespaced::<u8>().list_with::<u32, _>("l", Native)?;
    let sum = store.namespaced::<u8>().reducing_with("r", Native, |a: u32, b| Ok(a + b))?;
    let joined = store.namespaced::<u8>().aggregating_with("a", Native, Join)?;
    store.at("a")?;
    value.at(&2)?.set(&mut store, &5)?;
    list.at(&2)?.add(&mut store, &5)?;
    sum.at(&2)?.add(&mut store, 5).wait()?;
    joined.at(&2)?.add(&mut store, "x".into()).wait()?;
    value.merge(&mut store, &1, &[2, 2], |a, b| Ok(a + b)).wait()?;
    list.merge(&mut store, &1, &[2, 2]).wait()?;
    sum.merge(&mut store, &1, &[2, 2]).wait()?;
    joined.merge(&mut store, &1, &[2, 2]).wait()?;
    assert_eq!(value.at(&1)?.get(&mut store).wait()?, Some(5));
    assert_eq!(list.at(&1)?.get(&mut store).wait()?, [5]);
    assert_eq!(sum.at(&1)?.get(&mut store).wait()?, Some(5));
    assert_eq!(joined.at(&1)?.get(&mut store).wait()?.as_deref(), Some("1:x"));
    assert_eq!(value.at(&2)?.get(&mut store).wait()?, None);
    Ok(())
}

/// Merging where nothing is creates nothing.
fn merging_nothing_stays_nothing(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.namespaced::<u8>().list_with::<u32, _>("l", Native)?;
    let value = store.namespaced::<u8>().value::<u32>("v")?;
    store.at("a")?;
    list.merge(&mut store, &1, &[2, 3]).wait()?;
    value.merge(&mut store, &1, &[2, 3], |a, b| Ok(a + b)).wait()?;
    assert_eq!(value.at(&1)?.get(&mut store).wait()?, None);
    assert_eq!(store.keys("l")?.count() + store.keys("v")?.count(), 0);
    Ok(())
}

/// After a merge exactly the target is listed, also after a restore.
fn merging_leaves_no_residue(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.namespaced::<u8>().list_with::<String, _>("l", Native)?;
    store.at("a")?;
    list.at(&1)?.add_all(&mut store, &["a".to_string(), "b".to_string()])?;
    list.at(&2)?.add(&mut store, &"c".to_string())?;
    list.merge(&mut store, &1, &[2]).wait()?;
    let handle = h.snapshot(&mut store)?;
    for mut store in [store, h.restore(&[handle])?] {
        let list = store.namespaced::<u8>().list_with::<String, _>("l", Native)?;
        let keys: Vec<_> = store.keys("l")?.collect::<Result<_>>()?;
        assert_eq!(keys, [("a".to_string(), vec![1])]);
        assert_eq!(list.at(&1)?.get(store.at("a")?).wait()?, ["a", "b", "c"]);
    }
    Ok(())
}

/// A merge concerns the current key only.
fn other_keys_do_not_merge(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let list = store.namespaced::<u8>().list_with::<u32, _>("l", Native)?;
    for key in ["a", "b"] {
        store.at(key)?;
        list.at(&1)?.add(&mut store, &1)?;
        list.at(&2)?.add(&mut store, &2)?;
    }
    list.merge(store.at("a")?, &1, &[2]).wait()?;
    assert_eq!(list.at(&1)?.get(store.at("b")?).wait()?, [1]);
    assert_eq!(list.at(&2)?.get(&mut store).wait()?, [2]);
    Ok(())
}
