//! A job with every kind of state, spread over all key groups.

use weir_state_api::{KeyRef, MaxParallelism, Native, Ordered, Result};

use super::folding::Join;
use crate::harness::{At, Contents, Harness, Store};

/// How many keys [`write`] writes: enough for most of the 128 key groups.
pub(super) const KEYS: u32 = 400;

/// Registers everything in each instance and writes all keys to their owners.
pub(super) fn write(stores: &mut [Store], round: u32) -> Result<()> {
    for store in stores {
        let value = store.namespaced::<u8>().value::<u32>("value")?;
        let list = store.list::<String>("list")?;
        let map = store.namespaced::<u8>().map_with::<i32, u32, _, _>("map", Ordered, Native)?;
        let sum = store.reducing("sum", |a: u64, b| Ok(a + b))?;
        let joined = store.aggregating("joined", Join)?;
        let timers = store.timers::<u8>("timers")?;
        let event = store.timers::<()>("event")?;
        for number in 0..KEYS {
            let key = format!("key {number}");
            if !owns(store, &key)? {
                continue;
            }
            store.at(&key)?;
            for namespace in 0..2 {
                value.at(&namespace)?.set(store, &(number + round * 1_000))?;
            }
            list.add_all(store, &[format!("{round}"), String::new(), format!("{number}")])?;
            let entries = if number == 7 { 300 } else { number % 5 };
            for entry in 0..entries {
                map.at(&1)?.put(store, &(entry as i32 - 2), &(round + number))?;
            }
            sum.add(store, u64::from(number)).wait()?;
            joined.add(store, format!("{round},")).wait()?;
            timers.register(store, i64::from(number % 11) + i64::from(round), &1)?;
            if number % 3 == round % 3 {
                value.at(&0)?.clear(store)?;
                event.register(store, -i64::from(number), &())?;
            }
        }
    }
    Ok(())
}

/// Overwrites, clears and deletes all over, as a task goes on after a snapshot.
pub(super) fn disturb(stores: &mut [Store]) -> Result<()> {
    write(stores, 50)?;
    for store in stores {
        let late = store.value::<u32>("late")?;
        let list = store.list::<String>("list")?;
        let map = store.namespaced::<u8>().map_with::<i32, u32, _, _>("map", Ordered, Native)?;
        let sum = store.reducing("sum", |a: u64, b| Ok(a + b))?;
        let timers = store.timers::<u8>("timers")?;
        for number in (0..KEYS).step_by(2) {
            let key = format!("key {number}");
            if owns(store, &key)? {
                late.set(store.at(&key)?, &1)?;
                list.clear(store)?;
                map.at(&1)?.clear(store)?;
                sum.clear(store)?;
                timers.delete(store, i64::from(number % 11), &1)?;
            }
        }
        for _ in 0..20 {
            store.poll_timer(&timers, 3).wait()?;
        }
    }
    Ok(())
}

fn owns(store: &Store, key: &str) -> Result<bool> {
    let mut bytes = Vec::new();
    weir_state_api::Codec::encode(&Ordered, &key.to_string(), &mut bytes)?;
    let key = KeyRef::new(&bytes, MaxParallelism::default())?;
    Ok(store.key_groups().contains(key.group()))
}

/// What [`write`] with these rounds leaves, read from an instance of its own.
pub(super) fn contents(h: &Harness<'_>, rounds: &[u32]) -> Result<Contents> {
    let mut store = [h.open()?];
    for &round in rounds {
        write(&mut store, round)?;
    }
    Contents::take_all(&mut store)
}
