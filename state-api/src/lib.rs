//! Keyed state for stream processing.
mod backend;
mod descriptor;
mod environment;
mod error;
pub mod frame;
mod future;
mod key;
mod key_group;
mod page;
mod snapshot;

pub use backend::*;
pub use descriptor::*;
pub use environment::*;
pub use error::*;
pub use future::*;
pub use key::*;
pub use key_group::*;
pub use page::*;
pub use snapshot::*;
