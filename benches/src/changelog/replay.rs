//! A restore from a materialization and the log behind it, against the wrapped backend's own restore of
//! the same materialization. What the log adds is the replay.

use std::time::{Duration, Instant};

use weir_state_api::{BackendFactory, Error, ErrorKind, Result, SnapshotHandle};

use super::{Bench, Filled, SUITE, name_of};
use crate::backends::Backend;
use crate::interrupt;
use crate::measure::{Recorder, millis};
use crate::stage::{VALUE_LEN, value_of};
use crate::store_model::StoreModel;

/// A replay this fast is asked for, in changes a second.
const ASKED: f64 = 500_000.0;
/// At most: each reads the state twice.
const ROUNDS: usize = 3;

pub(super) fn run(
    recorder: &mut Recorder,
    backend: Backend,
    (bytes, changes): (u64, u64),
) -> Result<()> {
    let bench = Bench::new(backend, VALUE_LEN)?;
    let Filled { mut store, value, order } = bench.filled(bytes)?;
    let state = bench.checkpoint(&mut store, 1)?.handle;
    let mut left = changes as usize;
    let mut round = 0;
    while left > 0 {
        round += 1;
        let keys = &order[..left.min(order.len())];
        bench.write(&mut store, &value, keys, round)?;
        left -= keys.len();
    }
    let both = bench.checkpoint(&mut store, 2)?.handle;
    drop(store);
    bench.move_store(StoreModel::ObjectStore);
    let (mut alone, mut whole, mut rates, mut asked) = (vec![], vec![], vec![], vec![]);
    for _ in (0..recorder.rounds().min(ROUNDS)).take_while(|_| !interrupt::requested()) {
        let own = restore(&bench, &bench.logged, &state, &order, 0)?;
        let last = changes.div_ceil(order.len() as u64);
        let with = restore(&bench, &bench.logged, &both, &order, last)?;
        let replayed = with.saturating_sub(own).as_secs_f64();
        alone.push(millis(own));
        whole.push(millis(with));
        rates.push(changes as f64 / replayed / 1e6);
        asked.push(with.as_secs_f64() / (1.5 * own.as_secs_f64() + changes as f64 / ASKED));
    }
    if alone.is_empty() {
        return Ok(());
    }
    let workload = format!("{} MB, {changes} changes", bytes / 1_000_000);
    let name = name_of(backend);
    recorder.add(SUITE, &workload, &backend.to_string(), "restored in", "ms", alone);
    recorder.add(SUITE, &workload, &name, "restored in", "ms", whole);
    recorder.add(SUITE, &workload, &name, "replayed", "M/s", rates);
    recorder.add(SUITE, &workload, &name, "of what is asked", "x", asked);
    Ok(())
}

/// How long it takes to the first correct read.
fn restore(
    bench: &Bench,
    factory: &dyn BackendFactory,
    handle: &SnapshotHandle,
    order: &[i64],
    round: u64,
) -> Result<Duration> {
    let begun = Instant::now();
    let mut store = bench.open(factory, (0, 1), vec![handle.clone()])?;
    let took = begun.elapsed();
    let value = store.value::<Vec<u8>>("value")?;
    let mut expected = Vec::new();
    // The first key changed in each round.
    let Some(key) = order.first() else { return Ok(took) };
    value_of(*key, round, &mut expected);
    store.set_key(key)?;
    if value.get(&mut store).wait()? == Some(expected) {
        return Ok(took);
    }
    Err(Error::new(ErrorKind::Corrupt, "the restored state is another one"))
}
