//! A list of `i64` per key, set up with one element each.

use hashbrown::HashMap;
use weir_state_api::{ListState, Result};

use super::contestant::Weir;
use super::family::{BASELINE_GROUPS, Family};
use super::inputs::{Inputs, number};
use super::operation::{Table, mix, operation};
#[cfg(feature = "rocks")]
use crate::peers::rocksdb::Layout;

/// A list of `i64` for each `i64`.
pub(crate) trait Lists {
    fn add_all(&mut self, key: i64, elements: &[i64]) -> Result<()>;
    fn set(&mut self, key: i64, elements: &[i64]) -> Result<()>;
    fn clear(&mut self, key: i64) -> Result<()>;
    /// Asks for the list and does not look at it; whether there is one.
    fn get(&mut self, key: i64) -> Result<bool>;
    /// Folds all elements.
    fn fold(&mut self, key: i64, f: impl Fn(u64, i64) -> u64) -> Result<u64>;

    /// Appends one element.
    fn add(&mut self, key: i64, element: i64) -> Result<()>;
}

impl Lists for HashMap<i64, Vec<i64>> {
    fn add_all(&mut self, key: i64, elements: &[i64]) -> Result<()> {
        self.entry(key).or_default().extend_from_slice(elements);
        Ok(())
    }

    fn set(&mut self, key: i64, elements: &[i64]) -> Result<()> {
        self.insert(key, elements.to_vec());
        Ok(())
    }

    fn clear(&mut self, key: i64) -> Result<()> {
        self.remove(&key);
        Ok(())
    }

    fn get(&mut self, key: i64) -> Result<bool> {
        Ok(HashMap::get(self, &key).is_some())
    }

    fn fold(&mut self, key: i64, f: impl Fn(u64, i64) -> u64) -> Result<u64> {
        let list = HashMap::get(self, &key).map(Vec::as_slice).unwrap_or_default();
        Ok(list.iter().fold(0, |sum, &element| f(sum, element)))
    }

    fn add(&mut self, key: i64, element: i64) -> Result<()> {
        self.entry(key).or_default().push(element);
        Ok(())
    }
}

impl Lists for Weir<ListState<i64>> {
    fn add_all(&mut self, key: i64, elements: &[i64]) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.add_all(&mut self.instance.store, elements)
    }

    fn set(&mut self, key: i64, elements: &[i64]) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.set(&mut self.instance.store, elements)
    }

    fn clear(&mut self, key: i64) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.clear(&mut self.instance.store)
    }

    fn get(&mut self, key: i64) -> Result<bool> {
        self.instance.store.set_key(&key)?;
        Ok(!self.state.get(&mut self.instance.store).wait()?.is_empty())
    }

    fn fold(&mut self, key: i64, f: impl Fn(u64, i64) -> u64) -> Result<u64> {
        self.instance.store.set_key(&key)?;
        let list = self.state.get(&mut self.instance.store).wait()?;
        Ok(list.into_iter().fold(0, f))
    }

    fn add(&mut self, key: i64, element: i64) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.add(&mut self.instance.store, &element)
    }
}

fn fill<S: Lists>(lists: &mut S, inputs: &Inputs) -> Result<()> {
    (0..inputs.keys() as i64).try_for_each(|key| lists.add(key, number(key as u64)))
}

/// All lists have one element again.
fn refill<S: Lists>(lists: &mut S, inputs: &Inputs) -> Result<()> {
    (0..inputs.keys() as i64).try_for_each(|key| lists.clear(key))?;
    fill(lists, inputs)
}

/// The operations.
pub(crate) fn table<S: Lists + 'static>() -> Table<S> {
    Table {
        fill: |lists, inputs| fill(lists, inputs),
        digest: |lists, inputs| {
            inputs.all_keys().try_fold(0, |sum, key| {
                Ok(mix(sum, lists.fold(key, |sum, element| mix(sum, element as u64))?))
            })
        },
        calls: Inputs::keys,
        operations: vec![
            operation("listGet", |lists: &mut S, pass, i| lists.get(pass.key(i)).map(u64::from)),
            operation("listGetAndIterate", |lists: &mut S, pass, i| {
                lists.fold(pass.key(i), |sum, element| sum.wrapping_add(element as u64))
            }),
            operation("listUpdate", |lists: &mut S, pass, i| {
                lists.set(pass.key(i), &[pass.value(i)]).map(|()| 0)
            })
            .writes(),
            operation("listAdd", |lists: &mut S, pass, i| {
                lists.set(pass.new_key(i), &[pass.value(i)]).map(|()| 0)
            })
            .writes(),
            operation("listAppend", |lists: &mut S, pass, i| {
                lists.add(pass.key(i), pass.value(i)).map(|()| 0)
            })
            .before_round(|lists, inputs| refill(lists, inputs)),
            operation("listAddAll", |lists: &mut S, pass, i| {
                lists.add_all(pass.key(i), &pass.inputs.hundred).map(|()| 0)
            })
            .before_round(|lists, inputs| refill(lists, inputs)),
        ],
    }
}

/// The family with its contestants.
pub(crate) fn family(family: Family<'_>) -> Family<'_> {
    let family = family.weir(BASELINE_GROUPS, table, |store| store.list("listState")).raw(
        "hashbrown of Vec",
        table,
        HashMap::new,
    );
    #[cfg(feature = "rocks")]
    let family = family.raw_rocksdb(table, Layout::Points);
    family.flink(BASELINE_GROUPS)
}
