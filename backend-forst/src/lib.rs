//! State that lives in object storage: a log-structured merge tree of Weir's own. Files are objects
//! of a store; memory and local disk are caches; a checkpoint names files that are already there; a
//! restore downloads nothing.
//!
//! Reads return at once as long as memtables, the block cache or the local disk answer; else they
//! pend, and an engine that keeps many records in flight ([`InFlight`](weir_state_api::InFlight))
//! overlaps them. Any store that OpenDAL knows will do, a local folder too.
//!
//! An instance writes below the `directory` of its
//! [`OpenRequest`](weir_state_api::OpenRequest). Without one, as in the example, it has no place of its own
//! in the store: flushed tables stay in memory until a snapshot takes them along.
//!
//! It is **not** for state that fits in memory: the memory backend answers several times as fast.
//!
//! ```
//! use weir_backend_forst::{ForstBackendFactory, ForstOptions, ForstResources};
//! use weir_state_api::{CheckpointId, KeyedStore, SnapshotRequest, block_on};
//!
//! # fn main() -> weir_state_api::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder can be made");
//! # let folder = folder.path();
//! // One set of resources for all instances of the process: they share caches and budgets.
//! let resources =
//!     ForstResources::builder().cache_bytes(64 << 20).disk_cache(folder, 1 << 30).build()?;
//! let factory = ForstBackendFactory::new(ForstOptions::default().with_resources(resources));
//! let mut store: KeyedStore<String> = KeyedStore::open_in_memory(&factory)?;
//! let visits = store.value::<u64>("visits")?;
//! store.set_key(&"ann".to_string())?;
//! visits.update(&mut store, |old| old.unwrap_or(0) + 1).wait()?;
//!
//! let task = store.snapshot(SnapshotRequest::checkpoint(CheckpointId(1), "chk-1"))?;
//! let handle = block_on(task.run())?;
//! // As little as this is a part of the handle.
//! assert!(handle.objects.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # Inside
//!
//! | module | concept |
//! |---|---|
//! | `format` | table files and manifests as bytes |
//! | `store` | objects, ranged reads, caches in memory and on disk |
//! | `lsm` | versions, what is compacted, what the versions of a key come to: pure decisions |
//! | `compaction` | carrying out what was decided, here or in another process |
//! | `memtable` | what is written and not yet in a table |
//! | `backend` | the instance: reads, scans, timers, flushes, snapshots, restores |
//!
//! Why it is cut this way: `docs/decisions/0007-forst.md`.

#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is a script, read top down"))]

mod backend;
mod compaction;
mod format;
mod lsm;
mod memtable;
mod store;

pub use backend::{ForstBackendFactory, ForstOptions, ForstSteps};
pub use compaction::{CompactionService, CompactionWorker};
pub use format::Compression;
pub use store::{ForstResources, ForstResourcesBuilder, ForstUsage, RequestLimits};

#[doc = include_str!("../../docs/forst-options.md")]
#[cfg(doctest)]
struct OptionsPage;
