//! The contract on a real S3 server. Needs Python with pip once, to fetch the server; without it the test is
//! skipped and says so.
//!
//! ```text
//! cargo test -p weir-backend-forst --features s3-tests --test s3
//! ```

mod worlds;

use std::path::Path;

use weir_tests::conformance::run_in;
use weir_tests::harness::Harness;
use weir_tests::s3_server::S3Server;

use worlds::{Live, holds_anywhere, tiny};

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
    let report = run_in(&factory, holds_anywhere, || {
        let store = server.operator().expect("a client for a server that answers");
        Harness::around(&factory, store)
    });
    report.assert_passed();
    assert!(report.passed.len() > 150, "{report}");
}
