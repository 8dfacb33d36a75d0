//! Keyed state in memory: the fastest backend of Weir, for state that fits.
//!
//! Every state is a set of hash tables of short byte strings, one per key group (maps and timers
//! are ordered inside them). Reads and writes never wait, and a read lends the stored bytes without
//! copying them. A snapshot pins the tables in a time that does not depend on the size of the
//! state; the stream goes on while a task writes them to the store, and a write in the meantime
//! saves the entry that it changes, once. Checkpoints are incremental: they write what has changed
//! since the newest complete one.
//!
//! It is **not** for state larger than memory.
//!
//! ```
//! use weir_backend_heap::HeapBackendFactory;
//! use weir_state_api::*;
//!
//! # fn main() -> Result<()> {
//! let environment = Environment::in_memory();
//! let request = OpenRequest::new(environment.clone(), "count", CodecId::new("bytes", 1));
//! let mut backend = block_on(HeapBackendFactory::default().open(request.clone()))?;
//!
//! let counts = backend.register(&StateDescriptor::new(
//!     "counts",
//!     StateKind::Value,
//!     CodecId::new("unit", 1),
//!     CodecId::new("u64", 1),
//! ))?;
//! let key = KeyRef::new(b"some key", request.max_parallelism)?;
//! let at = Address { state: counts, key, namespace: b"", map_key: b"" };
//! backend.put(&at, &7_u64.to_le_bytes())?;
//!
//! // At a barrier: pin the state now, write it from any thread.
//! let task = backend.snapshot(SnapshotRequest::checkpoint(CheckpointId(1), "chk-1/"))?;
//! backend.put(&at, &8_u64.to_le_bytes())?;
//! let handle = block_on(task.run())?;
//!
//! // After a failure: the state as of the barrier.
//! let mut restored =
//!     block_on(HeapBackendFactory::default().open(request.restore_from(vec![handle])))?;
//! assert!(matches!(restored.get(&at)?, Lookup::Found(value) if value == 7_u64.to_le_bytes()));
//! # Ok(())
//! # }
//! ```
//!
//! # Huge pages
//!
//! A state that is larger than the processor's caches is read at random, so an access waits for memory
//! once or twice: and with pages of 4 KiB as often again to learn where the page lies, which in a
//! virtual machine takes longer than the access itself. Let the allocator of the process ask for huge
//! pages: with glibc 2.35 or newer by the environment variable
//! `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`; mimalloc and jemalloc have settings of their own.
//!
//! # Inside
//!
//! | module | concept |
//! |---|---|
//! | `compact_bytes` | byte strings of 24 bytes, short content inline, long content shared |
//! | `segment`, `cell` | a hash table of bounded size; with the writer alone, or shared with readers |
//! | `keyed_table` | (key, namespace) to payload: hash tables of bounded size |
//! | `point_slot` | an entry of a point state in 32 bytes |
//! | `entry_chunk`, `entry_chunks`, `map_slot` | the entries of a map: a run of bytes, or several |
//! | `sorted_chunks`, `chunk_list` | ordered sequences, copied chunk by chunk |
//! | `point_table`, `map_table`, `timer_queue` | the three shapes of state |
//! | `stored_timer`, `timer_group`, `head_index` | a timer, those of a key group, the first of all groups |
//! | `store`, `backend`, `plain_access` | the tables of a state, the instance, its most common path |
//! | `clean_up` | removing what has expired, changing the TTL of a state |
//! | `scan` | scans over maps and keys |
//! | `snapshot` | the format (`docs/formats/heap-snapshot.md`), writing and reading it |
#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is a script, read top down"))]

mod backend;
mod cell;
mod chunk_list;
mod clean_up;
mod compact_bytes;
mod entry_chunk;
mod entry_chunks;
mod factory;
mod head_index;
mod keyed_table;
mod map_slot;
mod map_table;
mod options;
mod plain_access;
mod point_slot;
mod point_table;
mod removals;
mod scan;
mod segment;
mod snapshot;
mod sorted_chunks;
mod store;
mod stored_timer;
mod timer_group;
mod timer_queue;

pub use factory::HeapBackendFactory;
pub use options::HeapOptions;
