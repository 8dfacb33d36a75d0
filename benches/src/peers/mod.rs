//! State backends that are not Weir's, as contestants.

pub(crate) mod flink;
#[cfg(feature = "rocks")]
pub(crate) mod rocksdb;
