//! Workload W4: from checkpoints to the first correct read, and on until the subtask is as fast as before.
//! The same parallelism from the store and from what the machine has kept, and other parallelisms.
//!
//! Unless another store is asked for, it answers after 20 ms and gives 100 MB/s a stream. Beside each
//! restore the same objects are read and thrown away, four at a time: that is what the store allows.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use weir_state_api::{Error, Result, SnapshotHandle};

use crate::backends::Backend;
use crate::interrupt;
use crate::measure::{Recorder, Samples, millis, timed};
use crate::recovery::Reads;
use crate::shuffle::shuffled;
use crate::stage::{Stage, Subtask, VALUE_LEN};
use crate::store::Store;

pub(crate) const SUITE: &str = "restore";

/// Streams that a restore may have at a time.
const PARALLEL: usize = 4;

/// What decides who is better.
const RESTORED: &str = "2→2: restored in";

/// How long the speed before a restore is measured.
const BEFORE: Duration = Duration::from_millis(500);

/// How much is measured.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    /// Bytes of values in the state.
    pub(crate) bytes: u64,
    /// A restored subtask that is not as fast as before by then is left alone.
    pub(crate) patience: Duration,
    /// Only these parts, beside the same parallelism, which is always measured: recovery, 2→3, 1→2, 4→1.
    pub(crate) only: Option<String>,
}

impl Extent {
    fn asks_for(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| part.contains(only.as_str()))
    }
}

/// A backend with its checkpoints, and what it did so far.
struct Entrant {
    backend: Backend,
    stage: Stage,
    /// Of two subtasks, of one, of four.
    two: Vec<SnapshotHandle>,
    one: Option<Vec<SnapshotHandle>>,
    four: Option<Vec<SnapshotHandle>>,
    /// The first of two subtasks, which goes on as if nothing had happened, and what it reads.
    before: Option<(Subtask, Reads)>,
    samples: Samples,
}

/// Measures the backends, in turn.
pub(crate) fn run(
    recorder: &mut Recorder,
    backends: &[Backend],
    extent: &Extent,
    store: &Store,
) -> Result<()> {
    let order = shuffled((extent.bytes / VALUE_LEN as u64) as i64, 42);
    let workload = format!("{} MB{}", extent.bytes / 1_000_000, store.suffix());
    recorder.expect(backends.len() * (recorder.rounds() + 2));
    let mut entrants = Vec::new();
    for &backend in backends {
        recorder.now(&format!("{workload}, {backend}: filling"));
        match Entrant::open(backend, store, &order, extent) {
            Ok(entrant) => entrants.push(entrant),
            Err(error) => recorder.fail(&workload, &backend.to_string(), &error),
        }
        recorder.step();
    }
    // The first round warms up.
    for round in (0..=recorder.rounds()).take_while(|_| !interrupt::requested()) {
        entrants.retain_mut(|entrant| {
            let name = entrant.backend.to_string();
            recorder.attempt(&workload, &name, || entrant.round(&order, extent, round > 0))
        });
    }
    recorder.finished();
    let contestants =
        entrants.into_iter().map(|entrant| (entrant.backend.to_string(), entrant.samples));
    recorder.record_turns(SUITE, &workload, RESTORED, contestants.collect());
    Ok(())
}

impl Entrant {
    fn open(backend: Backend, store: &Store, order: &[i64], extent: &Extent) -> Result<Self> {
        let stage = Stage::new(backend, store)?;
        let take_for = |part, parallelism| {
            extent.asks_for(part).then(|| take(&stage, order, parallelism)).transpose()
        };
        let (one, two) = (take_for("1→2", 1)?, take(&stage, order, 2)?);
        let four = take_for("4→1", 4)?;
        let mut before = None;
        if extent.asks_for("recovery") {
            let mut request = stage.request(2, 0)?;
            request.directory = "live/before/".into();
            let mut task = stage.open_elsewhere(request)?;
            task.write(order, 0)?;
            stage.checkpoint(&mut task, 1)?;
            let mut reads = Reads::of(&mut task, order)?;
            reads.speed(&mut task, BEFORE)?;
            before = Some((task, reads));
        }
        Ok(Entrant { backend, stage, two, one, four, before, samples: Samples::default() })
    }

    fn round(&mut self, order: &[i64], extent: &Extent, is_measured: bool) -> Result<()> {
        let Entrant { stage, two, one, four, before, .. } = self;
        let (stage, two) = (&*stage, &two[..]);
        let mut unmeasured = Samples::default();
        let samples = if is_measured { &mut self.samples } else { &mut unmeasured };
        let limit = read_all(stage, two)?;
        let plain = restore(stage, order, two, 2, Place::Elsewhere)?;
        samples.add("store alone", "ms", millis(limit));
        samples.add(RESTORED, "ms", millis(plain.total));
        let of_the_bandwidth = 100.0 * limit.as_secs_f64() / plain.total.as_secs_f64();
        samples.add("2→2: of the bandwidth", "%", of_the_bandwidth);
        plain.add_to(samples, "2→2");
        if let Some(before) = before {
            recover(stage, before, order, two, extent.patience, samples)?;
        }
        let local = restore(stage, order, two, 2, Place::Here)?;
        samples.add("2→2, kept: restored in", "ms", millis(local.total));
        samples.add("2→2, kept: downloaded", "MB", local.downloaded as f64 / 1e6);
        if extent.asks_for("2→3") {
            let rescaled = restore(stage, order, two, 3, Place::Elsewhere)?;
            rescaled.add_to(samples, "2→3");
            let longer = rescaled.slowest.as_secs_f64() / plain.slowest.as_secs_f64();
            samples.add("2→3 over 2→2", "x", longer);
        }
        if let Some(one) = one {
            restore(stage, order, one, 2, Place::Elsewhere)?.add_to(samples, "1→2");
        }
        if let Some(four) = four {
            restore(stage, order, four, 1, Place::Elsewhere)?.add_to(samples, "4→1");
        }
        Ok(())
    }
}

/// Fills so many subtasks and takes a checkpoint of each.
fn take(stage: &Stage, order: &[i64], parallelism: u16) -> Result<Vec<SnapshotHandle>> {
    let mut handles = Vec::new();
    for subtask in 0..parallelism {
        let mut task = stage.open(stage.request(parallelism, subtask)?)?;
        task.write(order, 0)?;
        handles.push(stage.checkpoint(&mut task, u64::from(parallelism))?.handle);
    }
    Ok(handles)
}

/// Restores the first of two subtasks and reads until it is as fast as before.
fn recover(
    stage: &Stage,
    (before, reads): &mut (Subtask, Reads),
    order: &[i64],
    handles: &[SnapshotHandle],
    patience: Duration,
    samples: &mut Samples,
) -> Result<()> {
    let speed = reads.speed(before, BEFORE)?;
    let request = stage.request(2, 0)?.restore_from(handles.to_vec());
    let begun = Instant::now();
    let mut task = stage.open_elsewhere(request)?;
    task.first_read(order, 0)?;
    let recovery = reads.recover(&mut task, begun, speed, patience)?;
    if interrupt::requested() {
        return Ok(());
    }
    samples.add("reads before", "k/s", speed / 1e3);
    if let Some(half) = recovery.half {
        samples.add("2→2: half as fast as before", "ms", millis(half));
    }
    if let Some(whole) = recovery.whole {
        samples.add("2→2: as fast as before", "ms", millis(whole));
    }
    let of_before = format!("2→2: of that speed, in {} s at most", patience.as_secs_f64());
    samples.add(of_before, "%", 100.0 * recovery.reached);
    Ok(())
}

/// Where instances are restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where the checkpoints were taken.
    Here,
    /// On a machine that has nothing.
    Elsewhere,
}

/// What the restore of all subtasks, one after the other, took.
#[derive(Default)]
struct Restored {
    total: Duration,
    slowest: Duration,
    /// Requests of the subtask that made the most, up to its first read.
    most_reads: u64,
    downloaded: u64,
}

impl Restored {
    fn add_to(&self, samples: &mut Samples, rescaling: &str) {
        samples.add(format!("{rescaling}: slowest subtask"), "ms", millis(self.slowest));
        samples.add(format!("{rescaling}: reads of a subtask"), "", self.most_reads as f64);
        samples.add(format!("{rescaling}: downloaded"), "MB", self.downloaded as f64 / 1e6);
    }
}

fn restore(
    stage: &Stage,
    order: &[i64],
    handles: &[SnapshotHandle],
    parallelism: u16,
    place: Place,
) -> Result<Restored> {
    let mut restored = Restored::default();
    for subtask in 0..parallelism {
        let before = stage.requests();
        let request = stage.request(parallelism, subtask)?.restore_from(handles.to_vec());
        let (mut task, time) = timed(|| {
            let mut task = match place {
                Place::Here => stage.open(request)?,
                Place::Elsewhere => stage.open_elsewhere(request)?,
            };
            task.first_read(order, 0)?;
            Ok(task)
        })?;
        restored.downloaded += task.store.statistics().bytes_downloaded;
        restored.most_reads = restored.most_reads.max(stage.requests().reads - before.reads);
        // One key in a thousand, after the clock has stopped; all at a time, for the store is far.
        let some: Vec<i64> = order.iter().step_by(1_000).copied().collect();
        let own = task.own(&some)?;
        task.check_many(&own, 0)?;
        restored.total += time;
        restored.slowest = restored.slowest.max(time);
    }
    Ok(restored)
}

/// Reads all objects of the handles, one handle after the other, and throws them away.
fn read_all(stage: &Stage, handles: &[SnapshotHandle]) -> Result<Duration> {
    let store = stage.store();
    let mut total = Duration::ZERO;
    for handle in handles {
        let transfers: Vec<_> =
            handle.objects.iter().map(|object| drain(store, &object.path)).collect();
        let all = stream::iter(transfers).buffer_unordered(PARALLEL).try_collect::<()>();
        let ((), time) = timed(|| stage.tokio.block_on(all))?;
        total += time;
    }
    Ok(total)
}

async fn drain(store: &opendal::Operator, path: &str) -> Result<()> {
    let failed = |error| Error::store("read", path, error);
    let mut stream =
        store.reader(path).await.map_err(failed)?.into_stream(..).await.map_err(failed)?;
    while let Some(bytes) = stream.next().await {
        std::hint::black_box(bytes.map_err(failed)?.len());
    }
    Ok(())
}
