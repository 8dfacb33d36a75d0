//! Walks over the entries of a map and over the keys of a state.
//!
//! A RocksDB iterator sees the database as it was when the iterator was made, and here it owns its
//! database: a scan neither borrows the instance nor sees later changes.
//!
//! | module | concept |
//! |---|---|
//! | `map` | scans of maps |
//! | `kept_walk` | scans of maps that begin with a walk that is there already |
//! | `keys` | enumerations of keys |

mod kept_walk;
mod keys;
mod map;

use weir_state_api::{Error, ErrorKind};

pub(crate) use kept_walk::KeptWalk;
pub(crate) use keys::{KeyScan, count_entries};
pub(crate) use map::MapScan;

#[cold]
pub(crate) fn odd_key() -> Error {
    Error::new(ErrorKind::Corrupt, "a stored key has not the layout of its state")
        .advice("restore another checkpoint")
}
