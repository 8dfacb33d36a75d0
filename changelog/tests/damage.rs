//! Damaged, exchanged, forgotten and foreign log objects: found at the restore, by name.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;
#[path = "support/world.rs"]
mod world;

use weir_state_api::*;
use world::*;

/// A job whose log lies in several objects, all of one length; returns its handle and their paths.
fn logged(world: &World) -> (SnapshotHandle, Vec<String>) {
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    for _ in 0..4 {
        job.count("k");
        job.checkpoint(world);
    }
    let handle = job.checkpoint(world);
    let paths: Vec<String> = handle.objects.iter().map(|object| object.path.clone()).collect();
    assert_eq!(paths.len(), 4);
    let lengths: Vec<u64> = handle.objects.iter().map(|object| object.length).collect();
    assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
    (handle, paths)
}

fn read(world: &World, path: &str) -> Vec<u8> {
    block_on(world.bare.read(path)).unwrap().to_vec()
}

fn write(world: &World, path: &str, bytes: Vec<u8>) {
    block_on(world.bare.write(path, bytes)).unwrap();
}

fn refusal(world: &World, handle: &SnapshotHandle) -> Error {
    let request = world.open_request().restore_from(vec![handle.clone()]);
    let restored = world.try_open(&world.factory(u64::MAX), request);
    restored.err().expect("the damage is found")
}

#[test]
fn objects_that_were_exchanged_or_doubled_are_found_by_name() {
    let world = World::new();
    let (handle, paths) = logged(&world);
    let [first, second] = [&paths[0], &paths[1]];
    let (one, two) = (read(&world, first), read(&world, second));
    write(&world, second, one.clone());
    let error = refusal(&world, &handle);
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::Corrupt, Some(second.as_str())));
    write(&world, first, two.clone());
    let error = refusal(&world, &handle);
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::Corrupt, Some(first.as_str())));
    write(&world, first, one);
    write(&world, second, two);
    assert_eq!(world.open(&world.factory(1), vec![handle]).counted("k"), 4);
}

#[test]
fn an_object_that_the_store_has_forgotten_is_found_by_name() {
    let world = World::new();
    let (handle, paths) = logged(&world);
    block_on(world.bare.delete(&paths[2])).unwrap();
    let error = refusal(&world, &handle);
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::NotFound, Some(paths[2].as_str())));
}

/// The wrapped backend finds what is its own.
#[test]
fn a_materialization_that_the_store_has_forgotten_or_torn_is_found_by_name() {
    let world = World::new();
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    (0..100).for_each(|number| job.count(&format!("{number}")));
    job.factory.control().materialize();
    job.store.notify(Notification::Complete(CheckpointId(0))).unwrap();
    job.count("k");
    let handle = job.checkpoint(&world);
    let names: Vec<String> = handle.objects.iter().map(|object| object.path.clone()).collect();
    let base = names.iter().find(|path| path.contains("heap")).unwrap();
    let whole = read(&world, base);
    write(&world, base, whole[..whole.len() / 2].to_vec());
    let error = refusal(&world, &handle);
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::Corrupt, Some(base.as_str())));
    block_on(world.bare.delete(base)).unwrap();
    let error = refusal(&world, &handle);
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::NotFound, Some(base.as_str())));
    write(&world, base, whole);
    let mut restored = world.open(&world.factory(u64::MAX), vec![handle]);
    assert_eq!([restored.counted("7"), restored.counted("k")], [1, 1]);
}

/// Reads that end early, as from a store that is torn down while it answers.
#[test]
fn an_answer_that_ends_early_is_found_by_name() {
    let world = World::new();
    let (handle, paths) = logged(&world);
    world.faults.shorten(2, 40);
    let error = refusal(&world, &handle);
    assert_eq!(error.object_path(), Some(paths[1].as_str()), "{error}");
    world.faults.heal();
    assert_eq!(world.open(&world.factory(1), vec![handle]).counted("k"), 4);
}

/// How far a replay has come can be read while it runs, and where it has stopped: what it left is not to be
/// replayed any more.
#[test]
fn the_progress_of_a_replay_is_counted() {
    let world = World::new();
    let (handle, paths) = logged(&world);
    block_on(world.bare.delete(&paths[3])).unwrap();
    let factory = world.factory(u64::MAX);
    let request = world.open_request().restore_from(vec![handle]);
    assert!(world.try_open(&factory, request).is_err());
    let metrics = factory.control().metrics();
    assert_eq!((metrics.changes_to_replay, metrics.changes_replayed), (3, 3), "{metrics:?}");
}

#[test]
fn torn_objects_are_found_by_name() {
    let world = World::new();
    let (handle, paths) = logged(&world);
    let whole = read(&world, &paths[1]);
    for length in [0, 8, whole.len() - 1] {
        write(&world, &paths[1], whole[..length].to_vec());
        let error = refusal(&world, &handle);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(error.object_path(), Some(paths[1].as_str()));
    }
    // As long as it was, with other bytes at its end.
    let mut torn = whole.clone();
    torn[whole.len() - 6..].fill(0xff);
    write(&world, &paths[1], torn);
    assert_eq!(refusal(&world, &handle).object_path(), Some(paths[1].as_str()));
}

#[test]
fn a_log_of_another_job_is_refused() {
    let world = World::new();
    let (handle, paths) = logged(&world);
    let (_, others) = logged(&world);
    write(&world, &paths[3], read(&world, &others[3]));
    let error = refusal(&world, &handle);
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::Corrupt, Some(paths[3].as_str())));
    assert!(error.to_string().contains("of log"), "{error}");
}

#[test]
fn a_newer_format_is_refused_as_such() {
    let world = World::new();
    let (handle, paths) = logged(&world);
    let mut newer = read(&world, &paths[0]);
    newer[8] = 2;
    write(&world, &paths[0], newer);
    let error = refusal(&world, &handle);
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.to_string().contains("version 2"), "{error}");
    let mut newer = handle;
    newer.metadata[8] = 2;
    assert_eq!(refusal(&world, &newer).kind(), ErrorKind::Incompatible);
}

/// A handle of other key groups covers less than is asked for.
#[test]
fn a_log_of_other_key_groups_is_refused() {
    let world = World::new();
    let factory = world.factory(u64::MAX);
    let mut half = world.open_subtask(&factory, 0, 2, vec![]);
    let key = half.own_key();
    half.count(&key);
    let handle = half.checkpoint(&world);
    assert_eq!(refusal(&world, &handle).kind(), ErrorKind::NotFound);
    // One that claims more than its log was written for.
    let mut claims = handle;
    claims.key_groups = KeyGroupRange::all(MaxParallelism::default());
    let error = refusal(&world, &claims);
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}
