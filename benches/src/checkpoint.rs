//! Workload W3: checkpoints of a large state of 100-byte values. First all of it, then one percent of
//! random updates between two checkpoints, then the same beside a writer at full speed.
//!
//! Any backend can take part. Beside RocksDB the raw crate does the same writes and makes its own
//! checkpoints by hard links: what its new files hold is the least that can be uploaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_state_api::{CheckpointId, Error, ErrorKind, Result, SnapshotRequest};

use crate::backends::Backend;
use crate::interrupt;
use crate::measure::{Recorder, Samples, millis};
#[cfg(feature = "rocks")]
use crate::peers::rocksdb::{Layout, RawRocksdb};
use crate::shuffle::shuffled;
use crate::stage::{Stage, Subtask, Taken, VALUE_LEN};

pub(crate) const SUITE: &str = "checkpoint";
const UPLOADED: &str = "1 %: uploaded";

/// Measures each backend on a state of so many bytes of values; the store is a folder, or one that is
/// as slow as an object store.
pub(crate) fn run(
    recorder: &mut Recorder,
    backends: &[Backend],
    bytes: u64,
    slow: bool,
) -> Result<()> {
    let entries = (bytes / VALUE_LEN as u64) as i64;
    let order = shuffled(entries, 42);
    let workload = format!("{} MB{}", bytes / 1_000_000, if slow { ", slow store" } else { "" });
    for &backend in backends {
        if interrupt::requested() {
            break;
        }
        let measured = measure(backend, &order, recorder.rounds(), slow);
        #[cfg(feature = "rocks")]
        let measured = measured.and_then(|mut samples| {
            if backend == Backend::Rocks {
                let least = raw(&order, recorder.rounds())?;
                samples.add("1 %: uploads/new files", "x", samples.sum(UPLOADED) / least.sum(RAW));
                least.record(recorder, SUITE, &workload, "rocksdb crate");
            }
            Ok(samples)
        });
        match measured {
            Ok(samples) => samples.record(recorder, SUITE, &workload, &backend.to_string()),
            Err(error) => recorder.fail(&workload, &backend.to_string(), &error),
        }
    }
    Ok(())
}

/// The keys that change before round `round`: one in a hundred, others each time.
fn changing(order: &[i64], round: usize) -> &[i64] {
    let count = (order.len() / 100).max(1);
    let from = round * count % (order.len() - count);
    &order[from..from + count]
}

fn measure(backend: Backend, order: &[i64], rounds: usize, slow: bool) -> Result<Samples> {
    let mut stage = Stage::new(backend)?;
    if slow {
        stage.slow_down();
    }
    let mut task = stage.open(stage.request(1, 0)?)?;
    let mut samples = Samples::default();
    task.write(order, 0)?;
    let Taken { pinned, written, handle, .. } = stage.checkpoint(&mut task, 1)?;
    samples.add("all: synchronous part", "ms", millis(pinned));
    samples.add("all: written in", "ms", millis(written));
    samples.add("all: size", "MB", handle.total_bytes() as f64 / 1e6);
    samples.add("all: objects", "", handle.objects.len() as f64);
    let mut number = 1;
    for round in 0..rounds {
        task.write(changing(order, round), round as u64 + 1)?;
        number += 1;
        let taken = stage.checkpoint(&mut task, number)?;
        samples.add("1 %: synchronous part", "ms", millis(taken.pinned));
        samples.add("1 %: written in", "ms", millis(taken.written));
        samples.add(UPLOADED, "MB", taken.uploaded_bytes as f64 / 1e6);
        samples.add("1 %: objects named", "", taken.handle.objects.len() as f64);
    }
    for round in 0..rounds.min(3) {
        number += 1;
        beside_a_writer(&stage, &mut task, order, (round, number), &mut samples)?;
    }
    Ok(samples)
}

/// A checkpoint while the task writes as fast as it can.
fn beside_a_writer(
    stage: &Stage,
    task: &mut Subtask,
    order: &[i64],
    (round, number): (usize, u64),
    samples: &mut Samples,
) -> Result<()> {
    let alone = write_while(task, order, round, |elapsed| elapsed < Duration::from_secs(1))?;
    let mut request = SnapshotRequest::checkpoint(CheckpointId(number), format!("chk-{number}"));
    request.shared_directory = format!("shared/{number}/");
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
    stage.tokio.block_on(running).map_err(|error| {
        Error::new(ErrorKind::Closed, "the snapshot's thread has failed").source(error)
    })??;
    task.complete(number)?;
    samples.add("busy: synchronous part", "ms", millis(pinned));
    samples.add("busy: longest pause", "ms", millis(beside.longest.max(pinned)));
    samples.add("busy: writes kept", "%", 100.0 * beside.rate() / alone.rate());
    Ok(())
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
        let (pinned, new_bytes) = database.checkpoint()?;
        samples.add("1 %: synchronous part", "ms", millis(pinned));
        samples.add(RAW, "MB", new_bytes as f64 / 1e6);
    }
    Ok(samples)
}
