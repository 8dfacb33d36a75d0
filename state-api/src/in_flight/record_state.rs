//! The state of a record's key, as its operator sees it.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::own_key::OwnKey;
use super::reads::Reads;
use crate::{Error, ErrorKind, KeyRef, KeyedStore, Result, Scope, StateAccess};

/// The store that all records of a task share, and the reads they have deferred.
///
/// Only the thread that polls the executor locks it; the lock is there because a record's future
/// may move between threads together with the executor.
pub(super) struct Shared<S: ?Sized> {
    pub(super) reads: Reads,
    pub(super) store: S,
}

/// A store of any key type.
pub(super) trait Scopes: Send {
    /// What accesses for `key` work on.
    fn scope<'a>(&'a mut self, key: KeyRef<'a>) -> Scope<'a>;
}

impl<K: Send, C: Send> Scopes for KeyedStore<K, C> {
    #[inline]
    fn scope<'a>(&'a mut self, key: KeyRef<'a>) -> Scope<'a> {
        self.scope_of(key)
    }
}

/// What the executor must know of a record in flight.
#[derive(Debug, Default)]
pub(super) struct Traces {
    /// Whether it has changed state.
    pub(super) wrote: AtomicBool,
    /// Whether a read of it was deferred.
    pub(super) deferred: AtomicBool,
}

impl Traces {
    pub(super) fn has_written(&self) -> bool {
        self.wrote.load(Ordering::Relaxed)
    }

    pub(super) fn has_deferred(&self) -> bool {
        self.deferred.load(Ordering::Relaxed)
    }
}

/// The state of a record's key; a [`RecordOperator`](super::RecordOperator) passes it to the typed
/// handles.
///
/// Byte-level access ([`StateAccess::with`]) is refused where it would touch another key, poll
/// timers or list keys: other records may be half-way there.
pub struct RecordState<'a, Out> {
    shared: &'a Mutex<Shared<dyn Scopes>>,
    key: KeyRef<'a>,
    traces: &'a Traces,
    outputs: Vec<Out>,
}

impl<'a, Out> RecordState<'a, Out> {
    pub(super) fn new(
        shared: &'a Mutex<Shared<dyn Scopes>>,
        key: KeyRef<'a>,
        traces: &'a Traces,
        outputs: Vec<Out>,
    ) -> Self {
        RecordState { shared, key, traces, outputs }
    }

    /// Emits an output. It is handed on when the record is done, and dropped when the record fails
    /// or is taken back.
    pub fn emit(&mut self, output: Out) {
        self.outputs.push(output);
    }

    /// The record's key, encoded.
    pub fn key(&self) -> KeyRef<'a> {
        self.key
    }

    /// Whether the record has changed state: from then on a snapshot waits for it.
    pub fn has_written(&self) -> bool {
        self.traces.has_written()
    }

    pub(super) fn into_outputs(self) -> Vec<Out> {
        self.outputs
    }
}

impl<Out: Send> StateAccess for RecordState<'_, Out> {
    #[inline]
    fn with<R>(&mut self, f: impl FnOnce(&mut Scope<'_>) -> Result<R>) -> Result<R> {
        let mut shared = self.shared.lock().map_err(|_| interrupted())?;
        let Shared { reads, store } = &mut *shared;
        let scope = store.scope(self.key);
        // What reads of other keys left to refresh is not this record's to write.
        scope.expiry.write_refreshes(scope.backend)?;
        let mut backend = OwnKey::new(scope.backend, self.key, reads, self.traces);
        f(&mut Scope::new(&mut backend, self.key, scope.buffer, scope.expiry))
    }
}

impl<Out> fmt::Debug for RecordState<'_, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordState")
            .field("key", &self.key)
            .field("has_written", &self.has_written())
            .finish_non_exhaustive()
    }
}

#[cold]
pub(super) fn interrupted() -> Error {
    Error::new(ErrorKind::Closed, "a panic interrupted an access to the state")
        .advice("open a new instance from the last snapshot")
}
