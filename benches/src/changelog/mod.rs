//! What a changelog gives and takes, around each backend: how long checkpoints last at different sizes of
//! the state, what logging costs an update, how long the log is, how fast it is replayed, how many
//! objects it makes.
//!
//! | file | what is measured |
//! |---|---|
//! | `durations.rs` | checkpoints under the same updates, whatever the size of the state |
//! | `cost.rs` | an update with and without a log (W1), and the log's bytes |
//! | `replay.rs` | a restore from state and log, against one from the state alone |
//! | `objects.rs` | objects of many subtasks with frequent checkpoints |

mod cost;
mod durations;
mod objects;
mod replay;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_changelog::{
    ChangelogBackendFactory, ChangelogControl, ChangelogOptions, Materialization,
};
use weir_state_api::{
    BackendFactory, CheckpointId, Codec, Environment, Error, ErrorKind, KeyedStore, MaxParallelism,
    Notification, OpenRequest, Ordered, Result, SnapshotHandle, SnapshotRequest, TokioSpawner,
    ValueState,
};

use crate::backends::{Backend, Purpose, folder_store, local_folder, runtime};
use crate::interrupt;
use crate::measure::Recorder;
use crate::shuffle::shuffled;
use crate::slow_store::SlowStore;
use crate::stage::{VALUE_LEN, value_of_len};
use crate::store_model::StoreModel;

const SUITE: &str = "changelog";
/// A compaction that is not done by then goes on beside what is measured.
const SETTLED_AFTER: Duration = Duration::from_secs(120);

/// How much is measured.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    /// Bytes of keys and values of the states that checkpoints are taken of, smallest first.
    pub(crate) states: Vec<u64>,
    /// Bytes of each of their values.
    value_len: usize,
    /// Checkpoints of each.
    checkpoints: usize,
    /// Keys of the single accesses.
    keys: i64,
    /// Bytes of keys and values of the state that is restored, and changes behind it.
    pub(crate) restored: (u64, u64),
    /// For how long 32 subtasks take ten checkpoints a second.
    seconds: u64,
}

impl Sizes {
    /// A smoke test.
    pub(crate) fn quick() -> Self {
        Sizes {
            states: vec![1_000_000, 5_000_000],
            value_len: VALUE_LEN,
            checkpoints: 10,
            keys: 5_000,
            restored: (1_000_000, 20_000),
            seconds: 1,
        }
    }

    /// The published sizes.
    pub(crate) fn published() -> Self {
        Sizes {
            states: vec![100_000_000, 300_000_000, 1_000_000_000],
            value_len: VALUE_LEN,
            checkpoints: 100,
            keys: 500_000,
            restored: (1_000_000_000, 3_000_000),
            seconds: 10,
        }
    }

    /// With 10 GB too, and with the log of five minutes at 50,000 changes a second. The values are ten
    /// times as long, and as many fewer change: 10 GB of short ones are 21 GB on a heap.
    pub(crate) fn large() -> Self {
        let mut sizes = Self::published();
        sizes.states.push(10_000_000_000);
        sizes.value_len = 10 * VALUE_LEN;
        sizes.restored.1 = 15_000_000;
        sizes
    }
}

/// Measures a changelog around each backend; `only` chooses files of this suite by name.
pub(crate) fn run(
    recorder: &mut Recorder,
    backends: &[Backend],
    sizes: &Sizes,
    only: Option<&str>,
) {
    let mut parts = vec!["durations", "cost", "replay", "objects"];
    parts.retain(|part| only.is_none_or(|only| part.contains(only)));
    recorder.expect(backends.len() * parts.len());
    for &backend in backends {
        for &part in parts.iter().take_while(|_| !interrupt::requested()) {
            recorder.now(&format!("{part}, {backend}"));
            let done = match part {
                "durations" => durations::run(recorder, backend, sizes),
                "cost" => cost::run(recorder, backend, sizes.keys),
                "replay" => replay::run(recorder, backend, sizes.restored),
                _ => objects::run(recorder, backend, sizes.seconds),
            };
            // Whoever interrupts a state that is being filled knows why there is none.
            if let Err(error) = done
                && !interrupt::requested()
            {
                recorder.fail(&format!("changelog: {part}"), &name_of(backend), &error);
            }
            recorder.step();
        }
    }
    recorder.finished();
}

/// How figures call a changelog around a backend.
fn name_of(backend: Backend) -> String {
    format!("{backend}, log")
}

/// A store, threads to write with, and a backend with and without a changelog.
struct Bench {
    tokio: tokio::runtime::Runtime,
    environment: Environment,
    store: SlowStore,
    plain: Arc<dyn BackendFactory>,
    logged: ChangelogBackendFactory,
    value_len: usize,
    _folders: (TempDir, Option<TempDir>),
}

/// The only subtask, with a state of values.
struct Filled {
    store: KeyedStore<i64>,
    value: ValueState<Vec<u8>>,
    /// Its keys, in the order in which they were written.
    order: Vec<i64>,
}

/// What a checkpoint took.
struct Taken {
    handle: SnapshotHandle,
    /// How long the synchronous part held the task.
    pinned: Duration,
    /// From its beginning to the handle.
    whole: Duration,
}

impl Bench {
    /// With a store in a folder, and values of this length.
    fn new(backend: Backend, value_len: usize) -> Result<Self> {
        let folder = local_folder()?;
        let tokio = runtime()?;
        let mut environment = Environment::in_memory();
        let store = SlowStore::new(StoreModel::Folder.slowness());
        environment.store = folder_store(folder.path())?.layer(store.clone());
        environment.spawner = Arc::new(TokioSpawner::new(tokio.handle().clone()));
        let (plain, local) = backend.factory(Purpose::CheckpointsHere)?;
        let plain: Arc<dyn BackendFactory> = Arc::from(plain);
        let options = ChangelogOptions::default().with_materialization(Materialization::OnRequest);
        let logged = ChangelogBackendFactory::around(Arc::clone(&plain), options);
        let _folders = (folder, local);
        Ok(Bench { tokio, environment, store, plain, logged, value_len, _folders })
    }

    /// From now on the store is as slow as the model says.
    fn move_store(&self, model: StoreModel) {
        self.store.change(model.slowness());
    }

    fn control(&self) -> ChangelogControl {
        self.logged.control()
    }

    /// Opens one of so many subtasks.
    fn open(
        &self,
        factory: &dyn BackendFactory,
        (subtask, parallelism): (u16, u16),
        restore: Vec<SnapshotHandle>,
    ) -> Result<KeyedStore<i64>> {
        let codec = Codec::<i64>::id(&Ordered);
        let mut request = OpenRequest::new(self.environment.clone(), "bench", codec)
            .for_subtask(MaxParallelism::default(), parallelism, subtask)?
            .restore_from(restore);
        request.directory = format!("live/{subtask}/");
        self.tokio.block_on(KeyedStore::open(factory, request))
    }

    /// Opens the only subtask with so many bytes of keys and values, all of them materialized. No checkpoint
    /// has named the log before, so nothing is left of it.
    fn filled(&self, bytes: u64) -> Result<Filled> {
        let order = shuffled((bytes / (self.value_len as u64 + 8)) as i64, 42);
        let mut store = self.open(&self.logged, (0, 1), Vec::new())?;
        let value = store.value("value")?;
        self.write(&mut store, &value, &order, 0)?;
        self.materialize(&mut store)?;
        Ok(Filled { store, value, order })
    }

    /// Materializes, and waits until checkpoints go on from that.
    fn materialize(&self, store: &mut KeyedStore<i64>) -> Result<()> {
        let before = self.control().metrics();
        self.control().materialize();
        loop {
            // No checkpoint has this number: the news is an occasion, nothing else.
            store.notify(Notification::Complete(CheckpointId(0)))?;
            let now = self.control().metrics();
            if now.materializations_failed > before.materializations_failed {
                let what = "the state could not be materialized";
                return Err(Error::new(ErrorKind::Unavailable, what));
            }
            if now.materializations_done > before.materializations_done {
                return Ok(());
            }
            unless_interrupted()?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until neither the backend nor the disk has anything left to do of what came before.
    fn settle(&self) {
        let begun = Instant::now();
        let mut before = None;
        while before != Some(self.store.requests()) && begun.elapsed() < SETTLED_AFTER {
            before = Some(self.store.requests());
            std::thread::sleep(Duration::from_secs(1));
        }
        // Where there is no such program, the disk goes on for a while.
        drop(std::process::Command::new("sync").status());
    }

    /// Sets values.
    fn write(
        &self,
        store: &mut KeyedStore<i64>,
        value: &ValueState<Vec<u8>>,
        keys: &[i64],
        round: u64,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        for some in keys.chunks(100_000) {
            unless_interrupted()?;
            for key in some {
                value_of_len(*key, round, self.value_len, &mut bytes);
                store.set_key(key)?;
                value.set(store, &bytes)?;
            }
        }
        Ok(())
    }

    fn checkpoint(&self, store: &mut KeyedStore<i64>, number: u64) -> Result<Taken> {
        let id = CheckpointId(number);
        let mut request = SnapshotRequest::checkpoint(id, format!("chk-{number}"));
        request.shared_directory = format!("shared/{number}/");
        let begun = Instant::now();
        let task = store.snapshot(request)?;
        let pinned = begun.elapsed();
        let handle = self.tokio.block_on(task.run())?;
        let whole = begun.elapsed();
        store.notify(Notification::Complete(id))?;
        Ok(Taken { handle, pinned, whole })
    }
}

/// Whether to go on with what takes long.
fn unless_interrupted() -> Result<()> {
    if interrupt::requested() {
        return Err(Error::new(ErrorKind::Closed, "interrupted"));
    }
    Ok(())
}
