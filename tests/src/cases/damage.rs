//! Damaged objects, failing stores, odd notifications.

use weir_state_api::{
    CheckpointId, Error, ErrorKind, Notification, Result, SnapshotHandle, block_on,
};

use super::{Case, fill, group, refusal};
use crate::faults::{StoreOp, When};
use crate::harness::{Contents, Harness, assert_same};

pub(super) const CASES: &[Case] = group!["damage":
    flipped_bytes_are_found_and_named => "corrupt objects are found and reported by name",
    truncated_objects_are_found_and_named => "truncated objects are found and reported by name",
    missing_objects_are_found_and_named => "missing objects are found and reported by name",
    a_failed_upload_fails_only_its_snapshot => "a store that fails in the middle of the upload",
    a_lost_acknowledgement_is_survived => "a write that is applied, then reported as failed",
    a_failed_read_fails_the_restore => "a restore needs every object",
    notifications_are_hints => "notifications: lost, late, repeated, out of order",
    confirmed_checkpoints_stay_whole => "notifications; snapshots",
    aborted_checkpoints_are_not_built_on => "notifications: aborted",
];

fn filled(h: &Harness<'_>) -> Result<SnapshotHandle> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    h.snapshot(&mut store[0])
}

/// Opens and reads everything: what a job would notice at the latest.
fn outcome(h: &Harness<'_>, handle: &SnapshotHandle) -> Result<Contents> {
    Contents::take(&mut h.restore(std::slice::from_ref(handle))?)
}

fn read(h: &Harness<'_>, path: &str) -> Vec<u8> {
    block_on(h.bare_store().read(path)).expect("the object is there").to_vec()
}

fn write(h: &Harness<'_>, path: &str, bytes: Vec<u8>) {
    block_on(h.bare_store().write(path, bytes)).expect("the bare store does not fail");
}

fn names(error: &Error, path: &str, kinds: &[ErrorKind]) {
    assert!(kinds.contains(&error.kind()), "{error:?}");
    assert!(error.to_string().contains(path), "the error does not name {path:?}: {error}");
}

/// One flipped bit anywhere in any object ends in an error that names the object, never in a
/// panic, never in other contents.
fn flipped_bytes_are_found_and_named(h: &Harness<'_>) -> Result<()> {
    let handle = filled(h)?;
    let expected = outcome(h, &handle)?;
    for object in &handle.objects {
        let whole = read(h, &object.path);
        let last = whole.len() - 1;
        let mut found = 0;
        for step in 0..24 {
            let position = match step {
                0..8 => step,
                8..12 => last - (step - 8),
                _ => last * (step - 11) / 13,
            };
            let mut damaged = whole.clone();
            damaged[position.min(last)] ^= 1 << (step % 8);
            write(h, &object.path, damaged);
            match outcome(h, &handle) {
                Err(error) => {
                    names(&error, &object.path, &[ErrorKind::Corrupt, ErrorKind::Incompatible]);
                    found += 1;
                }
                // Bytes that nothing reads, such as those of an index, may go unnoticed.
                Ok(contents) => assert!(contents == expected, "byte {position} changes the state"),
            }
        }
        assert!(found > 0, "no damage of {} is noticed", object.path);
        write(h, &object.path, whole);
    }
    assert_same(&outcome(h, &handle)?, &expected);
    Ok(())
}

/// An object cut short, emptied, or longer than written ends in an error that names it.
fn truncated_objects_are_found_and_named(h: &Harness<'_>) -> Result<()> {
    let handle = filled(h)?;
    for object in &handle.objects {
        let whole = read(h, &object.path);
        for length in [0, 1, 7, 16, whole.len() / 2, whole.len() - 1] {
            write(h, &object.path, whole[..length.min(whole.len() - 1)].to_vec());
            let error = refusal(outcome(h, &handle), "a truncated object is noticed");
            names(&error, &object.path, &[ErrorKind::Corrupt, ErrorKind::Incompatible]);
        }
        write(h, &object.path, [&whole[..], b"more"].concat());
        let error = refusal(outcome(h, &handle), "a longer object is noticed");
        names(&error, &object.path, &[ErrorKind::Corrupt, ErrorKind::Incompatible]);
        write(h, &object.path, whole);
    }
    outcome(h, &handle).map(drop)
}

/// A missing object ends in `NotFound` with its name, not in a restore without it.
fn missing_objects_are_found_and_named(h: &Harness<'_>) -> Result<()> {
    let handle = filled(h)?;
    for object in &handle.objects {
        let whole = read(h, &object.path);
        block_on(h.bare_store().delete(&object.path)).expect("the bare store does not fail");
        let error = refusal(outcome(h, &handle), "a missing object is noticed");
        names(&error, &object.path, &[ErrorKind::NotFound]);
        write(h, &object.path, whole);
    }
    outcome(h, &handle).map(drop)
}

/// Whichever write fails, the snapshot fails with a typed error, the instance goes on, the earlier
/// checkpoint still restores, and so does the next one.
fn a_failed_upload_fails_only_its_snapshot(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let earlier = h.snapshot(&mut store[0])?;
    h.snapshot(&mut store[0])?;
    let (mut failures, mut rounds) = (0, vec![0]);
    for op in [StoreOp::Write, StoreOp::Close] {
        for nth in 1..=3 {
            // Without a change there may be nothing to write.
            let round = rounds.len() as u32;
            fill::write(&mut store, round)?;
            rounds.push(round);
            h.faults().fail(op, nth, When::Before);
            let before = h.faults().log().len();
            let result = h.snapshot(&mut store[0]);
            let broken = h.faults().log()[before..].iter().any(|call| call.broken);
            h.faults().heal();
            if !broken {
                continue;
            }
            failures += 1;
            if let Err(error) = result {
                let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate];
                assert!(kinds.contains(&error.kind()), "{error:?}");
            } else {
                // Written again under a retry: then it has to be whole.
                assert_same(&outcome(h, &result?)?, &fill::contents(h, &rounds)?);
            }
        }
    }
    assert!(failures > 0, "no snapshot wrote anything");
    assert_same(&outcome(h, &earlier)?, &fill::contents(h, &[0])?);
    fill::write(&mut store, 7)?;
    rounds.push(7);
    let next = h.snapshot(&mut store[0])?;
    assert_same(&outcome(h, &next)?, &fill::contents(h, &rounds)?);
    Ok(())
}

/// An object that was stored although the store said otherwise harms neither this nor the next
/// snapshot.
fn a_lost_acknowledgement_is_survived(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    h.faults().fail(StoreOp::Close, 1, When::After);
    match h.snapshot(&mut store[0]) {
        Ok(handle) => assert_same(&outcome(h, &handle)?, &fill::contents(h, &[0])?),
        Err(error) => {
            let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate, ErrorKind::Conflict];
            assert!(kinds.contains(&error.kind()), "{error:?}");
        }
    }
    h.faults().heal();
    // Another content under the same number of a new attempt must not meet the old object.
    fill::write(&mut store, 1)?;
    let mut request = h.next_checkpoint();
    request.checkpoint = CheckpointId(1);
    request.directory = "chk-1/".into();
    let next = block_on(store[0].snapshot(request)?.run())?;
    assert_same(&outcome(h, &next)?, &fill::contents(h, &[0, 1])?);
    Ok(())
}

/// A store that does not answer fails the restore with a typed error; the same restore succeeds
/// later.
fn a_failed_read_fails_the_restore(h: &Harness<'_>) -> Result<()> {
    let handle = filled(h)?;
    for op in [StoreOp::Read, StoreOp::Stat] {
        h.faults().fail_always(op, When::Before);
        let before = h.faults().log().len();
        let result = outcome(h, &handle);
        let broken = h.faults().log()[before..].iter().any(|call| call.broken);
        h.faults().heal();
        assert!(broken || op == StoreOp::Stat, "a restore read nothing");
        if broken {
            let error = refusal(result, "a failed read is noticed");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        }
    }
    assert_same(&outcome(h, &handle)?, &fill::contents(h, &[0])?);
    Ok(())
}

fn all_news(id: u64) -> [Notification; 3] {
    let id = CheckpointId(id);
    [Notification::Complete(id), Notification::Aborted(id), Notification::Subsumed(id)]
}

/// News about unknown checkpoints, repeated, in any order, or none at all: state, timers and later
/// snapshots are as without.
fn notifications_are_hints(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    for id in [0, 1, 77, u64::MAX] {
        all_news(id).into_iter().try_for_each(|news| store[0].notify(news))?;
    }
    fill::write(&mut store, 0)?;
    let task = h.begin_snapshot(&mut store[0])?;
    store[0].notify(Notification::Complete(CheckpointId(5_000)))?;
    let first = block_on(task.run())?;
    for id in [3, 2, 1, 3, 2, 1] {
        store[0].notify(Notification::Complete(CheckpointId(id)))?;
    }
    store[0].notify(Notification::Subsumed(CheckpointId(1)))?;
    let second = h.snapshot(&mut store[0])?;
    store[0].notify(Notification::Aborted(CheckpointId(9_999)))?;
    let expected = fill::contents(h, &[0])?;
    for handle in [first, second] {
        assert_same(&outcome(h, &handle)?, &expected);
    }
    assert_same(&Contents::take_all(&mut store)?, &expected);
    Ok(())
}

/// Checkpoints confirmed late, out of order, or before an older one is subsumed all restore.
fn confirmed_checkpoints_stay_whole(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    let mut handles = Vec::new();
    for round in 0..4 {
        fill::write(&mut store, round)?;
        let handle = h.snapshot(&mut store[0])?;
        handles.push((handle, (0..=round).collect::<Vec<_>>()));
        match round {
            1 => store[0].notify(Notification::Complete(handles[1].0.checkpoint))?,
            2 => store[0].notify(Notification::Complete(handles[0].0.checkpoint))?,
            _ => {}
        }
    }
    for (handle, rounds) in handles {
        assert_same(&outcome(h, &handle)?, &fill::contents(h, &rounds)?);
    }
    Ok(())
}

/// After a checkpoint was aborted and its objects deleted, the next one stands without them.
fn aborted_checkpoints_are_not_built_on(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let first = h.snapshot(&mut store[0])?;
    store[0].notify(Notification::Complete(first.checkpoint))?;
    fill::write(&mut store, 1)?;
    let second = h.snapshot(&mut store[0])?;
    store[0].notify(Notification::Aborted(second.checkpoint))?;
    h.collect_aborted(&second, &[&first]);
    fill::write(&mut store, 2)?;
    let third = h.snapshot(&mut store[0])?;
    assert_same(&outcome(h, &first)?, &fill::contents(h, &[0])?);
    assert_same(&outcome(h, &third)?, &fill::contents(h, &[0, 1, 2])?);
    Ok(())
}
