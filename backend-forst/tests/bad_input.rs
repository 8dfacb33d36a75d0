//! Objects that are not what they were, stores that do not answer, disks that fail, and instances that
//! should not be where they are.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_backend_forst::{
    Compression, ForstBackendFactory, ForstOptions, ForstResources, RequestLimits,
};
use weir_state_api::{
    CheckpointId, Codec, Environment, Error, ErrorKind, KeyedStore, Notification, OpenRequest,
    Ordered, RestoreMode, Result, SnapshotHandle, SnapshotRequest, block_on,
};
use weir_tests::faults::{Faults, StoreOp};
use weir_tests::harness::{Contents, Store};

const KEYS: u32 = 1_500;

/// Tables of some KiB, and no patience with the store.
fn options() -> ForstOptions {
    ForstOptions::default()
        .with_compression(Compression::None)
        .with_memtable_bytes(64 << 10)
        .with_table_bytes(32 << 10)
        .with_inline_tail_bytes(0)
        .with_inline_manifest_bytes(0)
        .with_resources(resources())
}

/// Of a process that has nothing in memory.
fn resources() -> ForstResources {
    let limits = RequestLimits {
        attempts: 2,
        first_pause: Duration::from_millis(1),
        timeout: Duration::from_millis(50),
        ..RequestLimits::default()
    };
    ForstResources::builder().request_limits(limits).build().expect("there is no disk cache")
}

fn request(environment: &Environment, directory: &str) -> OpenRequest {
    let codec = <Ordered as Codec<String>>::id(&Ordered);
    let mut request = OpenRequest::new(environment.clone(), "operator", codec);
    request.directory = directory.into();
    request
}

fn open(options: ForstOptions, request: OpenRequest) -> Result<Store> {
    block_on(KeyedStore::open(&ForstBackendFactory::new(options), request))
}

fn restored(environment: &Environment, handle: &SnapshotHandle) -> Result<Store> {
    let request = request(environment, "elsewhere/").restore_from(vec![handle.clone()]);
    open(options().with_compaction(false), request)
}

fn fill(store: &mut Store, round: u32) -> Result<()> {
    let value = store.value::<Vec<u8>>("v")?;
    let map = store.map::<u32, u32>("m")?;
    for number in 0..KEYS {
        store.set_key(&number.to_string())?;
        value.set(store, &(number + round).to_le_bytes().repeat(20))?;
        map.put(store, &round, &number)?;
    }
    Ok(())
}

fn checkpoint(store: &mut Store, number: u64) -> Result<SnapshotHandle> {
    let mut request = SnapshotRequest::checkpoint(CheckpointId(number), format!("chk-{number}"));
    request.shared_directory = "shared/".into();
    request.reuse_from = number.checked_sub(1).map(CheckpointId);
    let handle = block_on(store.snapshot(request)?.run())?;
    store.notify(Notification::Complete(handle.checkpoint))?;
    Ok(handle)
}

/// A checkpoint of several tables above each other, with its contents.
fn taken(environment: &Environment, directory: &str) -> Result<(SnapshotHandle, Contents)> {
    let mut store = open(options().with_compaction(false), request(environment, directory))?;
    let mut handle = None;
    let timers = store.timers::<u8>("t")?;
    for round in 0..3 {
        fill(&mut store, round)?;
        for number in 0..KEYS {
            store.set_key(&number.to_string())?;
            timers.register(&mut store, i64::from(number + round), &1)?;
        }
        handle = Some(checkpoint(&mut store, u64::from(round) + 1)?);
    }
    let contents = Contents::take(&mut store)?;
    Ok((handle.expect("three were taken"), contents))
}

fn bytes_of(environment: &Environment, path: &str) -> Vec<u8> {
    block_on(environment.store.read(path)).expect("it is there").to_vec()
}

fn put(environment: &Environment, path: &str, bytes: &[u8]) {
    block_on(environment.store.write(path, bytes.to_vec())).expect("the store works");
}

/// Each object of a snapshot is one of the others, one of another instance, of an older checkpoint, or
/// nothing that this backend has written: an error names it, or it was a copy that nothing depends on.
#[test]
fn objects_in_each_others_place_are_named() -> Result<()> {
    let environment = Environment::in_memory();
    let (handle, expected) = taken(&environment, "live/a/")?;
    let (others, _) = taken(&environment, "live/b/")?;
    let paths: Vec<&str> = handle.objects.iter().map(|object| &*object.path).collect();
    assert!(paths.iter().any(|path| path.ends_with(".ends")), "{paths:?}");
    assert!(paths.iter().any(|path| path.ends_with(".manifest")), "{paths:?}");
    let original: BTreeMap<&str, Vec<u8>> =
        paths.iter().map(|path| (*path, bytes_of(&environment, path))).collect();
    let foreign = others.objects.iter().map(|object| bytes_of(&environment, &object.path));
    let odd = [b"what somebody else has put there".to_vec(), vec![0; 1 << 20]];
    let replacements: Vec<Vec<u8>> =
        original.values().step_by(5).cloned().chain(foreign.step_by(5)).chain(odd).collect();
    for path in paths {
        for bytes in replacements.iter().filter(|bytes| **bytes != original[path]) {
            put(&environment, path, bytes);
            match restored(&environment, &handle).and_then(|mut store| Contents::take(&mut store)) {
                Ok(found) => {
                    assert!(path.ends_with(".ends"), "{path} with other bytes went unnoticed");
                    assert!(found == expected, "{path} with other bytes changes the state");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{path}: {error}");
                    assert!(error.to_string().contains(path), "{path} is not named: {error}");
                }
            }
        }
        put(&environment, path, &original[path]);
    }
    Contents::take(&mut restored(&environment, &handle)?).map(drop)
}

/// A manifest of a later version is refused by its number, whatever else it says.
#[test]
fn a_manifest_of_a_later_version_is_named_with_both_versions() -> Result<()> {
    let environment = Environment::in_memory();
    let (mut handle, _) = taken(&environment, "live/")?;
    let manifest = handle.objects.last_mut().expect("the manifest is the last");
    let mut bytes = bytes_of(&environment, &manifest.path);
    bytes[8] = 99;
    manifest.crc32 = crc32fast::hash(&bytes);
    put(&environment, &manifest.path, &bytes);
    let path = manifest.path.clone();
    let error = restored(&environment, &handle).expect_err("nobody knows version 99");
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.to_string().contains("99") && error.to_string().contains(&path), "{error}");
    Ok(())
}

/// The handles of a restore must not overlap: what one has deleted would come back from the other.
#[test]
fn two_owners_of_a_range_are_refused() -> Result<()> {
    let environment = Environment::in_memory();
    let (one, _) = taken(&environment, "live/a/")?;
    let (other, _) = taken(&environment, "live/b/")?;
    let both = request(&environment, "live/c/").restore_from(vec![one, other]);
    let error = open(options(), both).expect_err("both own all key groups");
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    Ok(())
}

/// An instance that comes back in the folder of the one before it: what is there belongs to checkpoints,
/// and neither compactions delete it nor are snapshots built on it without a claim.
#[test]
fn what_a_former_instance_left_in_the_same_folder_is_not_the_next_one_s() -> Result<()> {
    for mode in [RestoreMode::Claim, RestoreMode::NoClaim] {
        let environment = Environment::in_memory();
        let (first, expected) = taken(&environment, "live/")?;
        let mut again = request(&environment, "live/").restore_from(vec![first.clone()]);
        again.mode = mode;
        let mut store = open(options(), again)?;
        assert!(Contents::take(&mut store)? == expected);
        for round in 3..12 {
            fill(&mut store, round)?;
        }
        let second = checkpoint(&mut store, 10)?;
        for round in 12..20 {
            fill(&mut store, round)?;
        }
        let third = checkpoint(&mut store, 11)?;
        let former: Vec<&str> = first.objects.iter().map(|object| &*object.path).collect();
        if mode == RestoreMode::NoClaim {
            let named = second.objects.iter().chain(&third.objects);
            let built_on: Vec<_> = named.filter(|object| former.contains(&&*object.path)).collect();
            assert!(built_on.is_empty(), "{built_on:?}");
        }
        let found = restored(&environment, &first).and_then(|mut store| Contents::take(&mut store));
        assert!(found? == expected, "{mode:?}");
        for handle in [second, third] {
            Contents::take(&mut restored(&environment, &handle)?)?;
        }
    }
    Ok(())
}

/// Whatever waits for a store that does not answer is told so, with the object, and goes on when it does.
#[test]
fn a_store_that_does_not_answer_is_an_error_in_time() -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("threads");
    let faults = Faults::new();
    let mut environment = Environment::in_memory();
    environment.store = environment.store.layer(faults.layer());
    let spawner = weir_state_api::TokioSpawner::new(runtime.handle().clone());
    environment.spawner = std::sync::Arc::new(spawner);
    let (handle, expected) = taken(&environment, "live/")?;
    let in_time = |what: &dyn Fn() -> Option<Error>| {
        let begun = Instant::now();
        let error = what().expect("the store does not answer");
        assert!(begun.elapsed() < Duration::from_secs(5), "{error}: {:?}", begun.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("forst-"), "no object is named: {error}");
    };
    let hold = faults.hold(StoreOp::Read);
    in_time(&|| restored(&environment, &handle).err());
    drop(hold);
    let store = std::cell::RefCell::new(restored(&environment, &handle)?);
    let hold = faults.hold(StoreOp::Read);
    in_time(&|| {
        let mut store = store.borrow_mut();
        let value = store.value::<Vec<u8>>("v").ok()?;
        store.set_key(&"7".to_string()).ok()?;
        value.get(&mut *store).wait().err()
    });
    in_time(&|| Contents::take(&mut store.borrow_mut()).err());
    drop(hold);
    assert!(Contents::take(&mut store.borrow_mut())? == expected);
    fill(&mut store.borrow_mut(), 7)?;
    let hold = faults.hold(StoreOp::Close);
    in_time(&|| checkpoint(&mut store.borrow_mut(), 20).err());
    drop(hold);
    let now = Contents::take(&mut store.borrow_mut())?;
    let handle = checkpoint(&mut store.borrow_mut(), 21)?;
    assert!(Contents::take(&mut restored(&environment, &handle)?)? == now);
    Ok(())
}

/// The folder of the disk cache is taken away, or is full of what nobody knows, while it is used.
#[test]
fn the_store_goes_on_without_its_disk_cache() -> Result<()> {
    let environment = Environment::in_memory();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path().join("cache");
    std::fs::create_dir(&cache).expect("it is ours");
    std::fs::create_dir(cache.join("a folder")).expect("it is ours");
    std::fs::write(cache.join("notes.txt"), b"not a table").expect("it is ours");
    std::fs::write(cache.join("0".repeat(40)), vec![7; 5_000]).expect("it is ours");
    std::os::unix::fs::symlink("/nowhere", cache.join("link")).expect("it is ours");
    let resources = ForstResources::builder().cache_bytes(0).disk_cache(&cache, 1 << 20).build()?;
    let options = || options().with_resources(resources.clone());
    let mut store = open(options(), request(&environment, "live/"))?;
    fill(&mut store, 1)?;
    checkpoint(&mut store, 1)?;
    let expected = Contents::take(&mut store)?;
    assert!(resources.usage().disk_cache_hits > 0, "{:?}", resources.usage());
    assert!(cache.join("notes.txt").exists(), "what is not the cache's stays");
    for file in std::fs::read_dir(&cache).expect("it is ours").flatten() {
        // Some are cut, some are gone, some are of another's bytes.
        match file.file_name().as_encoded_bytes().last().map_or(0, |byte| byte % 3) {
            0 => drop(std::fs::remove_file(file.path())),
            1 => drop(std::fs::write(file.path(), b"short")),
            _ => drop(std::fs::write(file.path(), vec![9; 200_000])),
        }
    }
    assert!(Contents::take(&mut store)? == expected);
    std::fs::remove_dir_all(&cache).expect("it is ours");
    for round in 2..5 {
        fill(&mut store, round)?;
    }
    let handle = checkpoint(&mut store, 2)?;
    let expected = Contents::take(&mut store)?;
    assert!(resources.usage().disk_cache_failures > 0, "{:?}", resources.usage());
    assert!(Contents::take(&mut restored(&environment, &handle)?)? == expected);
    Ok(())
}
