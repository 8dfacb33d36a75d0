//! Keyed state for stream processing: one API, many backends.
//!
//! A stream engine keeps state per key, takes snapshots of it at barriers and restores it after a
//! crash, perhaps at another parallelism. This crate is the layer between the engine and whatever
//! stores the bytes:
//!
//! - **Backends speak bytes.** [`KeyedBackend`] is a small object-safe trait over encoded keys and
//!   values: point reads and writes, append, ordered scans, timers, snapshots. A [`BackendFactory`]
//!   opens an instance for a [`KeyGroupRange`], empty or from [`SnapshotHandle`]s.
//! - **Users speak types.** [`KeyedStore`] wraps a backend and gives out typed handles:
//!   [`ValueState`], [`ListState`], [`MapState`], [`ReducingState`], [`AggregatingState`],
//!   [`TimerState`], each optionally per namespace ([`Namespaced`]). They are written once and work
//!   on every backend, a third party's too. See the example at [`KeyedStore`].
//! - **Reads are futures that are usually ready.** [`StateFuture`] allocates nothing when the answer
//!   is in memory; await it, or [`wait`](StateFuture::wait) for it.
//! - **The outside is injected.** Time, store and executor come in through [`Environment`].
//!
//! It is *not* a storage engine and not a stream engine: it depends on neither. Backends live in
//! crates of their own (`weir-backend-heap`, ...), and `weir-tests` checks that one keeps the
//! contract.
//!
//! # Where to find what
//!
//! | file | content |
//! |---|---|
//! | `backend.rs`, `backend/` | the interface in bytes: the trait, and what its methods take and give |
//! | `snapshot.rs` | handles, requests, what a restore checks |
//! | `objects/` | objects that checkpoints share: what may be built on, what may be deleted; what engines ask the store for |
//! | `key.rs`, `key_group.rs` | keys, their stable hash, who owns them |
//! | `codec/` | [`Codec`]: [`Native`], [`Ordered`], [`Postcard`] |
//! | `typed/` | the typed handles |
//! | `ttl/` | when values expire, and what clean-up makes of stored bytes |
//! | `in_flight/` | [`InFlight`]: many records of a task in flight, in order per key |
//! | `operator_state.rs` | state without a key: offsets, transactions |
//! | `environment.rs`, `future.rs` | clock, store, spawner; ready and pending results |
//! | `spawned.rs` | background work whose result is awaited |
//! | `stored_key/` | one layout of keys for backends with an ordered key space |
//! | `state_table.rs`, `timer_head.rs` | for backends: their states by id; the first timers of a stored queue |
//! | `value_limit.rs`, `append_guard.rs` | for backends: how long a value may become, without reading it |
//! | `page.rs`, `frame.rs` | packed results; the envelope of metadata |
//! | `wire.rs` | for backends: numbers and byte strings in stored bytes |
//!
//! # Features
//!
//! - `tokio` (default): `TokioSpawner`. Without it the crate names no executor.

mod append_guard;
mod backend;
mod codec;
mod descriptor;
mod environment;
mod error;
pub mod frame;
mod future;
mod in_flight;
mod key;
mod key_group;
mod objects;
mod operator_state;
mod page;
mod snapshot;
mod spawned;
mod state_table;
pub mod stored_key;
mod timer_head;
pub mod ttl;
mod typed;
mod value_limit;
pub mod wire;

pub use opendal;

pub use append_guard::*;
pub use backend::*;
pub use codec::{Codec, Native, NativeType, Ordered, OrderedPrefix, OrderedType, Postcard};
pub use descriptor::*;
pub use environment::*;
pub use error::*;
pub use future::*;
pub use in_flight::*;
pub use key::*;
pub use key_group::*;
pub use objects::*;
pub use operator_state::*;
pub use page::*;
pub use snapshot::*;
pub use spawned::Spawned;
pub use state_table::*;
pub use timer_head::*;
pub use ttl::{StateTtl, TimeDomain, Ttl};
pub use typed::*;
pub use value_limit::*;
