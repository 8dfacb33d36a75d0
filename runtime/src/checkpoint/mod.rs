//! Checkpoints of a whole job: metadata, the store that holds them, what is kept.

mod collector;
mod epoch;
mod layout;
mod metadata;
mod store;

pub(crate) use collector::Collector;
pub use epoch::Epoch;
pub(crate) use layout::{live_folder, shared_folder};
pub use metadata::{JobCheckpoint, TaskSnapshot};
pub use store::CheckpointStore;
