//! The instance: what each call does to memtables and tables.
//!
//! | file | concept |
//! |---|---|
//! | `factory.rs`, `options.rs` | opening instances; what a user can set |
//! | `instance.rs` | the calls of the interface |
//! | `states.rs` | the states of an instance |
//! | `tree.rs` | all shards with their memtables and tables |
//! | `shard_memory.rs` | per shard: the memtable that takes writes, frozen and resident ones; what they say of a key |
//! | `frozen.rs`, `flush.rs` | a memtable on its way into a table |
//! | `resident.rs` | memtables that are tables already and still answer reads |
//! | `background.rs`, `mailbox.rs` | when what is frozen, flushed and compacted; news of it |
//! | `stream_out.rs` | how soon memtables are frozen ahead of checkpoints: a pure decision |
//! | `steps.rs` | flushes and compactions in the user's hand |
//! | `compactor.rs` | when compactions run, and what comes of them |
//! | `obsolete.rs` | tables that left the state: whose they are to delete |
//! | `read.rs`, `lookup.rs`, `multi_get.rs`, `deferred.rs` | point reads: at once, pending, batched, gathered |
//! | `view.rs`, `sources.rs`, `scan.rs`, `key_scan.rs` | walks over what was there when they began |
//! | `timers/` | queues: the first timers apart, the rest in the tree |
//! | `snapshot/` | what is named again, stored or copied; the asynchronous part |
//! | `restore.rs` | versions out of manifests |

mod background;
mod compactor;
mod deferred;
mod factory;
mod flush;
mod frozen;
mod instance;
mod key_scan;
mod lookup;
mod mailbox;
mod multi_get;
mod obsolete;
mod options;
mod read;
mod resident;
mod restore;
mod scan;
mod shard_memory;
mod snapshot;
mod sources;
mod states;
mod steps;
mod stream_out;
mod timers;
mod tree;
mod view;

use std::sync::Arc;

pub use factory::ForstBackendFactory;
pub use options::ForstOptions;
pub use steps::ForstSteps;

/// A handle of a table.
type Table = Arc<crate::store::Table>;
type TableView = crate::lsm::TableView<Table>;
type Run = crate::lsm::Run<Table>;
type Shard = crate::lsm::Shard<Table>;
type ShardEdit = crate::lsm::ShardEdit<Table>;
type Version = crate::lsm::Version<Table>;
