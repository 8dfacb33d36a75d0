//! Checkpoints in the store: who may write them, what is in them, what is deleted.

mod collector;
mod layout;
mod record;
mod run;
mod store;

pub(crate) use collector::Collector;
pub(crate) use layout::{checkpoint_folder, live_folder, shared_folder};
pub use record::{JobCheckpoint, TaskPart, TaskSnapshot};
pub(crate) use run::Run;
pub use store::CheckpointStore;
