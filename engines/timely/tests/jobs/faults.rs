//! Stores that fail, zombies, damage.

use weir_engine_timely::CheckpointStore;
use weir_state_api::{Environment, ErrorKind, block_on};
use weir_tests::faults::{Faults, StoreOp, When};

use crate::counting::World;

#[test]
fn a_store_that_fails_now_and_then_costs_checkpoints_and_nothing_else() {
    for when in [When::Before, When::After] {
        let faults = Faults::new();
        let mut environment = Environment::in_memory();
        environment.store = environment.store.layer(faults.layer());
        let mut world = World::in_environment(5_000, environment);
        world.settings = world.settings.clone().with_tolerable_failures(100);
        for nth in [4, 7, 12, 13, 20] {
            faults.fail(StoreOp::Close, nth, when);
        }
        for report in world.run(2) {
            report.unwrap();
        }
        assert_eq!(world.output.committed(), world.expected(), "{when:?}");
        assert_eq!(world.output.pending(), 0);
    }
}

#[test]
fn a_store_that_stays_broken_fails_the_job_on_every_worker_and_commits_nothing() {
    let faults = Faults::new();
    let mut environment = Environment::in_memory();
    environment.store = environment.store.layer(faults.layer());
    let mut world = World::in_environment(2_000, environment);
    world.settings = world.settings.clone().with_tolerable_failures(1);
    // The claim of the run is written, nothing else.
    faults.fail(StoreOp::Close, 1, When::After);
    for nth in 2..200 {
        faults.fail(StoreOp::Close, nth, When::Before);
    }
    for result in world.run(2) {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("2 checkpoints failed in a row"), "{error}");
    }
    assert!(world.output.committed().is_empty());
    faults.heal();
    for report in world.run(3) {
        assert_eq!(report.unwrap().restored, None, "no half checkpoint is restored");
    }
    assert_eq!(world.output.committed(), world.expected());
}

#[test]
fn a_store_that_fails_for_one_worker_while_the_others_acknowledge_completes_nothing() {
    let mut world = World::new(2_000);
    world.fail_after = Some(4);
    world.run(2);
    let latest =
        block_on(CheckpointStore::new(world.settings.environment.store.clone()).complete())
            .unwrap()
            .pop();
    let committed = world.output.committed();
    world.fail_after = None;
    world.settings = world.settings.clone().with_tolerable_failures(1);

    let faults = Faults::new();
    faults.fail_always(StoreOp::Close, When::Before);
    let of_one = faults.clone();
    let results = world.run_with(3, move |world, worker| {
        let mut settings = world.settings.clone();
        if worker == 2 {
            let store = settings.environment.store.clone();
            settings.environment.store = store.layer(of_one.layer());
        }
        settings
    });
    for result in results {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let message = error.to_string();
        assert!(message.contains("2 checkpoints failed in a row"), "{message}");
        assert!(message.contains("worker 2"), "who failed is named: {message}");
    }
    assert!(faults.count(StoreOp::Close) > 0);
    // What the restored checkpoint holds was committed; nothing of the two that failed.
    let store = CheckpointStore::new(world.settings.environment.store.clone());
    assert_eq!(block_on(store.complete()).unwrap().pop(), latest);
    assert!(world.output.committed().len() >= committed.len());
    for report in world.run(2) {
        assert_eq!(
            report.unwrap().restored,
            latest,
            "a checkpoint without a part is never restored"
        );
    }
    assert_eq!(world.output.committed(), world.expected());
}

#[test]
fn a_damaged_record_is_named() {
    let world = World::new(100);
    world.run(1).remove(0).unwrap();
    let store = world.settings.environment.store.clone();
    let complete = block_on(CheckpointStore::new(store.clone()).complete()).unwrap();
    let entries = block_on(async { store.list_with("").recursive(true).await.unwrap() });
    for record in entries.iter().filter(|entry| entry.path().ends_with("/record")) {
        block_on(store.write(record.path(), "garbage")).unwrap();
    }
    assert!(!complete.is_empty());
    for result in world.run(2) {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("/record"), "{error}");
    }
}

#[test]
fn a_zombie_is_fenced_on_all_its_workers() {
    let mut world = World::new(2_000);
    // It never gets enough commits to end: a newer run takes over before.
    world.fail_after = Some(u64::MAX);
    let zombie = world.clone();
    let old = std::thread::spawn(move || zombie.run(2));
    while world.output.commits() < 2 {
        std::thread::yield_now();
    }
    let mut successor = world.clone();
    successor.fail_after = None;
    for report in successor.run(3) {
        assert!(report.unwrap().restored.is_some());
    }
    for result in old.join().unwrap() {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Fenced);
    }
    assert_eq!(world.output.committed(), world.expected());
}
