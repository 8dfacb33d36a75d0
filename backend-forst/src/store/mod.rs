//! Objects and the caches in front of them.
//!
//! | file | concept |
//! |---|---|
//! | `resources.rs` | what all instances of a process share: the public settings |
//! | `caches.rs` | the caches behind them, and how they divide the memory |
//! | `table.rs` | open tables: where their bytes are, and how blocks are had from there |
//! | `open_table.rs` | what all handles of one table share |
//! | `ends.rs` | ends of several tables, those that stand side by side with one request |
//! | `block_reads.rs` | blocks from the store: merged, each read once |
//! | `neighbours.rs` | which ranges of an object are read with one request |
//! | `compaction_read.rs` | whole tables, past the block cache |
//! | `table_sink.rs` | new tables on their way out |
//! | `block_cache.rs` | blocks in memory |
//! | `disk_cache/` | whole tables on local disk |
//! | `hydration.rs` | tables that are read much come to local disk |
//! | `heat.rs` | how much a table is read |
//! | `cache_id.rs` | what caches know a table by |
//! | `memtable_budget.rs` | memory for what is not yet in a table |
//! | `priority.rs` | what goes before compactions |
//! | `names.rs` | names of objects, never given out twice |
//! | `object_store.rs` | whole objects in, ranges out, outcomes that are unknown resolved |
//! | `retry.rs` | requests that are made again, within limits |
//! | `deadline.rs` | when a request has taken too long |
//! | `single_flight.rs` | one read for all that want its result at the same time |
//! | `traffic.rs` | counters |

mod block_cache;
mod block_reads;
mod cache_id;
mod caches;
mod compaction_read;
#[cfg(test)]
mod concurrency_tests;
mod deadline;
mod disk_cache;
mod ends;
mod heat;
mod hydration;
mod memtable_budget;
mod names;
mod neighbours;
mod object_store;
mod open_table;
mod priority;
mod resources;
mod retry;
mod single_flight;
mod table;
mod table_sink;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod test_tables;
mod traffic;

pub(crate) use compaction_read::BlockStream;
pub(crate) use ends::{EndCopy, load_ends};
pub(crate) use heat::Density;
pub(crate) use memtable_budget::{MemtableAccount, MemtableBudget, MemtablePermit, ResidentPermit};
pub(crate) use names::{ObjectKind, ObjectNames};
pub(crate) use object_store::NewObject;
pub(crate) use priority::Courtesy;
pub use resources::{ForstResources, ForstResourcesBuilder, ForstUsage};
pub use retry::RequestLimits;
pub(crate) use table::{Table, Tables};
pub(crate) use table_sink::{Destination, NewTable, TableSink};
pub(crate) use traffic::BackgroundCounters;
