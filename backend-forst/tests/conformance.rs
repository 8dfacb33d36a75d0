//! The contract, case by case, and again where everything goes through the store.

mod worlds;

use std::time::Duration;

use weir_backend_forst::{ForstBackendFactory, ForstOptions, RequestLimits};
use weir_state_api::BackendFactory;
use weir_tests::conformance::{Case, run_in, run_where};
use weir_tests::harness::Harness;

use worlds::{Faulty, Live, Slow, holds_anywhere, tiny, tiny_on_disk, tiny_resources, tiny_with};

/// Cases that are about objects: a state as small as theirs would be a part of the handle.
fn options() -> ForstOptions {
    ForstOptions::default().with_inline_manifest_bytes(0)
}

weir_tests::conformance_tests!(ForstBackendFactory::new(options()));

fn holds(factory: &dyn BackendFactory, wanted: impl Fn(&Case) -> bool) {
    let report = run_where(factory, wanted);
    report.assert_passed();
    assert!(!report.passed.is_empty(), "{report}");
}

/// The cases that take their time, by name; the other cases of their themes are left out below.
fn is_long(case: &Case) -> bool {
    matches!(case.group, "restore" | "isolation" | "damage" | "sharing")
        && !matches!(
            case.name,
            "rescaling_keeps_everything"
                | "later_changes_are_not_in_the_snapshot"
                | "a_claimed_restore_is_built_on"
                | "without_a_claim_nothing_is_built_on"
                | "a_savepoint_shares_nothing"
                | "a_failed_upload_fails_only_its_snapshot"
        )
}

/// Small memtables, blocks and caches: what a case writes has been flushed before it reads, and many
/// reads pend.
#[test]
fn it_holds_when_everything_goes_through_the_store() {
    holds(&Live::new(tiny()), |case| !is_long(case));
}

/// Tables come to local disk and leave it again.
#[test]
fn it_holds_with_a_disk_cache() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let factory = Live::new(tiny_on_disk(folder.path()));
    holds(&factory, |case| !is_long(case));
    let used = factory.options().resources.usage();
    assert!(used.disk_cache_hits > 0 && used.disk_cache_evicted_bytes > 0, "{used:?}");
}

/// Flushed memtables answer reads until there are some more of them.
#[test]
fn it_holds_when_flushed_memtables_answer() {
    let factory =
        Live::new(tiny_with(tiny_resources().memtable_bytes(256 << 10)).with_keep_flushed(true));
    holds(&factory, |case| !is_long(case));
    let used = factory.options().resources.usage();
    assert!(used.resident_memtable_bytes <= 256 << 10, "{used:?}");
}

/// All is read from objects, each of which is needed: there are too few tables to copy their ends.
#[test]
fn damage_is_found_where_no_cache_answers() {
    let options = tiny_with(tiny_resources().cache_bytes(0)).with_memtable_bytes(1 << 20);
    holds(&Live::new(options), |case| case.group == "damage");
}

#[test]
fn it_holds_in_a_local_folder() {
    let factory = Live::new(tiny());
    let report = run_in(&factory, holds_anywhere, || Harness::on_disk(&factory));
    report.assert_passed();
    assert!(report.passed.len() > 150, "{report}");
}

/// Every third read of the store is cut short, to nothing even.
#[test]
fn it_holds_when_reads_are_short() {
    holds(&Faulty::short(Live::new(tiny())), holds_anywhere);
}

/// Background work and reads end late and in any order.
#[test]
fn it_holds_when_the_store_is_slow() {
    holds(&Slow::new(Live::new(tiny())), holds_anywhere);
}

/// Requests fail before and after they take effect, again and again.
#[test]
fn it_holds_when_requests_fail() {
    holds(&Faulty::lossy(Live::new(tiny())), holds_anywhere);
}

/// Half of all requests are refused: they are made again until the store serves them.
#[test]
fn it_holds_when_the_store_throttles() {
    // Requests that are made at a time share what is served: one can be refused more than once a run.
    let patient =
        RequestLimits { attempts: 64, first_pause: Duration::ZERO, ..RequestLimits::default() };
    let options = tiny_with(tiny_resources().request_limits(patient));
    holds(&Faulty::throttled(Live::new(options)), holds_anywhere);
}

/// With short tails in the manifest, and manifests in the handle.
#[test]
fn it_holds_when_small_states_are_a_part_of_the_handle() {
    // These ask for objects.
    let needs_objects = |case: &Case| {
        matches!(
            case.name,
            "handles_describe_themselves"
                | "a_failed_upload_fails_only_its_snapshot"
                | "a_failed_read_fails_the_restore"
        )
    };
    let options = ForstOptions::default().with_inline_manifest_bytes(1 << 20);
    holds(&ForstBackendFactory::new(options), |case| {
        matches!(case.group, "restore" | "damage" | "sharing" | "ttl_change")
            && !needs_objects(case)
    });
}

/// What is skipped at the default limit of 1 GiB, because it would need the memory.
#[test]
fn a_low_value_limit_is_kept() {
    let options = options().with_max_value_len(1 << 20);
    holds(&ForstBackendFactory::new(options), |case| case.needs == Some("max_value_len"));
}
