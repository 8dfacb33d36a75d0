//! When two files are the same file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_state_api::Result;
use xxhash_rust::xxh3::xxh3_128;

use crate::error;

/// How much of the end of a sorted file is looked at. RocksDB ends each with a block of properties,
/// which names the database, its session and the file's number in it, then a short index and a
/// footer: some 2 KiB.
const TAIL_LEN: u64 = 4 << 10;

/// What tells a file from all others, whatever its name.
///
/// Names repeat: a restored database numbers its next file as the crashed one did. The end of a sorted
/// file holds RocksDB's own unique identification of it, so its length and the hash of its end are one
/// too. Of other files the whole content counts; they are small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) length: u64,
    pub(crate) hash: u128,
}

impl Identity {
    /// Reads the identity of a local file.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let failed = |source| error::local("read", path, source);
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if is_sorted_file(path) {
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL_LEN))).map_err(failed)?;
        }
        let mut end = Vec::new();
        file.read_to_end(&mut end).map_err(failed)?;
        Ok(Identity { length, hash: xxh3_128(&end) })
    }
}

/// Whether it is one of RocksDB's sorted files, by its name.
pub(crate) fn is_sorted_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sst")
}
