//! In place of `s3_server.rs` in builds without a client for S3: a server that never starts.

use opendal::Operator;
use weir_state_api::{Error, ErrorKind, Result};

/// There is none.
#[derive(Debug)]
pub(crate) enum S3Server {}

pub(crate) fn start() -> Result<S3Server> {
    Err(Error::new(ErrorKind::Unsupported, "this build has no client for S3")
        .advice("cargo run --release -p weir-benches --features s3 -- ..."))
}

impl S3Server {
    pub(crate) fn options(&self) -> String {
        match *self {}
    }

    pub(crate) fn operator(&self) -> Result<Operator> {
        match *self {}
    }
}
