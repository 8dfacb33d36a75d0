//! Timers: set semantics on (time, key, namespace), a defined order, part of every snapshot.

use std::fmt;
use std::marker::PhantomData;

use super::access::{Slot, StateAccess};
use crate::key::check_part_len;
use crate::{Codec, KeyedBackend, Millis, Ordered, Result, TimerRef};

/// A queue of timers, each for a time, a key and a namespace.
///
/// Registering a timer twice is one timer; deleting an unknown one does nothing. Timers come due in
/// the order time, key bytes, namespace bytes. Whether the time is event time or processing time is
/// up to who polls: keep one queue for each. Clearing the state of a key does not delete its
/// timers.
///
/// ```
/// # use weir_backend_heap::HeapBackendFactory;
/// # use weir_state_api::KeyedStore;
/// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
/// let timers = store.timers::<()>("deadlines")?;
/// store.set_key(&"ann".to_string())?;
/// timers.register(&mut store, 100, &())?;
/// timers.register(&mut store, 100, &())?;
/// assert!(store.poll_timer(&timers, 99).wait()?.is_none());
/// let due = store.poll_timer(&timers, 100).wait()?.expect("one timer is due");
/// assert_eq!((due.time, store.key()?), (100, "ann".to_string()));
/// assert!(store.poll_timer(&timers, 100).wait()?.is_none());
/// # Ok::<(), weir_state_api::Error>(())
/// ```
pub struct TimerState<N = (), NC = Ordered> {
    pub(crate) slot: Slot,
    pub(crate) codec: NC,
    namespace: PhantomData<fn() -> N>,
}

/// A timer that came due; the store's current key is the timer's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiredTimer<N> {
    /// When it was due.
    pub time: Millis,
    /// The namespace it was registered for.
    pub namespace: N,
}

impl<N, NC: Codec<N>> TimerState<N, NC> {
    pub(crate) fn new(slot: Slot, codec: NC) -> Self {
        TimerState { slot, codec, namespace: PhantomData }
    }

    /// Registers a timer for the current key.
    ///
    /// # Errors
    /// When the namespace cannot be encoded.
    #[inline(always)]
    pub fn register<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        time: Millis,
        namespace: &N,
    ) -> Result<()> {
        self.with_timer(at, time, namespace, |backend, timer| backend.register_timer(timer))
    }

    /// Deletes a timer of the current key; an unknown one is no error.
    ///
    /// # Errors
    /// When the namespace cannot be encoded.
    #[inline(always)]
    pub fn delete<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        time: Millis,
        namespace: &N,
    ) -> Result<()> {
        self.with_timer(at, time, namespace, |backend, timer| backend.delete_timer(timer))
    }

    #[inline(always)]
    fn with_timer<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        time: Millis,
        namespace: &N,
        f: impl FnOnce(&mut dyn KeyedBackend, &TimerRef<'_>) -> Result<()>,
    ) -> Result<()> {
        at.with(|scope| {
            scope.buffer.clear();
            self.codec.encode(namespace, scope.buffer)?;
            check_part_len("namespace", scope.buffer)?;
            let queue = self.slot.state;
            let timer = TimerRef { queue, time, key: scope.key(), namespace: scope.buffer };
            f(scope.backend, &timer)
        })
        .map_err(|error| self.slot.blame(error))
    }
}

impl<N, NC: Clone> Clone for TimerState<N, NC> {
    fn clone(&self) -> Self {
        TimerState { slot: self.slot.clone(), codec: self.codec.clone(), namespace: PhantomData }
    }
}

impl<N, NC> fmt::Debug for TimerState<N, NC> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerState({:?})", self.slot)
    }
}
