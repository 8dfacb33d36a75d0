//! One value per key: `i64` to `i64`.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use weir_state_api::{Result, ValueState};

use super::contestant::Weir;
use super::family::{BASELINE_GROUPS, DEFAULT_GROUPS, Family};
use super::inputs::{Inputs, number};
use super::operation::{ABSENT, Table, chained, mix, operation};
#[cfg(feature = "rocks")]
use crate::peers::rocksdb::Layout;

/// A map from `i64` to `i64`.
pub(crate) trait Values {
    fn get(&mut self, key: i64) -> Result<Option<i64>>;
    fn set(&mut self, key: i64, value: i64) -> Result<()>;
    /// Adds one to the value in one access, returns the new one.
    fn increment(&mut self, key: i64) -> Result<i64>;
}

/// A raw map; the two have the same functions, and no trait for them.
macro_rules! values_of {
    ($map:ident) => {
        impl Values for $map<i64, i64> {
            #[inline(always)]
            fn get(&mut self, key: i64) -> Result<Option<i64>> {
                Ok($map::get(self, &key).copied())
            }

            #[inline(always)]
            fn set(&mut self, key: i64, value: i64) -> Result<()> {
                self.insert(key, value);
                Ok(())
            }

            #[inline(always)]
            fn increment(&mut self, key: i64) -> Result<i64> {
                let value = self.entry(key).or_insert(0);
                *value = value.wrapping_add(1);
                Ok(*value)
            }
        }
    };
}

values_of!(HashMap);
values_of!(BTreeMap);

impl Values for Weir<ValueState<i64>> {
    #[inline(always)]
    fn get(&mut self, key: i64) -> Result<Option<i64>> {
        self.instance.store.set_key(&key)?;
        self.state.get(&mut self.instance.store).wait()
    }

    #[inline(always)]
    fn set(&mut self, key: i64, value: i64) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.set(&mut self.instance.store, &value)
    }

    #[inline(always)]
    fn increment(&mut self, key: i64) -> Result<i64> {
        let store = &mut self.instance.store;
        store.set_key(&key)?;
        self.state.update(store, |old| old.unwrap_or(0).wrapping_add(1)).wait()
    }
}

fn get(values: &mut impl Values, key: i64) -> Result<u64> {
    Ok(values.get(key)?.unwrap_or(ABSENT) as u64)
}

/// The operations.
pub(crate) fn table<S: Values + 'static>() -> Table<S> {
    Table {
        fill: |values, inputs| {
            (0..inputs.keys() as i64).try_for_each(|key| values.set(key, number(key as u64)))
        },
        digest: |values, inputs| digest(values, inputs),
        calls: Inputs::keys,
        operations: vec![
            operation("valueGet", |values: &mut S, pass, i| get(values, pass.key(i))),
            chained("valueGet, chained", |values: &mut S, pass, i| get(values, pass.key(i))),
            operation("valueUpdate", |values: &mut S, pass, i| {
                values.set(pass.key(i), pass.value(i)).map(|()| 0)
            })
            .writes(),
            operation("valueReadModifyWrite", |values: &mut S, pass, i| {
                values.increment(pass.key(i)).map(|new| new as u64)
            })
            .writes(),
            chained("valueReadModifyWrite, chained", |values: &mut S, pass, i| {
                values.increment(pass.key(i)).map(|new| new as u64)
            })
            .writes(),
            operation("valueAdd", |values: &mut S, pass, i| {
                values.set(pass.new_key(i), pass.value(i)).map(|()| 0)
            })
            .writes(),
        ],
    }
}

fn digest(values: &mut impl Values, inputs: &Inputs) -> Result<u64> {
    inputs.all_keys().try_fold(0, |sum, key| Ok(mix(sum, get(values, key)?)))
}

/// The family with its contestants.
pub(crate) fn family(family: Family<'_>) -> Family<'_> {
    let family = family
        .weir(BASELINE_GROUPS, table, |store| store.value("kvState"))
        .weir_named(", 128 groups", DEFAULT_GROUPS, table, |store| store.value("kvState"))
        .raw("hashbrown", table, HashMap::new)
        .raw("BTreeMap", table, BTreeMap::new)
        .by_bytes(table);
    #[cfg(feature = "rocks")]
    let family = family.raw_rocksdb(table, Layout::Points);
    family.flink(BASELINE_GROUPS)
}
