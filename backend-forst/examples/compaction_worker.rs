//! Compactions in processes of their own: the instance keeps its CPU for records.
//!
//! ```sh
//! cargo run -p weir-backend-forst --example compaction_worker
//! ```
//!
//! The first process opens an instance on a local folder and writes to it. For each compaction it
//! starts this program again, gives it the job through a pipe and takes the result from another. The
//! first worker is killed with SIGKILL before it can answer: the instance does that job itself, and at
//! the end every value is checked.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opendal::Operator;
use opendal::services::Fs;
use tokio::runtime::Runtime;
use weir_backend_forst::{
    CompactionService, CompactionWorker, ForstBackendFactory, ForstOptions, ForstResources,
};
use weir_state_api::{
    BoxFuture, Codec, Environment, Error, ErrorKind, KeyedStore, OpenRequest, Ordered, Result,
    Spawned, Spawner, SystemClock, TokioSpawner,
};

const KEYS: u64 = 20_000;
const ROUNDS: u64 = 15;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    let _inside = runtime.enter();
    match std::env::args().nth(1) {
        Some(folder) => runtime.block_on(work(&folder, &runtime)),
        None => instance(&runtime),
    }
}

fn environment(folder: &str, runtime: &Runtime) -> Result<Environment, Failure> {
    let staging = format!("{folder}/.staging");
    let store = Operator::new(Fs::default().root(folder).atomic_write_dir(&staging))?;
    let spawner = Arc::new(TokioSpawner::new(runtime.handle().clone()));
    Ok(Environment::new(Arc::new(SystemClock), store, spawner))
}

/// The worker: one job from standard input, its result to standard output.
async fn work(folder: &str, runtime: &Runtime) -> Result<(), Failure> {
    let mut job = Vec::new();
    std::io::stdin().read_to_end(&mut job)?;
    let resources = ForstResources::default();
    let worker = CompactionWorker::new(&environment(folder, runtime)?, &resources);
    let result = worker.run(&job).await?;
    std::io::stdout().write_all(&result)?;
    Ok(())
}

/// Starts a worker for each job.
#[derive(Debug)]
struct Processes {
    folder: String,
    spawner: Arc<dyn Spawner>,
    started: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
}

impl CompactionService for Processes {
    fn compact(&self, job: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>> {
        let folder = self.folder.clone();
        let first = self.started.fetch_add(1, Ordering::Relaxed) == 0;
        let answered = Arc::clone(&self.answered);
        Box::pin(Spawned::blocking(&*self.spawner, move || {
            let result = run_worker(&folder, &job, first).map_err(|source| {
                Error::new(ErrorKind::Unavailable, "the compaction worker did not answer")
                    .source(source)
            })?;
            answered.fetch_add(1, Ordering::Relaxed);
            Ok(result)
        }))
    }
}

fn run_worker(folder: &str, job: &[u8], kill: bool) -> std::io::Result<Vec<u8>> {
    let mut worker = Command::new(std::env::current_exe()?)
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if kill {
        // It has no job yet, so it cannot have ended.
        worker.kill()?;
    }
    let sent = worker.stdin.take().map_or(Ok(()), |mut input| input.write_all(job));
    let output = worker.wait_with_output()?;
    sent?;
    if !output.status.success() {
        return Err(std::io::Error::other(format!("the worker ended with {}", output.status)));
    }
    Ok(output.stdout)
}

/// The instance: writes, has its tables compacted, and checks what it reads.
fn instance(runtime: &Runtime) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().to_str().ok_or("the temporary folder has an odd name")?.to_string();
    let environment = environment(&path, runtime)?;
    let (started, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let service = Processes {
        folder: path,
        spawner: Arc::clone(&environment.spawner),
        started: Arc::clone(&started),
        answered: Arc::clone(&answered),
    };
    let options = ForstOptions::default()
        .with_memtable_bytes(512 << 10)
        .with_table_bytes(1 << 20)
        .with_compaction_service(Arc::new(service));
    let mut request = OpenRequest::new(environment, "counts", Codec::<u64>::id(&Ordered));
    request.directory = "live/".to_string();
    let factory = ForstBackendFactory::new(options);
    let mut store: KeyedStore<u64> = runtime.block_on(KeyedStore::open(&factory, request))?;
    let counts = store.value::<u64>("counts")?;
    for round in 1..=ROUNDS {
        for key in 0..KEYS {
            store.set_key(&key)?;
            counts.set(&mut store, &(round * key))?;
        }
    }
    for key in 0..KEYS {
        store.set_key(&key)?;
        let read = counts.get(&mut store).wait()?;
        if read != Some(ROUNDS * key) {
            return Err(format!("key {key} has {read:?}").into());
        }
    }
    drop(store);
    let (started, answered) = (started.load(Ordering::Relaxed), answered.load(Ordering::Relaxed));
    println!(
        "{started} jobs were given to workers, {answered} were answered, the first was killed"
    );
    println!("all {KEYS} values are right");
    Ok(())
}
