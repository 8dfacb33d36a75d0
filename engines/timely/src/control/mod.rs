//! What workers tell each other beside the data: a small dataflow of its own.
//!
//! ```text
//! every worker: reports ──▶ worker 0: coordinator ──▶ every worker: news
//! ```
//!
//! Timely has no channel for errors and commands. This one carries acknowledgements of snapshots to
//! the coordinator and its decisions back, over the same threads and connections as the data.

mod channel;
mod coordinator;
mod message;
mod shared;

pub(crate) use channel::connect;
pub(crate) use coordinator::Coordinator;
pub(crate) use message::{Begun, Failure, News, Report, Role};
pub(crate) use shared::{Listener, Reporter, Shared, wake};
