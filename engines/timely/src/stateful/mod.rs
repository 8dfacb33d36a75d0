//! The operator for keyed streams.
//!
//! | file | concept |
//! |---|---|
//! | `logic.rs` | what a user writes |
//! | `keyed.rs` | how it is put into a dataflow |
//! | `executor.rs` | runs the logic: at once, or with reads in flight |
//! | `queues.rs` | timers: a queue for event time, one for processing time |
//! | `stash.rs` | records that wait: by epoch, watermarks among them |
//! | `operator.rs` | epochs, watermarks, snapshots: what the frontier drives |
//! | `route.rs` | which worker a key belongs to |

mod executor;
mod keyed;
mod logic;
mod operator;
mod queues;
mod route;
mod stash;

pub use keyed::{Keyed, Stateful};
pub use logic::{KeyedContext, KeyedLogic, KeyedTimer};
pub(crate) use stash::{Item, Stash};
