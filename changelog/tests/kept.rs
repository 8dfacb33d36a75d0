//! No handle names what may be deleted, whatever news is lost and whichever task ends first; and what else
//! an engine may do that is out of the ordinary.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;
#[path = "support/world.rs"]
mod world;

use std::sync::Arc;
use std::time::Duration;

use weir_backend_heap::HeapBackendFactory;
use weir_changelog::{ChangelogBackendFactory, ChangelogOff};
use weir_state_api::*;
use weir_tests::faults::{Faults, StoreOp};
use world::*;

fn snapshot(job: &mut Job, number: u64, reuse_from: Option<u64>) -> SnapshotTask {
    let mut request = SnapshotRequest::checkpoint(CheckpointId(number), format!("chk-{number}"));
    request.reuse_from = reuse_from.map(CheckpointId);
    job.store.snapshot(request).unwrap()
}

fn checkpoint(job: &mut Job, number: u64, reuse_from: Option<u64>) -> SnapshotHandle {
    block_on(snapshot(job, number, reuse_from).run()).unwrap()
}

#[test]
fn a_request_tells_what_lost_news_did_not() {
    let world = World::new();
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    job.count("k");
    let first = checkpoint(&mut job, 1, Some(1));
    world.collect(&[&first], &[]);
    job.count("k");
    let second = checkpoint(&mut job, 2, Some(2));
    assert_eq!(world.open(&job.factory, vec![second]).counted("k"), 2);
}

/// The only complete checkpoint goes while a later one was aborted.
#[test]
fn an_aborted_checkpoint_keeps_nothing() {
    for aborted_first in [true, false] {
        let world = World::new();
        let mut job = world.open(&world.factory(u64::MAX), vec![]);
        job.count("k");
        let first = checkpoint(&mut job, 1, None);
        let _aborted = checkpoint(&mut job, 2, None);
        let id = CheckpointId;
        let mut news = [Notification::Subsumed(id(1)), Notification::Aborted(id(2))];
        if aborted_first {
            news.reverse();
        }
        news.into_iter().for_each(|news| job.store.notify(news).unwrap());
        world.collect(&[&first], &[]);
        job.count("k");
        let third = checkpoint(&mut job, 3, None);
        assert_eq!(world.open(&job.factory, vec![third]).counted("k"), 2);
    }
}

/// Two instances share an object. One is past both barriers before the other has seen the first; that one
/// names the object for the first, and must name it with the second, although it needs it no more:
/// because a whole checkpoint follows, or because the second task ends before the first.
#[test]
fn overlapping_checkpoints_name_what_others_need() {
    for whole in [true, false] {
        let world = World::new();
        let options = support::options(u64::MAX)
            .with_chunk_bytes(1)
            .with_batch_bytes(1 << 20)
            .with_batch_linger(Duration::from_secs(100));
        let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
        let mut a = world.open_subtask(&factory, 0, 2, vec![]);
        let mut b = world.open_subtask(&factory, 1, 2, vec![]);
        let by_event_time = Ttl::new(Duration::from_secs(9)).event_time();
        a.store.with_ttl(by_event_time).value::<u64>("other").unwrap();
        let (of_a, of_b) = (a.own_key(), b.own_key());
        let (b1, b2) = (checkpoint(&mut b, 1, None), checkpoint(&mut b, 2, None));
        b.count(&of_b);
        a.count(&of_a);
        let task = snapshot(&mut a, 1, None);
        let (a1, a2);
        if whole {
            a1 = block_on(task.run()).unwrap();
            // What expires by event time has to be known, so the log begins anew.
            a.store.advance_watermark(5);
            a2 = checkpoint(&mut a, 2, None);
        } else {
            world.wait_until("the object is uploaded", || factory.control().metrics().objects == 1);
            factory.control().materialize();
            a.store.notify(Notification::Complete(CheckpointId(0))).unwrap();
            a2 = checkpoint(&mut a, 2, None);
            a1 = block_on(task.run()).unwrap();
        }
        // 1 is complete, then 2 is, then 1 is subsumed.
        world.collect(&[&a1, &b1], &[&a2, &b2]);
        let (a3, b3) = (snapshot(&mut a, 3, None), snapshot(&mut b, 3, None));
        let third = vec![block_on(a3.run()).unwrap(), block_on(b3.run()).unwrap()];
        let mut restored = world.open(&factory, third);
        assert_eq!([restored.counted(&of_a), restored.counted(&of_b)], [1, 1], "whole: {whole}");
    }
}

/// A copy serves a restore, but what is lost in the store is lost: the next handles would name it.
#[test]
fn a_local_copy_does_not_hide_a_lost_object() {
    let world = World::new();
    let options = support::options(u64::MAX).with_local_copies(memory());
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let mut job = world.open(&factory, vec![]);
    job.count("k");
    let handle = checkpoint(&mut job, 1, None);
    let lost: Vec<_> = list(&world.bare).into_iter().filter(|path| path.contains("log-")).collect();
    lost.iter().for_each(|path| block_on(world.bare.delete(path)).unwrap());
    let error = world.try_open(&factory, world.open_request().restore_from(vec![handle]));
    let error = error.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(error.object_path(), lost.first().map(String::as_str), "{error}");
}

/// A disk that does not answer does not hold up a restore that the store can do.
#[test]
fn a_local_copy_that_does_not_come_is_left() {
    let (world, faults) = (World::new(), Faults::new());
    let options = support::options(u64::MAX)
        .with_local_copies(memory().layer(faults.layer()))
        .with_timeouts(Duration::from_millis(1), Duration::from_secs(60));
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let mut job = world.open(&factory, vec![]);
    job.count("k");
    let handle = checkpoint(&mut job, 1, None);
    let _disk = faults.hold(StoreOp::Read);
    assert_eq!(world.open(&factory, vec![handle]).counted("k"), 1);
    assert_eq!((faults.count(StoreOp::Read), factory.control().metrics().local_reads), (1, 0));
}

/// A process that goes on for ever, with jobs that come and go, keeps none of their stores.
#[test]
fn the_writer_lets_go_of_a_store_that_nobody_uses() {
    let factory = World::new().factory(u64::MAX);
    let (world, other) = (World::new(), World::new());
    let store = Arc::downgrade(world.bare.service());
    let mut stays = other.open(&factory, vec![]);
    let mut job = world.open(&factory, vec![]);
    job.count("k");
    let task = snapshot(&mut job, 1, None);
    drop(job);
    // Its objects may be named yet.
    let handle = block_on(task.run()).unwrap();
    assert_eq!(world.open(&factory, vec![handle]).counted("k"), 1);
    drop(world);
    other.wait_until("the store is dropped", || store.strong_count() == 0);
    stays.count("k");
    assert_eq!(checkpoint(&mut stays, 1, None).checkpoint, CheckpointId(1));
}

/// One job that lives long keeps nothing of those that come and go beside it.
#[test]
fn the_writer_lets_go_of_instances_that_have_ended() {
    let world = World::new();
    let factory = world.factory(u64::MAX);
    let mut stays = world.open(&factory, vec![]);
    stays.count("k");
    let mut gone = Vec::new();
    for number in 1..=20 {
        let mut request = world.open_request();
        let spawner: Arc<dyn Spawner> = Arc::new(support::HoldingSpawner::default());
        gone.push(Arc::downgrade(&spawner));
        request.environment.spawner = spawner;
        let mut job = world.open_as(&factory, request);
        job.count("k");
        checkpoint(&mut job, number, None);
    }
    // The one that was opened last lends its threads, until another one is opened.
    let _last = world.open(&factory, vec![]);
    world.wait_until("they are dropped", || gone.iter().all(|spawner| spawner.strong_count() == 0));
    checkpoint(&mut stays, 21, None);
}

/// A store that does not answer costs checkpoints, and keeps nothing that was to be written to it.
#[test]
fn an_upload_that_hangs_ends() {
    let world = World::new();
    let options =
        support::options(u64::MAX).with_timeouts(Duration::from_secs(60), Duration::from_millis(1));
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let mut job = world.open(&factory, vec![]);
    job.count("k");
    let store = world.faults.hold(StoreOp::Close);
    // The writer's thread itself carries these uploads out.
    for number in 1..=3 {
        let error = block_on(snapshot(&mut job, number, None).run()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    drop(store);
    assert!(factory.control().metrics().in_flight_bytes > 0, "the batches wait");
}

#[test]
fn a_copy_that_hangs_ends_and_costs_only_the_copy() {
    let (world, disk) = (World::new(), Faults::new());
    let options = support::options(u64::MAX)
        .with_local_copies(memory().layer(disk.layer()))
        .with_timeouts(Duration::from_secs(60), Duration::from_secs(1));
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let mut job = world.open(&factory, vec![]);
    let _disk = disk.hold(StoreOp::Close);
    job.count("k");
    let handle = checkpoint(&mut job, 1, None);
    world.wait_until("the copy is given up", || {
        factory.control().metrics().failed_local_copies == 1
    });
    assert_eq!(world.open(&factory, vec![handle]).counted("k"), 1);
}

/// Each life of a job materializes before its log, with those of former lives, is too long.
#[test]
fn a_job_that_crashes_often_materializes_all_the_same() {
    for changes in [1_000, u64::MAX] {
        let world = World::new();
        let options = support::options(changes).with_max_batches(50);
        let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
        let (mut handles, mut number, mut counted) = (vec![], 0, 0);
        for _ in 0..20 {
            let mut job = world.open(&factory, std::mem::take(&mut handles));
            assert_eq!(job.counted("k"), counted);
            for _ in 0..20 {
                (0..30).for_each(|_| job.count("k"));
                counted += 30;
                number += 1;
                handles = vec![checkpoint(&mut job, number, None)];
                job.store.notify(Notification::Complete(CheckpointId(number))).unwrap();
            }
            let objects = handles.iter().map(|handle| handle.objects.len()).sum::<usize>();
            assert!(objects <= 60, "{objects} objects");
        }
    }
}

/// Nobody but the one thread of a runtime, which waits until there is room for more.
#[test]
fn back_pressure_on_a_current_thread_runtime_passes() {
    let options = support::options(u64::MAX)
        .with_chunk_bytes(1)
        .with_back_pressure(1, Duration::from_secs(600));
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let spawner = Arc::new(TokioSpawner::new(runtime.handle().clone()));
    let mut request = World::new().open_request();
    request.environment.spawner = spawner;
    runtime.block_on(async {
        let mut store: KeyedStore<String> = KeyedStore::open(&factory, request).await.unwrap();
        let count = store.value::<u64>("count").unwrap();
        store.set_key(&"k".to_string()).unwrap();
        for number in 0..50 {
            count.set(&mut store, &number).unwrap();
        }
    });
    let metrics = factory.control().metrics();
    assert_eq!((metrics.abandoned_logs, metrics.changes), (0, 50));
}

/// A snapshot that its engine drops has not been written.
#[test]
fn a_whole_checkpoint_that_is_dropped_has_failed() {
    let world = World::new();
    let factory = world.factory(u64::MAX);
    let mut job = world.open(&factory, vec![]);
    let by_event_time = Ttl::new(Duration::from_secs(9)).event_time();
    job.store.with_ttl(by_event_time).value::<u64>("other").unwrap();
    job.count("k");
    // What expires by event time has to be known, so the log begins anew.
    job.store.advance_watermark(5);
    drop(snapshot(&mut job, 1, None));
    job.store.notify(Notification::Aborted(CheckpointId(1))).unwrap();
    let metrics = factory.control().metrics();
    assert_eq!((metrics.whole_checkpoints, metrics.materializations_failed), (1, 1));
    let handle = checkpoint(&mut job, 2, None);
    assert_eq!(world.open(&factory, vec![handle]).counted("k"), 1);
}

/// Who switches the changelog off sees how far the last replay is.
#[test]
fn the_progress_of_switching_off_is_counted() {
    let world = World::new();
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    (0..300).for_each(|number| job.count(&number.to_string()));
    let handle = checkpoint(&mut job, 1, None);
    let off = ChangelogOff::new(HeapBackendFactory::default());
    drop(world.open_with(&off, vec![handle]));
    let metrics = off.metrics();
    assert_eq!((metrics.changes_to_replay, metrics.changes_replayed), (300, 300));
}

/// Each run of a job may have a runtime of its own, over one store and one factory.
#[test]
fn uploads_run_where_their_instance_does() {
    let store = memory();
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), support::options(99));
    let mut handles = Vec::new();
    for number in 1..=3 {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let spawner = Arc::new(TokioSpawner::new(runtime.handle().clone()));
        let environment = Environment::new(Arc::new(SystemClock), store.clone(), spawner);
        let mut request = OpenRequest::new(environment, "op", Codec::<String>::id(&Ordered));
        request.directory = format!("live/{number}/");
        let request = request.restore_from(std::mem::take(&mut handles));
        let mut job: KeyedStore<String> = block_on(KeyedStore::open(&factory, request)).unwrap();
        let count = job.value::<u64>("count").unwrap();
        job.set_key(&"k".to_string()).unwrap();
        assert_eq!(count.get(&mut job).wait().unwrap().unwrap_or(0), number - 1);
        count.set(&mut job, &number).unwrap();
        let request = SnapshotRequest::checkpoint(CheckpointId(number), format!("chk-{number}"));
        handles.push(block_on(job.snapshot(request).unwrap().run()).unwrap());
    }
}

/// Spawns nothing and panics, as a client does that misses its runtime.
#[derive(Debug)]
struct Panicking;

impl Spawner for Panicking {
    fn spawn(&self, _: BoxFuture<'static, ()>) {
        panic!("no runtime");
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send + 'static>) {
        work();
    }
}

/// A panic in one instance's surroundings costs that instance its log, and no later one.
#[test]
fn a_panic_of_the_writer_is_not_for_ever() {
    let world = World::new();
    let factory = world.factory(u64::MAX);
    let mut other = world.open(&factory, vec![]);
    other.count("k");
    let mut request = world.open_request();
    request.environment.spawner = Arc::new(Panicking);
    let mut job = world.open_as(&factory, request);
    job.count("k");
    let error = block_on(snapshot(&mut job, 1, None).run()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");

    let mut job = world.open(&factory, vec![]);
    job.count("k");
    let handle = checkpoint(&mut job, 2, None);
    assert_eq!(world.open(&factory, vec![handle]).counted("k"), 1);

    // One that was open before has a whole checkpoint, and a log again.
    for number in 2..=4 {
        other.count("k");
        let handle = checkpoint(&mut other, number, None);
        assert_eq!(world.open(&factory, vec![handle]).counted("k"), number);
    }
    assert_eq!(factory.control().metrics().whole_checkpoints, 1);
}

/// The writer is told of a checkpoint by its task, and also when nobody runs that.
#[test]
fn a_task_that_is_not_run_holds_nothing_back() {
    let world = World::new();
    let factory = world.factory(u64::MAX);
    let mut job = world.open(&factory, vec![]);
    job.count("k");
    drop(snapshot(&mut job, 1, None));
    world.wait_until("its batch is uploaded", || {
        let metrics = factory.control().metrics();
        metrics.objects == 1 && metrics.in_flight_bytes == 0
    });

    job.count("k");
    let second = snapshot(&mut job, 2, None);
    job.count("k");
    let third = checkpoint(&mut job, 3, None);
    job.count("k");
    let fourth = snapshot(&mut job, 4, None);
    drop(job);
    let fourth = block_on(fourth.run()).unwrap();
    let second = block_on(second.run()).unwrap();
    for (handle, count) in [(second, 2), (third, 3), (fourth, 4)] {
        assert_eq!(world.open(&factory, vec![handle]).counted("k"), count);
    }
}

#[test]
fn switching_off_cuts_handles_of_a_changelog_too() {
    let world = World::new();
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    job.count("k");
    let handle = checkpoint(&mut job, 1, None);
    let off = ChangelogOff::new(HeapBackendFactory::default());
    let half = KeyGroupRange::new(0, 63);
    assert_eq!(off.clip(&handle, half).unwrap().key_groups, half);
}

/// Without a folder of its own an instance has no log, and says so.
#[test]
fn an_instance_without_a_folder_is_counted() {
    let world = World::new();
    let factory = world.factory(u64::MAX);
    let mut request = world.open_request();
    request.directory = String::new();
    let mut job = world.open_as(&factory, request);
    job.count("k");
    checkpoint(&mut job, 1, None);
    let metrics = factory.control().metrics();
    assert_eq!((metrics.instances_without_log, metrics.changes), (1, 0));

    for folder in ["live/without-a-slash", "../", "live/./", "live/../7/"] {
        let mut request = world.open_request();
        request.directory = folder.into();
        let error = world.try_open(&factory, request).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
        assert!(error.to_string().contains(folder), "{error}");
    }
}

/// Times and sizes that mean "never" and "without limit".
#[test]
fn the_largest_options_are_taken() {
    let world = World::new();
    let options = support::options(u64::MAX)
        .with_timeouts(Duration::MAX, Duration::MAX)
        .with_batch_linger(Duration::MAX)
        .with_retries(u32::MAX, Duration::MAX)
        .with_chunk_bytes(usize::MAX)
        .with_batch_bytes(u64::MAX)
        .with_back_pressure(0, Duration::MAX);
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let mut job = world.open(&factory, vec![]);
    for number in 1..=3 {
        job.count("k");
        let handle = checkpoint(&mut job, number, None);
        assert_eq!(world.open(&factory, vec![handle]).counted("k"), number);
    }
}
