//! Checkpoints of a whole job: metadata, the store that holds them, what is kept.

mod epoch;
mod metadata;
mod store;

pub use epoch::Epoch;
pub use metadata::{JobCheckpoint, TaskSnapshot};
pub use store::CheckpointStore;
