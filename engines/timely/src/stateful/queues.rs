//! The timers of an operator: one queue for event time, one for processing time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use weir_state_api::{
    Clock, KeyedStore, Millis, NextTimer, OrderedType, Result, StateAccess, TimerState,
};

/// In snapshots.
const EVENT_TIMERS: &str = "event timers";
const PROCESSING_TIMERS: &str = "processing timers";

/// When no timer is set.
const NEVER: Millis = Millis::MAX;

/// When to look again at a queue whose first timer is not in memory.
const UNKNOWN: Millis = 100;

/// Both queues, and the clock.
pub(super) struct Queues<N> {
    pub(super) event: TimerState<N>,
    pub(super) processing: TimerState<N>,
    clock: Arc<dyn Clock>,
    /// No timer of processing time is due before this.
    earliest: AtomicI64,
}

impl<N: OrderedType + Send + Sync + 'static> Queues<N> {
    pub(super) fn open<K: OrderedType + Send + 'static>(
        store: &mut KeyedStore<K>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        let event = store.timers(EVENT_TIMERS)?;
        let processing = store.timers(PROCESSING_TIMERS)?;
        let queues = Queues { event, processing, clock, earliest: AtomicI64::new(NEVER) };
        // Those that came due while the job was down are due now.
        queues.look(store, Millis::MIN)?;
        Ok(Arc::new(queues))
    }

    pub(super) fn now(&self) -> Millis {
        self.clock.now()
    }

    /// No timer of processing time is due before this; `None` when none is set.
    pub(super) fn earliest(&self) -> Option<Millis> {
        let earliest = self.earliest.load(Relaxed);
        (earliest != NEVER).then_some(earliest)
    }

    /// Notes when the first timer of processing time is due, after all until `fired` have been.
    pub(super) fn look<K: OrderedType + Send + 'static>(
        &self,
        store: &mut KeyedStore<K>,
        fired: Millis,
    ) -> Result<()> {
        let next = match store.next_timer(&self.processing)? {
            NextTimer::Empty => NEVER,
            NextTimer::At(time) => time,
            NextTimer::Unknown => fired.saturating_add(UNKNOWN),
        };
        self.earliest.store(next, Relaxed);
        Ok(())
    }

    pub(super) fn register_processing(
        &self,
        state: &mut impl StateAccess,
        time: Millis,
        namespace: &N,
    ) -> Result<()> {
        self.processing.register(state, time, namespace)?;
        self.earliest.fetch_min(time, Relaxed);
        Ok(())
    }
}
