//! Snapshots are isolated from all that happens after their synchronous part.

use weir_state_api::{Native, Result, SnapshotTask, block_on};

use super::{Case, fill, group};
use crate::harness::{At, Contents, Harness, Store, assert_same};

pub(super) const CASES: &[Case] = group!["isolation":
    later_changes_are_not_in_the_snapshot => "snapshots: nothing that the task does later changes them",
    in_place_updates_are_not_in_the_snapshot => "snapshots: isolation",
    states_registered_later_are_not_in_it => "snapshots: metadata is frozen too",
    a_snapshot_is_written_while_the_task_goes_on => "snapshots: isolation across threads",
    overlapping_snapshots_keep_their_own_moments => "snapshots: isolation",
    tasks_may_run_in_any_order => "snapshots",
    a_snapshot_outlives_its_instance => "dropping an instance: running snapshots go on",
    an_abandoned_snapshot_disturbs_nothing => "snapshots: dropping the task abandons it",
    snapshots_leave_the_state_as_it_is => "snapshots",
    all_states_are_of_one_moment => "snapshots: one moment for all states",
];

/// Overwrites, clears, new keys, polled and deleted timers after the call are all absent from it.
fn later_changes_are_not_in_the_snapshot(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let task = h.begin_snapshot(&mut store[0])?;
    fill::disturb(&mut store)?;
    let handle = block_on(task.run())?;
    let restored = Contents::take(&mut h.restore(&[handle])?)?;
    assert_same(&restored, &fill::contents(h, &[0])?);
    Ok(())
}

/// Values that are extended in place (list, accumulator, update, map entry) keep their old form.
fn in_place_updates_are_not_in_the_snapshot(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<Vec<u8>>("v")?;
    let list = store.list::<u32>("l")?;
    let map = store.map::<u32, u32>("m")?;
    let sum = store.reducing("r", |a: u32, b| Ok(a + b))?;
    let change = |store: &mut Store, number: u8| -> Result<()> {
        store.at("a")?;
        value.update(store, |old| [old.unwrap_or_default(), vec![number]].concat()).wait()?;
        list.add(store, &number.into())?;
        map.put(store, &1, &number.into())?;
        sum.add(store, number.into()).wait().map(drop)
    };
    change(&mut store, 1)?;
    let first = h.begin_snapshot(&mut store)?;
    change(&mut store, 2)?;
    let second = h.begin_snapshot(&mut store)?;
    change(&mut store, 3)?;
    for (task, moment) in [(first, 1), (second, 2)] {
        let handle = block_on(task.run())?;
        let mut restored = h.restore(&[handle])?;
        restored.at("a")?;
        let value = restored.value::<Vec<u8>>("v")?;
        let list = restored.list::<u32>("l")?;
        let map = restored.map::<u32, u32>("m")?;
        let sum = restored.reducing("r", |a: u32, b| Ok(a + b))?;
        assert_eq!(value.get(&mut restored).wait()?, Some((1..=moment).collect()));
        assert!(list.get(&mut restored).wait()?.into_iter().eq(1..=u32::from(moment)));
        assert_eq!(map.get(&mut restored, &1).wait()?, Some(moment.into()));
        assert_eq!(sum.get(&mut restored).wait()?, Some((1..=u32::from(moment)).sum()));
    }
    Ok(())
}

/// A state registered between the call and the writing is not in the handle.
fn states_registered_later_are_not_in_it(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let early = store.value::<u32>("early")?;
    early.set(store.at("a")?, &1)?;
    let task = h.begin_snapshot(&mut store)?;
    let late = store.value::<u32>("late")?;
    late.set(&mut store, &2)?;
    let handle = block_on(task.run())?;
    let names: Vec<_> = handle.states.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(names, ["early"]);
    let mut restored = h.restore(&[handle])?;
    // Free for another kind: nothing is stored under the name.
    restored.list::<u32>("late")?;
    assert_eq!(restored.keys("early")?.count(), 1);
    Ok(())
}

/// A writer on another thread and the task's own changes do not meet, in many interleavings.
fn a_snapshot_is_written_while_the_task_goes_on(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let expected = fill::contents(h, &[0])?;
    let task = h.begin_snapshot(&mut store[0])?;
    let runtime = tokio::runtime::Handle::current();
    let handle = std::thread::scope(|scope| -> Result<_> {
        let writer = scope.spawn(move || {
            let _context = runtime.enter();
            block_on(task.run())
        });
        fill::disturb(&mut store)?;
        writer.join().expect("the writer does not panic")
    })?;
    assert_same(&Contents::take(&mut h.restore(&[handle])?)?, &expected);
    Ok(())
}

/// Snapshots taken one after the other without waiting each restore to their own moment.
fn overlapping_snapshots_keep_their_own_moments(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    let mut tasks: Vec<(SnapshotTask, Vec<u32>)> = Vec::new();
    for round in 0..3 {
        fill::write(&mut store, round)?;
        tasks.push((h.begin_snapshot(&mut store[0])?, (0..=round).collect()));
    }
    fill::disturb(&mut store)?;
    let handles: Vec<_> = tasks
        .into_iter()
        .map(|(task, rounds)| Ok((block_on(task.run())?, rounds)))
        .collect::<Result<_>>()?;
    for (handle, rounds) in handles {
        let restored = Contents::take(&mut h.restore(&[handle])?)?;
        assert_same(&restored, &fill::contents(h, &rounds)?);
    }
    Ok(())
}

/// The task of a later snapshot may run before that of an earlier one, into the same directory.
fn tasks_may_run_in_any_order(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    value.set(store.at("a")?, &1)?;
    let mut request = h.next_checkpoint();
    request.directory = "shared/".into();
    let first = store.snapshot(request.clone())?;
    value.set(store.at("a")?, &2)?;
    request.checkpoint.0 += 1;
    let second = store.snapshot(request)?;
    value.set(store.at("a")?, &3)?;
    let second = block_on(second.run())?;
    let first = block_on(first.run())?;
    for (handle, expected) in [(first, 1), (second, 2)] {
        let mut restored = h.restore(&[handle])?;
        let value = restored.value::<u32>("v")?;
        assert_eq!(value.get(restored.at("a")?).wait()?, Some(expected));
    }
    Ok(())
}

/// The instance may be dropped before the task runs.
fn a_snapshot_outlives_its_instance(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let task = h.begin_snapshot(&mut store[0])?;
    drop(store);
    let handle = block_on(task.run())?;
    assert_same(&Contents::take(&mut h.restore(&[handle])?)?, &fill::contents(h, &[0])?);
    Ok(())
}

/// A task that is dropped without running leaves state and later snapshots whole.
fn an_abandoned_snapshot_disturbs_nothing(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    drop(h.begin_snapshot(&mut store[0])?);
    fill::write(&mut store, 1)?;
    let abandoned = h.begin_snapshot(&mut store[0])?;
    let handle = h.snapshot(&mut store[0])?;
    drop(abandoned);
    let expected = fill::contents(h, &[0, 1])?;
    assert_same(&Contents::take(&mut h.restore(&[handle])?)?, &expected);
    assert_same(&Contents::take_all(&mut store)?, &expected);
    Ok(())
}

/// Neither the call nor the writing changes what the instance holds and answers.
fn snapshots_leave_the_state_as_it_is(h: &Harness<'_>) -> Result<()> {
    let mut store = [h.open()?];
    for round in 0..3 {
        fill::write(&mut store, round)?;
        h.snapshot(&mut store[0])?;
    }
    assert_same(&Contents::take_all(&mut store)?, &fill::contents(h, &[0, 1, 2])?);
    Ok(())
}

/// Two states that are always written together are equal in every snapshot.
fn all_states_are_of_one_moment(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    let list = store.namespaced::<u8>().list_with::<u32, _>("l", Native)?;
    let mut tasks = Vec::new();
    for number in 0..50_u32 {
        store.at(&format!("key {}", number % 3))?;
        value.set(&mut store, &number)?;
        list.at(&1)?.set(&mut store, &[number])?;
        if number % 7 == 0 {
            tasks.push(h.begin_snapshot(&mut store)?);
        }
    }
    for task in tasks {
        let mut restored = h.restore(&[block_on(task.run())?])?;
        let value = restored.value::<u32>("v")?;
        let list = restored.namespaced::<u8>().list_with::<u32, _>("l", Native)?;
        for key in ["key 0", "key 1", "key 2"] {
            let number = value.get(restored.at(key)?).wait()?;
            assert_eq!(list.at(&1)?.get(&mut restored).wait()?, Vec::from_iter(number));
        }
    }
    Ok(())
}
