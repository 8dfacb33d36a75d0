//! Flushes and compactions: when writes wait for them, what becomes of those that fail, and steps in
//! the user's hand.

mod worlds;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use weir_backend_forst::{CompactionService, Compression, ForstResources, ForstSteps};
use weir_state_api::{
    Address, BoxFuture, Error, ErrorKind, KeyRef, MaxParallelism, Result, StateId, StateKind,
    block_on,
};
use weir_tests::faults::{StoreOp, When};
use weir_tests::harness::{Harness, Store, descriptor};

use worlds::{Live, tiny};

const VALUE: [u8; 1_000] = [7; 1_000];

fn write(store: &mut Store, keys: std::ops::Range<u32>) -> Result<()> {
    let value = store.value::<Vec<u8>>("v")?;
    for number in keys {
        store.set_key(&number.to_string())?;
        value.set(store, &VALUE.to_vec())?;
    }
    Ok(())
}

fn check(store: &mut Store, keys: std::ops::Range<u32>) -> Result<()> {
    let value = store.value::<Vec<u8>>("v")?;
    for number in keys {
        store.set_key(&number.to_string())?;
        assert_eq!(value.get(store).wait()?.as_deref(), Some(&VALUE[..]), "key {number}");
    }
    Ok(())
}

/// The background takes its time; an instance learns of what has ended, and counts it, when it is used.
fn until_counted(store: &mut Store, counted: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !counted() {
        assert!(Instant::now() < deadline, "the background has not ended what it was asked for");
        std::thread::sleep(Duration::from_millis(5));
        check(store, 0..1)?;
    }
    Ok(())
}

/// Compacts nothing until a write waits for it.
#[derive(Debug)]
struct Lazy(ForstResources);

impl CompactionService for Lazy {
    fn compact(&self, _: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>> {
        let resources = self.0.clone();
        Box::pin(std::future::poll_fn(move |context| {
            if resources.usage().level0_stalls == 0 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            // The instance does it itself then.
            Poll::Ready(Err(Error::new(ErrorKind::Unavailable, "somebody waits")))
        }))
    }
}

#[test]
fn a_write_waits_when_flushed_tables_pile_up() -> Result<()> {
    let resources = ForstResources::default();
    let options = tiny()
        .with_resources(resources.clone())
        .with_max_level0_tables(8)
        .with_compaction_service(Arc::new(Lazy(resources.clone())));
    let factory = Live::new(options);
    let h = Harness::new(&factory);
    let mut store = h.open()?;
    write(&mut store, 0..2_000)?;
    assert!(resources.usage().level0_stalls > 0, "{:?}", resources.usage());
    assert!(resources.usage().compactions > 0, "{:?}", resources.usage());
    check(&mut store, 0..2_000)
}

/// What cannot be flushed stays, the writer learns of it when memory is full, and later all is well.
#[test]
fn failed_flushes_are_counted_and_tried_again() -> Result<()> {
    let factory = Live::new(tiny().with_compaction(false));
    let resources = factory.options().resources.clone();
    let h = Harness::new(&factory);
    let mut store = h.open()?;
    h.faults().fail_always(StoreOp::Close, When::Before);
    let mut written = 0;
    let refused = loop {
        assert!(written < 10_000, "no write was refused");
        match write(&mut store, written..written + 1) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(resources.usage().memtable_stalls > 0);
    until_counted(&mut store, || resources.usage().failed_flushes > 0)?;
    check(&mut store, 0..written)?;
    h.faults().heal();
    write(&mut store, written..written + 200)?;
    check(&mut store, 0..written + 200)?;
    assert!(resources.usage().flushes > 0);
    Ok(())
}

/// Where checkpoints are taken and keys last, a checkpoint writes the end only. Where keys are overwritten, it
/// writes all of them, once.
#[test]
fn what_lasts_is_flushed_before_the_checkpoint() -> Result<()> {
    const KEYS: u32 = 200;
    let options = || tiny().with_compaction(false).with_memtable_bytes(1 << 20).with_max_frozen(4);
    for (writes, early) in [(1, true), (3, false)] {
        let factory = Live::new(options());
        let resources = factory.options().resources.clone();
        let h = Harness::new(&factory);
        let mut store = h.open()?;
        let mut early_flushes = Vec::new();
        for round in 0..4 {
            let before = resources.usage().early_freezes;
            for from in (round * KEYS..(round + 1) * KEYS).step_by(20) {
                for _ in 0..writes {
                    write(&mut store, from..from + 20)?;
                }
                // A busy background would have nothing frozen early.
                let frozen = resources.usage().early_freezes;
                until_counted(&mut store, || resources.usage().flushes >= frozen)?;
            }
            early_flushes.push(resources.usage().early_freezes - before);
            h.snapshot(&mut store)?;
        }
        assert_eq!(early_flushes[0], 0, "nothing is known of checkpoints before the first one");
        assert_eq!(early_flushes[1..].iter().all(|count| (2..=4).contains(count)), early);
        assert_eq!(early_flushes[1..].iter().all(|count| *count == 0), !early, "{early_flushes:?}");
        check(&mut store, 0..4 * KEYS)?;
    }
    Ok(())
}

/// What is put into a map and removed again before it is flushed leaves nothing: scans need not pass it, and
/// flushes do not write it. What a table may have leaves a delete.
#[test]
fn what_comes_and_goes_leaves_no_deletes() -> Result<()> {
    let factory = Live::new(tiny().with_compaction(false).with_memtable_bytes(1 << 20));
    let h = Harness::new(&factory);
    let mut store = h.open()?;
    let map = store.map::<u32, u32>("m")?;
    store.set_key(&"k".to_owned())?;
    map.put(&mut store, &0, &0)?;
    h.snapshot(&mut store)?;
    // The only state.
    let physical = |store: &mut Store| store.backend().physical_entries(StateId(0));
    let before = physical(&mut store)?;
    for round in 1..100 {
        map.put(&mut store, &round, &round)?;
        map.remove(&mut store, &round)?;
    }
    assert_eq!(physical(&mut store)?, before);
    assert_eq!(map.get(&mut store, &0).wait()?, Some(0));
    map.put(&mut store, &0, &1)?;
    map.remove(&mut store, &0)?;
    assert_eq!(physical(&mut store)?, before + 1, "the table still has it");
    assert_eq!(map.get(&mut store, &0).wait()?, None);
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    let map = restored.map::<u32, u32>("m")?;
    restored.set_key(&"k".to_owned())?;
    assert!(map.is_empty(&mut restored).wait()?);
    Ok(())
}

/// The task of a snapshot begins the flush. Where tasks are dropped before they run, memtables do not pile up.
#[test]
fn snapshots_that_are_never_written_leave_few_memtables() -> Result<()> {
    let factory = Live::new(tiny().with_compaction(false));
    let resources = factory.options().resources.clone();
    let h = Harness::new(&factory);
    let mut store = h.open()?;
    for round in 0..10 {
        write(&mut store, round..round + 10)?;
        drop(h.begin_snapshot(&mut store)?);
    }
    check(&mut store, 0..19)?;
    // By the last of them, at the latest, the background has been asked.
    until_counted(&mut store, || resources.usage().flushes > 0)?;
    let handle = h.snapshot(&mut store)?;
    check(&mut h.restore(&[handle])?, 0..19)
}

/// Whoever polls a snapshot may leave it alone for a while: writes go on.
#[test]
fn a_snapshot_that_is_not_polled_holds_no_write_up() -> Result<()> {
    let factory = Live::new(tiny().with_compaction(false));
    let h = Harness::new(&factory);
    let mut store = h.open()?;
    write(&mut store, 0..20)?;
    let mut snapshot = Box::pin(h.begin_snapshot(&mut store)?.run());
    let hold = h.faults().hold(StoreOp::Close);
    let mut context = Context::from_waker(Waker::noop());
    assert!(snapshot.as_mut().poll(&mut context).is_pending());
    drop(hold);
    // More than memory holds: the writer waits for what the snapshot has begun.
    write(&mut store, 0..500)?;
    let handle = block_on(snapshot)?;
    check(&mut h.restore(&[handle])?, 0..20)?;
    check(&mut store, 0..500)
}

/// With steps a tree is compacted when it is asked for, by one compaction each time.
#[test]
fn compactions_wait_for_their_step() -> Result<()> {
    let steps = ForstSteps::default();
    let factory = Live::new(tiny().with_steps(&steps));
    let resources = factory.options().resources.clone();
    let h = Harness::new(&factory);
    let mut store = h.open()?;
    write(&mut store, 0..2_000)?;
    h.snapshot(&mut store)?;
    check(&mut store, 0..2_000)?;
    assert_eq!(resources.usage().compactions, 0);
    for step in 1..=2 {
        write(&mut store, 0..2_000)?;
        steps.compact();
        let ended = (0..1_000_000).any(|_| {
            check(&mut store, 0..1).expect("reads work");
            resources.usage().compactions >= step
        });
        assert!(ended, "{:?}", resources.usage());
        check(&mut store, 0..2_000)?;
        assert_eq!(resources.usage().compactions, step);
    }
    Ok(())
}

/// However long tables may become: a compaction makes room on local disk for what it can write at most.
#[test]
fn what_compactions_write_is_kept_on_a_disk_smaller_than_a_table() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let resources = worlds::tiny_resources().disk_cache(folder.path(), 1 << 20);
    let steps = ForstSteps::default();
    let options = worlds::tiny_with(resources)
        .with_compression(Compression::None)
        .with_table_bytes(64 << 20)
        .with_steps(&steps);
    let factory = Live::new(options);
    let resources = factory.options().resources.clone();
    let h = Harness::new(&factory);
    let mut store = h.open()?;
    write(&mut store, 0..500)?;
    steps.compact();
    until_counted(&mut store, || resources.usage().compactions == 1)?;
    assert_eq!(resources.usage().disk_cache_evicted_bytes, 0, "nothing had to make way");
    // What was compacted leaves the disk in the background.
    let on_disk = || resources.usage().disk_cache_bytes;
    until_counted(&mut store, || on_disk() < 700_000)?;
    assert!(on_disk() >= 400_000, "{} bytes of 500,000 are on the disk", on_disk());
    check(&mut store, 0..500)
}

/// Reads that wait to be sent while tables come and go under them, and their own keys are written.
#[test]
fn deferred_reads_keep_the_version_of_their_call() -> Result<()> {
    const KEYS: u32 = 3_000;
    let factory = Live::new(tiny());
    let resources = factory.options().resources.clone();
    let h = Harness::new(&factory);
    let mut backend = h.open_bytes(h.request::<String>())?;
    let state = backend.register(&descriptor("v", StateKind::Value))?;
    let keys: Vec<String> = (0..KEYS).map(|number| number.to_string()).collect();
    let at = |number: u32| -> Result<Address<'_>> {
        let key = KeyRef::new(keys[number as usize].as_bytes(), MaxParallelism::default())?;
        Ok(Address { state, key, namespace: b"", map_key: b"" })
    };
    let value =
        |number: u32, round: u32| [number.to_be_bytes(), round.to_be_bytes()].concat().repeat(20);
    for number in 0..KEYS {
        backend.put(&at(number)?, &value(number, 0))?;
    }
    let (mut deferred, before) = (Vec::new(), resources.usage().flushes);
    for number in 0..KEYS {
        if backend.get_or_defer(&at(number)?)?.is_none() {
            deferred.push(number);
        }
        backend.put(&at(number)?, &value(number, 1))?;
    }
    assert!(deferred.len() > 100, "{}", deferred.len());
    assert!(resources.usage().flushes > before + 2, "{:?}", resources.usage());
    let values = block_on(backend.send_deferred().expect("some were deferred"))?;
    assert_eq!(values.len(), deferred.len());
    for (number, found) in deferred.into_iter().zip(values) {
        assert_eq!(found.as_deref(), Some(&value(number, 0)[..]), "key {number}");
    }
    assert!(backend.send_deferred().is_none());
    Ok(())
}
