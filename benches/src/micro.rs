//! Workload W1: one thread, every access through the object-safe interface.
//!
//! Each access is measured twice. *Chained*: which key is next depends on the answer before, so one
//! key is in flight, as in an operator that handles record after record. *Pipelined*: the keys are
//! known beforehand, so the processor overlaps the cache misses of as many accesses as fit into its
//! window; that favours the raw map, whose access is a tenth of the instructions.

use std::cell::RefCell;

use hashbrown::HashMap;
use weir_backend_heap::HeapBackendFactory;
use weir_state_api::{KeyedStore, Result};

use crate::measure::{Contestant, Recorder};
use crate::shuffle::shuffled;

const HASHBROWN: &str = "hashbrown";
const HEAP: &str = "weir heap";

/// Value states with `i64` keys and values against a raw `hashbrown` map of the same.
pub(crate) fn run(recorder: &mut Recorder, keys: i64) -> Result<()> {
    let order = shuffled(keys, 42);
    let values = shuffled(2 * keys, 7);
    let operations = keys as u64;

    let mut raw: HashMap<i64, i64> = HashMap::new();
    let mut store = KeyedStore::<i64>::open_in_memory(&HeapBackendFactory::default())?;
    let value = store.value::<i64>("value")?;
    for (&key, &initial) in order.iter().zip(&values) {
        raw.insert(key, initial);
        store.set_key(&key)?;
        value.set(&mut store, &initial)?;
    }
    let raw = RefCell::new(raw);
    let store = RefCell::new(store);

    recorder.compare(
        "micro",
        "get, pipelined",
        operations,
        vec![
            contestant(HASHBROWN, || {
                let raw = raw.borrow();
                Ok(order.iter().fold(0, |sum, key| add(sum, raw.get(key).copied())))
            }),
            contestant(HEAP, || {
                let store = &mut *store.borrow_mut();
                let mut sum = 0;
                for key in &order {
                    store.set_key(key)?;
                    sum = add(sum, value.get(store).wait()?);
                }
                Ok(sum)
            }),
        ],
    )?;
    recorder.compare(
        "micro",
        "get, chained",
        operations,
        vec![
            contestant(HASHBROWN, || {
                let raw = raw.borrow();
                let mut index = 0;
                let mut sum = 0;
                for _ in 0..order.len() {
                    let found = raw.get(&order[index]).copied();
                    sum = add(sum, found);
                    index = next_index(index, found, order.len());
                }
                Ok(sum)
            }),
            contestant(HEAP, || {
                let store = &mut *store.borrow_mut();
                let mut index = 0;
                let mut sum = 0;
                for _ in 0..order.len() {
                    store.set_key(&order[index])?;
                    let found = value.get(store).wait()?;
                    sum = add(sum, found);
                    index = next_index(index, found, order.len());
                }
                Ok(sum)
            }),
        ],
    )?;
    recorder.compare(
        "micro",
        "set, pipelined",
        operations,
        vec![
            contestant(HASHBROWN, || {
                let raw = &mut *raw.borrow_mut();
                for (&key, &new) in order.iter().zip(&values) {
                    raw.insert(key, new);
                }
                Ok(raw.len() as u64)
            }),
            contestant(HEAP, || {
                let store = &mut *store.borrow_mut();
                for (key, new) in order.iter().zip(&values) {
                    store.set_key(key)?;
                    value.set(store, new)?;
                }
                Ok(store.statistics().entries)
            }),
        ],
    )?;
    recorder.compare(
        "micro",
        "update, pipelined",
        operations,
        vec![
            contestant(HASHBROWN, || {
                let raw = &mut *raw.borrow_mut();
                let mut sum = 0;
                for &key in &order {
                    let entry = raw.entry(key).or_insert(0);
                    *entry = entry.wrapping_add(key);
                    sum = add(sum, Some(*entry));
                }
                Ok(sum)
            }),
            contestant(HEAP, || {
                let store = &mut *store.borrow_mut();
                let mut sum = 0;
                for &key in &order {
                    store.set_key(&key)?;
                    let new =
                        value.update(store, |old| old.unwrap_or(0).wrapping_add(key)).wait()?;
                    sum = add(sum, Some(new));
                }
                Ok(sum)
            }),
        ],
    )?;
    recorder.compare(
        "micro",
        "update, chained",
        operations,
        vec![
            contestant(HASHBROWN, || {
                let raw = &mut *raw.borrow_mut();
                let mut index = 0;
                let mut sum = 0;
                for _ in 0..order.len() {
                    let entry = raw.entry(order[index]).or_insert(0);
                    *entry = entry.wrapping_add(1);
                    sum = add(sum, Some(*entry));
                    index = next_index(index, Some(*entry), order.len());
                }
                Ok(sum)
            }),
            contestant(HEAP, || {
                let store = &mut *store.borrow_mut();
                let mut index = 0;
                let mut sum = 0;
                for _ in 0..order.len() {
                    store.set_key(&order[index])?;
                    let new = value.update(store, |old| old.unwrap_or(0).wrapping_add(1)).wait()?;
                    sum = add(sum, Some(new));
                    index = next_index(index, Some(new), order.len());
                }
                Ok(sum)
            }),
        ],
    )
}

fn contestant<'a>(name: &'a str, round: impl FnMut() -> Result<u64> + 'a) -> Contestant<'a> {
    Contestant { name, round: Box::new(round) }
}

fn add(sum: u64, value: Option<i64>) -> u64 {
    sum.wrapping_mul(31).wrapping_add(value.unwrap_or(-1) as u64)
}

/// The next position, which cannot be known before the value is: no two accesses overlap.
fn next_index(index: usize, found: Option<i64>, len: usize) -> usize {
    // No value reaches 2^62, so this adds one; the processor cannot know.
    let next = index + 1 + (found.unwrap_or(0) as u64 >> 62) as usize;
    if next < len { next } else { 0 }
}
