//! Single byte strings: where they live, what a read answers, what an update does.

use std::fmt;

use bytes::Bytes;

use crate::key::check_part_len;
use crate::{BoxFuture, KeyRef, Result, StateId};

/// Where a byte string lives: state, key, namespace and, for maps, the map key.
#[derive(Debug, Clone, Copy)]
pub struct Address<'a> {
    /// The state.
    pub state: StateId,
    /// The record's key with its key group.
    pub key: KeyRef<'a>,
    /// The encoded namespace; empty for the default one.
    pub namespace: &'a [u8],
    /// The encoded map key; empty for all kinds but maps.
    pub map_key: &'a [u8],
}

impl Address<'_> {
    /// Refuses a namespace or map key that is too long; every backend asks before it writes.
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge) beyond [`MAX_KEY_LEN`](crate::MAX_KEY_LEN).
    #[inline]
    pub fn check_lengths(&self) -> Result<()> {
        check_part_len("namespace", self.namespace)?;
        check_part_len("map key", self.map_key)
    }
}

/// The answer to a point read.
pub enum Lookup<'a> {
    /// Nothing is stored there.
    Absent,
    /// The bytes, lent by the backend until its next call. Zero bytes are a value too.
    Found(&'a [u8]),
    /// The answer needs remote I/O. The future is independent of the backend; it sees the state as
    /// of the call. Any thread may poll it: the backend runs the I/O through the environment's
    /// spawner, and the future only waits for it.
    Pending(BoxFuture<'static, Result<Option<Bytes>>>),
}

impl fmt::Debug for Lookup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lookup::Absent => f.write_str("Absent"),
            Lookup::Found(bytes) => f.debug_tuple("Found").field(bytes).finish(),
            Lookup::Pending(_) => f.write_str("Pending"),
        }
    }
}

/// What to do with an entry after a function has looked at it; see
/// [`KeyedBackend::update`](crate::KeyedBackend::update).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Leave it as it is.
    Keep,
    /// Store the bytes written to the output buffer.
    Put,
    /// Remove it.
    Delete,
}

/// The outcome of [`KeyedBackend::update`](crate::KeyedBackend::update).
#[must_use]
pub enum Updated {
    /// The function ran and its change is applied.
    Done,
    /// The old value needs remote I/O; the function did not run. Await the value, compute, and
    /// write with [`KeyedBackend::put`](crate::KeyedBackend::put) or [`KeyedBackend::delete`](crate::KeyedBackend::delete).
    Pending(BoxFuture<'static, Result<Option<Bytes>>>),
}

impl fmt::Debug for Updated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Updated::Done => "Done",
            Updated::Pending(_) => "Pending",
        })
    }
}

/// A function over the stored bytes: old value in, change out, new bytes into the buffer. A backend
/// calls it at most once.
///
/// An error leaves the entry as it was.
pub type UpdateFn<'f> = dyn FnMut(Option<&[u8]>, &mut Vec<u8>) -> Result<Change> + 'f;

/// The pending part of a batched read: (index, value) of every address that needed I/O.
pub type PendingValues = BoxFuture<'static, Result<Vec<(usize, Option<Bytes>)>>>;

/// The values of deferred reads, in the order in which they were deferred.
pub type DeferredValues = BoxFuture<'static, Result<Vec<Option<Bytes>>>>;
