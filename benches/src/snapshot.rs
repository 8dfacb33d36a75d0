//! What snapshots cost: how long they hold the writer, what they take from its throughput and its
//! memory while they are written, how much they write, how long a restore takes.
//!
//! The store is a folder of the local file system. Flink's heap backend takes part beside Weir's, if it
//! is asked for.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_state_api::{
    BackendFactory, CheckpointId, Codec, Environment, Error, ErrorKind, KeyedStore, Notification,
    OpenRequest, Ordered, Result, SnapshotHandle, SnapshotKind, SnapshotRequest, SnapshotTask,
    TokioSpawner, ValueState,
};

use crate::backends::{Backend, Purpose, folder_store, local_folder, runtime};
use crate::interrupt;
use crate::measure::{Recorder, Samples, millis, timed};
use crate::micro::contestant::Contestant;
use crate::micro::family::DEFAULT_GROUPS;
use crate::peers::flink::{FlinkBackend, FlinkInstall, FlinkPeer, FlinkProcess, Snapshots};
use crate::resident::ResidentMemory;
use crate::shuffle::shuffled;

const SUITE: &str = "snapshot";
const FLINK: &str = "flink heap";

/// How large the states are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Entries of 100-byte values, written whole and restored.
    pub(crate) values: i64,
    /// Entries of `i64` values, written while they change.
    pub(crate) under_load: i64,
}

/// Decides who is better.
const PINNED: &str = "synchronous part";

/// Measures the backends, in turn.
pub(crate) fn run(
    recorder: &mut Recorder,
    backends: &[Backend],
    sizes: Sizes,
    flink: Option<&Rc<FlinkInstall>>,
) -> Result<()> {
    let order = shuffled(sizes.values, 42);
    let workload = format!("{} x 100 B", sizes.values);
    let flink = flink.filter(|_| backends.contains(&Backend::Heap));
    let mut flink = flink.and_then(|flink| start_flink(recorder, order.len(), flink));
    let mut peer = Samples::default();
    take_turns(
        recorder,
        &workload,
        backends,
        |backend| Values::open(backend, &order),
        |recorder, values, round| {
            let [whole, restored, changed] = values.round(&order, round)?;
            let theirs = flink.as_mut().filter(|_| values.bench.backend == Backend::Heap);
            match theirs.map(FlinkProcess::snapshots) {
                Some(Ok(theirs)) if round > 0 => {
                    let samples = &mut values.samples;
                    let speed = |theirs: Duration, ours| theirs.div_duration_f64(ours);
                    samples.add("whole: speed over flink", "x", speed(theirs.written, whole));
                    samples.add("restore: same", "x", speed(theirs.restored, restored));
                    samples.add("1 % changed: same", "x", speed(theirs.changed, changed));
                    add(&mut peer, theirs);
                }
                None | Some(Ok(_)) => {}
                Some(Err(error)) => {
                    recorder.fail(SUITE, FLINK, &error);
                    flink = None;
                }
            }
            Ok(())
        },
        |values| values.samples,
    );
    peer.record(recorder, SUITE, &workload, FLINK);

    let order = shuffled(sizes.under_load, 42);
    let workload = format!("{} i64, 10 % change", sizes.under_load);
    take_turns(
        recorder,
        &workload,
        backends,
        |backend| Loaded::open(backend, &order),
        |_, loaded, round| loaded.round(&order, round),
        |loaded| loaded.samples,
    );
    Ok(())
}

/// Opens all backends and lets each do its part in every round; the first round warms up. Who fails is
/// out.
fn take_turns<E>(
    recorder: &mut Recorder,
    workload: &str,
    backends: &[Backend],
    open: impl Fn(Backend) -> Result<E>,
    mut part: impl FnMut(&mut Recorder, &mut E, u64) -> Result<()>,
    samples: impl Fn(E) -> Samples,
) {
    recorder.expect(backends.len() * (recorder.rounds() + 2));
    let mut entrants = Vec::new();
    for &backend in backends {
        recorder.now(&format!("{workload}, {backend}: filling"));
        match open(backend) {
            Ok(entrant) => entrants.push((backend, entrant)),
            Err(error) => recorder.fail(workload, &backend.to_string(), &error),
        }
        recorder.step();
    }
    for round in (0..=recorder.rounds() as u64).take_while(|_| !interrupt::requested()) {
        entrants.retain_mut(|(backend, entrant)| {
            recorder.now(&format!("{workload}, {backend}"));
            let done = part(recorder, entrant, round);
            recorder.step();
            done.map_err(|error| recorder.fail(workload, &backend.to_string(), &error)).is_ok()
        });
    }
    recorder.finished();
    let contestants =
        entrants.into_iter().map(|(backend, entrant)| (backend.to_string(), samples(entrant)));
    recorder.record_turns(SUITE, workload, PINNED, contestants.collect());
}

/// Flink's heap backend, filled.
fn start_flink(
    recorder: &mut Recorder,
    keys: usize,
    install: &Rc<FlinkInstall>,
) -> Option<FlinkProcess> {
    let (install, backend) = (Rc::clone(install), FlinkBackend::Heap);
    let peer = FlinkPeer { install, backend, keys, key_groups: DEFAULT_GROUPS };
    let flink = FlinkProcess::new(peer);
    recorder.introduce(flink.name(), flink.options().ok()?);
    match flink.for_snapshots() {
        Ok(flink) => Some(flink),
        Err(error) => {
            recorder.fail(SUITE, FLINK, &error);
            None
        }
    }
}

/// A folder to write to and threads to write with.
struct Bench {
    tokio: tokio::runtime::Runtime,
    request: OpenRequest,
    backend: Backend,
    factory: Box<dyn BackendFactory>,
    _folders: (tempfile::TempDir, Option<tempfile::TempDir>),
}

impl Bench {
    fn new(backend: Backend) -> Result<Self> {
        let (folder, tokio) = (local_folder()?, runtime()?);
        let mut environment = Environment::in_memory();
        environment.store = folder_store(folder.path())?;
        environment.spawner = Arc::new(TokioSpawner::new(tokio.handle().clone()));
        let mut request = OpenRequest::new(environment, "bench", Codec::<i64>::id(&Ordered));
        request.directory = "live/".into();
        let (factory, local) = backend.factory(Purpose::Checkpoints)?;
        Ok(Bench { tokio, request, backend, factory, _folders: (folder, local) })
    }

    fn open(&self, restore: Vec<SnapshotHandle>) -> Result<KeyedStore<i64>> {
        let request = self.request.clone().restore_from(restore);
        self.tokio.block_on(KeyedStore::open(&*self.factory, request))
    }

    /// Runs a task on another thread; the flag tells when it is done.
    fn run_aside(
        &self,
        task: SnapshotTask,
    ) -> (Arc<AtomicBool>, tokio::task::JoinHandle<Result<SnapshotHandle>>) {
        let done = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&done);
        let handle = self.tokio.spawn(async move {
            let result = task.run().await;
            tell.store(true, Ordering::Release);
            result
        });
        (done, handle)
    }
}

/// A state of 100-byte values.
struct Values {
    bench: Bench,
    store: KeyedStore<i64>,
    value: ValueState<Vec<u8>>,
    samples: Samples,
}

impl Values {
    fn open(backend: Backend, order: &[i64]) -> Result<Self> {
        let bench = Bench::new(backend)?;
        let mut store = bench.open(Vec::new())?;
        let value = store.value("value")?;
        fill(&mut store, &value, order, 0)?;
        Ok(Values { bench, store, value, samples: Samples::default() })
    }

    /// All of it, then back, then one percent: how long the three took.
    fn round(&mut self, order: &[i64], round: u64) -> Result<[Duration; 3]> {
        let Values { bench, store, value, .. } = self;
        let mut unmeasured = Samples::default();
        let samples = if round > 0 { &mut self.samples } else { &mut unmeasured };
        // A savepoint builds on nothing, and nothing builds on it.
        let mut whole = SnapshotRequest::checkpoint(CheckpointId(3 * round + 1), "whole");
        whole.kind = SnapshotKind::NativeSavepoint;
        let (task, pinned) = timed(|| store.snapshot(whole))?;
        let (handle, whole_in) = timed(|| bench.tokio.block_on(task.run()))?;
        samples.add(PINNED, "ms", millis(pinned));
        samples.add("whole: written in", "ms", millis(whole_in));
        samples.add("whole: size", "MB", handle.total_bytes() as f64 / 1e6);
        let (mut restored, restored_in) = timed(|| bench.open(vec![handle]))?;
        samples.add("whole: restored in", "ms", millis(restored_in));
        check(&mut restored, order)?;
        drop(restored);

        let base = CheckpointId(3 * round + 2);
        let task = store.snapshot(SnapshotRequest::checkpoint(base, "base"))?;
        bench.tokio.block_on(task.run())?;
        store.notify(Notification::Complete(base))?;
        let changed = order.len() / 100;
        let from = (round as usize * changed) % (order.len() - changed);
        fill(store, value, &order[from..from + changed], round as u8 + 1)?;
        let before = store.statistics().bytes_uploaded;
        let next = SnapshotRequest::checkpoint(CheckpointId(3 * round + 3), "next");
        let task = store.snapshot(next)?;
        let (_, written) = timed(|| bench.tokio.block_on(task.run()))?;
        let uploaded = store.statistics().bytes_uploaded - before;
        samples.add("1 % changed: written in", "ms", millis(written));
        samples.add("1 % changed: size", "MB", uploaded as f64 / 1e6);
        Ok([whole_in, restored_in, written])
    }
}

/// A state whose writer works at full speed. It changes a tenth of the entries, over and over, all over
/// the state.
struct Loaded {
    bench: Bench,
    store: KeyedStore<i64>,
    value: ValueState<i64>,
    samples: Samples,
}

impl Loaded {
    fn open(backend: Backend, order: &[i64]) -> Result<Self> {
        let bench = Bench::new(backend)?;
        let mut store = bench.open(Vec::new())?;
        let value = store.value::<i64>("value")?;
        for key in order {
            store.set_key(key)?;
            value.set(&mut store, key)?;
        }
        Ok(Loaded { bench, store, value, samples: Samples::default() })
    }

    /// Writes without a snapshot, then while one is written.
    fn round(&mut self, order: &[i64], round: u64) -> Result<()> {
        let Loaded { bench, store, value, .. } = self;
        let mut unmeasured = Samples::default();
        let samples = if round > 0 { &mut self.samples } else { &mut unmeasured };
        let state_bytes = store.statistics().memory_bytes as f64;
        let changing = &order[..order.len() / 10];
        let quiet =
            write_while(store, value, changing, |elapsed| elapsed < Duration::from_millis(500))?;
        let mut request = SnapshotRequest::checkpoint(CheckpointId(round + 1), "load");
        request.kind = SnapshotKind::NativeSavepoint;
        let memory = ResidentMemory::begin();
        let (task, pinned) = timed(|| store.snapshot(request))?;
        let (done, handle) = bench.run_aside(task);
        let busy = write_while(store, value, changing, |_| !done.load(Ordering::Acquire))?;
        let handle = bench.tokio.block_on(handle).map_err(|error| {
            Error::new(ErrorKind::Closed, "the snapshot's thread has failed").source(error)
        })??;
        let extra = memory.peak_growth();
        samples.add(PINNED, "ms", millis(pinned));
        samples.add("written in", "ms", millis(busy.time));
        samples.add("size", "MB", handle.total_bytes() as f64 / 1e6);
        samples.add("longest write", "ms", millis(busy.longest.max(pinned)));
        samples.add("writes beside it", "%", 100.0 * busy.rate() / quiet.rate());
        samples.add("writes alone", "M/s", quiet.rate() / 1e6);
        if let Some(extra) = extra {
            samples.add("extra memory", "%", 100.0 * extra as f64 / state_bytes);
        }
        samples.add("memory per entry", "bytes", state_bytes / order.len() as f64);
        Ok(())
    }
}

fn add(samples: &mut Samples, round: Snapshots) {
    samples.add("synchronous part", "ms", millis(round.pinned));
    samples.add("whole: written in", "ms", millis(round.written));
    samples.add("whole: size", "MB", round.whole_bytes as f64 / 1e6);
    samples.add("whole: restored in", "ms", millis(round.restored));
    samples.add("1 % changed: written in", "ms", millis(round.changed));
    samples.add("1 % changed: size", "MB", round.changed_bytes as f64 / 1e6);
}

fn fill(
    store: &mut KeyedStore<i64>,
    value: &ValueState<Vec<u8>>,
    keys: &[i64],
    content: u8,
) -> Result<()> {
    let mut bytes = vec![content; 96];
    for key in keys {
        bytes[..8].copy_from_slice(&key.to_le_bytes());
        store.set_key(key)?;
        value.set(store, &bytes)?;
    }
    Ok(())
}

/// Reads one key in a thousand.
fn check(store: &mut KeyedStore<i64>, keys: &[i64]) -> Result<()> {
    let value = store.value::<Vec<u8>>("value")?;
    for key in keys.iter().step_by(1_000) {
        store.set_key(key)?;
        let found = value.get(store).wait()?;
        if !found.is_some_and(|bytes| bytes.starts_with(&key.to_le_bytes())) {
            let what = format!("key {key} is not in the snapshot");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
    }
    Ok(())
}

/// What a writer did.
struct Writes {
    count: u64,
    time: Duration,
    longest: Duration,
}

impl Writes {
    fn rate(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64()
    }
}

/// Updates keys, one after the other, as long as `goes_on`; looks at the clock at every write.
fn write_while(
    store: &mut KeyedStore<i64>,
    value: &ValueState<i64>,
    keys: &[i64],
    goes_on: impl Fn(Duration) -> bool,
) -> Result<Writes> {
    let begun = Instant::now();
    let mut writes = Writes { count: 0, time: Duration::ZERO, longest: Duration::ZERO };
    for key in keys.iter().cycle() {
        store.set_key(key)?;
        value.update(store, |old| old.unwrap_or(0).wrapping_add(1)).wait()?;
        let now = begun.elapsed();
        writes.longest = writes.longest.max(now.saturating_sub(writes.time));
        writes.time = now;
        writes.count += 1;
        if !goes_on(now) {
            break;
        }
    }
    Ok(writes)
}
