//! Checkpoints of a whole job: metadata, the store that holds them, what is kept.

mod metadata;
mod store;

pub use metadata::{JobCheckpoint, TaskSnapshot};
pub use store::CheckpointStore;
