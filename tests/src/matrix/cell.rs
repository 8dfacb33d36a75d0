//! What one cell does: a short life of a job, a restore, and a look at everything.
//!
//! With a TTL of 100, a third of the places has expired before the snapshot at 1,105, another third
//! by the restore at 1,160, and the rest lives until 1,190 and longer.

use weir_state_api::{
    Millis, Notification, Result, SnapshotHandle, SnapshotKind, SnapshotTask, block_on,
};

use super::Cell;
use super::axes::SnapshotMode;
use super::job::Job;
use super::model::{Model, Place};
use crate::harness::Harness;

/// The keys written first.
const KEYS: u32 = 36;
/// These and the ones that come later.
pub(super) const ALL_KEYS: u32 = 48;
/// When the first third has expired.
const SNAPSHOT_AT: Millis = 1_105;

pub(super) fn run(h: &Harness<'_>, cell: &Cell) -> Result<()> {
    let model = Model::new(cell.kind, cell.ttl);
    let mut job = Job::open(h, cell, cell.rescale.from, &[], model, 1_000)?;
    fill(&mut job)?;
    let earlier = match cell.snapshot {
        SnapshotMode::Checkpoint => None,
        SnapshotMode::Incremental | SnapshotMode::Savepoint => {
            let (id, tasks) = job.begin_snapshot(SnapshotKind::Checkpoint, None)?;
            let handles = run_all(tasks)?;
            job.notify(Notification::Complete(id))?;
            Some((id, handles))
        }
    };
    job.set_time(1_095);
    change(&mut job)?;
    job.set_time(SNAPSHOT_AT);
    let expected = job.model.clone();
    let kind = match cell.snapshot {
        SnapshotMode::Checkpoint | SnapshotMode::Incremental => SnapshotKind::Checkpoint,
        SnapshotMode::Savepoint => SnapshotKind::NativeSavepoint,
    };
    let (id, tasks) = job.begin_snapshot(kind, earlier.as_ref().map(|(id, _)| *id))?;
    job.set_time(1_106);
    disturb(&mut job, 5)?;
    let handles = run_all(tasks)?;
    job.notify(Notification::Complete(id))?;
    disturb(&mut job, 6)?;
    // An instance may go on using what its snapshots name: it ends before they are cleared away.
    drop(job);
    if let Some((_, earlier)) = &earlier {
        h.collect(earlier, &handles);
    }

    let mut job = Job::open(h, cell, cell.rescale.to, &handles, expected, 1_160)?;
    job.check_restored_watermark(SNAPSHOT_AT);
    job.check("after the restore")?;
    if let Some(deadline) = job.model.last_deadline() {
        job.set_time(deadline - 1);
        job.check("when the last values are about to expire")?;
    }
    // Reads may have moved it.
    match job.model.last_deadline() {
        Some(deadline) => job.set_time(deadline),
        None => job.set_time(1_000_000_000),
    }
    job.check("long after the restore")?;
    go_on(&mut job)?;
    job.check("after writes to the restored instances")
}

fn run_all(tasks: Vec<SnapshotTask>) -> Result<Vec<SnapshotHandle>> {
    tasks.into_iter().map(|task| block_on(task.run())).collect()
}

/// One digit everywhere. It expires at 1,100, unless a place is touched later: two thirds are at
/// 1,050, one of them at 1,090 again.
fn fill(job: &mut Job<'_, '_>) -> Result<()> {
    let places = || Place::first(KEYS);
    for place in places() {
        job.write(place, 1)?;
    }
    for (now, third) in [(1_050, 1), (1_090, 2)] {
        job.set_time(now);
        for place in places().filter(|at| (at.key + u32::from(at.namespace)) % 3 >= third) {
            job.touch(place, u64::from(third) + 1)?;
        }
    }
    Ok(())
}

/// New keys, changed ones, cleared ones, and half of them as they are.
fn change(job: &mut Job<'_, '_>) -> Result<()> {
    for place in Place::first(ALL_KEYS) {
        match place.key {
            KEYS.. => job.write(place, 1)?,
            key if key % 4 == 1 => job.write(place, 4)?,
            key if key % 6 == 2 => job.clear(place)?,
            _ => {}
        }
    }
    Ok(())
}

/// What a job does that goes on after a snapshot, which must not see it.
fn disturb(job: &mut Job<'_, '_>, digit: u64) -> Result<()> {
    for place in Place::first(ALL_KEYS) {
        match place.key % 3 {
            0 => job.write(place, digit)?,
            1 => job.clear(place)?,
            _ => {}
        }
    }
    Ok(())
}

/// Writes everywhere, also where everything had expired, and removes some of it again.
fn go_on(job: &mut Job<'_, '_>) -> Result<()> {
    for place in Place::first(ALL_KEYS) {
        job.write(place, 7)?;
        job.write(place, 8)?;
        if place.key % 5 == 0 {
            job.clear(place)?;
        }
    }
    Ok(())
}
