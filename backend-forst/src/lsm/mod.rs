//! The log-structured merge tree as pure decisions: no I/O, no clock, no threads.
//!
//! | file | concept |
//! |---|---|
//! | `version.rs` | which tables make up the state, in which order: shards, runs |
//! | `table_view.rs` | what a version sees of a table |
//! | `edit.rs` | changes of a version, and which of them are obsolete |
//! | `rescale.rs` | shards clipped and united for another parallelism |
//! | `pick.rs`, `slices.rs` | what to compact next |
//! | `expiry.rs` | how much of a table has expired, told without reading it |
//! | `key_ranges.rs` | sets of keys |
//! | `eras.rs` | how stored bytes are to be read after a TTL has changed |
//! | `entry_traits.rs` | what a table's writer is told of an entry |
//! | `resolver.rs` | what the versions of one key come to |
//! | `source.rs`, `merge.rs` | sorted sequences, and several of them as one |

mod edit;
mod entry_traits;
mod eras;
mod expiry;
mod key_ranges;
#[cfg(test)]
mod memory_tree;
mod merge;
mod pick;
mod rescale;
mod resolver;
mod slices;
mod source;
mod table_view;
#[cfg(test)]
mod tree_tests;
#[cfg(test)]
mod vec_source;
mod version;

#[cfg(test)]
pub(crate) use crate::format::Era;
pub(crate) use edit::{Compacted, ShardEdit};
pub(crate) use entry_traits::traits_of;
pub(crate) use eras::StateEras;
pub(crate) use key_ranges::KeyRanges;
pub(crate) use merge::Merge;
#[cfg(test)]
pub(crate) use pick::everything;
pub(crate) use pick::{CompactionOptions, CompactionPlan, Pick, pick};
pub(crate) use rescale::unite;
pub(crate) use resolver::{KeyVersion, Resolver};
pub(crate) use source::{Direction, SortedSource};
pub(crate) use table_view::{TableId, TableView, groups_between, key_bounds, span};
pub(crate) use version::{Run, Shard, ShardState, Version};
