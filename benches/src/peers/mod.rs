//! State backends that are not Weir's, as contestants.

pub(crate) mod flink;
pub(crate) mod ordered;
pub(crate) mod process;
#[cfg(feature = "rocks")]
pub(crate) mod rocksdb;
#[cfg(feature = "slatedb")]
pub(crate) mod slatedb;

use std::path::PathBuf;

/// Where programs of others are kept from run to run.
pub(crate) fn cache_folder() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    cache.or_else(home).unwrap_or_else(std::env::temp_dir).join("weir-benches")
}
