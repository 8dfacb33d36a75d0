//! Objects in the store that several checkpoints share: who may build on them, who deletes them.
//!
//! An incremental snapshot names objects of earlier ones. So no single checkpoint owns an object, and
//! nobody can delete "its own". Two decisions are made here, both pure: no I/O, no clock.
//!
//! - A **backend** asks [`SnapshotBases`] what its next snapshot may build on.
//! - An **engine** keeps an [`ObjectRegistry`]: it knows the checkpoints that are kept or running,
//!   and says what may be deleted. Its collector does the I/O, with [`store_requests`], and is the
//!   only one who deletes.
//!
//! The rules, and why they hold when news is lost or a process dies:
//! `docs/decisions/0005-object-ownership.md`.

mod bases;
mod registry;
pub mod store_requests;

pub use bases::SnapshotBases;
pub use registry::{ObjectCounts, ObjectRegistry, Origin, StoredObject};
