//! What a snapshot costs: the time it holds the writer, the time until it is written, and the
//! first writes after it, which copy what they touch.

use std::time::{Duration, Instant};

use weir_backend_heap::HeapBackendFactory;
use weir_state_api::{
    CheckpointId, Codec, Environment, KeyedStore, OpenRequest, Ordered, Result, SnapshotRequest,
    block_on,
};

use crate::measure::{Recorder, millis};
use crate::shuffle::shuffled;

const HEAP: &str = "weir heap";

pub(crate) fn run(recorder: &mut Recorder, keys: i64) -> Result<()> {
    let environment = Environment::in_memory();
    let request = OpenRequest::new(environment, "bench", Codec::<i64>::id(&Ordered));
    let factory = HeapBackendFactory::default();
    let mut store: KeyedStore<i64> = block_on(KeyedStore::open(&factory, request.clone()))?;
    let value = store.value::<i64>("value")?;
    let order = shuffled(keys, 42);
    for key in &order {
        store.set_key(key)?;
        value.set(&mut store, key)?;
    }
    let workload = format!("{keys} i64 values");
    let (mut pinned, mut longest_write, mut written, mut restored) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..recorder.rounds() {
        let begun = Instant::now();
        let task = store.snapshot(SnapshotRequest::checkpoint(
            CheckpointId(round as u64 + 1),
            format!("chk-{round}"),
        ))?;
        pinned.push(millis(begun.elapsed()));

        // The whole state is written once while the snapshot is pending: the worst case of copying.
        let mut longest = Duration::ZERO;
        for key in &order {
            let begun = Instant::now();
            store.set_key(key)?;
            value.set(&mut store, &(key + round as i64))?;
            longest = longest.max(begun.elapsed());
        }
        longest_write.push(millis(longest));

        let begun = Instant::now();
        let handle = block_on(task.run())?;
        written.push(millis(begun.elapsed()));

        let begun = Instant::now();
        let restored_store: KeyedStore<i64> =
            block_on(KeyedStore::open(&factory, request.clone().restore_from(vec![handle])))?;
        restored.push(millis(begun.elapsed()));
        assert_eq!(restored_store.statistics().entries, keys as u64, "the snapshot is complete");
    }
    recorder.add("snapshot", &workload, HEAP, "synchronous part", "ms", pinned);
    recorder.add("snapshot", &workload, HEAP, "longest write", "ms", longest_write);
    recorder.add("snapshot", &workload, HEAP, "written in", "ms", written);
    recorder.add("snapshot", &workload, HEAP, "restored in", "ms", restored);
    Ok(())
}
