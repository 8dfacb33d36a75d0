//! What snapshots and restores ask of the store.

mod worlds;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_backend_forst::{
    CompactionService, CompactionWorker, Compression, ForstBackendFactory, ForstOptions,
    ForstResources, RequestLimits,
};
use weir_state_api::{
    BackendFactory, BoxFuture, CheckpointId, Codec, Environment, Error, ErrorKind, KeyedStore,
    Notification, OpenRequest, Ordered, Result, SnapshotHandle, SnapshotKind, SnapshotRequest,
    block_on,
};
use weir_tests::faults::{Faults, StoreOp, When};
use weir_tests::harness::{Contents, Harness, Store, assert_same};

use worlds::Live;

/// Tables of some blocks, whatever the state's size.
fn options() -> ForstOptions {
    ForstOptions::default().with_block_bytes(1 << 10).with_inline_tail_bytes(1 << 10)
}

const KEYS: u32 = 2_000;

fn fill(store: &mut Store, round: u32) -> Result<()> {
    let value = store.value::<Vec<u8>>("v")?;
    let list = store.list::<u32>("l")?;
    let timers = store.timers::<u8>("t")?;
    for number in 0..KEYS {
        if store.set_key(&number.to_string()).is_err() {
            continue;
        }
        value.set(store, &(number + round).to_le_bytes().repeat(20))?;
        list.add(store, &round)?;
        timers.register(store, i64::from(number), &1)?;
    }
    Ok(())
}

fn touch(store: &mut Store, round: u32) -> Result<()> {
    let value = store.value::<Vec<u8>>("v")?;
    store.set_key(&"7".to_string())?;
    value.set(store, &round.to_le_bytes().to_vec())
}

/// The requests that something makes, by kind.
fn requests<R>(h: &Harness<'_>, work: impl FnOnce() -> Result<R>) -> (R, [u64; 3]) {
    let count = || [StoreOp::Close, StoreOp::Read, StoreOp::Stat].map(|op| h.faults().count(op));
    let before = count();
    let result = work().expect("nothing fails here");
    let after = count();
    (result, [0, 1, 2].map(|at| after[at] - before[at]))
}

fn snapshot(h: &Harness<'_>, store: &mut Store) -> Result<SnapshotHandle> {
    let handle = h.snapshot(store)?;
    store.notify(Notification::Complete(handle.checkpoint))?;
    Ok(handle)
}

fn factories() -> [Box<dyn BackendFactory>; 2] {
    [Box::new(ForstBackendFactory::new(options())), Box::new(Live::new(options()))]
}

#[test]
fn what_has_not_changed_is_not_written_again() -> Result<()> {
    for factory in factories() {
        let h = Harness::new(&*factory);
        let mut store = h.open()?;
        fill(&mut store, 1)?;
        let first = snapshot(&h, &mut store)?;
        assert!(first.total_bytes() > 50_000, "{first:?}");
        let (second, [written, read, _]) = requests(&h, || snapshot(&h, &mut store));
        assert_eq!((written, read), (0, 0), "{factory:?}: nothing has changed");
        assert_eq!(second.objects, first.objects);
        touch(&mut store, 9)?;
        let (third, [written, read, _]) = requests(&h, || snapshot(&h, &mut store));
        assert_eq!((written, read), (0, 0), "{factory:?}: a short tail goes into the handle");
        assert_eq!(third.objects, first.objects);
        let expected = Contents::take(&mut store)?;
        assert_same(&Contents::take(&mut h.restore(&[third])?)?, &expected);
    }
    Ok(())
}

#[test]
fn a_restore_reads_nothing_before_it_is_asked() -> Result<()> {
    for factory in factories() {
        let h = Harness::new(&*factory);
        let mut store = h.open()?;
        fill(&mut store, 1)?;
        let handle = snapshot(&h, &mut store)?;
        drop(store);
        let handles = [handle];
        let (mut store, [written, read, _]) = requests(&h, || h.restore(&handles));
        assert_eq!((written, read), (0, 0), "{factory:?}: the manifest is in the handle");
        let value = store.value::<Vec<u8>>("v")?;
        store.set_key(&"5".to_string())?;
        let (found, [_, read, stat]) = requests(&h, || value.get(&mut store).wait());
        assert_eq!(found, Some(6_u32.to_le_bytes().repeat(20)));
        // The end of the table, one block of it.
        assert!(read <= 2 && stat == 0, "{factory:?}: {read} reads, {stat} stats");
        let (_, [_, read, _]) = requests(&h, || value.get(&mut store).wait());
        assert_eq!(read, 0, "{factory:?}: the block is in memory");
    }
    Ok(())
}

/// Neither reads nor writes anything, and neither does the first checkpoint afterwards.
#[test]
fn another_parallelism_touches_no_table() -> Result<()> {
    for factory in factories() {
        let h = Harness::new(&*factory);
        let mut stores = h.open_all(2, &[])?;
        for store in &mut stores {
            fill(store, 1)?;
        }
        let mut handles = h.snapshot_all(&mut stores)?;
        let expected = Contents::take_all(&mut stores)?;
        for parallelism in [3, 1, 5] {
            let (mut stores, asked) = requests(&h, || h.open_all(parallelism, &handles));
            assert_eq!(asked, [0; 3], "{factory:?} at {parallelism}");
            let (next, asked) = requests(&h, || h.snapshot_all(&mut stores));
            assert_eq!(asked, [0; 3], "{factory:?} at {parallelism}");
            handles = next;
            let mut copies = h.open_all(parallelism, &handles)?;
            assert_same(&Contents::take_all(&mut copies)?, &expected);
        }
    }
    Ok(())
}

/// With a path of its own, an instance stores what is written when memory is short; a checkpoint names
/// that, and writes the rest.
#[test]
fn memory_pressure_writes_before_the_checkpoint_does() -> Result<()> {
    let options = options().with_memtable_bytes(64 << 10);
    let factory = Live::new(options);
    let h = Harness::new(&factory);
    let mut store = h.open()?;
    let (_, [written, ..]) = requests(&h, || fill(&mut store, 1));
    assert!(written > 0, "nothing was flushed");
    let handle = snapshot(&h, &mut store)?;
    let expected = Contents::take(&mut store)?;
    assert_same(&Contents::take(&mut h.restore(&[handle])?)?, &expected);
    Ok(())
}

/// A savepoint names only copies; the instance goes on with its own tables.
#[test]
fn a_savepoint_is_whole_and_leaves_the_rest_alone() -> Result<()> {
    for factory in factories() {
        let h = Harness::new(&*factory);
        let mut store = h.open()?;
        fill(&mut store, 1)?;
        let first = snapshot(&h, &mut store)?;
        let mut request: SnapshotRequest = h.next_checkpoint();
        request.kind = SnapshotKind::NativeSavepoint;
        let directory = request.directory.clone();
        let savepoint = block_on(store.snapshot(request)?.run())?;
        assert!(savepoint.objects.iter().all(|object| object.path.starts_with(&directory)));
        assert!(savepoint.objects.iter().all(|object| !object.shared));
        let (second, [written, ..]) = requests(&h, || snapshot(&h, &mut store));
        assert_eq!((written, &second.objects), (0, &first.objects), "{factory:?}");
        h.collect([&first, &second], []);
        let mut restored: KeyedStore<String> = h.restore(&[savepoint])?;
        let value = restored.value::<Vec<u8>>("v")?;
        restored.set_key(&"5".to_string())?;
        assert_eq!(value.get(&mut restored).wait()?, Some(6_u32.to_le_bytes().repeat(20)));
    }
    Ok(())
}

/// Each instance does everything at once, on the calling thread: what is compacted and deleted is known.
fn open_at_once(environment: &Environment, factory: &ForstBackendFactory) -> Result<Store> {
    block_on(KeyedStore::open(factory, request_at_once(environment, "live/")))
}

fn request_at_once(environment: &Environment, directory: &str) -> OpenRequest {
    let codec = <Ordered as Codec<String>>::id(&Ordered);
    let mut request = OpenRequest::new(environment.clone(), "operator", codec);
    request.directory = directory.to_string();
    request
}

fn objects_below(environment: &Environment, path: &str) -> BTreeSet<String> {
    let listed = block_on(environment.store.list(path)).expect("the store lists");
    listed.into_iter().map(|entry| entry.path().to_string()).filter(|p| !p.ends_with('/')).collect()
}

fn paths(handle: &SnapshotHandle) -> BTreeSet<String> {
    handle.objects.iter().map(|object| object.path.clone()).collect()
}

/// Flushed tables are merged, and what no handle has named is deleted when it is merged away; what a
/// handle has named is left to the collector, and is in no later handle.
#[test]
fn compactions_leave_few_tables_and_no_litter() -> Result<()> {
    let environment = Environment::in_memory();
    let factory = ForstBackendFactory::new(options().with_memtable_bytes(64 << 10));
    let mut store = open_at_once(&environment, &factory)?;
    for round in 0..10 {
        fill(&mut store, round)?;
    }
    let request = |number| SnapshotRequest::checkpoint(CheckpointId(number), "chk");
    let first = block_on(store.snapshot(request(1))?.run())?;
    assert!(first.objects.len() < 12, "{} tables", first.objects.len());
    assert_eq!(objects_below(&environment, "live/"), paths(&first));
    store.notify(Notification::Complete(first.checkpoint))?;
    for round in 10..20 {
        fill(&mut store, round)?;
    }
    let second = block_on(store.snapshot(request(2))?.run())?;
    let gone: BTreeSet<String> = paths(&first).difference(&paths(&second)).cloned().collect();
    assert!(!gone.is_empty(), "nothing was merged");
    let expected = paths(&first).union(&paths(&second)).cloned().collect();
    assert_eq!(objects_below(&environment, "live/"), expected);
    let third = block_on(store.snapshot(request(3))?.run())?;
    assert!(gone.is_disjoint(&paths(&third)), "what was left out has come back");
    Ok(())
}

/// Flushed tables that nobody compacts, and what compactions make of them: few requests either way, and
/// copies that are a small share of what is written.
#[test]
fn the_first_read_takes_few_requests_however_many_runs_there_are() -> Result<()> {
    for compaction in [false, true] {
        let faults = Faults::new();
        let mut environment = Environment::in_memory();
        environment.store = environment.store.layer(faults.layer());
        // Larger blocks than elsewhere, as they are: ends are a small share of tables.
        let options = || {
            let options = ForstOptions::default().with_compression(Compression::None);
            options.with_memtable_bytes(64 << 10).with_table_bytes(32 << 10)
        };
        let factory = ForstBackendFactory::new(options().with_compaction(compaction));
        let mut store = open_at_once(&environment, &factory)?;
        let (mut paths, mut uploaded, mut copied) = (BTreeSet::new(), 0, 0);
        for round in 1..6 {
            fill(&mut store, round)?;
            let mut request = SnapshotRequest::checkpoint(CheckpointId(round.into()), "chk");
            request.reuse_from = Some(CheckpointId(u64::from(round) - 1));
            let handle = block_on(store.snapshot(request)?.run())?;
            store.notify(Notification::Complete(handle.checkpoint))?;
            for object in &handle.objects {
                if paths.insert(object.path.clone()) {
                    uploaded += object.length;
                    copied += if object.path.ends_with(".ends") { object.length } else { 0 };
                }
            }
            for number in [0, 5, 999, KEYS - 1] {
                // Another process, which has nothing in memory.
                let elsewhere = ForstBackendFactory::new(options());
                let mut request = request_at_once(&environment, "elsewhere/");
                request.restore = vec![handle.clone()];
                let mut store: Store = block_on(KeyedStore::open(&elsewhere, request))?;
                let value = store.value::<Vec<u8>>("v")?;
                store.set_key(&number.to_string())?;
                let before = faults.count(StoreOp::Read);
                let found = value.get(&mut store).wait()?;
                assert_eq!(found, Some((number + round).to_le_bytes().repeat(20)));
                let read = faults.count(StoreOp::Read) - before;
                assert!(read <= 5, "{read} requests in round {round}, key {number}");
            }
        }
        assert!(copied > 0, "no ends were copied");
        assert!(copied <= uploaded / 8, "{copied} of {uploaded} bytes are copies");
        if !compaction {
            let mut request = SnapshotRequest::checkpoint(CheckpointId(6), "chk");
            request.reuse_from = Some(CheckpointId(5));
            let unchanged = block_on(store.snapshot(request)?.run())?;
            assert!(unchanged.objects.iter().all(|object| paths.contains(&object.path)));
            assert!(unchanged.objects.iter().any(|object| object.path.ends_with(".ends")));
        }
    }
    Ok(())
}

/// Ends are written beside the manifest that names them. Where a write leaves half of one behind, it gets
/// another name, and so the manifest is written again.
#[test]
fn a_manifest_names_the_ends_that_are_there() -> Result<()> {
    let faults = Faults::new();
    let mut environment = Environment::in_memory();
    environment.store = environment.store.layer(faults.layer());
    let limits = RequestLimits { first_pause: Duration::ZERO, ..RequestLimits::default() };
    let patient = ForstOptions::default()
        .with_resources(ForstResources::builder().request_limits(limits).build()?)
        .with_compression(Compression::None)
        .with_compaction(false)
        .with_inline_manifest_bytes(0);
    let mut store = open_at_once(&environment, &ForstBackendFactory::new(patient))?;
    let mut renamed = 0;
    for round in 0..24 {
        fill(&mut store, round)?;
        let number = u64::from(round) + 1;
        let mut request =
            SnapshotRequest::checkpoint(CheckpointId(number), format!("chk-{number}/"));
        request.reuse_from = Some(CheckpointId(number - 1));
        let task = store.snapshot(request)?;
        faults.clear_log();
        // One of the writes is done and not acknowledged, and reads like half of it.
        faults.fail(StoreOp::Close, u64::from(round % 3) + 1, When::After);
        (1..=6).for_each(|nth| faults.shorten(nth, 1));
        let handle = block_on(task.run())?;
        faults.heal();
        store.notify(Notification::Complete(handle.checkpoint))?;
        let writes = faults.log().into_iter().filter(|call| call.op == StoreOp::Write);
        let of_ends = writes.filter(|call| call.path.ends_with(".ends")).count();
        renamed += u32::from(of_ends == 2);
        let (named, mut there) = (paths(&handle), objects_below(&environment, "live/"));
        let with_it = objects_below(&environment, &format!("chk-{number}/"));
        assert!(with_it.is_subset(&named), "round {round}: {with_it:?}, named {named:?}");
        there.extend(with_it);
        assert!(named.is_subset(&there), "round {round}: {there:?}, named {named:?}");
        let mut request = request_at_once(&environment, "elsewhere/");
        request.restore = vec![handle];
        let elsewhere = ForstBackendFactory::new(options());
        let mut store: Store = block_on(KeyedStore::open(&elsewhere, request))?;
        let value = store.value::<Vec<u8>>("v")?;
        for number in [0, 999, KEYS - 1] {
            store.set_key(&number.to_string())?;
            let expected = (number + round).to_le_bytes().repeat(20);
            assert_eq!(value.get(&mut store).wait()?, Some(expected));
        }
    }
    assert!(renamed > 0, "no ends were written under another name");
    Ok(())
}

/// A walk needs an end of each run that it looks into; those that stand side by side come with one request,
/// as for a read of a key.
#[test]
fn the_first_scan_and_the_first_timers_take_few_requests_too() -> Result<()> {
    const ROUNDS: u32 = 8;
    let faults = Faults::new();
    let mut environment = Environment::in_memory();
    environment.store = environment.store.layer(faults.layer());
    let options = ForstOptions::default()
        .with_compression(Compression::None)
        .with_compaction(false)
        .with_timers_in_memory(8);
    let mut store = open_at_once(&environment, &ForstBackendFactory::new(options.clone()))?;
    let mut last = None;
    for round in 0..ROUNDS {
        let map = store.map::<u32, Vec<u8>>("m")?;
        let timers = store.timers::<u8>("t")?;
        for number in (0..KEYS).filter(|number| number % ROUNDS == round) {
            store.set_key(&number.to_string())?;
            for entry in 0..3 {
                map.put(&mut store, &entry, &number.to_le_bytes().repeat(20))?;
            }
            timers.register(&mut store, i64::from(number), &1)?;
        }
        let mut request = SnapshotRequest::checkpoint(CheckpointId(u64::from(round) + 1), "chk");
        request.reuse_from = last.map(CheckpointId);
        let handle = block_on(store.snapshot(request)?.run())?;
        store.notify(Notification::Complete(handle.checkpoint))?;
        last = Some(handle.checkpoint.0);
        if round + 1 < ROUNDS {
            continue;
        }
        let restored = || -> Result<Store> {
            // Another process, which has nothing in memory.
            let options = options.clone().with_resources(ForstResources::default());
            let elsewhere = ForstBackendFactory::new(options);
            let mut request = request_at_once(&environment, "elsewhere/");
            request.restore = vec![handle.clone()];
            block_on(KeyedStore::open(&elsewhere, request))
        };
        for number in [0_u32, 5, 999] {
            let mut store = restored()?;
            let map = store.map::<u32, Vec<u8>>("m")?;
            store.set_key(&number.to_string())?;
            let before = faults.count(StoreOp::Read);
            let found: Result<Vec<_>> = map.entries(&mut store).wait()?.collect();
            let expected = (0..3).map(|entry| (entry, number.to_le_bytes().repeat(20)));
            assert_eq!(found?, expected.collect::<Vec<_>>());
            let read = faults.count(StoreOp::Read) - before;
            // The ends of eight runs, and a block of the one that has the map.
            assert!(read <= 40, "{read} requests for the map of key {number}");
        }
        let mut store = restored()?;
        let timers = store.timers::<u8>("t")?;
        let before = faults.count(StoreOp::Read);
        let first = store.poll_timer(&timers, 0).wait()?;
        assert_eq!(first.map(|timer| timer.time), Some(0));
        let read = faults.count(StoreOp::Read) - before;
        // The ends, and the blocks with timers of eight tables of some ten blocks.
        assert!(read <= 100, "{read} requests for the first timers");
    }
    Ok(())
}

/// The same state, whether an instance compacts itself, lets others do it, or they fail.
#[test]
fn compactions_may_be_carried_out_elsewhere() -> Result<()> {
    let environment = Environment::in_memory();
    let worker = CompactionWorker::new(&environment, &ForstResources::default());
    let services: [Arc<dyn CompactionService>; 2] = [
        Arc::new(Counted { worker: worker.clone(), jobs: AtomicU64::new(0), answers: true }),
        Arc::new(Counted { worker, jobs: AtomicU64::new(0), answers: false }),
    ];
    for service in services {
        let environment = Environment { ..environment.clone() };
        let options = options().with_memtable_bytes(64 << 10);
        let factory =
            ForstBackendFactory::new(options.with_compaction_service(Arc::clone(&service)));
        let mut store = open_at_once(&environment, &factory)?;
        for round in 0..10 {
            fill(&mut store, round)?;
        }
        assert!(!format!("{service:?}").contains("jobs: 0,"), "no job was sent: {service:?}");
        let request = SnapshotRequest::checkpoint(CheckpointId(1), "chk");
        let handle = block_on(store.snapshot(request)?.run())?;
        assert!(handle.objects.len() < 12, "{} tables", handle.objects.len());
        let list = store.list::<u32>("l")?;
        store.set_key(&"7".to_string())?;
        assert_eq!(list.get(&mut store).wait()?, (0..10).collect::<Vec<_>>());
    }
    Ok(())
}

/// Counts jobs, and carries them out or not.
#[derive(Debug)]
struct Counted {
    worker: CompactionWorker,
    jobs: AtomicU64,
    answers: bool,
}

impl CompactionService for Counted {
    fn compact(&self, job: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>> {
        self.jobs.fetch_add(1, Ordering::Relaxed);
        if self.answers {
            return self.worker.compact(job);
        }
        Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "the worker is gone")) })
    }
}
