//! A map from `i64` to `f64` per key, set up with ten entries each.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use weir_state_api::{MapState, Result};

use super::contestant::Weir;
use super::family::{BASELINE_GROUPS, Family};
use super::inputs::{Inputs, MAP_KEYS};
use super::operation::{ABSENT, Table, mix, operation};
#[cfg(feature = "rocks")]
use crate::peers::rocksdb::Layout;

/// An ordered map for each `i64`.
pub(crate) trait Maps {
    fn get(&mut self, key: i64, map_key: i64) -> Result<Option<f64>>;
    fn contains(&mut self, key: i64, map_key: i64) -> Result<bool>;
    fn is_empty(&mut self, key: i64) -> Result<bool>;
    fn put(&mut self, key: i64, map_key: i64, value: f64) -> Result<()>;
    fn put_all(&mut self, key: i64, entries: &[(i64, f64)]) -> Result<()>;
    fn remove(&mut self, key: i64, map_key: i64) -> Result<()>;
    /// Adds up what `f` makes of each entry.
    fn sum(&mut self, key: i64, f: impl Fn(i64, f64) -> u64) -> Result<u64>;
    /// Begins to read all entries and goes no further.
    fn begin_reading(&mut self, key: i64) -> Result<()>;
}

impl Maps for HashMap<i64, BTreeMap<i64, f64>> {
    fn get(&mut self, key: i64, map_key: i64) -> Result<Option<f64>> {
        Ok(HashMap::get(self, &key).and_then(|map| map.get(&map_key)).copied())
    }

    fn contains(&mut self, key: i64, map_key: i64) -> Result<bool> {
        Ok(HashMap::get(self, &key).is_some_and(|map| map.contains_key(&map_key)))
    }

    fn is_empty(&mut self, key: i64) -> Result<bool> {
        Ok(HashMap::get(self, &key).is_none_or(BTreeMap::is_empty))
    }

    fn put(&mut self, key: i64, map_key: i64, value: f64) -> Result<()> {
        self.entry(key).or_default().insert(map_key, value);
        Ok(())
    }

    fn put_all(&mut self, key: i64, entries: &[(i64, f64)]) -> Result<()> {
        self.entry(key).or_default().extend(entries.iter().copied());
        Ok(())
    }

    fn remove(&mut self, key: i64, map_key: i64) -> Result<()> {
        if let Some(map) = self.get_mut(&key) {
            map.remove(&map_key);
        }
        Ok(())
    }

    fn sum(&mut self, key: i64, f: impl Fn(i64, f64) -> u64) -> Result<u64> {
        let Some(map) = HashMap::get(self, &key) else { return Ok(0) };
        Ok(map.iter().fold(0, |sum, (&key, &value)| sum.wrapping_add(f(key, value))))
    }

    fn begin_reading(&mut self, key: i64) -> Result<()> {
        std::hint::black_box(HashMap::get(self, &key).map(BTreeMap::iter));
        Ok(())
    }
}

impl Maps for Weir<MapState<i64, f64>> {
    fn get(&mut self, key: i64, map_key: i64) -> Result<Option<f64>> {
        self.instance.store.set_key(&key)?;
        self.state.get(&mut self.instance.store, &map_key).wait()
    }

    fn contains(&mut self, key: i64, map_key: i64) -> Result<bool> {
        self.instance.store.set_key(&key)?;
        self.state.contains(&mut self.instance.store, &map_key).wait()
    }

    fn is_empty(&mut self, key: i64) -> Result<bool> {
        self.instance.store.set_key(&key)?;
        self.state.is_empty(&mut self.instance.store).wait()
    }

    fn put(&mut self, key: i64, map_key: i64, value: f64) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.put(&mut self.instance.store, &map_key, &value)
    }

    fn put_all(&mut self, key: i64, entries: &[(i64, f64)]) -> Result<()> {
        self.instance.store.set_key(&key)?;
        let entries = entries.iter().map(|(key, value)| (key, value));
        self.state.put_all(&mut self.instance.store, entries)
    }

    fn remove(&mut self, key: i64, map_key: i64) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.remove(&mut self.instance.store, &map_key)
    }

    fn sum(&mut self, key: i64, f: impl Fn(i64, f64) -> u64) -> Result<u64> {
        self.instance.store.set_key(&key)?;
        let mut entries = self.state.entries(&mut self.instance.store).wait()?;
        entries.try_fold(0u64, |sum, entry| {
            let (key, value) = entry?;
            Ok(sum.wrapping_add(f(key, value)))
        })
    }

    fn begin_reading(&mut self, key: i64) -> Result<()> {
        self.instance.store.set_key(&key)?;
        std::hint::black_box(self.state.entries(&mut self.instance.store).wait()?);
        Ok(())
    }
}

fn both(key: i64, value: f64) -> u64 {
    (key as u64).wrapping_add(value.to_bits())
}

fn fill(maps: &mut impl Maps, inputs: &Inputs) -> Result<()> {
    for key in 0..inputs.keys() as i64 {
        for (map_key, value) in inputs.map_entries(key) {
            maps.put(key, map_key, value)?;
        }
    }
    Ok(())
}

/// The operations.
pub(crate) fn table<S: Maps + 'static>() -> Table<S> {
    Table {
        fill: |maps, inputs| fill(maps, inputs),
        digest: |maps, inputs| {
            inputs.all_keys().try_fold(0, |sum, key| Ok(mix(sum, maps.sum(key, both)?)))
        },
        calls: Inputs::keys,
        operations: vec![
            operation("mapGet", |maps: &mut S, pass, i| {
                let value = maps.get(pass.key(i), pass.map_key(i))?;
                Ok(value.map_or(ABSENT as u64, f64::to_bits))
            }),
            operation("mapContains", |maps: &mut S, pass, i| {
                maps.contains(pass.key(i), pass.map_key(i) << 1).map(u64::from)
            }),
            operation("mapIsEmpty", |maps: &mut S, pass, i| {
                maps.is_empty(pass.key(i)).map(u64::from)
            }),
            operation("mapKeys", |maps: &mut S, pass, i| {
                maps.sum(pass.key(i), |key, _| key as u64)
            })
            .per_entry(MAP_KEYS),
            operation("mapValues", |maps: &mut S, pass, i| {
                maps.sum(pass.key(i), |_, value| value.to_bits())
            })
            .per_entry(MAP_KEYS),
            // Flink's benchmark asks for the entries twice and reads them once; so do all here.
            operation("mapEntries", |maps: &mut S, pass, i| {
                maps.begin_reading(pass.key(i))?;
                maps.sum(pass.key(i), both)
            })
            .per_entry(MAP_KEYS),
            operation("mapIterator", |maps: &mut S, pass, i| maps.sum(pass.key(i), both))
                .per_entry(MAP_KEYS),
            operation("mapUpdate", |maps: &mut S, pass, i| {
                maps.put(pass.key(i), pass.map_key(i), pass.map_value(i)).map(|()| 0)
            })
            .writes(),
            operation("mapPutAll", |maps: &mut S, pass, i| {
                maps.put_all(pass.key(i), &pass.inputs.ten).map(|()| 0)
            })
            .writes(),
            operation("mapAdd", |maps: &mut S, pass, i| {
                maps.put(pass.new_key(i), pass.map_key(i), pass.map_value(i)).map(|()| 0)
            })
            .writes(),
            operation("mapRemove", |maps: &mut S, pass, i| {
                maps.remove(pass.key(i), pass.map_key(i)).map(|()| 0)
            })
            .writes(),
        ],
    }
}

/// The family with its contestants.
pub(crate) fn family(family: Family<'_>) -> Family<'_> {
    let family = family
        .weir(BASELINE_GROUPS, table, |store| store.map("mapState"))
        .raw("hashbrown of BTreeMap", table, HashMap::new)
        .by_bytes(table);
    #[cfg(feature = "rocks")]
    let family = family.raw_rocksdb(table, Layout::Maps);
    family.flink(BASELINE_GROUPS)
}
