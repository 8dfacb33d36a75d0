//! RocksDB's errors as Weir's.

use std::path::Path;

use rocksdb::ErrorKind as RocksKind;
use weir_state_api::{Error, ErrorKind};

/// Translates an error of RocksDB; `operation` says what was tried.
#[cold]
pub(crate) fn rocks(operation: &str, source: rocksdb::Error) -> Error {
    let (kind, advice) = match source.kind() {
        RocksKind::Corruption => (
            ErrorKind::Corrupt,
            "the local copy is damaged: check the disk, then restore a checkpoint",
        ),
        RocksKind::InvalidArgument | RocksKind::NotSupported => {
            (ErrorKind::InvalidUsage, "check the RocksDB options")
        }
        RocksKind::ShutdownInProgress | RocksKind::ColumnFamilyDropped => {
            (ErrorKind::Closed, "open the instance again from a checkpoint")
        }
        RocksKind::IOError => (
            ErrorKind::Unavailable,
            "check the local disk (space, open files, permissions), then restore a checkpoint",
        ),
        _ => (ErrorKind::Unavailable, "check the local disk"),
    };
    Error::new(kind, format!("RocksDB failed to {operation}")).advice(advice).source(source)
}

/// Translates an error of the local file system.
#[cold]
pub(crate) fn local(operation: &str, path: &Path, source: std::io::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("failed to {operation} the local file {}", path.display()),
    )
    .advice("check the local disk (space, permissions)")
    .source(source)
}

/// The error for something stored that is not as it was written.
#[cold]
pub(crate) fn corrupt(object: &str, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what).object(object).advice("restore another checkpoint")
}
