//! Which bytes a snapshot uploads and a restore fetches, and what becomes of damaged, foreign and
//! missing files.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use std::path::PathBuf;

use common::{World, at, descriptor, snapshot, try_snapshot};
use weir_state_api::{
    CheckpointId, ErrorKind, KeyGroupRange, KeyedBackend, Lookup, Notification, RestoreMode,
    SnapshotHandle, StateId, StateKind, block_on,
};
use weir_tests::faults::{StoreOp, When};

/// Bytes that no compression shrinks.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(byte).take(length).collect()
}

fn fill(backend: &mut dyn KeyedBackend, numbers: std::ops::Range<u64>, seed: u64) -> StateId {
    let state = backend.register(&descriptor("v", StateKind::Value)).unwrap();
    for number in numbers {
        backend.put(&at(state, &number.to_be_bytes()), &noise(number + seed, 1_000)).unwrap();
    }
    state
}

#[track_caller]
fn check(backend: &mut dyn KeyedBackend, numbers: std::ops::Range<u64>, seed: u64) {
    let state = backend.register(&descriptor("v", StateKind::Value)).unwrap();
    for number in numbers {
        let found = matches!(
            backend.get(&at(state, &number.to_be_bytes())).unwrap(),
            Lookup::Found(value) if value == noise(number + seed, 1_000)
        );
        assert!(found, "key {number}");
    }
}

fn complete(backend: &mut dyn KeyedBackend, number: u64) {
    backend.notify(Notification::Complete(CheckpointId(number))).unwrap();
}

fn uploaded(backend: &dyn KeyedBackend) -> u64 {
    backend.statistics().bytes_uploaded
}

/// A second checkpoint uploads what is new; without confirmation of the first, everything.
#[test]
fn only_what_no_confirmed_checkpoint_holds_is_uploaded() {
    let world = World::new();
    let mut backend = world.open(world.request());
    fill(&mut *backend, 0..5_000, 0);
    let first = snapshot(&mut *backend, 1);
    let all = uploaded(&*backend);
    assert!(all > 5_000_000);
    fill(&mut *backend, 0..50, 1);
    snapshot(&mut *backend, 2);
    assert!(uploaded(&*backend) > 2 * all, "nothing was confirmed");
    complete(&mut *backend, 1);
    let before = uploaded(&*backend);
    let third = snapshot(&mut *backend, 3);
    assert!(uploaded(&*backend) - before < all / 10);
    assert!(backend.statistics().bytes_reused > all / 2);
    assert!(third.objects.iter().any(|object| first.objects.contains(object)));
    assert!(third.objects.iter().all(|object| object.shared));
    let mut restored = world.open(world.request().restore_from(vec![third]));
    check(&mut *restored, 0..50, 1);
    check(&mut *restored, 50..5_000, 0);
}

/// After a crash the restored database numbers its files as the crashed one did. A file of the lost
/// attempt must not pass for one of the new one.
#[test]
fn equal_names_of_two_attempts_are_two_files() {
    let world = World::new();
    let mut backend = world.open(world.request());
    fill(&mut *backend, 0..100, 0);
    let first = snapshot(&mut *backend, 1);
    complete(&mut *backend, 1);
    fill(&mut *backend, 0..100, 1);
    let lost = snapshot(&mut *backend, 2);
    drop(backend);
    let mut backend = world.open(world.request().restore_from(vec![first.clone()]));
    fill(&mut *backend, 0..100, 2);
    let second = snapshot(&mut *backend, 2);
    complete(&mut *backend, 2);
    for object in second.objects.iter().filter(|object| !first.objects.contains(object)) {
        assert!(!lost.objects.contains(object), "{}", object.path);
    }
    let third = snapshot(&mut *backend, 3);
    for (handle, seed) in [(first, 0), (second, 2), (third, 2)] {
        check(&mut *world.open(world.request().restore_from(vec![handle])), 0..100, seed);
    }
}

/// A failed upload leaves nothing behind and the base usable.
#[test]
fn a_failed_snapshot_deletes_what_it_wrote() {
    let world = World::new();
    let mut backend = world.open(world.request());
    fill(&mut *backend, 0..6_000, 0);
    snapshot(&mut *backend, 1);
    complete(&mut *backend, 1);
    let list = || {
        let entries = block_on(world.store.list_options(
            "",
            opendal::options::ListOptions { recursive: true, ..Default::default() },
        ));
        entries.unwrap().into_iter().filter(|entry| entry.metadata().is_file()).count()
    };
    let before = list();
    fill(&mut *backend, 0..6_000, 1);
    for (op, nth) in
        [(StoreOp::Write, 1), (StoreOp::Close, 1), (StoreOp::Stat, 1), (StoreOp::Close, 2)]
    {
        world.faults.fail(op, nth, When::After);
        let error = try_snapshot(&mut *backend, 2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        world.faults.heal();
        assert_eq!(list(), before, "{op:?} {nth}");
    }
    let handle = snapshot(&mut *backend, 3);
    check(&mut *world.open(world.request().restore_from(vec![handle])), 0..6_000, 1);
}

/// Without a claim the first snapshot stands on its own, and later ones build on it.
#[test]
fn without_a_claim_nothing_of_the_restored_snapshot_is_named() {
    let world = World::new();
    let mut backend = world.open(world.request());
    fill(&mut *backend, 0..1_000, 0);
    let old = snapshot(&mut *backend, 1);
    let mut request = world.request().restore_from(vec![old.clone()]);
    request.mode = RestoreMode::NoClaim;
    let mut backend = world.open(request);
    let own = snapshot(&mut *backend, 2);
    assert!(own.objects.iter().all(|object| !old.objects.contains(object)));
    complete(&mut *backend, 2);
    let next = snapshot(&mut *backend, 3);
    assert_eq!(next.objects, own.objects, "an idle snapshot names the same objects");
}

/// A share of the key groups fetches a share of the files, drops the rest at once, and its next
/// snapshot uploads next to nothing.
#[test]
fn a_rescale_moves_whole_files_and_keeps_the_history() {
    // Small files, and a writer that waits for compactions: nearly all is sorted into levels.
    let world = World::with_options(|options| {
        let sizes = ["target_file_size_base", "write_buffer_size", "max_bytes_for_level_base"];
        let triggers = [
            ("level0_file_num_compaction_trigger", "2"),
            ("level0_slowdown_writes_trigger", "4"),
            ("level0_stop_writes_trigger", "4"),
        ];
        let options = sizes
            .iter()
            .fold(options, |options, name| options.with_rocksdb_option(*name, "1048576"));
        triggers
            .into_iter()
            .fold(options, |options, (name, value)| options.with_rocksdb_option(name, value))
            .with_rocksdb_option("level_compaction_dynamic_level_bytes", "false")
    });
    let mut backend = world.open(world.request());
    fill(&mut *backend, 0..40_000, 0);
    let total = 40_000_000;
    let handle = snapshot(&mut *backend, 1);
    // What the restored instances go on to compact is not the restore's doing, and depends on how far the
    // compactions of the writer had come.
    let world = world.reopened_with(|options| {
        let many = [
            ("level0_file_num_compaction_trigger", "1000"),
            ("level0_slowdown_writes_trigger", "1000"),
            ("level0_stop_writes_trigger", "1000"),
            ("max_bytes_for_level_base", "1073741824"),
        ];
        many.into_iter()
            .fold(options, |options, (name, value)| options.with_rocksdb_option(name, value))
            .with_rocksdb_option("level_compaction_dynamic_level_bytes", "false")
    });
    let max = world.request().max_parallelism;
    let (mut fetched, mut sent, mut entries) = (0, 0, 0);
    let mut next = Vec::new();
    for subtask in 0..4 {
        let request = world.request().for_subtask(max, 4, subtask).unwrap();
        let mut share = world.open(request.restore_from(vec![handle.clone()]));
        fetched += share.statistics().bytes_downloaded;
        entries += share.physical_entries(StateId(0)).unwrap();
        next.push(snapshot(&mut *share, 2));
        sent += uploaded(&*share);
    }
    assert_eq!(entries, 40_000);
    assert!(fetched < 2 * total, "{fetched} bytes fetched of {total}");
    assert!(sent < total / 20, "{sent} bytes uploaded after a rescale");
    // And together again: each file once.
    let mut whole = world.open(world.request().restore_from(next));
    check(&mut *whole, 0..40_000, 0);
    let before = uploaded(&*whole);
    snapshot(&mut *whole, 3);
    assert!(uploaded(&*whole) - before < total / 20);
}

fn local_folders(world: &World, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(world.directory.path()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix)).collect()
}

/// A restart on the same machine downloads nothing, twice in a row, and the copy survives what the
/// restarted instance does. A copy that differs in one byte, or is another snapshot's, is not used.
#[test]
fn a_restart_on_the_same_machine_takes_the_local_copy_if_it_is_right() {
    let world = World::with_options(|options| options.with_local_recovery(true));
    let mut backend = world.open(world.request());
    fill(&mut *backend, 0..3_000, 0);
    let handle = snapshot(&mut *backend, 1);
    complete(&mut *backend, 1);
    fill(&mut *backend, 0..3_000, 1);
    let restore = |handle: &SnapshotHandle| {
        let mut backend = world.open(world.request().restore_from(vec![handle.clone()]));
        check(&mut *backend, 0..3_000, 0);
        backend
    };
    for _ in 0..2 {
        let mut again = restore(&handle);
        assert_eq!(again.statistics().bytes_downloaded, 0);
        fill(&mut *again, 0..3_000, 3);
    }
    drop(backend);
    assert!(local_folders(&world, "instance-").is_empty());
    let kept = local_folders(&world, "kept-");
    assert_eq!(kept.len(), 1);
    let sorted = std::fs::read_dir(kept[0].join("0")).unwrap().map(|entry| entry.unwrap().path());
    let sorted: Vec<PathBuf> =
        sorted.filter(|path| path.extension().is_some_and(|end| end == "sst")).collect();
    // A flipped bit, in a copy of the file as the disk would lose it.
    let mut bytes = std::fs::read(&sorted[0]).unwrap();
    bytes[100] ^= 1;
    std::fs::remove_file(&sorted[0]).unwrap();
    std::fs::write(&sorted[0], &bytes).unwrap();
    assert!(restore(&handle).statistics().bytes_downloaded > 0);
    std::fs::write(&sorted[0], &bytes[..50]).unwrap();
    assert!(restore(&handle).statistics().bytes_downloaded > 0);

    // The next complete checkpoint of a restarted instance clears the leftovers.
    let mut backend = restore(&handle);
    snapshot(&mut *backend, 2);
    complete(&mut *backend, 2);
    let left = local_folders(&world, "kept-");
    assert!(left.len() == 1 && left != kept, "{left:?}");
}

/// What is wrong with an object is said with its name, and nothing of it is opened.
#[test]
fn damaged_and_foreign_objects_are_refused_by_name() {
    let world = World::new();
    let mut backend = world.open(world.request());
    fill(&mut *backend, 0..6_000, 0);
    let mine = snapshot(&mut *backend, 1);
    let mut other = world.open(world.request());
    fill(&mut *other, 0..6_000, 7);
    let other = snapshot(&mut *other, 1);
    for (index, object) in mine.objects.iter().enumerate() {
        let whole = block_on(world.store.read(&object.path)).unwrap();
        let foreign = block_on(world.store.read(&other.objects[index].path)).unwrap();
        block_on(world.store.write(&object.path, foreign)).unwrap();
        let error = world.try_open(world.request().restore_from(vec![mine.clone()])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(error.object_path(), Some(object.path.as_str()));
        block_on(world.store.write(&object.path, whole)).unwrap();
    }
    // Metadata that names files outside of its folder, or covers what it should not.
    let breaks: [fn(&mut SnapshotHandle); 5] = [
        |handle| handle.metadata.clear(),
        |handle| handle.metadata.truncate(handle.metadata.len() - 1),
        |handle| handle.objects.clear(),
        |handle| handle.states.clear(),
        |handle| handle.key_groups = KeyGroupRange::new(0, 3),
    ];
    for damage in breaks {
        let mut broken = mine.clone();
        damage(&mut broken);
        let mut request = world.request();
        request.key_groups = broken.key_groups;
        let error = world.try_open(request.restore_from(vec![broken])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    let mut backend = world.open(world.request().restore_from(vec![mine]));
    check(&mut *backend, 0..6_000, 0);
}

/// Every error of a restore says which object it is about, and what can be done.
#[test]
fn what_cannot_be_restored_says_what_to_do() {
    let world = World::new();
    let mut backend = world.open(world.request());
    fill(&mut *backend, 0..6_000, 0);
    let handle = snapshot(&mut *backend, 1);
    let refusal = |handle: &SnapshotHandle| {
        world.try_open(world.request().restore_from(vec![handle.clone()])).unwrap_err()
    };
    let mut newer = handle.clone();
    newer.metadata[8] = 2;
    let error = refusal(&newer);
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.to_string().contains("use a version of Weir that knows this format"), "{error}");
    for object in &handle.objects {
        let whole = block_on(world.store.read(&object.path)).unwrap();
        let mut damaged = whole.to_vec();
        damaged[whole.len() / 2] ^= 1;
        block_on(world.store.write(&object.path, damaged)).unwrap();
        let error = refusal(&handle);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(error.object_path(), Some(object.path.as_str()));
        assert!(error.to_string().contains("restore another checkpoint"), "{error}");
        block_on(world.store.delete(&object.path)).unwrap();
        let error = refusal(&handle);
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(error.object_path(), Some(object.path.as_str()));
        block_on(world.store.write(&object.path, whole)).unwrap();
    }
    let mut backend = world.open(world.request().restore_from(vec![handle]));
    check(&mut *backend, 0..6_000, 0);
}
