//! Keyed state in RocksDB: for state larger than memory, on local disks.
//!
//! An instance keeps its state in RocksDB databases in a local folder, without a log: a checkpoint is
//! the only durability. Snapshots are incremental: the synchronous part flushes and makes hard links,
//! the rest uploads what no confirmed checkpoint holds. A restore takes files over whole at any
//! parallelism, from the store or from a local copy, and the history of incremental snapshots goes
//! on. Reads never pend.
//!
//! It is **not** for state that fits in memory: the memory backend answers some ten times as fast.
//!
//! The whole crate is behind the feature `rocksdb`, because that compiles RocksDB: it needs a C++
//! compiler and libclang, and half an hour on two cores.
//!
#![cfg_attr(feature = "rocksdb", doc = "```")]
#![cfg_attr(not(feature = "rocksdb"), doc = "```ignore")]
//! use weir_backend_rocks::{RocksBackendFactory, RocksMemory, RocksOptions};
//! use weir_state_api::{CheckpointId, KeyedStore, SnapshotRequest, block_on};
//!
//! # fn main() -> weir_state_api::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder can be made");
//! # let folder = folder.path();
//! // One factory for all instances of the process: they share its memory.
//! let options = RocksOptions::new(folder).with_memory(RocksMemory::new(64 << 20, 0.5));
//! let mut store: KeyedStore<String> =
//!     KeyedStore::open_in_memory(&RocksBackendFactory::new(options))?;
//! let visits = store.value::<u64>("visits")?;
//! store.set_key(&"ann".to_string())?;
//! visits.update(&mut store, |old| old.unwrap_or(0) + 1).wait()?;
//!
//! let task = store.snapshot(SnapshotRequest::checkpoint(CheckpointId(1), "chk-1"))?;
//! let handle = block_on(task.run())?;
//! assert_eq!(handle.backend, "rocks");
//! # Ok(())
//! # }
//! ```
//!
//! # Inside
//!
//! | module | concept |
//! |---|---|
//! | `backend`, `factory` | the instance; opening one |
//! | `shard` | an instance is a list of databases, each for its own key groups |
//! | `database`, `column_families` | one RocksDB; how it is set up |
//! | `eras`, `merge`, `compaction_filter`, `clean_up` | how stored bytes are read, joined and left out |
//! | `scan`, `multi_get` | walks that own their database, and the one kept for the next scan; batched reads |
//! | `timers` | queues: a head in memory, the rest on disk |
//! | `snapshot` | hard links, identity of files, the plan, uploads (`docs/formats/rocks-snapshot.md`) |
//! | `restore`, `local_copies` | downloads, local copies, other parallelisms |
//! | `work_directory` | local folders, and what a crash leaves behind |
//! | `collected_writes`, `row_cache`, `access` | writes that RocksDB does not have yet, values that were read, and the way through both |
//! | `memory`, `options` | what a user can set |
//! | `metrics` | what RocksDB tells about itself |
//!
//! Why it is cut this way: `docs/decisions/0004-rocks-layout.md`.
#![cfg(feature = "rocksdb")]
#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is a script, read top down"))]

mod access;
mod backend;
mod clean_up;
mod collected_writes;
mod column_families;
mod compaction_filter;
mod database;
mod eras;
mod error;
mod factory;
mod hashed_key;
mod local_copies;
mod memory;
mod merge;
mod metrics;
mod multi_get;
mod options;
mod restore;
mod row_cache;
mod scan;
mod shard;
mod snapshot;
mod state;
mod timers;
mod work_directory;

pub use factory::RocksBackendFactory;
pub use memory::RocksMemory;
pub use options::{Compaction, Preset, RocksOptions, TimerMemory};
