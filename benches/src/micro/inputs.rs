//! The constants of workload W1: the same keys and values, in the same order, for every contestant.
//!
//! They are those of Apache Flink's own benchmarks of state backends. The harness for Flink
//! (`peers/flink`) makes the same numbers with the same generator, so that answers can be compared.

use crate::shuffle::{Random, shuffled};

/// Entries of each map at set-up.
pub(crate) const MAP_KEYS: usize = 10;
/// Elements that one `listAddAll` appends.
pub(crate) const LIST_VALUES: usize = 100;

/// Everything that is random about the workload.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// The keys that have state: `0..n`, shuffled.
    pub(crate) setup_keys: Vec<i64>,
    /// As many keys that have none: `n..2n`, shuffled.
    pub(crate) new_keys: Vec<i64>,
    /// `0..10`, shuffled.
    pub(crate) map_keys: Vec<i64>,
    /// `0..2n`, shuffled: values to write, and times of timers.
    pub(crate) values: Vec<i64>,
    /// `0..2n`, shuffled otherwise: the keys of timers in the order they are deleted.
    pub(crate) timers_to_delete: Vec<i64>,
    /// Ten values of maps.
    pub(crate) map_values: Vec<f64>,
    /// What one `mapPutAll` sets.
    pub(crate) ten: Vec<(i64, f64)>,
    /// What one `listAddAll` appends.
    pub(crate) hundred: Vec<i64>,
}

impl Inputs {
    /// The workload with `keys` keys set up.
    pub(crate) fn new(keys: usize) -> Self {
        let keys = keys as i64;
        let map_keys = shuffled(MAP_KEYS as i64, 44);
        Inputs {
            setup_keys: shuffled(keys, 42),
            new_keys: shuffled(keys, 43).into_iter().map(|key| keys + key).collect(),
            ten: map_keys.iter().zip(246..).map(|(&key, seed)| (key, fraction(seed))).collect(),
            map_keys,
            values: shuffled(2 * keys, 45),
            timers_to_delete: shuffled(2 * keys, 49),
            map_values: (0..MAP_KEYS as u64).map(|index| fraction(50 + index)).collect(),
            hundred: (0..LIST_VALUES as u64).map(|index| number(146 + index)).collect(),
        }
    }

    /// The number of keys set up.
    pub(crate) fn keys(&self) -> usize {
        self.setup_keys.len()
    }

    /// All keys that may have state, in order.
    pub(crate) fn all_keys(&self) -> impl Iterator<Item = i64> + use<> {
        0..2 * self.keys() as i64
    }

    /// The entries that a map is set up with.
    pub(crate) fn map_entries(&self, key: i64) -> impl Iterator<Item = (i64, f64)> + '_ {
        let first = key as u64 * MAP_KEYS as u64;
        self.map_keys.iter().zip(first..).map(|(&map_key, seed)| (map_key, fraction(seed)))
    }
}

/// A number that depends on `seed` alone.
pub(crate) fn number(seed: u64) -> i64 {
    Random(seed).next() as i64
}

/// A number in `0.0..1.0` that depends on `seed` alone.
pub(crate) fn fraction(seed: u64) -> f64 {
    (Random(seed).next() >> 11) as f64 / (1u64 << 53) as f64
}

/// The part of the workload that one round is: each key once. One index runs through all rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) inputs: &'a Inputs,
    /// Values come from here on: the first half in even rounds, the second in odd ones.
    first_value: usize,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(inputs: &'a Inputs, round: usize) -> Self {
        Pass { inputs, first_value: round % 2 * inputs.keys() }
    }

    #[inline(always)]
    pub(crate) fn key(&self, index: usize) -> i64 {
        self.inputs.setup_keys[index]
    }

    #[inline(always)]
    pub(crate) fn new_key(&self, index: usize) -> i64 {
        self.inputs.new_keys[index]
    }

    #[inline(always)]
    pub(crate) fn value(&self, index: usize) -> i64 {
        self.inputs.values[self.first_value + index]
    }

    #[inline(always)]
    pub(crate) fn map_key(&self, index: usize) -> i64 {
        self.inputs.map_keys[index % MAP_KEYS]
    }

    #[inline(always)]
    pub(crate) fn map_value(&self, index: usize) -> f64 {
        self.inputs.map_values[index % MAP_KEYS]
    }
}
