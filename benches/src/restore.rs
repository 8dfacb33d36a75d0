//! Workload W4: from checkpoints to the first correct read. The same parallelism from the store, from
//! what the machine has kept, and two subtasks made three.
//!
//! Unless another store is asked for, it answers after 20 ms and gives 100 MB/s a stream. Beside each restore the same objects are
//! read and thrown away, four at a time: that is what the store allows.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use weir_state_api::{Error, Result, SnapshotHandle};

use crate::backends::Backend;
use crate::interrupt;
use crate::measure::{Recorder, Samples, millis, timed};
use crate::shuffle::shuffled;
use crate::stage::{Stage, VALUE_LEN};
use crate::store_model::StoreModel;

pub(crate) const SUITE: &str = "restore";

/// Streams that a restore may have at a time.
const PARALLEL: usize = 4;

/// What decides who is better.
const RESTORED: &str = "2→2: restored in";

/// A backend with the checkpoints of two subtasks, and what it did so far.
struct Entrant {
    backend: Backend,
    stage: Stage,
    handles: Vec<SnapshotHandle>,
    samples: Samples,
}

/// Measures the backends, in turn, on a state of so many bytes of values.
pub(crate) fn run(
    recorder: &mut Recorder,
    backends: &[Backend],
    bytes: u64,
    model: StoreModel,
) -> Result<()> {
    let order = shuffled((bytes / VALUE_LEN as u64) as i64, 42);
    let workload = format!("{} MB{}", bytes / 1_000_000, model.suffix());
    let mut entrants = Vec::new();
    for &backend in backends {
        match Entrant::open(backend, model, &order) {
            Ok(entrant) => entrants.push(entrant),
            Err(error) => recorder.fail(&workload, &backend.to_string(), &error),
        }
    }
    // The first round warms up.
    for round in (0..=recorder.rounds()).take_while(|_| !interrupt::requested()) {
        entrants.retain_mut(|entrant| match entrant.round(&order, round > 0) {
            Ok(()) => true,
            Err(error) => {
                recorder.fail(&workload, &entrant.backend.to_string(), &error);
                false
            }
        });
    }
    let contestants =
        entrants.into_iter().map(|entrant| (entrant.backend.to_string(), entrant.samples));
    recorder.record_turns(SUITE, &workload, RESTORED, contestants.collect());
    Ok(())
}

impl Entrant {
    fn open(backend: Backend, model: StoreModel, order: &[i64]) -> Result<Self> {
        let stage = Stage::new(backend, model)?;
        let mut handles = Vec::new();
        for subtask in 0..2 {
            let mut task = stage.open(stage.request(2, subtask)?)?;
            task.write(order, 0)?;
            handles.push(stage.checkpoint(&mut task, 1)?.handle);
        }
        Ok(Entrant { backend, stage, handles, samples: Samples::default() })
    }

    fn round(&mut self, order: &[i64], is_measured: bool) -> Result<()> {
        let Entrant { stage, handles, .. } = self;
        let (stage, handles) = (&*stage, &handles[..]);
        let mut unmeasured = Samples::default();
        let samples = if is_measured { &mut self.samples } else { &mut unmeasured };
        let limit = read_all(stage, handles)?;
        let plain = restore(stage, order, handles, 2, Place::Elsewhere)?;
        samples.add("store alone", "ms", millis(limit));
        samples.add(RESTORED, "ms", millis(plain.total));
        samples.add(
            "2→2: of the bandwidth",
            "%",
            100.0 * limit.as_secs_f64() / plain.total.as_secs_f64(),
        );
        samples.add("2→2: slowest subtask", "ms", millis(plain.slowest));
        samples.add("2→2: reads of a subtask", "", plain.most_reads as f64);
        samples.add("2→2: downloaded", "MB", plain.downloaded as f64 / 1e6);
        let local = restore(stage, order, handles, 2, Place::Here)?;
        samples.add("2→2, kept: restored in", "ms", millis(local.total));
        samples.add("2→2, kept: downloaded", "MB", local.downloaded as f64 / 1e6);
        let rescaled = restore(stage, order, handles, 3, Place::Elsewhere)?;
        samples.add("2→3: slowest subtask", "ms", millis(rescaled.slowest));
        samples.add("2→3: reads of a subtask", "", rescaled.most_reads as f64);
        samples.add("2→3: downloaded", "MB", rescaled.downloaded as f64 / 1e6);
        samples.add(
            "2→3 over 2→2",
            "x",
            rescaled.slowest.as_secs_f64() / plain.slowest.as_secs_f64(),
        );
        Ok(())
    }
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
        // One key in a thousand, after the clock has stopped.
        task.check(order.iter().step_by(1_000).map(|key| (*key, 0)))?;
        restored.total += time;
        restored.slowest = restored.slowest.max(time);
        restored.most_reads = restored.most_reads.max(stage.requests().reads - before.reads);
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
