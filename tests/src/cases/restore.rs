//! Restoring: again and again, at other parallelisms, and what is refused.

use weir_state_api::{
    CodecId, ErrorKind, KeyGroupRange, MaxParallelism, OpenRequest, RestoreMode, Result,
    SnapshotHandle, SnapshotKind, block_on,
};

use super::{Case, fill, group, refusal};
use crate::harness::{At, Contents, Harness, Store, assert_same};

pub(super) const CASES: &[Case] = group!["restore":
    a_snapshot_restores_twice => "snapshots: a snapshot restores twice in a row",
    restored_state_is_live => "snapshots",
    snapshots_of_restored_state_restore => "snapshots: restore, snapshot, restore",
    a_checkpoint_is_unharmed_by_the_job_that_uses_it => "snapshots; restore modes",
    an_empty_instance_restores => "snapshots",
    rescaling_keeps_everything => "snapshots: any parallelism 1..=max parallelism",
    uneven_and_extreme_rescaling_works => "snapshots: any parallelism 1..=max parallelism",
    key_groups_that_come_back_are_fresh => "rescaling: no stale state",
    empty_key_groups_are_covered => "a covered group without data is empty, not missing",
    overlapping_handles_are_refused => "a key group is restored from one handle",
    handles_survive_serialization => "snapshot handles",
    handles_describe_themselves => "snapshot handles",
    the_watermark_is_restored => "timers: the current watermark is part of the snapshot",
    savepoints_restore => "snapshots: native savepoint",
    files_restore_like_memory => "snapshots on a file system",
    misfits_are_refused_up_front => "a restore is checked up front or refused",
    uncovered_key_groups_are_refused => "a restore starts from complete handles or is refused",
    an_idle_restore_uploads_little => "restore → snapshot without writes uploads (almost) nothing"
        if "incremental_snapshots",
];

/// Restoring the same handle twice, side by side, gives two independent, equal instances.
fn a_snapshot_restores_twice(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let handle = h.snapshot(&mut store[0])?;
    let expected = fill::contents(h, &[0])?;
    let mut first = [h.restore(std::slice::from_ref(&handle))?];
    let mut second = h.restore(&[handle])?;
    fill::disturb(&mut first)?;
    assert_same(&Contents::take(&mut second)?, &expected);
    Ok(())
}

/// A restored instance takes reads and writes of every kind as the first one did.
fn restored_state_is_live(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let handle = h.snapshot(&mut store[0])?;
    let mut restored = [h.restore(&[handle])?];
    fill::write(&mut restored, 1)?;
    fill::disturb(&mut restored)?;
    let mut expected = [h.open()?];
    fill::write(&mut expected, 0)?;
    fill::write(&mut expected, 1)?;
    fill::disturb(&mut expected)?;
    assert_same(&Contents::take_all(&mut restored)?, &Contents::take_all(&mut expected)?);
    Ok(())
}

/// Three generations, with and without changes in between, lose and double nothing.
fn snapshots_of_restored_state_restore(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    let mut rounds = Vec::new();
    for round in 0..3 {
        fill::write(&mut store, round)?;
        rounds.push(round);
        let handle = h.snapshot(&mut store[0])?;
        // Once without touching anything.
        let again = h.snapshot(&mut h.restore(&[handle])?)?;
        store = [h.restore(&[again])?];
    }
    assert_same(&Contents::take_all(&mut store)?, &fill::contents(h, &rounds)?);
    Ok(())
}

/// Under both restore modes, the checkpoint that a job was started from still restores after the
/// job has changed everything and taken checkpoints of its own.
fn a_checkpoint_is_unharmed_by_the_job_that_uses_it(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let handle = h.snapshot(&mut store[0])?;
    for mode in [RestoreMode::Claim, RestoreMode::NoClaim] {
        let mut request = h.request::<String>().restore_from(vec![handle.clone()]);
        request.mode = mode;
        let mut job = [h.open_request::<String>(request)?];
        for _ in 0..3 {
            fill::disturb(&mut job)?;
            h.snapshot(&mut job[0])?;
        }
        let restored = Contents::take(&mut h.restore(std::slice::from_ref(&handle))?)?;
        assert_same(&restored, &fill::contents(h, &[0])?);
    }
    Ok(())
}

/// A snapshot of nothing restores to nothing, at any parallelism.
fn an_empty_instance_restores(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let handle = h.snapshot(&mut store)?;
    for parallelism in [1, 3, 128] {
        let mut stores = h.open_all(parallelism, std::slice::from_ref(&handle))?;
        assert_same(&Contents::take_all(&mut stores)?, &Contents::default());
    }
    Ok(())
}

/// 1 → 2 → 3 → 1, with changes on the way: every kind of state of every key group is where its
/// owner is, once.
fn rescaling_keeps_everything(h: &Harness<'_>) -> Result<()> {
    let mut stores = h.open_all(1, &[])?;
    let mut rounds = Vec::new();
    for (round, parallelism) in (0..).zip([2, 3, 1, 4]) {
        fill::write(&mut stores, round)?;
        rounds.push(round);
        let handles = h.snapshot_all(&mut stores)?;
        stores = h.open_all(parallelism, &handles)?;
        let mut copy = h.open_all(parallelism, &handles)?;
        assert_same(&Contents::take_all(&mut copy)?, &fill::contents(h, &rounds)?);
    }
    Ok(())
}

/// 15 → 77 → 15 and 1 → 128 → 1.
fn uneven_and_extreme_rescaling_works(h: &Harness<'_>) -> Result<()> {
    for path in [[15, 77, 15], [1, 128, 1]] {
        let mut stores = h.open_all(path[0], &[])?;
        fill::write(&mut stores, 0)?;
        for parallelism in [path[1], path[2]] {
            let handles = h.snapshot_all(&mut stores)?;
            stores = h.open_all(parallelism, &handles)?;
        }
        assert_same(&Contents::take_all(&mut stores)?, &fill::contents(h, &[0])?);
    }
    Ok(())
}

/// An instance that gives key groups away and takes them back sees what others wrote meanwhile.
fn key_groups_that_come_back_are_fresh(h: &Harness<'_>) -> Result<()> {
    let mut one = h.open_all(1, &[])?;
    let value = one[0].value::<u32>("v")?;
    for number in 0..100 {
        value.set(one[0].at(&number.to_string())?, &1)?;
        assert_eq!(value.get(&mut one[0]).wait()?, Some(1));
    }
    let handles = h.snapshot_all(&mut one)?;
    let mut two = h.open_all(2, &handles)?;
    for store in &mut two {
        let value = store.value::<u32>("v")?;
        for number in 0..100_u32 {
            if store.at(&number.to_string()).is_err() {
                continue;
            }
            if number % 2 == 0 {
                value.clear(store)?;
            } else {
                value.set(store, &2)?;
            }
        }
    }
    let handles = h.snapshot_all(&mut two)?;
    let mut one = h.open_all(1, &handles)?.remove(0);
    let value = one.value::<u32>("v")?;
    for number in 0..100 {
        let expected = (number % 2 == 1).then_some(2);
        assert_eq!(value.get(one.at(&number.to_string())?).wait()?, expected);
    }
    Ok(())
}

/// With data in two far groups only, the instances in the middle open empty.
fn empty_key_groups_are_covered(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    let in_range = |range: KeyGroupRange| {
        (0..).map(|number: u32| number.to_string()).find(|key| {
            let mut bytes = Vec::new();
            weir_state_api::Codec::encode(&weir_state_api::Ordered, key, &mut bytes).unwrap();
            let key = weir_state_api::KeyRef::new(&bytes, MaxParallelism::default()).unwrap();
            range.contains(key.group())
        })
    };
    for range in [KeyGroupRange::new(48, 50), KeyGroupRange::new(110, 112)] {
        value.set(store.at(&in_range(range).expect("some key"))?, &1)?;
    }
    let handle = h.snapshot(&mut store)?;
    assert_eq!(handle.key_groups, KeyGroupRange::all(MaxParallelism::default()));
    let mut counts = Vec::new();
    for mut store in h.open_all(5, &[handle])? {
        counts.push(store.keys("v")?.count());
        h.snapshot(&mut store)?;
    }
    assert_eq!(counts, [0, 1, 0, 0, 1]);
    Ok(())
}

/// Of two handles that both hold a key group one is older: uniting them would bring back what was
/// deleted between them, so it is refused.
fn overlapping_handles_are_refused(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let whole = h.snapshot(&mut store[0])?;
    let mut parts = h.open_all(3, std::slice::from_ref(&whole))?;
    let mut handles = h.snapshot_all(&mut parts)?;
    handles.push(whole);
    let error = h.restore(&handles).expect_err("overlapping handles are refused");
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    Ok(())
}

/// A handle restores after a round trip through its own encoding and through a serde format.
fn handles_survive_serialization(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let handle = h.snapshot(&mut store[0])?;
    let own = SnapshotHandle::from_bytes(&handle.to_bytes(), "handle")?;
    assert_eq!(own, handle);
    let json = serde_json::to_string(&handle).expect("a handle is plain data");
    let json: SnapshotHandle = serde_json::from_str(&json).expect("a handle is plain data");
    assert_eq!(json, handle);
    assert_same(&Contents::take(&mut h.restore(&[json])?)?, &fill::contents(h, &[0])?);
    Ok(())
}

/// A handle says who wrote it, for which checkpoint and groups, and names objects that exist with
/// the stated length and checksum.
fn handles_describe_themselves(h: &Harness<'_>) -> Result<()> {
    let mut stores = h.open_all(3, &[])?;
    fill::write(&mut stores, 0)?;
    let handles = h.snapshot_all(&mut stores)?;
    let mut paths = std::collections::BTreeSet::new();
    for (handle, store) in handles.iter().zip(&stores) {
        assert_eq!(handle.backend, h.factory().name());
        assert_eq!(handle.key_groups, store.key_groups());
        assert_eq!(handle.checkpoint, handles[0].checkpoint);
        assert_eq!(handle.states.len(), 7);
        assert!(!handle.objects.is_empty());
        for object in &handle.objects {
            let bytes = block_on(h.bare_store().read(&object.path)).expect("the object exists");
            let bytes = bytes.to_vec();
            assert_eq!(bytes.len() as u64, object.length, "{}", object.path);
            assert_eq!(crc32fast::hash(&bytes), object.crc32, "{}", object.path);
            let own = object.shared || paths.insert(&object.path);
            assert!(own, "two instances wrote {}", object.path);
        }
    }
    Ok(())
}

/// The watermark of a request comes back; of several handles the smallest that matters; none if
/// one has none.
fn the_watermark_is_restored(h: &Harness<'_>) -> Result<()> {
    let mut stores = h.open_all(2, &[])?;
    let mut handles = Vec::new();
    for (store, watermark) in stores.iter_mut().zip([Some(100), Some(-50)]) {
        let mut request = h.next_checkpoint();
        request.watermark = watermark;
        handles.push(block_on(store.snapshot(request)?.run())?);
    }
    assert_eq!(handles[0].watermark, Some(100));
    assert_eq!(h.restore(&handles)?.restored_watermark(), Some(-50));
    let two = h.open_all(2, &handles)?;
    assert_eq!(two[0].restored_watermark(), Some(100));
    assert_eq!(two[1].restored_watermark(), Some(-50));
    handles[1] = h.snapshot(&mut stores[1])?;
    assert_eq!(h.restore(&handles)?.restored_watermark(), None);
    assert_eq!(h.open()?.restored_watermark(), None);
    Ok(())
}

/// A native savepoint is a snapshot like any other, and says what it is.
fn savepoints_restore(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    h.snapshot(&mut store[0])?;
    let mut request = h.next_checkpoint();
    request.kind = SnapshotKind::NativeSavepoint;
    let handle = block_on(store[0].snapshot(request.clone())?.run())?;
    assert_eq!(handle.kind, SnapshotKind::NativeSavepoint);
    for object in &handle.objects {
        assert!(object.path.starts_with(&request.directory), "{} lies outside", object.path);
    }
    assert_same(&Contents::take(&mut h.restore(&[handle])?)?, &fill::contents(h, &[0])?);
    Ok(())
}

/// Everything works on a real directory too.
fn files_restore_like_memory(h: &Harness<'_>) -> Result<()> {
    let disk = h.also_on_disk();
    let mut stores = disk.open_all(2, &[])?;
    fill::write(&mut stores, 0)?;
    let handles = disk.snapshot_all(&mut stores)?;
    let mut stores = disk.open_all(3, &handles)?;
    fill::write(&mut stores, 1)?;
    let handles = disk.snapshot_all(&mut stores)?;
    let restored = Contents::take(&mut disk.restore(&handles)?)?;
    assert_same(&restored, &fill::contents(h, &[0, 1])?);
    Ok(())
}

fn kind_of(h: &Harness<'_>, request: OpenRequest) -> Option<ErrorKind> {
    h.open_bytes(request).err().map(|error| error.kind())
}

/// Another max parallelism, key codec, backend or format version is refused with a typed error
/// that names both sides, before anything is read.
fn misfits_are_refused_up_front(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let handle = h.snapshot(&mut store[0])?;
    h.faults().clear_log();
    type Change = fn(&mut OpenRequest);
    let misfits: [(Change, &str, &str); 5] = [
        (
            |request| {
                request.max_parallelism = MaxParallelism::new(64).unwrap();
                request.key_groups = KeyGroupRange::new(0, 63);
            },
            "128",
            "64",
        ),
        (
            |request| request.key_codec = CodecId::new("ordered:i64", 1),
            "ordered:string",
            "ordered:i64",
        ),
        (|request| request.restore[0].backend = "another".into(), "another", ""),
        (|request| request.restore[0].backend_format = 9_999, "9999", ""),
        (
            |request| request.key_hash = weir_state_api::KeyHashVersion::EngineGroups,
            "Xxh3V1",
            "EngineGroups",
        ),
    ];
    for (number, (change, stored, wanted)) in misfits.into_iter().enumerate() {
        let mut request = h.request::<String>().restore_from(vec![handle.clone()]);
        change(&mut request);
        let error = refusal(h.open_bytes(request), "a misfit is refused");
        assert_eq!(error.kind(), ErrorKind::Incompatible, "misfit {number}: {error}");
        let text = error.to_string();
        assert!(text.contains(stored) && text.contains(wanted), "misfit {number}: {text}");
    }
    assert_eq!(h.faults().log(), [], "something was read before the check");
    Ok(())
}

/// Handles that leave a requested key group uncovered are refused; those that cover it are enough.
fn uncovered_key_groups_are_refused(h: &Harness<'_>) -> Result<()> {
    let mut stores: Vec<Store> = h.open_all(3, &[])?;
    fill::write(&mut stores, 0)?;
    let handles = h.snapshot_all(&mut stores)?;
    let request = h.request::<String>().restore_from(handles[..2].to_vec());
    assert_eq!(kind_of(h, request), Some(ErrorKind::NotFound));
    let subtask =
        |subtask| h.request::<String>().for_subtask(MaxParallelism::default(), 3, subtask);
    let first = subtask(0)?.restore_from(handles[..1].to_vec());
    assert_eq!(kind_of(h, first), None);
    let second = subtask(1)?.restore_from(handles[..1].to_vec());
    assert_eq!(kind_of(h, second), Some(ErrorKind::NotFound));
    Ok(())
}

/// After a restore, and after a rescale, a snapshot without writes uploads only metadata.
fn an_idle_restore_uploads_little(h: &Harness<'_>) -> Result<()> {
    let mut stores = h.open_all(2, &[])?;
    for store in &mut stores {
        let value = store.value::<Vec<u8>>("v")?;
        for number in 0..2_000_u32 {
            if store.at(&number.to_string()).is_ok() {
                value.set(store, &number.to_le_bytes().repeat(100))?;
            }
        }
    }
    let mut handles = h.snapshot_all(&mut stores)?;
    for parallelism in [2, 3] {
        let total: u64 = handles.iter().map(SnapshotHandle::total_bytes).sum();
        let mut stores = h.open_all(parallelism, &handles)?;
        handles = h.snapshot_all(&mut stores)?;
        let uploaded: u64 = stores.iter().map(|store| store.statistics().bytes_uploaded).sum();
        assert!(uploaded * 10 < total, "{uploaded} of {total} bytes uploaded again");
    }
    Ok(())
}
