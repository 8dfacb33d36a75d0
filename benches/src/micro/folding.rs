//! States that fold what is added: a sum (reducing), a sum and a count (aggregating).

use hashbrown::HashMap;
use weir_state_api::{Aggregate, AggregatingState, BoxError, ReducingState, Result};

use super::contestant::Weir;
use super::family::{BASELINE_GROUPS, Family};
use super::inputs::Inputs;
use super::operation::{ABSENT, Table, mix, operation};
#[cfg(feature = "rocks")]
use crate::peers::rocksdb::Layout;

/// An accumulator for each `i64`.
pub(crate) trait Folds {
    fn add(&mut self, key: i64, value: i64) -> Result<()>;
    fn get(&mut self, key: i64) -> Result<Option<i64>>;
}

impl Folds for Weir<ReducingState<i64>> {
    fn add(&mut self, key: i64, value: i64) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.add(&mut self.instance.store, value).wait().map(drop)
    }

    fn get(&mut self, key: i64) -> Result<Option<i64>> {
        self.instance.store.set_key(&key)?;
        self.state.get(&mut self.instance.store).wait()
    }
}

impl Folds for Weir<AggregatingState<Mean>> {
    fn add(&mut self, key: i64, value: i64) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.add(&mut self.instance.store, value).wait().map(drop)
    }

    fn get(&mut self, key: i64) -> Result<Option<i64>> {
        self.instance.store.set_key(&key)?;
        self.state.get(&mut self.instance.store).wait()
    }
}

/// The mean of what is added, as a sum and a count.
struct Mean;

impl Aggregate for Mean {
    type Input = i64;
    type Accumulator = (i64, i64);
    type Output = i64;

    fn create(&self) -> (i64, i64) {
        (0, 0)
    }

    fn add(&self, accumulator: &mut (i64, i64), input: i64) -> Result<(), BoxError> {
        *accumulator = (accumulator.0.wrapping_add(input), accumulator.1 + 1);
        Ok(())
    }

    fn merge(&self, a: (i64, i64), b: (i64, i64)) -> Result<(i64, i64), BoxError> {
        Ok((a.0.wrapping_add(b.0), a.1 + b.1))
    }

    fn output(&self, &(sum, count): &(i64, i64)) -> i64 {
        sum / count
    }
}

impl Folds for HashMap<i64, i64> {
    fn add(&mut self, key: i64, value: i64) -> Result<()> {
        let sum = self.entry(key).or_insert(0);
        *sum = sum.wrapping_add(value);
        Ok(())
    }

    fn get(&mut self, key: i64) -> Result<Option<i64>> {
        Ok(HashMap::get(self, &key).copied())
    }
}

impl Folds for HashMap<i64, (i64, i64)> {
    fn add(&mut self, key: i64, value: i64) -> Result<()> {
        let (sum, count) = self.entry(key).or_insert((0, 0));
        (*sum, *count) = (sum.wrapping_add(value), *count + 1);
        Ok(())
    }

    fn get(&mut self, key: i64) -> Result<Option<i64>> {
        Ok(HashMap::get(self, &key).map(|(sum, count)| sum / count))
    }
}

fn get(folds: &mut impl Folds, key: i64) -> Result<u64> {
    Ok(folds.get(key)?.unwrap_or(ABSENT) as u64)
}

fn table<S: Folds + 'static>(get_name: &'static str, add_name: &'static str) -> Table<S> {
    Table {
        fill: |folds, inputs| (0..inputs.keys() as i64).try_for_each(|key| folds.add(key, key)),
        digest: |folds, inputs| {
            inputs.all_keys().try_fold(0, |sum, key| Ok(mix(sum, get(folds, key)?)))
        },
        calls: Inputs::keys,
        operations: vec![
            operation(get_name, |folds: &mut S, pass, i| get(folds, pass.key(i))),
            operation(add_name, |folds: &mut S, pass, i| {
                folds.add(pass.key(i), pass.value(i)).map(|()| 0)
            })
            .writes(),
        ],
    }
}

fn reducing<S: Folds + 'static>() -> Table<S> {
    table("reducingGet", "reducingAdd")
}

fn aggregating<S: Folds + 'static>() -> Table<S> {
    table("aggregatingGet", "aggregatingAdd")
}

/// Reducing state with its contestants.
pub(crate) fn reducing_family(family: Family<'_>) -> Family<'_> {
    let family = family
        .weir(BASELINE_GROUPS, reducing, |store| {
            store.reducing("sum", |a: i64, b| Ok(a.wrapping_add(b)))
        })
        .raw::<HashMap<i64, i64>>("hashbrown", reducing, HashMap::new);
    #[cfg(feature = "rocks")]
    let family = family.raw_rocksdb(reducing, Layout::Points);
    family.flink(BASELINE_GROUPS)
}

/// Aggregating state with its contestants.
pub(crate) fn aggregating_family(family: Family<'_>) -> Family<'_> {
    family
        .weir(BASELINE_GROUPS, aggregating, |store| store.aggregating("mean", Mean))
        .raw::<HashMap<i64, (i64, i64)>>("hashbrown", aggregating, HashMap::new)
        .flink(BASELINE_GROUPS)
}
