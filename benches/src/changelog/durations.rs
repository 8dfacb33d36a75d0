//! Checkpoints under the same updates: as long as one write to the store, whatever the size of the state.
//!
//! Between two checkpoints 5,000 of the 100-byte values change: 50,000 a second with ten checkpoints a
//! second. Of longer values as many fewer change. States of all sizes take turns, and beside each
//! checkpoint as many bytes as its log has are written to the same store as one object: that is what the
//! store allows.

use std::time::{Duration, Instant};

use weir_state_api::{Error, KeyedStore, Result, ValueState};

use super::{Bench, Filled, SUITE, Sizes, name_of};
use crate::backends::Backend;
use crate::interrupt;
use crate::measure::{Recorder, millis};
use crate::stage::{VALUE_LEN, value_of_len};
use crate::statistics::quantile;
use crate::store_model::StoreModel;

/// Bytes of values that change between two checkpoints.
const CHANGED: usize = 5_000 * VALUE_LEN;
/// From one checkpoint to the next, where there is a beat.
const INTERVAL: Duration = Duration::from_millis(100);

pub(super) fn run(recorder: &mut Recorder, backend: Backend, sizes: &Sizes) -> Result<()> {
    let opened = sizes.states.iter().map(|&bytes| Job::open(backend, bytes, sizes.value_len));
    let mut jobs = opened.collect::<Result<Vec<Job>>>()?;
    jobs.iter().for_each(|job| job.bench.settle());
    for (model, place) in [(StoreModel::Folder, "folder"), (StoreModel::ObjectStore, "20 ms away")]
    {
        jobs.iter_mut().for_each(|job| job.begin(model));
        for _ in 0..sizes.checkpoints {
            for job in jobs.iter_mut().filter(|_| !interrupt::requested()) {
                job.turn()?;
            }
        }
        let smallest = jobs.first().map_or(0.0, |job| quantile(&job.whole, 0.5));
        for job in &jobs {
            job.record(recorder, place, &name_of(backend), smallest);
        }
        if let Some(largest) = jobs.last_mut() {
            largest.beat(recorder, place, &name_of(backend), sizes.checkpoints)?;
        }
    }
    Ok(())
}

/// A state that is materialized, and what its checkpoints took.
struct Job {
    bench: Bench,
    store: KeyedStore<i64>,
    value: ValueState<Vec<u8>>,
    megabytes: u64,
    order: Vec<i64>,
    /// Of the last checkpoint.
    number: u64,
    pinned: Vec<f64>,
    whole: Vec<f64>,
    /// One write of as many bytes, beside each.
    writes: Vec<f64>,
}

impl Job {
    fn open(backend: Backend, bytes: u64, value_len: usize) -> Result<Self> {
        let bench = Bench::new(backend, value_len)?;
        let Filled { store, value, order } = bench.filled(bytes)?;
        Ok(Job {
            bench,
            store,
            value,
            megabytes: bytes / 1_000_000,
            order,
            number: 0,
            pinned: Vec::new(),
            whole: Vec::new(),
            writes: Vec::new(),
        })
    }

    /// What is measured from now on is of such a store.
    fn begin(&mut self, model: StoreModel) {
        self.bench.move_store(model);
        for samples in [&mut self.pinned, &mut self.whole, &mut self.writes] {
            samples.clear();
        }
    }

    /// How many values change between two checkpoints.
    fn changes(&self) -> usize {
        CHANGED / self.bench.value_len
    }

    fn change(&mut self) -> Result<()> {
        self.number += 1;
        let changes = self.changes();
        let from = (self.number as usize * changes) % (self.order.len() - changes + 1);
        let keys = &self.order[from..from + changes];
        self.bench.write(&mut self.store, &self.value, keys, self.number)
    }

    fn turn(&mut self) -> Result<()> {
        self.change()?;
        let write = self.one_write()?;
        self.writes.push(millis(write));
        let taken = self.bench.checkpoint(&mut self.store, self.number)?;
        self.pinned.push(millis(taken.pinned));
        self.whole.push(millis(taken.whole));
        Ok(())
    }

    /// As many bytes as a checkpoint's log, as one object.
    fn one_write(&self) -> Result<Duration> {
        let mut bytes = Vec::with_capacity(self.changes() * (self.bench.value_len + 12));
        let mut value = Vec::new();
        for key in 0..self.changes() {
            value_of_len(key as i64, self.number, self.bench.value_len, &mut value);
            bytes.extend_from_slice(&[0; 12]);
            bytes.extend_from_slice(&value);
        }
        let (store, path) = (&self.bench.environment.store, format!("raw/{}", self.number));
        let begun = Instant::now();
        let written = self.bench.tokio.block_on(store.write(&path, bytes));
        written.map_err(|error| Error::store("write", &path, error))?;
        Ok(begun.elapsed())
    }

    fn record(&self, recorder: &mut Recorder, place: &str, name: &str, smallest: f64) {
        if self.whole.is_empty() {
            return;
        }
        let workload = format!("{} MB, {place}", self.megabytes);
        let (p50, p99) = (quantile(&self.whole, 0.5), quantile(&self.whole, 0.99));
        let (one, one_p99) = (quantile(&self.writes, 0.5), quantile(&self.writes, 0.99));
        let mut add = |metric, unit, figure| {
            recorder.add(SUITE, &workload, name, metric, unit, vec![figure]);
        };
        add("synchronous p50", "ms", quantile(&self.pinned, 0.5));
        add("synchronous p99", "ms", quantile(&self.pinned, 0.99));
        add("checkpoint p50", "ms", p50);
        add("checkpoint p99", "ms", p99);
        add("one write p50", "ms", one);
        add("one write p99", "ms", one_p99);
        add("checkpoint p99/one write", "x", p99 / one);
        add("checkpoint p99/write p99", "x", p99 / one_p99);
        add("p50/smallest state's", "x", p50 / smallest);
    }

    /// A checkpoint each 100 ms.
    fn beat(
        &mut self,
        recorder: &mut Recorder,
        place: &str,
        name: &str,
        checkpoints: usize,
    ) -> Result<()> {
        let (mut complete, mut in_time, mut next) = (0, 0, Instant::now());
        for _ in (0..checkpoints).take_while(|_| !interrupt::requested()) {
            self.change()?;
            let taken = self.bench.checkpoint(&mut self.store, self.number)?;
            complete += u32::from(!taken.handle.objects.is_empty());
            in_time += u32::from(taken.whole < INTERVAL);
            next += INTERVAL;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let workload = format!("{} MB, {place}", self.megabytes);
        let mut add = |what, figure: u32| {
            let metric = format!("{what} of {checkpoints}");
            recorder.add(SUITE, &workload, name, &metric, "", vec![f64::from(figure)]);
        };
        add("complete", complete);
        add("in 100 ms", in_time);
        Ok(())
    }
}
