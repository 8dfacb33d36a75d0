//! 32 subtasks of one process, ten checkpoints a second: how many objects that makes.

use std::time::{Duration, Instant};

use weir_state_api::{CheckpointId, Error, ErrorKind, Result, SnapshotRequest};

use super::{Bench, SUITE, name_of};
use crate::backends::Backend;
use crate::measure::Recorder;
use crate::stage::VALUE_LEN;
use crate::store_model::StoreModel;

const SUBTASKS: u16 = 32;
const INTERVAL: Duration = Duration::from_millis(100);

pub(super) fn run(recorder: &mut Recorder, backend: Backend, seconds: u64) -> Result<()> {
    let bench = Bench::new(backend, VALUE_LEN)?;
    bench.move_store(StoreModel::ObjectStore);
    let mut tasks = Vec::new();
    for subtask in 0..SUBTASKS {
        let mut store = bench.open(&bench.logged, (subtask, SUBTASKS), Vec::new())?;
        let value = store.value::<i64>("value")?;
        // The others are refused.
        let own: Vec<i64> = (0..).filter(|key| store.set_key(key).is_ok()).take(20).collect();
        tasks.push((store, value, own));
    }
    let before = bench.control().metrics().objects;
    let begun = Instant::now();
    for round in 1..=seconds * 10 {
        let mut snapshots = Vec::new();
        for (store, value, own) in &mut tasks {
            for key in own.iter() {
                store.set_key(key)?;
                value.update(store, |old| old.unwrap_or(0) + 1).wait()?;
            }
            let request = SnapshotRequest::checkpoint(CheckpointId(round), format!("chk-{round}"));
            snapshots.push(bench.tokio.spawn(store.snapshot(request)?.run()));
        }
        for snapshot in snapshots {
            let done = bench.tokio.block_on(snapshot);
            done.map_err(|error| {
                Error::new(ErrorKind::Closed, "a snapshot's task has failed").source(error)
            })??;
        }
        let next = begun + INTERVAL * round as u32;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let objects = bench.control().metrics().objects - before;
    let rate = objects as f64 / begun.elapsed().as_secs_f64();
    recorder.add(SUITE, "32 subtasks, 10/s", &name_of(backend), "new objects", "1/s", vec![rate]);
    Ok(())
}
