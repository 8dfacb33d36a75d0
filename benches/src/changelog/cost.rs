//! What a log costs an update (W1): the same updates on the wrapped backend alone and with a log, one
//! after the other in each round, on the task's thread; and how long the log gets.

use weir_state_api::{BackendFactory, KeyedStore, Result, ValueState};

use super::{Bench, SUITE, name_of};
use crate::backends::Backend;
use crate::measure::{Recorder, timed};
use crate::shuffle::{Random, shuffled};
use crate::stage::VALUE_LEN;

/// Bytes of an `i64` key and an `i64` value.
const KEY_AND_VALUE: f64 = 16.0;
/// Random bytes that values are cut from: more than a batch of the log has.
const VALUES: usize = 1 << 20;

/// An instance with both kinds of values.
struct Instance {
    store: KeyedStore<i64>,
    small: ValueState<i64>,
    large: ValueState<Vec<u8>>,
    values: Vec<u8>,
    round: usize,
}

pub(super) fn run(recorder: &mut Recorder, backend: Backend, keys: i64) -> Result<()> {
    let bench = Bench::new(backend, VALUE_LEN)?;
    let order = shuffled(keys, 42);
    let mut plain = Instance::open(&bench, &*bench.plain, &order)?;
    let mut logged = Instance::open(&bench, &bench.logged, &order)?;
    let workload = format!("{keys} keys");
    let operations: [(&str, Operation); 2] =
        [("i64: read, add, write", Instance::update), ("100 bytes: set", Instance::set)];
    for (operation, apply) in operations {
        let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        // The first round warms up.
        for round in 0..=recorder.rounds() {
            // Who comes first changes.
            let first =
                if round % 2 == 0 { Some(timed(|| apply(&mut plain, &order))?) } else { None };
            let ((), beside) = timed(|| apply(&mut logged, &order))?;
            let ((), alone) = match first {
                Some(first) => first,
                None => timed(|| apply(&mut plain, &order))?,
            };
            if round > 0 {
                without.push(alone.as_nanos() as f64 / keys as f64);
                with.push(beside.as_nanos() as f64 / keys as f64);
                ratios.push(beside.as_secs_f64() / alone.as_secs_f64());
            }
        }
        let workload = format!("{operation}, {workload}");
        recorder.add(SUITE, &workload, &backend.to_string(), "an update", "ns", without);
        recorder.add(SUITE, &workload, &name_of(backend), "an update", "ns", with);
        recorder.add(SUITE, &workload, &name_of(backend), "with/without log", "x", ratios);
    }
    // What was collected before is handed over.
    bench.checkpoint(&mut logged.store, 1)?;
    let before = bench.control().metrics();
    logged.update(&order)?;
    bench.checkpoint(&mut logged.store, 2)?;
    let after = bench.control().metrics();
    let changes = (after.changes - before.changes) as f64;
    let bytes = (after.change_bytes - before.change_bytes) as f64 / changes;
    let mut add = |metric, unit, figure| {
        recorder.add(SUITE, &workload, &name_of(backend), metric, unit, vec![figure]);
    };
    add("log/key and value", "x", bytes / KEY_AND_VALUE);
    let stored = (after.object_bytes - before.object_bytes) as f64;
    add("stored per change", "bytes", stored / changes);
    add("stalls", "", after.stalls as f64);
    Ok(())
}

type Operation = fn(&mut Instance, &[i64]) -> Result<()>;

impl Instance {
    fn open(bench: &Bench, factory: &dyn BackendFactory, keys: &[i64]) -> Result<Self> {
        let mut store = bench.open(factory, (0, 1), Vec::new())?;
        let small = store.value::<i64>("small")?;
        let large = store.value::<Vec<u8>>("large")?;
        let mut random = Random(42);
        let values = (0..VALUES / 8).flat_map(|_| random.next().to_le_bytes()).collect();
        let mut instance = Instance { store, small, large, values, round: 0 };
        instance.update(keys)?;
        instance.set(keys)?;
        Ok(instance)
    }

    fn update(&mut self, keys: &[i64]) -> Result<()> {
        for key in keys {
            self.store.set_key(key)?;
            let add = |old: Option<i64>| old.unwrap_or(0).wrapping_add(*key);
            self.small.update(&mut self.store, add).wait()?;
        }
        Ok(())
    }

    /// Values that do not compress and cost nothing to make.
    fn set(&mut self, keys: &[i64]) -> Result<()> {
        self.round += 1;
        let mut value = Vec::with_capacity(VALUE_LEN);
        for (number, key) in keys.iter().enumerate() {
            let from = (self.round + number) * (VALUE_LEN + 1) % (VALUES - VALUE_LEN);
            value.clear();
            value.extend_from_slice(&self.values[from..from + VALUE_LEN]);
            self.store.set_key(key)?;
            self.large.set(&mut self.store, &value)?;
        }
        Ok(())
    }
}
