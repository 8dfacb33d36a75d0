//! Records in flight: what the executor costs when state is in memory, what it gains when it is not.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_backend_heap::HeapBackendFactory;
use weir_state_api::{
    Admission, BackendFactory, Error, ErrorKind, InFlight, InFlightLimits, KeyedStore,
    RecordOperator, RecordState, Result, ValueState,
};
use weir_tests::latency::{Latency, LatencyFactory};

use crate::interrupt;
use crate::measure::Recorder;
use crate::shuffle::shuffled;

struct Add(ValueState<i64>);

impl RecordOperator for Add {
    type Record = i64;
    type Output = i64;

    async fn process(&self, by: &i64, state: &mut RecordState<'_, i64>) -> Result<()> {
        let sum = self.0.update(state, |old| old.unwrap_or(0).wrapping_add(*by)).await?;
        state.emit(sum);
        Ok(())
    }
}

/// Adds one to the value of each key; answers a checksum that does not depend on the order.
trait AddAll {
    fn add_all(&mut self, keys: &[i64]) -> Result<u64>;
}

struct Direct {
    store: KeyedStore<i64>,
    value: ValueState<i64>,
}

impl AddAll for Direct {
    fn add_all(&mut self, keys: &[i64]) -> Result<u64> {
        let mut checksum = 0_u64;
        for key in keys {
            self.store.set_key(key)?;
            let add = |old: Option<i64>| old.unwrap_or(0).wrapping_add(1);
            let sum = self.value.update(&mut self.store, add).wait()?;
            checksum = checksum.wrapping_add(sum as u64);
        }
        Ok(checksum)
    }
}

impl AddAll for InFlight<Add, i64> {
    fn add_all(&mut self, keys: &[i64]) -> Result<u64> {
        let mut checksum = 0_u64;
        for key in keys {
            while let Admission::Full(_) = self.submit(key, 1)? {
                self.wait_room()?;
            }
            checksum = self.outputs().fold(checksum, |sum, one| sum.wrapping_add(one as u64));
        }
        self.wait_idle()?;
        Ok(self.outputs().fold(checksum, |sum, one| sum.wrapping_add(one as u64)))
    }
}

fn direct(factory: &dyn BackendFactory) -> Result<Direct> {
    let mut store = KeyedStore::open_in_memory(factory)?;
    let value = store.value("value")?;
    Ok(Direct { store, value })
}

fn in_flight(factory: &dyn BackendFactory, records: usize) -> Result<InFlight<Add, i64>> {
    let Direct { store, value } = direct(factory)?;
    Ok(InFlight::new(store, Add(value), InFlightLimits::default().with_records(records)))
}

pub(crate) fn run(recorder: &mut Recorder, keys: i64, slow_reads: i64) -> Result<()> {
    let memory = HeapBackendFactory::default();
    let access = shuffled(keys, 42);
    let contestants: Vec<(&str, Box<RefCell<dyn AddAll>>)> = vec![
        ("direct calls", Box::new(RefCell::new(direct(&memory)?))),
        ("in flight", Box::new(RefCell::new(in_flight(&memory, 4096)?))),
    ];
    compare(recorder, "update, in memory", &access, &contestants)?;

    // Once in a millisecond everything that was asked for until then arrives.
    let latency = Latency::seeded(1);
    let slow = LatencyFactory::new(HeapBackendFactory::default(), latency.clone());
    let done = Arc::new(AtomicBool::new(false));
    let store = std::thread::spawn({
        let done = done.clone();
        move || {
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                for _ in 0..latency.pending() {
                    latency.complete_one();
                }
            }
        }
    });
    let access = shuffled(slow_reads, 42);
    let contestants: Vec<(&str, Box<RefCell<dyn AddAll>>)> = vec![
        ("one by one", Box::new(RefCell::new(direct(&slow)?))),
        ("100 in flight", Box::new(RefCell::new(in_flight(&slow, 100)?))),
        ("1000 in flight", Box::new(RefCell::new(in_flight(&slow, 1000)?))),
    ];
    let measured = compare(recorder, "update, reads of 1 ms", &access, &contestants);
    done.store(true, Ordering::Relaxed);
    // It only panics if the latency does, and then the measurement has failed as well.
    drop(store.join());
    measured
}

/// Rounds in turn, the first one to warm up. Answers must agree; speeds are relative to the
/// first contestant.
fn compare(
    recorder: &mut Recorder,
    workload: &str,
    keys: &[i64],
    contestants: &[(&str, Box<RefCell<dyn AddAll>>)],
) -> Result<()> {
    let mut times = vec![Vec::new(); contestants.len()];
    recorder.expect((recorder.rounds() + 1) * contestants.len());
    for round in (0..=recorder.rounds()).take_while(|_| !interrupt::requested()) {
        let mut expected = None;
        for ((name, contestant), times) in contestants.iter().zip(&mut times) {
            recorder.now(&format!("{workload}, {name}"));
            let begun = Instant::now();
            let answer = contestant.borrow_mut().add_all(keys)?;
            let elapsed = begun.elapsed().as_nanos() as f64 / keys.len() as f64;
            recorder.step();
            if round > 0 {
                times.push(elapsed);
            }
            if *expected.get_or_insert(answer) != answer {
                let message = format!("{name} gives another answer in {workload}");
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        }
    }
    recorder.finished();
    let baseline = times[0].clone();
    if baseline.is_empty() {
        return Ok(());
    }
    for ((name, _), times) in contestants.iter().zip(times) {
        // Of the same round: drift of the machine hits both.
        let speeds = times.iter().zip(&baseline).map(|(time, base)| base / time).collect();
        recorder.add("in-flight", workload, name, "time", "ns/op", times);
        recorder.add("in-flight", workload, name, "speed", "times", speeds);
    }
    Ok(())
}
