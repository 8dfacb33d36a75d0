//! The contract, case by case, with and without materializations in between.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::collections::BTreeSet;

use weir_backend_forst::ForstBackendFactory;
use weir_backend_heap::{HeapBackendFactory, HeapOptions};
use weir_state_api::SnapshotHandle;
use weir_tests::conformance::{Case, run_where};
use weir_tests::harness::{At, Harness};
use weir_tests::matrix;

/// The log alone: nothing is materialized but an empty instance.
mod log_only {
    weir_tests::conformance_tests!(super::support::around_heap(u64::MAX));
}

/// A checkpoint may build on a new materialization where this one expects it to build on the last
/// checkpoint.
fn stands_with_materializations(case: &Case) -> bool {
    case.name != "unchanged_state_is_shared_with_a_complete_checkpoint"
}

/// A materialization flushes, and a flush leaves out what has expired: these cases expect to be shown it
/// still.
fn stands_with_flushes(case: &Case) -> bool {
    let shown = ["expired_values_are_shown_where_asked", "nothing_is_built_on_what_is_shown"];
    !shown.contains(&case.name) && stands_with_materializations(case)
}

#[test]
fn around_heap_at_random() {
    let factory = support::Prompt::at_random(HeapBackendFactory::default());
    run_where(&factory, stands_with_materializations).assert_passed();
    matrix::check(&support::Prompt::at_random(HeapBackendFactory::default()));
}

/// A materialization after each few changes, so that checkpoints begin at all distances from one.
#[test]
fn materializing() {
    let factory = support::around_heap(37);
    run_where(&factory, stands_with_materializations).assert_passed();
}

/// Few materializations, with long logs between them.
#[test]
fn materializing_rarely() {
    let factory = support::around_heap(1_009);
    run_where(&factory, concerns_snapshots).assert_passed();
}

#[test]
fn matrix_with_materializations() {
    matrix::check(&support::around_heap(11));
}

/// Around a backend that cannot build on its own snapshots.
#[test]
fn around_whole_snapshots() {
    let heap = HeapBackendFactory::new(HeapOptions::default().with_incremental_snapshots(false));
    let factory = support::Prompt::around(heap, 101);
    run_where(&factory, concerns_snapshots).assert_passed();
}

fn concerns_snapshots(case: &Case) -> bool {
    let groups = ["isolation", "restore", "damage", "sharing", "ttl_change", "timers"];
    groups.contains(&case.group) && stands_with_materializations(case)
}

#[test]
fn around_forst_at_random() {
    let factory = support::Prompt::at_random(ForstBackendFactory::default());
    run_where(&factory, stands_with_flushes).assert_passed();
}

#[test]
fn around_forst_matrix_at_random() {
    matrix::check(&support::Prompt::at_random(ForstBackendFactory::default()));
}

#[test]
fn around_a_forst_in_the_store_at_random() {
    let factory = support::Prompt::at_random(support::small_forst());
    // What is replayed into full memtables is flushed again: the test below counts what is named.
    let stands =
        |case: &Case| stands_with_flushes(case) && case.name != "an_idle_restore_uploads_little";
    run_where(&factory, stands).assert_passed();
}

#[test]
fn an_idle_restore_around_a_forst_in_the_store_names_nothing_new() {
    let factory = support::Prompt::at_random(support::small_forst());
    let h = Harness::new(&factory);
    let mut stores = h.open_all(2, &[]).unwrap();
    for store in &mut stores {
        let value = store.value::<Vec<u8>>("v").unwrap();
        for number in 0..2_000_u32 {
            if store.at(&number.to_string()).is_ok() {
                value.set(store, &number.to_le_bytes().repeat(100)).unwrap();
            }
        }
    }
    let mut handles = h.snapshot_all(&mut stores).unwrap();
    let objects = |handles: &[SnapshotHandle]| -> BTreeSet<String> {
        handles
            .iter()
            .flat_map(|handle| &handle.objects)
            .map(|object| object.path.clone())
            .collect()
    };
    for parallelism in [2, 3, 1] {
        let before = objects(&handles);
        let mut stores = h.open_all(parallelism, &handles).unwrap();
        let replayed: u64 = stores.iter().map(|store| store.statistics().bytes_uploaded).sum();
        assert!(replayed > 0, "the replay flushes nothing: then the case above can be taken in");
        handles = h.snapshot_all(&mut stores).unwrap();
        let new: Vec<String> = objects(&handles).difference(&before).cloned().collect();
        assert!(new.is_empty(), "{parallelism}: {new:?}");
    }
}

#[cfg(feature = "rocks")]
mod around_rocks {
    use super::*;

    #[test]
    fn at_random() {
        let factory = support::Prompt::at_random(support::rocks("conformance"));
        run_where(&factory, stands_with_materializations).assert_passed();
    }

    #[test]
    fn matrix_at_random() {
        matrix::check(&support::Prompt::at_random(support::rocks("conformance")));
    }
}
