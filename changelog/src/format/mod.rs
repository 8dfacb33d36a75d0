//! The stored form: changes, batches of them, and what a handle says (`docs/formats/changelog.md`).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::panic))]

pub(crate) mod batch;
pub(crate) mod manifest;
mod position;
pub(crate) mod record;

pub use position::{LogId, LogPosition};
