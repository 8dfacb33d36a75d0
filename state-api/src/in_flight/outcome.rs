//! What becomes of a record.

use std::fmt;

use crate::{Error, Key, KeyRef};

/// What became of a submitted record. Every record ends in exactly one place: done, in flight, among
/// the failures, or back in the hands of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a record that was not admitted comes back in here"]
pub enum Admission<R> {
    /// It is done; its outputs are there. (Or it failed, and the call that says so is an error.)
    Done,
    /// It runs, or waits for another record of its key. Poll, now that nothing more is submitted:
    /// a read that goes to remote storage may not have been sent yet.
    InFlight,
    /// There is no room, or a watermark or a resubmission comes first. The record comes back: poll
    /// until there is room, then submit it again.
    Full(R),
}

/// A record that failed.
#[non_exhaustive]
pub struct Failure<R> {
    /// The record.
    pub record: R,
    /// The encoded key; of a key that could not be encoded, what there is of it.
    pub key: Key,
    /// What went wrong. A panic of the operator is a
    /// [`UserFunction`](crate::ErrorKind::UserFunction) error.
    pub error: Error,
    /// Whether the record had changed state before. What it wrote stays, so repeating the record
    /// repeats those changes. Otherwise it left no trace.
    pub has_written: bool,
}

impl<R> fmt::Debug for Failure<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("error", &self.error)
            .field("has_written", &self.has_written)
            .finish_non_exhaustive()
    }
}

/// A record that was admitted and has changed nothing yet: part of a snapshot, or handed back to be
/// submitted again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished<R> {
    /// The encoded key; its group tells which instance gets the record after a rescale.
    pub key: Key,
    /// The record.
    pub record: R,
}

impl<R> Unfinished<R> {
    /// A record with its key, as it was read back from a snapshot.
    pub fn new(key: KeyRef<'_>, record: R) -> Self {
        Unfinished { key: Key::from_ref(key), record }
    }
}

/// An [`Unfinished`] record that stays in flight.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct UnfinishedRef<'a, R> {
    /// The encoded key.
    pub key: KeyRef<'a>,
    /// The record.
    pub record: &'a R,
}
