//! The contract, case by case.

use weir_backend_heap::HeapBackendFactory;

weir_tests::conformance_tests!(HeapBackendFactory::default());

/// A low limit, so that the cases about it run too.
mod limited {
    use weir_backend_heap::{HeapBackendFactory, HeapOptions};

    #[test]
    fn values_over_the_limit_are_refused() {
        let options = HeapOptions::default().with_max_value_len(1 << 20);
        weir_tests::conformance::run(&HeapBackendFactory::new(options)).assert_passed();
    }
}
