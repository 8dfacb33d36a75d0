//! The contract, case by case.

use weir_backend_heap::{HeapBackendFactory, HeapOptions};

weir_tests::conformance_tests!(HeapBackendFactory::default());

/// What is skipped at the default limit of 1 GiB, because it would need the memory.
#[test]
fn a_low_value_limit_is_kept() {
    let options = HeapOptions::default().with_max_value_len(1 << 20);
    let report = weir_tests::conformance::run_where(&HeapBackendFactory::new(options), |case| {
        case.needs == Some("max_value_len")
    });
    report.assert_passed();
    assert_eq!((report.passed.len(), report.skipped.len()), (1, 0));
}
