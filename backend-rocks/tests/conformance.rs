//! The contract, case by case.
#![cfg(feature = "rocksdb")]

use std::path::PathBuf;

use weir_backend_rocks::{RocksBackendFactory, RocksOptions};

/// A folder for all cases of this run: instances make their own folders in it and remove them.
fn directory() -> PathBuf {
    std::env::temp_dir().join("weir-rocks-conformance")
}

weir_tests::conformance_tests!(RocksBackendFactory::new(RocksOptions::new(directory())));

/// What is skipped at the default limit of 1 GiB, because it would need the memory.
#[test]
fn a_low_value_limit_is_kept() {
    let options = RocksOptions::new(directory()).with_max_value_len(1 << 20);
    let report = weir_tests::conformance::run_where(&RocksBackendFactory::new(options), |case| {
        case.needs == Some("max_value_len")
    });
    report.assert_passed();
    assert_eq!((report.passed.len(), report.skipped.len()), (1, 0));
}
