//! State backends that are not Weir's, as contestants.

pub(crate) mod flink;
pub(crate) mod ordered;
pub(crate) mod process;
#[cfg(feature = "rocks")]
pub(crate) mod rocksdb;
#[cfg(feature = "slatedb")]
pub(crate) mod slatedb;
