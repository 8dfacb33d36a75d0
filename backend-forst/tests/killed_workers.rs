//! Compactions in processes of their own that are killed at any moment: while they start, read, merge, write
//! or answer. The workers are this program once more.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opendal::Operator;
use opendal::services::Fs;
use weir_backend_forst::{
    CompactionService, CompactionWorker, ForstBackendFactory, ForstOptions, ForstResources,
};
use weir_state_api::{
    BoxFuture, CheckpointId, Codec, Environment, Error, ErrorKind, KeyedStore, OpenRequest,
    Ordered, Result, SnapshotRequest, Spawned, Spawner, SystemClock, TokioSpawner, block_on,
};

const KEYS: u64 = 5_000;
const ROUNDS: u64 = 24;
/// Tells a worker its folder and its job.
const JOB: &str = "WEIR_TEST_COMPACTION_JOB";

fn environment(folder: &Path, runtime: &tokio::runtime::Runtime) -> Environment {
    let root = folder.join("store");
    let staging = root.join(".staging");
    let service = Fs::default();
    let service =
        service.root(&root.to_string_lossy()).atomic_write_dir(&staging.to_string_lossy());
    let store = Operator::new(service).expect("a folder is a store");
    let spawner = Arc::new(TokioSpawner::new(runtime.handle().clone()));
    Environment::new(Arc::new(SystemClock), store, spawner)
}

/// What a worker's process does; nothing among the tests.
#[test]
fn worker() {
    let Some(job) = std::env::var_os(JOB) else { return };
    let job = Path::new(&job);
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let environment = environment(job.parent().expect("a file in the folder"), &runtime);
    let worker = CompactionWorker::new(&environment, &ForstResources::default());
    let bytes = std::fs::read(job).expect("the instance has written it");
    let result = runtime.block_on(worker.run(&bytes)).expect("the store works");
    let done = job.with_extension("done");
    std::fs::write(done.with_extension("part"), result).expect("the folder is there");
    std::fs::rename(done.with_extension("part"), done).expect("the folder is there");
}

/// Starts a worker for each job, and kills two of three.
#[derive(Debug)]
struct Processes {
    folder: std::path::PathBuf,
    spawner: Arc<dyn Spawner>,
    started: AtomicU64,
    answered: Arc<AtomicU64>,
}

impl CompactionService for Processes {
    fn compact(&self, job: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{number}.job"));
        // Up to what a job takes, and somewhat more.
        let odd = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let end = (number % 3 != 2).then(|| Duration::from_micros(odd % 80_000));
        let answered = Arc::clone(&self.answered);
        Box::pin(Spawned::blocking(&*self.spawner, move || {
            let result = run_worker(&path, &job, end).map_err(|source| {
                Error::new(ErrorKind::Unavailable, "the worker did not answer").source(source)
            })?;
            answered.fetch_add(1, Ordering::Relaxed);
            Ok(result)
        }))
    }
}

fn run_worker(path: &Path, job: &[u8], end: Option<Duration>) -> std::io::Result<Vec<u8>> {
    std::fs::write(path, job)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["worker", "--exact"]).env(JOB, path).stdout(Stdio::null()).stderr(Stdio::null());
    let mut worker = command.spawn()?;
    if let Some(end) = end {
        std::thread::sleep(end);
        worker.kill()?;
    }
    worker.wait()?;
    std::fs::read(path.with_extension("done"))
}

#[test]
fn nothing_is_lost_when_workers_are_killed() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let _inside = runtime.enter();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let environment = environment(folder.path(), &runtime);
    let answered = Arc::new(AtomicU64::new(0));
    let service = Arc::new(Processes {
        folder: folder.path().into(),
        spawner: Arc::clone(&environment.spawner),
        started: AtomicU64::new(0),
        answered: Arc::clone(&answered),
    });
    let options = ForstOptions::default()
        .with_memtable_bytes(128 << 10)
        .with_table_bytes(256 << 10)
        .with_compaction_service(service.clone());
    let open = |options, restore| -> Result<KeyedStore<u64>> {
        let codec = Codec::<u64>::id(&Ordered);
        let mut request = OpenRequest::new(environment.clone(), "operator", codec);
        request.directory = "live/".into();
        request.restore = restore;
        block_on(KeyedStore::open(&ForstBackendFactory::new(options), request))
    };
    let check = |store: &mut KeyedStore<u64>| -> Result<()> {
        let value = store.value::<u64>("v")?;
        for key in 0..KEYS {
            store.set_key(&key)?;
            assert_eq!(value.get(store).wait()?, Some((ROUNDS - 1) * KEYS + key));
        }
        Ok(())
    };
    let mut store = open(options, Vec::new())?;
    let value = store.value::<u64>("v")?;
    for round in 0..ROUNDS {
        for key in 0..KEYS {
            store.set_key(&key)?;
            value.set(&mut store, &(round * KEYS + key))?;
        }
    }
    check(&mut store)?;
    let request = SnapshotRequest::checkpoint(CheckpointId(1), "chk-1");
    let handle = block_on(store.snapshot(request)?.run())?;
    drop(store);
    check(&mut open(ForstOptions::default(), vec![handle])?)?;
    let (started, answered) =
        (service.started.load(Ordering::Relaxed), answered.load(Ordering::Relaxed));
    assert!(answered > 0 && answered < started, "{answered} of {started} jobs were answered");
    Ok(())
}
