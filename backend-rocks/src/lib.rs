//! Keyed state in RocksDB: for state larger than memory, on local disks.
//!
//! The whole crate is behind the feature `rocksdb`, because that compiles RocksDB.
#![cfg(feature = "rocksdb")]
#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is a script, read top down"))]

mod append_guard;
mod backend;
mod clean_up;
mod column_families;
mod compaction_filter;
mod database;
mod eras;
mod error;
mod factory;
mod limits;
mod local_copies;
mod memory;
mod merge;
mod multi_get;
mod options;
mod restore;
mod scan;
mod shard;
mod snapshot;
mod state;
mod timers;
mod work_directory;

pub use factory::RocksBackendFactory;
pub use memory::RocksMemory;
pub use options::{Compaction, Preset, RocksOptions, TimerMemory};
