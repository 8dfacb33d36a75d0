//! A store that is away for a while, and one that fails once, anywhere.

mod worlds;

use std::time::{Duration, Instant};

use weir_backend_forst::ForstUsage;
use weir_state_api::{ErrorKind, Result};
use weir_tests::faults::{StoreOp, When};
use weir_tests::harness::{Harness, Store};

use worlds::{Live, tiny};

const OPERATIONS: [StoreOp; 5] =
    [StoreOp::Write, StoreOp::Close, StoreOp::Read, StoreOp::Stat, StoreOp::Delete];

/// Sets `count` keys from `from` on to a value that says in which round that was.
fn write(store: &mut Store, from: u32, count: u32, round: u32) -> Result<()> {
    let value = store.value::<Vec<u8>>("v")?;
    for number in from..from + count {
        store.set_key(&number.to_string())?;
        value.set(store, &round.to_le_bytes().repeat(50))?;
    }
    Ok(())
}

/// Each key has the value of the last round that wrote it; `rounds` holds where each began.
fn check(store: &mut Store, rounds: &[(u32, u32)], keys: u32) -> Result<()> {
    let value = store.value::<Vec<u8>>("v")?;
    for number in 0..keys {
        store.set_key(&number.to_string())?;
        let wrote = |(from, count): &(u32, u32)| (*from..from + count).contains(&number);
        let expected = rounds
            .iter()
            .rposition(wrote)
            .map(|round| u32::try_from(round).expect("few rounds").to_le_bytes().repeat(50));
        assert_eq!(value.get(store).wait()?, expected, "key {number}");
    }
    Ok(())
}

/// While the store is away, failed checkpoints do not pile memtables up, each says why it failed, and writes
/// are refused rather than kept without bound. When it is back, nothing is missing.
#[test]
fn an_outage_leaves_few_memtables_and_loses_nothing() -> Result<()> {
    const MOST: usize = 16;
    let factory = Live::new(tiny().with_compaction(false).with_max_frozen(4));
    let resources = factory.options().resources.clone();
    let h = Harness::new(&factory);
    let mut store = h.open()?;
    let mut rounds = Vec::new();
    h.faults().fail_always(StoreOp::Close, When::Before);
    let mut declined = Vec::new();
    for round in 0..30 {
        rounds.push((round * 7, 10));
        write(&mut store, round * 7, 10, round)?;
        let error = h.snapshot(&mut store).expect_err("the store is away");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        declined.push(resources.usage().declined_snapshots);
        if resources.usage().declined_snapshots > 0 {
            let text = error.to_string();
            assert!(text.contains("16 memtables") && text.contains("live/"), "{text}");
        }
    }
    assert_eq!(declined[MOST - 1], 0, "as many as may wait: {declined:?}");
    assert_eq!(declined.last(), Some(&(30 - MOST as u64)), "{declined:?}");
    check(&mut store, &rounds, 250)?;

    // A writer may fill one memtable more, and is refused then; what was refused was not written.
    let mut number = 1_000;
    let refused = loop {
        assert!(number < 20_000, "no write was refused");
        match write(&mut store, number, 1, 99) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    let full = resources.usage().memtable_bytes;
    for _ in 0..5 {
        write(&mut store, number, 1, 99).expect_err("the store is away");
    }
    assert_eq!(resources.usage().memtable_bytes, full, "nothing more was kept");
    let value = store.value::<Vec<u8>>("v")?;
    store.set_key(&number.to_string())?;
    assert_eq!(value.get(&mut store).wait()?, None);

    h.faults().heal();
    // The first snapshots may still be declined, until what waited is flushed.
    let deadline = Instant::now() + Duration::from_secs(60);
    let handle = loop {
        match h.snapshot(&mut store) {
            Ok(handle) => break handle,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    check(&mut store, &rounds, 250)?;
    let mut restored = h.restore(&[handle])?;
    check(&mut restored, &rounds, 250)?;
    restored.set_key(&"1000".to_owned())?;
    let value = restored.value::<Vec<u8>>("v")?;
    assert!(value.get(&mut restored).wait()?.is_some());
    Ok(())
}

/// What a run asked of the store, and how it ended.
struct Outcome {
    calls: [u64; 5],
    failed: bool,
    usage: ForstUsage,
}

/// Writes, checkpoints, compacts and restores, while one operation may fail. The instance always has all that
/// was written, and each handle restores what was there when it was taken.
fn run(fault: Option<(StoreOp, u64, When)>) -> Result<Outcome> {
    let factory = Live::new(tiny());
    let resources = factory.options().resources.clone();
    let h = Harness::new(&factory);
    let mut store = h.open()?;
    let mut rounds = Vec::new();
    let mut handles = Vec::new();
    let mut failed = false;
    if let Some((operation, nth, when)) = fault {
        // All attempts of one request.
        for attempt in 0..12 {
            h.faults().fail(operation, nth + attempt, when);
        }
    }
    for round in 0..4 {
        let (from, count) = (round * 30, 60);
        if let Err(error) = write(&mut store, from, count, round) {
            // A writer that waited for a flush: he tries again.
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            failed = true;
            h.faults().heal();
            write(&mut store, from, count, round)?;
        }
        rounds.push((from, count));
        match h.snapshot(&mut store) {
            Ok(handle) => handles.push((handle, rounds.len())),
            Err(error) => {
                let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate];
                assert!(kinds.contains(&error.kind()), "{error}");
                failed = true;
            }
        }
    }
    h.faults().heal();
    check(&mut store, &rounds, 160)?;
    for (handle, written) in handles {
        check(&mut h.restore(&[handle])?, &rounds[..written], 160)?;
    }
    let calls = OPERATIONS.map(|operation| h.faults().count(operation));
    Ok(Outcome { calls, failed, usage: resources.usage() })
}

/// Each request in turn fails, with all its attempts, before or after it has taken effect.
#[test]
fn any_request_may_fail() -> Result<()> {
    let quiet = run(None)?;
    assert!(!quiet.failed);
    let mut failures = 0;
    for (operation, calls) in OPERATIONS.into_iter().zip(quiet.calls) {
        for nth in 1..=calls {
            for when in [When::Before, When::After] {
                let outcome = run(Some((operation, nth, when)))?;
                failures += u64::from(outcome.failed || outcome.usage.failed_flushes > 0);
            }
        }
    }
    assert!(failures > 0, "no failure reached anybody");
    Ok(())
}
