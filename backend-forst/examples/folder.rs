//! State in a store, from the first write to a restore at another parallelism.
//!
//! ```sh
//! cargo run -p weir-backend-forst --example folder
//! ```
//!
//! The store is a local folder here; any service of OpenDAL is opened in its place. Two subtasks count
//! words, take a checkpoint each and are dropped; three others go on, of whom none downloads anything
//! before it is asked.

use std::sync::Arc;

use opendal::Operator;
use opendal::services::Fs;
use tokio::runtime::Runtime;
use weir_backend_forst::{ForstBackendFactory, ForstOptions, ForstResources};
use weir_state_api::{
    CheckpointId, Codec, Environment, KeyedStore, MaxParallelism, Notification, OpenRequest,
    Ordered, Result, SnapshotHandle, SnapshotRequest, SystemClock, TokioSpawner,
};

type Failure = Box<dyn std::error::Error>;

const WORDS: u64 = 100_000;

fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let runtime = Runtime::new()?;
    let root = folder.path().join("store").display().to_string();
    let staging = format!("{root}/.staging");
    let store = Operator::new(Fs::default().root(&root).atomic_write_dir(&staging))?;
    let spawner = Arc::new(TokioSpawner::new(runtime.handle().clone()));
    let environment = Environment::new(Arc::new(SystemClock), store, spawner);
    // One set of resources for all instances of the process: they share caches and budgets.
    let resources = ForstResources::builder()
        .cache_bytes(64 << 20)
        .disk_cache(folder.path().join("cache"), 1 << 30)
        .build()?;
    let options = ForstOptions::default().with_resources(resources.clone());
    let factory = ForstBackendFactory::new(options);

    let mut handles = Vec::new();
    for subtask in 0..2 {
        let mut store = open(&environment, &factory, &runtime, (2, subtask), Vec::new())?;
        let count = store.value::<u64>("count")?;
        for word in 0..WORDS {
            // Words of other subtasks are refused.
            if store.set_key(&word).is_ok() {
                count.set(&mut store, &(word * 2))?;
            }
        }
        let mut request = SnapshotRequest::checkpoint(CheckpointId(1), format!("chk-1/{subtask}/"));
        request.shared_directory = format!("shared/1/{subtask}/");
        // The call only freezes memory; an engine lets the rest run while records go on.
        handles.push(runtime.block_on(store.snapshot(request)?.run())?);
        store.notify(Notification::Complete(CheckpointId(1)))?;
    }
    println!("{} objects are named by the checkpoint", objects(&handles));

    let mut found = 0;
    for subtask in 0..3 {
        let mut store = open(&environment, &factory, &runtime, (3, subtask), handles.clone())?;
        let downloaded = store.statistics().bytes_downloaded;
        assert_eq!(downloaded, 0, "a restore downloads nothing");
        let count = store.value::<u64>("count")?;
        for word in 0..WORDS {
            if store.set_key(&word).is_ok() {
                assert_eq!(count.get(&mut store).wait()?, Some(word * 2));
                found += 1;
            }
        }
    }
    assert_eq!(found, WORDS);
    println!("all of {found} words are there with three subtasks: {:#?}", resources.usage());
    Ok(())
}

/// Opens one of so many subtasks.
fn open(
    environment: &Environment,
    factory: &ForstBackendFactory,
    runtime: &Runtime,
    (parallelism, subtask): (u16, u16),
    handles: Vec<SnapshotHandle>,
) -> Result<KeyedStore<u64>> {
    let request = OpenRequest::new(environment.clone(), "count", Codec::<u64>::id(&Ordered));
    let mut request =
        request.for_subtask(MaxParallelism::default(), parallelism, subtask)?.restore_from(handles);
    // Its own place in the store, which nobody before it has had.
    request.directory = format!("live/{parallelism}-{subtask}/");
    runtime.block_on(KeyedStore::open(factory, request))
}

fn objects(handles: &[SnapshotHandle]) -> usize {
    handles.iter().map(|handle| handle.objects.len()).sum()
}
