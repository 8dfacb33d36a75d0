//! Checks the matrix itself: the reference passes, and a planted defect shows in the right cells.

use weir_tests::conformance::{self, Outcome};
use weir_tests::matrix::{Cell, Kind, Matrix, Rescale, SnapshotMode, TtlMode};
use weir_tests::reference::{Defect, ReferenceBackendFactory};

fn incremental() -> ReferenceBackendFactory {
    ReferenceBackendFactory::default().incremental()
}

/// The cells that fail with a defect are these, and no others.
fn assert_failing(defect: Defect, expected: fn(&Cell) -> bool) {
    let matrix = Matrix::run(&incremental().with_defect(defect));
    for (cell, outcome) in &matrix.cells {
        let failed = matches!(outcome, Outcome::Failed(_));
        assert_eq!(failed, expected(cell), "{defect:?}, {cell:?}: {outcome:?}");
    }
    assert!(!matrix.passed());
}

#[test]
fn the_reference_passes_every_cell() {
    let matrix = Matrix::run(&incremental());
    assert!(matrix.cells.iter().all(|(_, outcome)| *outcome == Outcome::Passed), "{matrix}");
    assert_eq!(matrix.cells.len(), Cell::all().count());
}

#[test]
fn lost_stamps_show_where_something_expires() {
    // The defect spares lists and lifetimes of single writes.
    assert_failing(Defect::RestoresRefresh, |cell| {
        let stamped =
            matches!(cell.ttl, TtlMode::Written | TtlMode::Refreshed | TtlMode::EventTime);
        stamped && cell.kind != Kind::List
    });
}

#[test]
fn a_lost_watermark_shows_in_event_time() {
    assert_failing(Defect::WatermarksAreLost, |cell| cell.ttl == TtlMode::EventTime);
}

#[test]
fn a_restore_of_one_handle_shows_where_there_were_several() {
    assert_failing(Defect::RestoreReadsOneHandle, |cell| cell.rescale.from > 1);
}

#[test]
fn foreign_key_groups_show_where_there_are_several_instances() {
    assert_failing(Defect::RestoreTakesForeignGroups, |cell| cell.rescale.to > 1);
}

#[test]
fn defects_of_a_kind_of_state_show_in_its_rows() {
    assert_failing(Defect::TimersAreNotRestored, |cell| cell.kind == Kind::Timers);
    assert_failing(Defect::ListsGrowAtTheFront, |cell| cell.kind == Kind::List);
}

#[test]
fn later_changes_in_a_snapshot_show_everywhere() {
    assert_failing(Defect::SnapshotsAreNotIsolated, |_| true);
}

#[test]
fn a_missing_capability_is_named() {
    let matrix = Matrix::run_where(&ReferenceBackendFactory::default(), |cell| {
        cell.kind == Kind::Value && cell.rescale == Rescale { from: 1, to: 2 }
    });
    for (cell, outcome) in &matrix.cells {
        let expected = match cell.snapshot {
            SnapshotMode::Incremental => Outcome::Skipped("incremental_snapshots"),
            _ => Outcome::Passed,
        };
        assert_eq!(*outcome, expected, "{cell:?}");
    }
    let table = matrix.to_string();
    assert!(table.contains("10 ok, 0 failed, 5 skipped"), "{table}");
    assert!(table.contains("skip: 5 cells, the backend lacks incremental_snapshots"), "{table}");
}

/// Each line of the table stands for itself: names, marks, and reasons below.
#[test]
fn the_table_shows_marks_and_reasons() {
    let factory = ReferenceBackendFactory::default().with_defect(Defect::RestoreReadsOneHandle);
    let matrix =
        Matrix::run_where(&factory, |cell| matches!(cell.kind, Kind::Reducing | Kind::Timers));
    let table = matrix.to_string();
    for line in [
        "state        TTL                checkpoint           incremental          savepoint",
        "                                2→2  1→2  2→3  3→1   2→2  1→2  2→3  3→1   2→2  1→2  2→3  3→1",
        "value        none",
        "reducing     event time         FAIL ok   FAIL FAIL  skip skip skip skip  FAIL ok   FAIL FAIL",
        "reducing     per write          -    -    -    -     -    -    -    -     -    -    -    -",
        "timers       none               FAIL ok   FAIL FAIL  skip skip skip skip  FAIL ok   FAIL FAIL",
        "FAIL: reducing, TTL none, checkpoint 2→2",
        "FAIL: 18 more cells",
    ] {
        assert!(table.lines().any(|other| other == line), "{line:?} is not in\n{table}");
    }
    assert!(table.contains("      after the restore: the listed keys differ: found "), "{table}");
}

#[test]
fn a_failed_cell_fails_the_report() {
    let mut report = conformance::run_where(&incremental(), |case| case.group == "value");
    report.assert_passed();
    let broken = incremental().with_defect(Defect::TimersAreNotRestored);
    report.matrix = Some(Matrix::run_where(&broken, |cell| cell.kind == Kind::Timers));
    let text = std::panic::catch_unwind(|| report.assert_passed()).expect_err("a cell failed");
    let text = text.downcast_ref::<String>().expect("the report is a text");
    assert!(text.contains("FAIL: timers, TTL none"), "{text}");
}
