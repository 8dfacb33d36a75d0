//! Workload W4: from checkpoints to the first correct read. The same parallelism from the store, from
//! what the machine has kept, and two subtasks made three.
//!
//! The store answers after 20 ms and gives 100 MB/s a stream. Beside each restore the same objects are
//! read and thrown away, four at a time: that is what the store allows.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use weir_state_api::{Error, OpenRequest, Result, SnapshotHandle};

use crate::backends::Backend;
use crate::interrupt;
use crate::measure::{Recorder, Samples, millis, timed};
use crate::shuffle::shuffled;
use crate::stage::{Stage, VALUE_LEN};

pub(crate) const SUITE: &str = "restore";

/// Streams that a restore may have at a time.
const PARALLEL: usize = 4;

/// Measures each backend on a state of so many bytes of values.
pub(crate) fn run(recorder: &mut Recorder, backends: &[Backend], bytes: u64) -> Result<()> {
    let order = shuffled((bytes / VALUE_LEN as u64) as i64, 42);
    let workload = format!("{} MB", bytes / 1_000_000);
    for &backend in backends {
        if interrupt::requested() {
            break;
        }
        match measure(backend, &order, recorder.rounds()) {
            Ok(samples) => samples.record(recorder, SUITE, &workload, &backend.to_string()),
            Err(error) => recorder.fail(&workload, &backend.to_string(), &error),
        }
    }
    Ok(())
}

fn measure(backend: Backend, order: &[i64], rounds: usize) -> Result<Samples> {
    let stage = Stage::new(backend)?;
    let mut handles = Vec::new();
    for subtask in 0..2 {
        let mut task = stage.open(stage.request(2, subtask)?)?;
        task.write(order, 0)?;
        handles.push(stage.checkpoint(&mut task, 1)?.handle);
    }
    let mut samples = Samples::default();
    for _ in 0..rounds {
        let limit = read_all(&stage, &handles)?;
        let plain = restore(&stage, order, &handles, 2, Place::Elsewhere)?;
        samples.add("store alone", "ms", millis(limit));
        samples.add("2→2: restored in", "ms", millis(plain.total));
        samples.add(
            "2→2: of the bandwidth",
            "%",
            100.0 * limit.as_secs_f64() / plain.total.as_secs_f64(),
        );
        samples.add("2→2: slowest subtask", "ms", millis(plain.slowest));
        samples.add("2→2: reads of a subtask", "", plain.most_reads as f64);
        samples.add("2→2: downloaded", "MB", plain.downloaded as f64 / 1e6);
        let local = restore(&stage, order, &handles, 2, Place::Here)?;
        samples.add("2→2, kept: restored in", "ms", millis(local.total));
        samples.add("2→2, kept: downloaded", "MB", local.downloaded as f64 / 1e6);
        let rescaled = restore(&stage, order, &handles, 3, Place::Elsewhere)?;
        samples.add("2→3: slowest subtask", "ms", millis(rescaled.slowest));
        samples.add("2→3: reads of a subtask", "", rescaled.most_reads as f64);
        samples.add("2→3: downloaded", "MB", rescaled.downloaded as f64 / 1e6);
        samples.add(
            "2→3 over 2→2",
            "x",
            rescaled.slowest.as_secs_f64() / plain.slowest.as_secs_f64(),
        );
    }
    Ok(samples)
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
        let mut request: OpenRequest = stage.request(parallelism, subtask)?;
        let (store, requests) = stage.slow_store();
        request.environment.store = store;
        let request = request.restore_from(handles.to_vec());
        let (task, time) = timed(|| {
            let mut task = match place {
                Place::Here => stage.open(request)?,
                Place::Elsewhere => stage.open_elsewhere(request)?,
            };
            task.first_read(order, 0)?;
            Ok(task)
        })?;
        restored.total += time;
        restored.slowest = restored.slowest.max(time);
        restored.most_reads = restored.most_reads.max(requests.reads());
        restored.downloaded += task.store.statistics().bytes_downloaded;
    }
    Ok(restored)
}

/// Reads all objects of the handles, one handle after the other, and throws them away.
fn read_all(stage: &Stage, handles: &[SnapshotHandle]) -> Result<Duration> {
    let (store, _) = stage.slow_store();
    let mut total = Duration::ZERO;
    for handle in handles {
        let transfers: Vec<_> =
            handle.objects.iter().map(|object| drain(&store, &object.path)).collect();
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
