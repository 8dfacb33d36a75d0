//! Iteration over maps: order, ranges, pages, and what it sees of later changes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};

use weir_state_api::{MapState, Order, OrderedType, Result};

use super::{Case, group};
use crate::harness::{At, Harness, Store};

pub(super) const CASES: &[Case] = group!["iteration":
    order_is_that_of_the_map_keys => "map: iteration order is the encoded order of the map key",
    ranges_keep_their_ends_in_both_orders => "map: range scans",
    crossed_and_empty_ranges_yield_nothing => "map: range scans",
    pages_of_all_counts_are_complete => "iteration",
    large_entries_end_pages_early => "iteration",
    removing_each_entry_once_seen_yields_all => "iteration: sees the state as of the call",
    later_changes_are_not_seen => "iteration: sees the state as of the call",
    an_iteration_outlives_clear_and_store => "iteration: sees the state as of the call",
    iterations_overlap => "iteration",
];

type Listed<K> = Vec<(K, u32)>;

fn list<K>(
    store: &mut Store,
    map: &MapState<K, u32>,
    range: impl RangeBounds<K>,
    order: Order,
) -> Result<Listed<K>>
where
    K: OrderedType + Send + 'static,
{
    map.range(store, range, order).wait()?.collect()
}

fn check_order<K>(h: &Harness<'_>, sorted: Vec<K>) -> Result<()>
where
    K: OrderedType + Send + Clone + PartialEq + Debug + 'static,
{
    let mut store = h.open()?;
    let map = store.map::<K, u32>("m")?;
    store.at("a")?;
    for key in sorted.iter().rev().chain(&sorted) {
        map.put(&mut store, key, &1)?;
    }
    let keys = |listed: Listed<K>| listed.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys(list(&mut store, &map, .., Order::Ascending)?), sorted);
    let descending = keys(list(&mut store, &map, .., Order::Descending)?);
    assert_eq!(descending, sorted.into_iter().rev().collect::<Vec<_>>());
    Ok(())
}

/// Entries come in the order of the map keys, negative numbers before positive ones, and exactly
/// reversed when asked for.
fn order_is_that_of_the_map_keys(h: &Harness<'_>) -> Result<()> {
    check_order(h, vec![i64::MIN, -256, -255, -2, -1, 0, 1, 127, 128, 255, 256, i64::MAX])?;
    check_order(
        h,
        ["", "\0", "a", "a\0", "a\u{1}", "ab", "b", "é", "\u{ffff}"].map(String::from).to_vec(),
    )?;
    check_order(h, vec![(-1, String::new()), (-1, "z".into()), (0, "a".into()), (7, "a".into())])?;
    check_order(h, vec![None, Some(0_u8), Some(255)])
}

/// Every combination of ends, in both orders, yields what a sorted map yields.
fn ranges_keep_their_ends_in_both_orders(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<i32, u32>("m")?;
    store.at("a")?;
    let model: BTreeMap<i32, u32> = (-6_i32..=6).map(|key| (key * 2, key.unsigned_abs())).collect();
    for (key, value) in &model {
        map.put(&mut store, key, value)?;
    }
    let bounds = |key| [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded];
    for from in [-13, -2, -1, 0, 12] {
        for to in [-1, 0, 1, 2, 13] {
            for range in bounds(from).into_iter().flat_map(|from| bounds(to).map(|to| (from, to))) {
                let mut expected: Vec<_> = model
                    .iter()
                    .map(|(&key, &value)| (key, value))
                    .filter(|(key, _)| range.contains(key))
                    .collect();
                assert_eq!(list(&mut store, &map, range, Order::Ascending)?, expected, "{range:?}");
                expected.reverse();
                assert_eq!(
                    list(&mut store, &map, range, Order::Descending)?,
                    expected,
                    "{range:?}"
                );
            }
        }
    }
    Ok(())
}

/// A range whose ends are crossed, or that lies beside all keys, is empty and no error.
fn crossed_and_empty_ranges_yield_nothing(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<i32, u32>("m")?;
    store.at("a")?;
    for order in [Order::Ascending, Order::Descending] {
        assert_eq!(list(&mut store, &map, .., order)?, []);
    }
    for key in 0..10 {
        map.put(&mut store, &key, &1)?;
    }
    let crossed = (Bound::Excluded(5), Bound::Excluded(5));
    for order in [Order::Ascending, Order::Descending] {
        #[expect(clippy::reversed_empty_ranges, reason = "that is the case")]
        let reversed = 7..3;
        assert_eq!(list(&mut store, &map, reversed, order)?, []);
        assert_eq!(list(&mut store, &map, crossed, order)?, []);
        assert_eq!(list(&mut store, &map, 5..5, order)?, []);
        assert_eq!(list(&mut store, &map, 10.., order)?, []);
        assert_eq!(list(&mut store, &map, ..0, order)?, []);
        assert_eq!(list(&mut store, &map, 5..=5, order)?, [(5, 1)]);
    }
    Ok(())
}

/// Maps of every size around page and chunk borders list each entry once, whole or in ranges.
fn pages_of_all_counts_are_complete(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, u32>("m")?;
    let mut have = 0;
    for count in [1, 127, 128, 129, 255, 256, 257, 1_000, 3_000] {
        store.at("a")?;
        while have < count {
            // Not in order, so that inner structures split in the middle.
            let key = have * 7_919 % 10_007;
            map.put(&mut store, &key, &have)?;
            have += 1;
        }
        let ascending = list(&mut store, &map, .., Order::Ascending)?;
        assert_eq!(ascending.len(), count as usize);
        assert!(ascending.is_sorted(), "{count} entries");
        let mut descending = list(&mut store, &map, .., Order::Descending)?;
        descending.reverse();
        assert_eq!(ascending, descending);
        let middle = ascending[ascending.len() / 2].0;
        let low = list(&mut store, &map, ..middle, Order::Ascending)?;
        let mut high = list(&mut store, &map, middle.., Order::Descending)?;
        high.reverse();
        assert!(low.into_iter().chain(high).eq(ascending), "{count} entries, cut at {middle}");
    }
    Ok(())
}

/// Entries larger than a page come alone and complete.
fn large_entries_end_pages_early(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, Vec<u8>>("m")?;
    store.at("a")?;
    let length = |key: u32| if key.is_multiple_of(5) { 150_000 } else { 20_000 + key as usize };
    for key in 0..12 {
        map.put(&mut store, &key, &vec![key as u8; length(key)])?;
    }
    for order in [Order::Ascending, Order::Descending] {
        let mut found: Vec<_> =
            map.range(&mut store, .., order).wait()?.collect::<Result<Vec<_>>>()?;
        if order == Order::Descending {
            found.reverse();
        }
        assert_eq!(found.len(), 12);
        for (key, (found, value)) in (0..).zip(found) {
            assert!(found == key && value == vec![key as u8; length(key)], "entry {key}");
        }
    }
    Ok(())
}

/// Removing every entry right after it was yielded yields each of 300 entries once and leaves
/// nothing.
fn removing_each_entry_once_seen_yields_all(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, u32>("m")?;
    store.at("a")?;
    for order in [Order::Ascending, Order::Descending] {
        for key in 0..300 {
            map.put(&mut store, &key, &key)?;
        }
        let mut seen = Vec::new();
        let mut entries = map.range(&mut store, .., order).wait()?;
        while let Some((key, _)) = entries.next_entry().wait()? {
            map.remove(&mut store, &key)?;
            seen.push(key);
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..300));
        assert!(map.is_empty(&mut store).wait()?);
    }
    Ok(())
}

/// Entries added, overwritten or removed behind and ahead of an iteration do not change it.
fn later_changes_are_not_seen(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, u32>("m")?;
    store.at("a")?;
    for key in 0..500 {
        map.put(&mut store, &(key * 2), &key)?;
    }
    let mut entries = map.entries(&mut store).wait()?;
    assert_eq!(entries.next_entry().wait()?, Some((0, 0)));
    for key in 0..500 {
        map.put(&mut store, &(key * 2 + 1), &9_999)?;
        if key % 2 == 0 {
            map.remove(&mut store, &(key * 2))?;
        } else {
            map.put(&mut store, &(key * 2), &8_888)?;
        }
    }
    let rest: Vec<_> = entries.collect::<Result<_>>()?;
    assert!(rest.into_iter().eq((1..500).map(|key| (key * 2, key))));
    assert_eq!(map.entries(&mut store).wait()?.count(), 750);
    Ok(())
}

/// A running iteration goes on after the map was cleared, and after the store was dropped.
fn an_iteration_outlives_clear_and_store(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, u32>("m")?;
    store.at("a")?;
    for key in 0..1_000 {
        map.put(&mut store, &key, &key)?;
    }
    let cleared = map.entries(&mut store).wait()?;
    map.clear(&mut store)?;
    map.put(&mut store, &5_000, &5_000)?;
    let dropped = map.range(&mut store, .., Order::Descending).wait()?;
    assert!(cleared.collect::<Result<Vec<_>>>()?.into_iter().eq((0..1_000).map(|key| (key, key))));
    drop(store);
    assert_eq!(dropped.collect::<Result<Vec<_>>>()?, [(5_000, 5_000)]);
    Ok(())
}

/// Iterations over the same map and over others run side by side, each as of its own call.
fn iterations_overlap(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let map = store.map::<u32, u32>("m")?;
    for key in ["a", "b"] {
        store.at(key)?;
        for number in 0..200 {
            map.put(&mut store, &number, &1)?;
        }
    }
    let mut first = map.entries(store.at("a")?).wait()?;
    map.put(&mut store, &200, &2)?;
    let mut second = map.entries(&mut store).wait()?;
    let mut other = map.entries(store.at("b")?).wait()?;
    let mut counts = [0; 3];
    loop {
        let mut ended = true;
        for (count, entries) in counts.iter_mut().zip([&mut first, &mut second, &mut other]) {
            if entries.next_entry().wait()?.is_some() {
                *count += 1;
                ended = false;
            }
        }
        if ended {
            break;
        }
    }
    assert_eq!(counts, [200, 201, 200]);
    Ok(())
}
