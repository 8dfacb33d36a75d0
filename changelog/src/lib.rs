//! A changelog around any backend: checkpoints become a stream, and their duration does not depend on
//! the size of the state.
//!
//! [`ChangelogBackendFactory`] wraps another [`BackendFactory`](weir_state_api::BackendFactory) and is
//! one itself. Every change goes to the wrapped backend and to a log, which is uploaded ahead of
//! the barrier. A checkpoint is then the last *materialization* (a snapshot of the wrapped backend,
//! taken now and then, in the background) and the log since. A restore opens the materialization and
//! replays the log.
//!
//! Choose it when checkpoints have to be frequent or their duration even, and the state is large or
//! written all over. It costs an encoded copy of each change, uploads of the log besides those of
//! materializations, and a longer restore. It is *not* a write-ahead log: what no checkpoint names is
//! lost in a crash, as on every backend.
//!
//! # Where to find what
//!
//! | file | content |
//! |---|---|
//! | `factory.rs` | [`ChangelogBackendFactory`], [`ChangelogOff`], [`ChangelogControl`] |
//! | `options.rs`, `metrics.rs` | what can be set and read |
//! | `backend.rs` | the instance: passes calls on and records changes |
//! | `log.rs`, `chunk_list.rs` | the log of an instance as its task sees it, and its batches |
//! | `checkpoint.rs`, `base.rs` | what a checkpoint consists of, and what the log goes on from |
//! | `kept.rs` | whether a checkpoint is left that keeps that |
//! | `materializer.rs` | when an instance materializes |
//! | `writer/` | one thread per process: packs, compresses, uploads, tries again |
//! | `local_copies.rs` | second copies of the log, for restores on the same machine |
//! | `restore.rs`, `replay.rs` | opening an instance, at any parallelism |
//! | `format/` | changes, batches, manifests: `docs/formats/changelog.md` |
//!
//! Why it is as it is: `docs/decisions/0008-changelog.md`.

mod backend;
mod base;
mod checkpoint;
mod chunk_list;
mod factory;
mod format;
mod kept;
mod local_copies;
mod log;
mod materializer;
mod metrics;
mod options;
mod replay;
mod restore;
mod writer;

pub use factory::{ChangelogBackendFactory, ChangelogControl, ChangelogOff};
pub use format::{LogId, LogPosition};
pub use metrics::ChangelogMetrics;
pub use options::{ChangelogOptions, Materialization};
