//! Objects and the caches in front of them.
//!
//! | file | concept |
//! |---|---|
//! | `names.rs` | names of objects, never given out twice |
//! | `object_store.rs` | whole objects in, ranges out, outcomes that are unknown resolved |
//! | `retry.rs` | requests that are made again, within limits |
//! | `single_flight.rs` | one read for all that want its result at the same time |
//! | `cache_id.rs` | what caches know a table by |
//! | `heat.rs` | how much a table is read |
//! | `disk_cache/` | whole tables on local disk |
//! | `memtable_budget.rs` | memory for what is not yet in a table |
//! | `traffic.rs` | counters |

#![allow(dead_code, unused_imports, reason = "used by the backend as it lands")]

mod cache_id;
mod disk_cache;
mod heat;
mod memtable_budget;
mod names;
mod object_store;
mod retry;
mod single_flight;
mod traffic;

pub(crate) use memtable_budget::{MemtableAccount, MemtableBudget, MemtablePermit};
pub(crate) use names::{ObjectKind, ObjectNames};
pub(crate) use object_store::ObjectStore;
pub use retry::RequestLimits;
