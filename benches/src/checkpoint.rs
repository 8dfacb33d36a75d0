//! Workload W3: checkpoints of a large state of 100-byte values. First all of it, then one percent of
//! random updates between two checkpoints, then the same beside a writer at full speed, then a series of
//! checkpoints with one percent of updates between two of them.
//!
//! Any backend can take part. Beside RocksDB the raw crate does the same writes and makes its own
//! checkpoints by hard links: what its new files hold is the least that can be uploaded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_state_api::{CheckpointId, Error, ErrorKind, Result, SnapshotHandle, SnapshotRequest};

use crate::backends::Backend;
use crate::interrupt;
use crate::measure::{Recorder, Samples, millis};
#[cfg(feature = "rocks")]
use crate::peers::rocksdb::{Layout, RawRocksdb};
use crate::shuffle::shuffled;
use crate::stage::{Stage, Subtask, Taken, VALUE_LEN};
#[cfg(feature = "rocks")]
use crate::statistics::median_of;
use crate::statistics::quantile;
use crate::store::Store;

pub(crate) const SUITE: &str = "checkpoint";
const UPLOADED: &str = "1 %: uploaded";

/// What decides who is better.
const WRITTEN: &str = "1 %: written in";

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Bytes of values in the state.
    pub(crate) bytes: u64,
    /// Checkpoints of the series.
    pub(crate) series: usize,
    /// From one of them to the next.
    pub(crate) interval: Duration,
}

/// A backend with its state and what it did so far.
struct Entrant {
    backend: Backend,
    stage: Stage,
    task: Subtask,
    samples: Samples,
    /// The number of the last checkpoint, and its handle.
    last: (u64, SnapshotHandle),
}

/// Measures the backends, in turn.
pub(crate) fn run(
    recorder: &mut Recorder,
    backends: &[Backend],
    extent: Extent,
    store: &Store,
) -> Result<()> {
    let entries = (extent.bytes / VALUE_LEN as u64) as i64;
    let order = shuffled(entries, 42);
    let workload = format!("{} MB{}", extent.bytes / 1_000_000, store.suffix());
    let rounds = recorder.rounds();
    let busy_rounds = rounds.min(5);
    // Filling, the warm-up, the check and the series beside the rounds.
    recorder.expect(backends.len() * (rounds + busy_rounds + 4));
    let mut entrants = Vec::new();
    for &backend in backends {
        recorder.now(&format!("{workload}, {backend}: filling"));
        match Entrant::open(backend, store, &order) {
            Ok(entrant) => entrants.push(entrant),
            Err(error) => recorder.fail(&workload, &backend.to_string(), &error),
        }
        recorder.step();
    }
    let mut turn = |entrants: &mut Vec<Entrant>, part: &dyn Fn(&mut Entrant) -> Result<()>| {
        entrants.retain_mut(|entrant| {
            let name = entrant.backend.to_string();
            recorder.attempt(&workload, &name, || part(entrant))
        });
    };
    // The first round warms up.
    for round in (0..=rounds).take_while(|_| !interrupt::requested()) {
        turn(&mut entrants, &|entrant| entrant.one_percent(&order, round, round > 0));
    }
    if !interrupt::requested() {
        turn(&mut entrants, &|entrant| entrant.check(&order, rounds));
    }
    for round in (0..busy_rounds).take_while(|_| !interrupt::requested()) {
        turn(&mut entrants, &|entrant| entrant.beside_a_writer(&order, round));
    }
    if !interrupt::requested() {
        turn(&mut entrants, &|entrant| entrant.series(&order, extent));
    }
    recorder.finished();
    #[cfg(feature = "rocks")]
    for entrant in entrants.iter_mut().filter(|entrant| {
        entrant.backend == Backend::Rocks && !entrant.samples.of(UPLOADED).is_empty()
    }) {
        let least = raw(&order, rounds)?;
        // Of typical checkpoints: a compaction that one of the two ends a moment earlier would decide a
        // ratio of sums.
        let typical = |samples: &Samples, metric| median_of(samples.of(metric).to_vec()).value;
        let ratio = typical(&entrant.samples, UPLOADED) / typical(&least, RAW);
        entrant.samples.add("1 %: uploads/new files", "x", ratio);
        least.record(recorder, SUITE, &workload, "rocksdb crate");
    }
    let contestants =
        entrants.into_iter().map(|entrant| (entrant.backend.to_string(), entrant.samples));
    recorder.record_turns(SUITE, &workload, WRITTEN, contestants.collect());
    Ok(())
}

/// The keys that change before round `round`: one in a hundred, others each time.
fn changing(order: &[i64], round: usize) -> &[i64] {
    let count = (order.len() / 100).max(1);
    let from = round * count % (order.len() - count);
    &order[from..from + count]
}

impl Entrant {
    /// Fills a state and takes the first checkpoint.
    fn open(backend: Backend, store: &Store, order: &[i64]) -> Result<Self> {
        let stage = Stage::new(backend, store)?;
        let mut task = stage.open(stage.request(1, 0)?)?;
        let mut samples = Samples::default();
        task.write(order, 0)?;
        let before = stage.requests();
        let Taken { pinned, written, handle, .. } = stage.checkpoint(&mut task, 1)?;
        samples.add("all: synchronous part", "ms", millis(pinned));
        samples.add("all: written in", "ms", millis(written));
        samples.add("all: size", "MB", handle.total_bytes() as f64 / 1e6);
        samples.add("all: objects", "", handle.objects.len() as f64);
        if let Some(cost) = stage.cost_since(before) {
            samples.add("all: requests cost", "US$/million", cost);
        }
        Ok(Entrant { backend, stage, task, samples, last: (1, handle) })
    }

    /// Changes one percent and takes a checkpoint.
    fn one_percent(&mut self, order: &[i64], round: usize, is_measured: bool) -> Result<()> {
        let before = self.stage.requests();
        self.task.write(changing(order, round), round as u64 + 1)?;
        let number = self.last.0 + 1;
        let taken = self.stage.checkpoint(&mut self.task, number)?;
        if is_measured {
            let (samples, requests) = (&mut self.samples, self.stage.requests());
            samples.add("1 %: synchronous part", "ms", millis(taken.pinned));
            samples.add(WRITTEN, "ms", millis(taken.written));
            samples.add(UPLOADED, "MB", taken.uploaded_bytes as f64 / 1e6);
            samples.add("1 %: objects named", "", taken.handle.objects.len() as f64);
            samples.add("1 %: objects written", "", (requests.writes - before.writes) as f64);
            if let Some(cost) = self.stage.cost_since(before) {
                samples.add("1 %: requests cost", "US$/million", cost);
            }
        }
        self.last = (number, taken.handle);
        Ok(())
    }

    /// Restores the last checkpoint elsewhere and reads one key in fifty and the last that changed.
    fn check(&self, order: &[i64], rounds: usize) -> Result<()> {
        let mut written: HashMap<i64, u64> =
            order.iter().step_by(50).map(|key| (*key, 0)).collect();
        for round in 0..=rounds {
            for key in changing(order, round) {
                written.insert(*key, round as u64 + 1);
            }
        }
        let request = self.stage.request(1, 0)?.restore_from(vec![self.last.1.clone()]);
        let mut restored = self.stage.open_elsewhere(request)?;
        restored.check(written.into_iter())
    }

    /// A checkpoint while the task writes as fast as it can.
    fn beside_a_writer(&mut self, order: &[i64], round: usize) -> Result<()> {
        let Entrant { stage, task, samples, last, .. } = self;
        let alone = write_while(task, order, round, |elapsed| elapsed < Duration::from_secs(1))?;
        last.0 += 1;
        let number = last.0;
        let mut request =
            SnapshotRequest::checkpoint(CheckpointId(number), format!("chk-{number}"));
        request.shared_directory = format!("shared/{number}/");
        let before = task.store.statistics().bytes_uploaded;
        let begun = Instant::now();
        let snapshot = task.store.snapshot(request)?;
        let pinned = begun.elapsed();
        let done = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&done);
        let running = stage.tokio.spawn(async move {
            let result = snapshot.run().await;
            tell.store(true, Ordering::Release);
            result
        });
        let beside = write_while(task, order, round + 1, |_| !done.load(Ordering::Acquire))?;
        last.1 = stage.tokio.block_on(running).map_err(|error| {
            Error::new(ErrorKind::Closed, "the snapshot's thread has failed").source(error)
        })??;
        task.complete(number)?;
        samples.add("busy: synchronous part", "ms", millis(pinned));
        samples.add("busy: longest pause", "ms", millis(beside.longest.max(pinned)));
        samples.add("busy: writes kept", "%", 100.0 * beside.rate() / alone.rate());
        samples.add("busy: written in", "ms", millis(beside.time));
        let uploaded = task.store.statistics().bytes_uploaded - before;
        samples.add("busy: uploaded", "MB", uploaded as f64 / 1e6);
        Ok(())
    }

    /// Checkpoints at fixed times, or one after the other where they take longer, each after one percent
    /// of updates.
    fn series(&mut self, order: &[i64], extent: Extent) -> Result<()> {
        let Extent { series, interval, .. } = extent;
        let Entrant { stage, task, samples, last, .. } = self;
        let (mut pinned, mut whole, mut in_time) = (Vec::new(), Vec::new(), 0);
        let mut due = Instant::now();
        for number in (0..series).take_while(|_| !interrupt::requested()) {
            task.write(changing(order, number), 2_000 + number as u64)?;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            last.0 += 1;
            let taken = stage.checkpoint(task, last.0)?;
            due += interval;
            in_time += usize::from(Instant::now() <= due);
            pinned.push(millis(taken.pinned));
            whole.push(millis(taken.pinned + taken.written));
            last.1 = taken.handle;
        }
        if whole.len() < series {
            return Ok(());
        }
        let name = format!("{series} at {} s", interval.as_secs_f64());
        samples.add(format!("{name}: synchronous p99"), "ms", quantile(&pinned, 0.99));
        samples.add(format!("{name}: p50"), "ms", quantile(&whole, 0.5));
        samples.add(format!("{name}: p99"), "ms", quantile(&whole, 0.99));
        samples.add(format!("{name}: in time"), "%", 100.0 * in_time as f64 / series as f64);
        Ok(())
    }
}

/// What a writer did.
struct Writes {
    count: usize,
    time: Duration,
    /// The longest that sixteen writes took.
    longest: Duration,
}

impl Writes {
    fn rate(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64()
    }
}

fn write_while(
    task: &mut Subtask,
    order: &[i64],
    round: usize,
    goes_on: impl Fn(Duration) -> bool,
) -> Result<Writes> {
    let mut writes = Writes { count: 0, time: Duration::ZERO, longest: Duration::ZERO };
    let begun = Instant::now();
    for keys in order.chunks(16).cycle() {
        task.write(keys, 1_000 + round as u64)?;
        let now = begun.elapsed();
        writes.longest = writes.longest.max(now.saturating_sub(writes.time));
        (writes.time, writes.count) = (now, writes.count + keys.len());
        if !goes_on(now) {
            break;
        }
    }
    Ok(writes)
}

#[cfg(feature = "rocks")]
const RAW: &str = "1 %: in new files";

/// The raw crate: the same writes, and what each of its own checkpoints holds that the one before
/// does not.
#[cfg(feature = "rocks")]
fn raw(order: &[i64], rounds: usize) -> Result<Samples> {
    let mut database = RawRocksdb::open(Layout::Points)?;
    let mut samples = Samples::default();
    database.write_values(order, 0)?;
    database.checkpoint()?;
    for round in 0..rounds {
        database.write_values(changing(order, round), round as u64 + 1)?;
        let (pinned, new) = database.checkpoint()?;
        samples.add("1 %: synchronous part", "ms", millis(pinned));
        samples.add(RAW, "MB", new.bytes as f64 / 1e6);
    }
    Ok(samples)
}
