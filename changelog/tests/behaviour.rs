//! What a changelog does beyond the contract of a backend.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;
#[path = "support/world.rs"]
mod world;

use std::time::Duration;

use weir_backend_heap::{HeapBackendFactory, HeapOptions};
use weir_changelog::{ChangelogBackendFactory, ChangelogOff, Materialization};
use weir_state_api::*;
use weir_tests::faults::{StoreOp, When};
use world::*;

/// A counter goes up by one a change; materializations begin after every seventh change and end two changes
/// later, or between two changes. Every checkpoint restores to the exact count.
#[test]
fn nothing_is_lost_or_counted_twice_around_a_materialization() {
    for late in [0, 2] {
        let world = World::new();
        let mut job = world.open(&world.factory(7), vec![]);
        let mut handles = Vec::new();
        for number in 1..=60 {
            support::holding(|| job.count("k"));
            if late == 0 || number % 7 == late {
                world.spawner.run(usize::MAX);
            }
            handles.push((number, job.checkpoint(&world)));
        }
        let metrics = job.factory.control().metrics();
        assert!(metrics.materializations_done >= 6, "{metrics:?}");
        for (number, handle) in handles {
            let mut restored = world.open(&job.factory, vec![handle]);
            assert_eq!(restored.counted("k"), number, "late {late}");
        }
    }
}

/// A checkpoint uploads what has changed since the last one, and nothing when nothing has.
#[test]
fn a_checkpoint_uploads_only_what_changed() {
    let world = World::new();
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    (0..1_000).for_each(|number| job.count(&format!("{number}")));
    job.checkpoint(&world);
    let before = job.factory.control().metrics();
    job.count("k");
    job.checkpoint(&world);
    let after = job.factory.control().metrics();
    assert_eq!((after.objects - before.objects, after.changes - before.changes), (1, 1));
    assert!(after.object_bytes - before.object_bytes < 100);
    job.checkpoint(&world);
    assert_eq!(job.factory.control().metrics().objects, after.objects);
}

/// The batches of all instances of a process are in one object, and an instance names it for others until
/// they need it no more.
#[test]
fn instances_share_objects_and_name_them_for_each_other() {
    let world = World::new();
    // Nobody waits so long: all instances are there before.
    let options = support::options(u64::MAX).with_batch_linger(Duration::from_secs(600));
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let mut jobs: Vec<Job> = (0..3).map(|n| world.open_subtask(&factory, n, 3, vec![])).collect();
    let keys: Vec<String> = jobs.iter_mut().map(Job::own_key).collect();
    jobs.iter_mut().zip(&keys).for_each(|(job, key)| job.count(key));
    let handles = checkpoint_all(&world, &mut jobs);
    assert_eq!(factory.control().metrics().objects, 1);
    assert!(handles.iter().all(|handle| handle.objects.len() == 1));
    let common = handles[0].objects[0].path.clone();

    // The first one materializes: it needs the object no more, the others do.
    factory.control().materialize();
    jobs[0].store.notify(Notification::Complete(handles[0].checkpoint)).unwrap();
    let again = checkpoint_all(&world, &mut jobs);
    assert!(names(&again[0], &common), "the others may not have named it yet");
    jobs.iter_mut().for_each(|job| {
        job.store.notify(Notification::Complete(again[0].checkpoint)).unwrap();
    });
    checkpoint_all(&world, &mut jobs);
    let last = checkpoint_all(&world, &mut jobs);
    assert!(last.iter().all(|handle| !names(handle, &common)), "nobody needs it");
    let mut one = world.open(&factory, last);
    for key in &keys {
        assert_eq!(one.counted(key), 1);
    }
}

/// What was uploaded and no handle has named is deleted by the writer when it is of no use any more.
#[test]
fn what_was_never_named_is_deleted_by_the_writer() {
    let world = World::new();
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    // Objects are uploaded ahead of a checkpoint as they fill.
    let mut written = 0;
    while job.factory.control().metrics().objects < 2 {
        job.count(&format!("{written}"));
        written += 1;
        assert!(written < 1_000_000, "no object in {written} changes");
    }
    job.factory.control().materialize();
    job.store.notify(Notification::Complete(CheckpointId(0))).unwrap();
    let handle = job.checkpoint(&world);
    world.wait_until("they are deleted", || job.factory.control().metrics().deleted_objects >= 2);
    assert_eq!(world.open(&job.factory, vec![handle]).counted("0"), 1);
}

/// Checkpoints fail while the store does; the next one uploads again what has failed.
#[test]
fn a_failed_batch_is_uploaded_by_a_later_checkpoint() {
    let world = World::new();
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    job.count("k");
    world.faults.fail_always(StoreOp::Close, When::Before);
    for _ in 0..3 {
        let error = job.try_checkpoint(&world).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        job.count("k");
    }
    world.faults.heal();
    let handle = job.checkpoint(&world);
    let metrics = job.factory.control().metrics();
    assert_eq!((metrics.failed_uploads, metrics.failed_attempts), (3, 9), "{metrics:?}");
    assert_eq!(metrics.whole_checkpoints, 0);
    assert_eq!(world.open(&job.factory, vec![handle]).counted("k"), 4);
}

/// When a task would wait too long for a store that is away, it goes on without a log. The next
/// checkpoint is whole, and the log goes on from there.
#[test]
fn a_log_that_cannot_be_uploaded_is_given_up_and_begins_anew() {
    let world = World::new();
    let options = support::options(u64::MAX).with_back_pressure(10_000, Duration::from_millis(1));
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let mut job = world.open(&factory, vec![]);
    world.faults.fail_always(StoreOp::Close, When::Before);
    (0..2_000).for_each(|_| job.count("k"));
    let metrics = factory.control().metrics();
    assert_eq!(metrics.stalls, 1, "{metrics:?}");
    assert_eq!(metrics.abandoned_logs, 1, "{metrics:?}");
    world.faults.heal();
    world.wait_until("nothing is in flight any more", || {
        factory.control().metrics().in_flight_bytes == 0
    });
    let whole = job.checkpoint(&world);
    job.count("k");
    let next = job.checkpoint(&world);
    assert_eq!(factory.control().metrics().whole_checkpoints, 1);
    assert_eq!(world.open(&factory, vec![whole]).counted("k"), 2_000);
    assert_eq!(world.open(&factory, vec![next]).counted("k"), 2_001);
}

/// A task that waits for room gets it when the writer has uploaded, with nobody else's help.
#[test]
fn a_task_that_waits_is_let_go() {
    let world = World::new();
    let options = support::options(u64::MAX)
        .with_batch_bytes(1 << 30)
        .with_back_pressure(3_000, Duration::from_secs(600));
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let mut job = world.open(&factory, vec![]);
    (0..5_000).for_each(|_| job.count("k"));
    let metrics = factory.control().metrics();
    assert!(metrics.stalls > 0 && metrics.abandoned_logs == 0, "{metrics:?}");
    let handle = job.checkpoint(&world);
    assert_eq!(world.open(&factory, vec![handle]).counted("k"), 5_000);
}

/// Failed materializations cost nothing but a longer log.
#[test]
fn a_failed_materialization_fails_no_checkpoint() {
    let world = World::new();
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    job.count("k");
    let mut last = job.checkpoint(&world);
    for _ in 0..2 {
        job.count("k");
        job.factory.control().materialize();
        support::holding(|| job.store.notify(Notification::Complete(last.checkpoint))).unwrap();
        world.faults.fail_always(StoreOp::Close, When::Before);
        world.spawner.run(usize::MAX);
        world.faults.heal();
        last = job.checkpoint(&world);
    }
    let metrics = job.factory.control().metrics();
    assert_eq!((metrics.materializations_begun, metrics.materializations_failed), (3, 2));
    job.factory.control().materialize();
    job.store.notify(Notification::Complete(last.checkpoint)).unwrap();
    let last = job.checkpoint(&world);
    assert_eq!(job.factory.control().metrics().materializations_done, 2);
    assert_eq!(world.open(&job.factory, vec![last]).counted("k"), 3);
}

/// Neither a savepoint nor an abort keeps the next materialization from happening.
#[test]
fn savepoints_and_aborts_stop_no_materialization() {
    let world = World::new();
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    for _ in 0..3 {
        job.count("k");
        let mut request = world.request();
        request.kind = SnapshotKind::NativeSavepoint;
        let id = request.checkpoint;
        block_on(job.store.snapshot(request).unwrap().run()).unwrap();
        job.factory.control().materialize();
        job.store.notify(Notification::Aborted(id)).unwrap();
    }
    job.checkpoint(&world);
    assert_eq!(
        job.factory.control().metrics().materializations_done,
        4,
        "one is of the empty instance"
    );
}

/// On, off and on again; what an earlier checkpoint alone names is deleted each time.
#[test]
fn the_changelog_is_switched_on_and_off_between_restores() {
    for incremental in [false, true] {
        let world = World::new();
        let options = HeapOptions::default().with_incremental_snapshots(incremental);
        let heap = HeapBackendFactory::new(options);
        let mut plain = world.open_with(&heap, vec![]);
        plain.count("k");
        let first = plain.checkpoint(&world);
        assert_eq!(first.backend, "heap");

        let factory = ChangelogBackendFactory::new(heap.clone(), support::options(u64::MAX));
        let mut job = world.open(&factory, vec![first.clone()]);
        job.count("k");
        let second = job.checkpoint(&world);
        assert_eq!(second.backend, "changelog");
        job.store.notify(Notification::Complete(second.checkpoint)).unwrap();
        job.count("k");
        let third = job.checkpoint(&world);
        world.collect(&[&first, &second], &[&third]);

        let mut off = world.open_with(&ChangelogOff::new(heap.clone()), vec![third.clone()]);
        off.count("k");
        let fourth = off.checkpoint(&world);
        off.store.notify(Notification::Complete(fourth.checkpoint)).unwrap();
        off.count("k");
        let fifth = off.checkpoint(&world);
        assert_eq!(fifth.backend, "heap");
        world.collect(&[&third, &fourth], &[&fifth]);

        let mut on = world.open(&factory, vec![fifth]);
        assert_eq!(on.counted("k"), 5);
        on.count("k");
        let sixth = on.checkpoint(&world);
        assert_eq!(world.open(&factory, vec![sixth]).counted("k"), 6);
    }
}

/// The wrapped backend's numbers are its own: it hears of materializations, once they are used, and not of
/// checkpoints.
#[test]
fn the_wrapped_backend_hears_of_materializations_only() {
    let world = World::new();
    let spy = Spy::default();
    let factory = ChangelogBackendFactory::new(spy.clone(), support::options(u64::MAX));
    let mut job = world.open(&factory, vec![]);
    for number in 0..20 {
        job.count("k");
        let handle = job.checkpoint(&world);
        if number % 4 == 0 {
            factory.control().materialize();
        }
        let news = if number % 3 == 0 {
            Notification::Aborted(handle.checkpoint)
        } else {
            Notification::Complete(handle.checkpoint)
        };
        job.store.notify(news).unwrap();
    }
    let news = spy.news();
    let complete: Vec<u64> = news
        .iter()
        .filter_map(|news| match news {
            Notification::Complete(id) => Some(id.0),
            _ => None,
        })
        .collect();
    // The one of the empty instance, and five more.
    assert_eq!(complete, [1, 2, 3, 4, 5, 6], "{news:?}");
    assert!(!news.iter().any(|news| matches!(news, Notification::Aborted(_))), "{news:?}");
}

/// Without a folder for objects between snapshots there is no log.
#[test]
fn without_a_directory_snapshots_are_passed_on() {
    let world = World::new();
    let factory = world.factory(1);
    let mut request = world.open_request();
    request.directory.clear();
    let mut job = world.open_as(&factory, request.clone());
    job.count("k");
    let first = job.checkpoint(&world);
    job.store.notify(Notification::Complete(first.checkpoint)).unwrap();
    job.count("k");
    let second = job.checkpoint(&world);
    let metrics = factory.control().metrics();
    assert_eq!((metrics.objects, metrics.materializations_begun), (0, 0));
    assert_eq!(world.open(&factory, vec![second]).counted("k"), 2);
    let mut restored = world.open_as(&factory, request.restore_from(vec![first]));
    assert_eq!(restored.counted("k"), 1);
}

#[test]
fn a_changelog_around_a_changelog_is_refused() {
    let world = World::new();
    let factory = ChangelogBackendFactory::new(world.factory(1), support::options(1));
    let error = block_on(factory.open(world.open_request())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
}

/// A restore reads local copies where they are whole, and the store where they are not.
#[test]
fn local_copies_are_read_first_and_only_if_they_are_whole() {
    let world = World::new();
    let copies = memory();
    let options = support::options(u64::MAX).with_local_copies(copies.clone());
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let mut jobs: Vec<Job> = (0..2).map(|n| world.open_subtask(&factory, n, 2, vec![])).collect();
    let keys: Vec<String> = jobs.iter_mut().map(Job::own_key).collect();
    jobs.iter_mut().zip(&keys).for_each(|(job, key)| job.count(key));
    let handles = checkpoint_all(&world, &mut jobs);
    let read = || factory.control().metrics().local_reads;
    // To another parallelism too.
    let mut one = world.open(&factory, handles.clone());
    assert_eq!((one.counted(&keys[0]), one.counted(&keys[1]), read()), (1, 1, 2));
    for path in list(&copies) {
        let mut bytes = block_on(copies.read(&path)).unwrap().to_vec();
        bytes.pop();
        block_on(copies.write(&path, bytes)).unwrap();
    }
    let mut one = world.open(&factory, handles);
    assert_eq!((one.counted(&keys[0]), read()), (1, 2));
}

/// Copies outlive their instances, for the next attempt in this process or another. After a
/// materialization those go that nobody needs, and nothing else.
#[test]
fn local_copies_outlive_an_attempt_and_are_swept_after_a_materialization() {
    let world = World::new();
    let copies = memory();
    for name in ["log-of-a-former-process", "something else"] {
        block_on(copies.write(name, "x")).unwrap();
    }
    let options = support::options(u64::MAX).with_local_copies(copies.clone());
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let mut first = world.open(&factory, vec![]);
    first.count("k");
    let handle = first.checkpoint(&world);
    drop(first);
    let mut job = world.open(&factory, vec![handle]);
    assert_eq!((factory.control().metrics().local_reads, list(&copies).len()), (1, 3));

    let mut swept = Vec::new();
    for _ in 0..2 {
        job.count("k");
        let handle = job.checkpoint(&world);
        factory.control().materialize();
        // Begun by one piece of news, taken in with the next.
        for _ in 0..2 {
            job.store.notify(Notification::Complete(handle.checkpoint)).unwrap();
        }
        swept.push(factory.control().metrics().swept_local_copies);
    }
    // The newest is named for others, who may need it, until the next checkpoint.
    assert_eq!(swept, [2, 3]);
    let left = list(&copies);
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&"something else".into()), "{left:?}");
    let handle = job.checkpoint(&world);
    assert_eq!(world.open(&factory, vec![handle]).counted("k"), 3);
}

/// What clean-up removes is not logged: a replay brings it back expired.
#[test]
fn what_has_expired_stays_expired_after_a_replay() {
    let world = World::new();
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    let ttl = Ttl::new(Duration::from_millis(100));
    let value = job.store.with_ttl(ttl).value::<u32>("short").unwrap();
    for key in ["old", "new"] {
        world.clock.set(if key == "old" { 0 } else { 60 });
        job.store.set_key(&key.to_string()).unwrap();
        value.set(&mut job.store, &1).unwrap();
    }
    world.clock.set(100);
    assert_eq!(job.store.clean_up(u64::MAX).unwrap().removed, 1);
    let handle = job.checkpoint(&world);
    let mut restored = world.open(&job.factory, vec![handle]);
    let value = restored.store.with_ttl(ttl).value::<u32>("short").unwrap();
    for (key, expected) in [("old", None), ("new", Some(1))] {
        restored.store.set_key(&key.to_string()).unwrap();
        assert_eq!(value.get(&mut restored.store).wait().unwrap(), expected, "{key}");
    }
    assert_eq!(restored.store.keys("short").unwrap().count(), 1);
}

/// A log of many batches makes handles long.
#[test]
fn many_batches_make_an_instance_materialize_early() {
    let world = World::new();
    let options =
        support::options(1).with_materialization(Materialization::OnRequest).with_max_batches(3);
    let factory = ChangelogBackendFactory::new(HeapBackendFactory::default(), options);
    let mut job = world.open(&factory, vec![]);
    for _ in 0..20 {
        job.count("k");
        let handle = job.checkpoint(&world);
        job.store.notify(Notification::Complete(handle.checkpoint)).unwrap();
    }
    let done = factory.control().metrics().materializations_done;
    assert!((5..=7).contains(&done), "{done}");
}
