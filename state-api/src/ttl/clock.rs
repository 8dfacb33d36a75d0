//! The time that expiry is decided by.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::TimeDomain;
use crate::{Clock, Millis};

/// The time of both domains at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TtlTime {
    /// Processing time.
    pub processing: Millis,
    /// Event time; `None` as long as no watermark is known.
    pub event: Option<EventTime>,
}

/// Event time as an instance knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTime {
    /// The current watermark.
    pub now: Millis,
    /// The first watermark that the instance knew: restored or advanced to.
    pub first: Millis,
}

impl TtlTime {
    /// A processing time, and no event time.
    pub const fn new(processing: Millis) -> Self {
        TtlTime { processing, event: None }
    }

    /// Sets the event time.
    #[must_use]
    pub const fn with_event(mut self, event: EventTime) -> Self {
        self.event = Some(event);
        self
    }

    /// The present in a domain, if it is known.
    #[inline(always)]
    pub fn now(&self, domain: TimeDomain) -> Option<Millis> {
        match domain {
            TimeDomain::Processing => Some(self.processing),
            TimeDomain::Event => self.event.map(|event| event.now),
        }
    }
}

/// Knows the time of an instance, which never runs backwards.
///
/// [`KeyedStore`](crate::KeyedStore) has one, and so has every backend that cleans up: it is made
/// from [`Environment::clock`](crate::Environment::clock) and
/// [`OpenRequest::restored_watermark`](crate::OpenRequest::restored_watermark), and fed by
/// [`KeyedBackend::advance_watermark`](crate::KeyedBackend::advance_watermark).
#[derive(Debug)]
pub struct TtlClock {
    clock: Arc<dyn Clock>,
    time: TtlTime,
}

impl TtlClock {
    /// A clock for an instance that was restored at this watermark.
    pub fn new(clock: Arc<dyn Clock>, restored_watermark: Option<Millis>) -> Self {
        let mut new = TtlClock { clock, time: TtlTime::new(Millis::MIN) };
        if let Some(watermark) = restored_watermark {
            new.advance_watermark(watermark);
        }
        new
    }

    /// Notes a watermark. An earlier one than the current changes nothing, and
    /// [`Millis::MIN`](i64::MIN) says that none is known yet.
    pub fn advance_watermark(&mut self, watermark: Millis) {
        if watermark == Millis::MIN {
            return;
        }
        let event = self.time.event.get_or_insert(EventTime { now: watermark, first: watermark });
        event.now = event.now.max(watermark);
    }

    /// The time now, by the clock's coarse reading.
    #[inline(always)]
    pub fn time(&mut self) -> TtlTime {
        let TtlTime { processing, event } = self.time;
        let processing = processing.max(self.clock.coarse_now());
        self.time.processing = processing;
        // Built anew: a copy of what was just stored would wait for the store.
        TtlTime { processing, event }
    }
}

/// A clock that stands still while the one below runs backwards. A store and its backend share one,
/// so that neither sees as alive what the other has seen as expired.
#[derive(Debug)]
pub(crate) struct MonotoneClock {
    below: Arc<dyn Clock>,
    latest: AtomicI64,
}

impl MonotoneClock {
    pub(crate) fn new(below: Arc<dyn Clock>) -> Self {
        MonotoneClock { below, latest: AtomicI64::new(Millis::MIN) }
    }

    #[inline]
    fn at_least(&self, now: Millis) -> Millis {
        // Most readings of a coarse clock repeat the last one: no write then.
        let latest = self.latest.load(Ordering::Relaxed);
        if now <= latest { latest } else { self.latest.fetch_max(now, Ordering::Relaxed).max(now) }
    }
}

impl Clock for MonotoneClock {
    fn now(&self) -> Millis {
        self.at_least(self.below.now())
    }

    #[inline]
    fn coarse_now(&self) -> Millis {
        self.at_least(self.below.coarse_now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    #[test]
    fn time_never_runs_backwards() {
        let manual = Arc::new(ManualClock::new(1_000));
        let shared = Arc::new(MonotoneClock::new(manual.clone()));
        let mut clock = TtlClock::new(shared.clone(), Some(7));
        assert_eq!(clock.time().processing, 1_000);
        manual.set(900);
        clock.advance_watermark(3);
        assert_eq!(clock.time().processing, 1_000);
        assert_eq!((shared.now(), shared.coarse_now()), (1_000, 1_000));
        assert_eq!(clock.time().event, Some(EventTime { now: 7, first: 7 }));
        manual.set(1_001);
        clock.advance_watermark(9);
        assert_eq!(clock.time().processing, 1_001);
        assert_eq!(clock.time().event, Some(EventTime { now: 9, first: 7 }));
    }

    #[test]
    fn the_smallest_watermark_says_that_none_is_known() {
        let mut clock = TtlClock::new(Arc::new(ManualClock::new(0)), Some(Millis::MIN));
        assert_eq!(clock.time().event, None);
        clock.advance_watermark(Millis::MIN);
        assert_eq!(clock.time().event, None);
        clock.advance_watermark(Millis::MIN + 1);
        assert!(clock.time().event.is_some());
    }
}
