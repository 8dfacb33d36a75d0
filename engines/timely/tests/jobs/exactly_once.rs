//! Jobs that end, that fail and go on, at the same and at other numbers of workers.

use weir_state_api::opendal::Entry;
use weir_state_api::{ErrorKind, block_on};

use crate::counting::World;

#[test]
fn a_job_that_ends_has_committed_everything_once_at_any_number_of_workers() {
    for workers in [1, 2, 3] {
        let world = World::new(5_000);
        for report in world.run(workers) {
            let report = report.unwrap();
            assert_eq!(report.restored, None);
            assert!(report.completed >= 1);
        }
        assert_eq!(world.output.committed(), world.expected(), "{workers} workers");
        assert_eq!(world.output.pending(), 0);
    }
}

#[test]
fn a_job_that_failed_goes_on_from_its_checkpoint_at_another_number_of_workers() {
    for (workers, next) in [(2, 3), (3, 1), (1, 4)] {
        let mut world = World::new(4_000);
        world.fail_after = Some(4);
        for result in world.run(workers) {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UserFunction, "{error}");
            assert!(error.to_string().contains("a poisoned number"), "{error}");
        }
        assert!(world.output.committed().len() < world.expected().len());
        world.fail_after = None;
        let reports = world.run(next);
        assert!(reports.into_iter().all(|report| report.unwrap().restored.is_some()));
        assert_eq!(world.output.committed(), world.expected(), "{workers} to {next} workers");
        assert_eq!(world.output.pending(), 0);
    }
}

#[test]
fn a_job_that_has_ended_starts_again_and_has_nothing_to_do() {
    let world = World::new(1_000);
    for workers in [2, 1, 3] {
        for report in world.run(workers) {
            report.unwrap();
        }
        assert_eq!(world.output.committed(), world.expected());
    }
}

#[test]
fn more_input_for_a_job_that_has_ended_is_refused() {
    let mut world = World::new(1_000);
    for report in world.run(2) {
        report.unwrap();
    }
    let committed = world.output.committed();
    world.numbers = 1_500;
    for result in world.run(3) {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        assert!(error.to_string().contains("source \"numbers\""), "{error}");
    }
    assert_eq!(world.output.committed(), committed);
}

#[test]
fn old_checkpoints_and_what_runs_have_left_is_deleted() {
    let mut world = World::new(4_000);
    world.settings = world.settings.clone().with_retained(1);
    world.fail_after = Some(6);
    world.run(2);
    world.fail_after = None;
    for report in world.run(2) {
        report.unwrap();
    }
    let store = world.settings.environment.store.clone();
    let entries = block_on(async { store.list_with("").recursive(true).await.unwrap() });
    let names: Vec<_> = entries.iter().map(Entry::path).collect();
    let folder = |name: &str| names.iter().filter(|path| path.starts_with(name)).count();
    // One claim, one checkpoint: its record, and the objects of two workers.
    assert_eq!(folder("runs/"), 1, "{names:?}");
    assert_eq!(names.iter().filter(|path| path.ends_with("/record")).count(), 1, "{names:?}");
    assert!(names.len() <= 1 + 1 + 2 * 8, "{names:?}");
}
