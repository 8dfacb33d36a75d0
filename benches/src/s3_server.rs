//! A real S3 server on this machine for a suite.

use weir_state_api::Result;
pub(crate) use weir_tests::s3_server::S3Server;

use crate::interrupt;
use crate::peers::cache_folder;

/// Finds or fetches the program, and starts it.
pub(crate) fn start() -> Result<S3Server> {
    S3Server::start(&cache_folder(), &interrupt::requested)
}
