//! Range scans: 10 neighbouring entries out of maps of 1,000.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use weir_state_api::{MapState, Order, Result};

use super::contestant::Weir;
use super::family::{BASELINE_GROUPS, Family};
use super::inputs::{Inputs, fraction};
use super::operation::{Table, operation};
#[cfg(feature = "rocks")]
use crate::peers::rocksdb::Layout;

const MAP_LEN: i64 = 1_000;
pub(crate) const RANGE_LEN: i64 = 10;

/// A long ordered map for each `i64`.
pub(crate) trait LongMaps {
    fn put(&mut self, key: i64, map_key: i64, value: f64) -> Result<()>;
    /// Adds up the values of ten map keys, from `from` on.
    fn scan(&mut self, key: i64, from: i64) -> Result<u64>;
}

impl LongMaps for HashMap<i64, BTreeMap<i64, f64>> {
    fn put(&mut self, key: i64, map_key: i64, value: f64) -> Result<()> {
        self.entry(key).or_default().insert(map_key, value);
        Ok(())
    }

    fn scan(&mut self, key: i64, from: i64) -> Result<u64> {
        let Some(map) = self.get(&key) else { return Ok(0) };
        let range = map.range(from..from + RANGE_LEN);
        Ok(range.fold(0, |sum, (_, value)| sum.wrapping_add(value.to_bits())))
    }
}

/// All maps in one, as an ordered state in memory keeps them.
impl LongMaps for BTreeMap<(i64, i64), f64> {
    fn put(&mut self, key: i64, map_key: i64, value: f64) -> Result<()> {
        self.insert((key, map_key), value);
        Ok(())
    }

    fn scan(&mut self, key: i64, from: i64) -> Result<u64> {
        let range = self.range((key, from)..(key, from + RANGE_LEN));
        Ok(range.fold(0, |sum, (_, value)| sum.wrapping_add(value.to_bits())))
    }
}

impl LongMaps for Weir<MapState<i64, f64>> {
    fn put(&mut self, key: i64, map_key: i64, value: f64) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.put(&mut self.instance.store, &map_key, &value)
    }

    fn scan(&mut self, key: i64, from: i64) -> Result<u64> {
        let store = &mut self.instance.store;
        store.set_key(&key)?;
        let range = from..from + RANGE_LEN;
        let mut entries = self.state.range(store, range, Order::Ascending).wait()?;
        entries.try_fold(0u64, |sum, entry| Ok(sum.wrapping_add(entry?.1.to_bits())))
    }
}

/// As many maps as make ten entries per key of the other families.
fn maps(inputs: &Inputs) -> i64 {
    (inputs.keys() / 100) as i64
}

fn table<S: LongMaps + 'static>() -> Table<S> {
    Table {
        fill: |long_maps, inputs| {
            (0..maps(inputs)).try_for_each(|key| {
                (0..MAP_LEN).try_for_each(|map_key| {
                    long_maps.put(key, map_key, fraction((key * MAP_LEN + map_key) as u64))
                })
            })
        },
        digest: |_, _| Ok(0),
        calls: Inputs::keys,
        operations: vec![
            operation("mapRange", |long_maps: &mut S, pass, i| {
                let key = pass.key(i) % maps(pass.inputs);
                long_maps.scan(key, pass.value(i) % (MAP_LEN - RANGE_LEN))
            })
            .per_entry(RANGE_LEN as usize),
        ],
    }
}

/// The family with its contestants. Flink's maps have no ranges.
pub(crate) fn family(family: Family<'_>) -> Family<'_> {
    let family = family
        .weir(BASELINE_GROUPS, table, |store| store.map("mapState"))
        .raw("hashbrown of BTreeMap", table, HashMap::new)
        .raw("BTreeMap", table, BTreeMap::new)
        .by_bytes(table);
    #[cfg(feature = "rocks")]
    let family = family.raw_rocksdb(table, Layout::Maps);
    family
}
