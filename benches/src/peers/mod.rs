//! Systems that are not Weir and run beside it.

pub(crate) mod flink;
