//! What accesses to states with a TTL need beside the backend.

use std::sync::Arc;

use super::refresh::Refreshes;
use crate::ttl::{TtlClock, TtlTime};
use crate::{Clock, KeyedBackend, Millis, Result, StateId};

/// So many accesses to states with a TTL make one step of clean-up.
const ACCESSES_PER_STEP: u32 = 64;

/// So many entries a step visits at least: one for each access, so that a pass over a state takes as
/// many accesses as it has entries.
const STEP_BUDGET: u64 = ACCESSES_PER_STEP as u64;

/// The time, the pace of clean-up, and refreshes that wait to be written: what an instance keeps for
/// its states with a TTL. [`KeyedStore`](crate::KeyedStore) has one; an engine that implements
/// [`StateAccess`](crate::StateAccess) itself keeps one for each instance.
#[derive(Debug)]
pub struct Expiry {
    clock: TtlClock,
    accesses: u32,
    pub(super) refreshes: Refreshes,
}

impl Expiry {
    /// For an instance that was restored at this watermark.
    pub fn new(clock: Arc<dyn Clock>, restored_watermark: Option<Millis>) -> Self {
        Expiry {
            clock: TtlClock::new(clock, restored_watermark),
            accesses: 0,
            refreshes: Refreshes::default(),
        }
    }

    /// Notes the operator's event time. The backend must be told too
    /// ([`KeyedBackend::advance_watermark`]).
    pub fn advance_watermark(&mut self, watermark: Millis) {
        self.clock.advance_watermark(watermark);
    }

    /// Writes the refreshes of reads that have ended since. Before a snapshot they must be.
    ///
    /// # Errors
    /// Those of [`KeyedBackend::put`].
    pub fn write_refreshes(&mut self, backend: &mut dyn KeyedBackend) -> Result<()> {
        self.refreshes.write(backend)
    }

    /// The time now.
    #[inline]
    pub(super) fn time(&mut self) -> TtlTime {
        self.clock.time()
    }

    /// Begins an access to a state with a TTL; tells the time.
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        backend: &mut dyn KeyedBackend,
        state: StateId,
    ) -> Result<TtlTime> {
        self.refreshes.write(backend)?;
        self.accesses += 1;
        if self.accesses == ACCESSES_PER_STEP {
            self.accesses = 0;
            backend.clean_up(state, STEP_BUDGET)?;
        }
        Ok(self.time())
    }
}
