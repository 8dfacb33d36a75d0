//! Workload W1: one thread, every access through the object-safe interface.
//!
//! Each access is measured twice. *Chained*: which key is next depends on the answer before, so one
//! key is in flight, as in an operator that handles record after record. *Pipelined*: the keys are
//! known beforehand, so the processor overlaps the cache misses of as many accesses as fit into its
//! window; that favours the raw map, whose access is a tenth of the instructions.

use std::cell::RefCell;

use hashbrown::HashMap;
use weir_backend_heap::HeapBackendFactory;
use weir_state_api::{KeyedStore, Result, ValueState};

use crate::measure::{Contestant, Recorder};
use crate::shuffle::shuffled;

/// A map from `i64` to `i64`, accessed one key after the other.
trait Map {
    const NAME: &'static str;
    fn get(&mut self, key: i64) -> Result<Option<i64>>;
    fn set(&mut self, key: i64, value: i64) -> Result<()>;
    /// Adds to the value, returns the new one.
    fn add(&mut self, key: i64, by: i64) -> Result<i64>;
}

impl Map for HashMap<i64, i64> {
    const NAME: &'static str = "hashbrown";

    #[inline]
    fn get(&mut self, key: i64) -> Result<Option<i64>> {
        Ok(HashMap::get(self, &key).copied())
    }

    #[inline]
    fn set(&mut self, key: i64, value: i64) -> Result<()> {
        self.insert(key, value);
        Ok(())
    }

    #[inline]
    fn add(&mut self, key: i64, by: i64) -> Result<i64> {
        let value = self.entry(key).or_insert(0);
        *value = value.wrapping_add(by);
        Ok(*value)
    }
}

struct Heap {
    store: KeyedStore<i64>,
    value: ValueState<i64>,
}

impl Map for Heap {
    const NAME: &'static str = "weir heap";

    #[inline]
    fn get(&mut self, key: i64) -> Result<Option<i64>> {
        self.store.set_key(&key)?;
        self.value.get(&mut self.store).wait()
    }

    #[inline]
    fn set(&mut self, key: i64, value: i64) -> Result<()> {
        self.store.set_key(&key)?;
        self.value.set(&mut self.store, &value)
    }

    #[inline]
    fn add(&mut self, key: i64, by: i64) -> Result<i64> {
        self.store.set_key(&key)?;
        self.value.update(&mut self.store, |old| old.unwrap_or(0).wrapping_add(by)).wait()
    }
}

/// Keys in the order they are accessed, and values to set.
struct Accesses {
    keys: Vec<i64>,
    values: Vec<i64>,
}

impl Accesses {
    fn get_pipelined(&self, map: &mut impl Map) -> Result<u64> {
        self.keys.iter().try_fold(0, |sum, &key| Ok(add(sum, map.get(key)?)))
    }

    fn get_chained(&self, map: &mut impl Map) -> Result<u64> {
        self.chained(|key| map.get(key))
    }

    fn set_pipelined(&self, map: &mut impl Map) -> Result<u64> {
        for (&key, &value) in self.keys.iter().zip(&self.values) {
            map.set(key, value)?;
        }
        Ok(self.keys.len() as u64)
    }

    fn update_pipelined(&self, map: &mut impl Map) -> Result<u64> {
        self.keys.iter().try_fold(0, |sum, &key| Ok(add(sum, Some(map.add(key, 1)?))))
    }

    fn update_chained(&self, map: &mut impl Map) -> Result<u64> {
        self.chained(|key| map.add(key, 1).map(Some))
    }

    fn chained(&self, mut access: impl FnMut(i64) -> Result<Option<i64>>) -> Result<u64> {
        let (mut index, mut sum) = (0, 0);
        for _ in 0..self.keys.len() {
            let answer = access(self.keys[index])?;
            sum = add(sum, answer);
            // No value reaches 2^62, so this adds one; the processor cannot know.
            let next = index + 1 + (answer.unwrap_or(0) as u64 >> 62) as usize;
            index = if next < self.keys.len() { next } else { 0 };
        }
        Ok(sum)
    }
}

fn add(sum: u64, value: Option<i64>) -> u64 {
    sum.wrapping_mul(31).wrapping_add(value.unwrap_or(-1) as u64)
}

/// Value states with `i64` keys and values against a raw `hashbrown` map of the same.
pub(crate) fn run(recorder: &mut Recorder, keys: i64) -> Result<()> {
    let accesses = Accesses { keys: shuffled(keys, 42), values: shuffled(2 * keys, 7) };
    let mut store = KeyedStore::open_in_memory(&HeapBackendFactory::default())?;
    let value = store.value("value")?;
    let mut raw: HashMap<i64, i64> = HashMap::new();
    let mut heap = Heap { store, value };
    accesses.set_pipelined(&mut raw)?;
    accesses.set_pipelined(&mut heap)?;
    let (raw, heap) = (RefCell::new(raw), RefCell::new(heap));

    macro_rules! compare {
        ($workload:literal, $access:ident) => {
            recorder.compare(
                "micro",
                $workload,
                keys as u64,
                vec![
                    contestant(&raw, |map| accesses.$access(map)),
                    contestant(&heap, |map| accesses.$access(map)),
                ],
            )?;
        };
    }
    compare!("get, chained", get_chained);
    compare!("get, pipelined", get_pipelined);
    compare!("set, pipelined", set_pipelined);
    compare!("update, chained", update_chained);
    compare!("update, pipelined", update_pipelined);
    Ok(())
}

fn contestant<'a, M: Map>(
    map: &'a RefCell<M>,
    access: impl Fn(&mut M) -> Result<u64> + 'a,
) -> Contestant<'a> {
    Contestant { name: M::NAME, round: Box::new(move || access(&mut map.borrow_mut())) }
}
