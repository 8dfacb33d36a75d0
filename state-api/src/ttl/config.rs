//! What a user asks for, and what is stored of it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Millis, Result};

/// The clock that a lifetime is measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum TimeDomain {
    /// The environment's [`Clock`](crate::Clock).
    #[default]
    Processing,
    /// The operator's watermark.
    Event,
}

impl fmt::Display for TimeDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeDomain::Processing => "processing time",
            TimeDomain::Event => "event time",
        })
    }
}

/// The TTL of a state as its descriptor and every snapshot hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateTtl {
    /// How long a value lives after it was written or refreshed, in milliseconds.
    pub lifetime: Millis,
    /// The clock that counts.
    pub domain: TimeDomain,
}

impl StateTtl {
    /// A TTL from its parts; `lifetime` in milliseconds.
    pub const fn new(lifetime: Millis, domain: TimeDomain) -> Self {
        StateTtl { lifetime, domain }
    }
}

impl fmt::Display for StateTtl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms of {}", self.lifetime, self.domain)
    }
}

/// How long the values of a state live; given when the state is registered
/// ([`KeyedStore::with_ttl`](crate::KeyedStore::with_ttl)).
///
/// A value, a list element and a map entry each expire on their own, at `written + lifetime`: at
/// that very millisecond they are gone. The stamp costs eight bytes for each.
///
/// ```
/// # use weir_backend_heap::HeapBackendFactory;
/// use std::time::Duration;
/// use weir_state_api::{KeyedStore, Ttl};
///
/// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
/// let session = Ttl::new(Duration::from_secs(30 * 60)).refresh_on_read();
/// let carts = store.with_ttl(session).map::<String, u32>("carts")?;
/// let daily = Ttl::new(Duration::from_secs(24 * 60 * 60)).event_time();
/// let seen = store.with_ttl(daily).namespaced::<i64>().value::<()>("seen")?;
/// # let _ = (carts, seen);
/// # Ok::<(), weir_state_api::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ttl {
    state: StateTtl,
    refreshes_on_read: bool,
    shows_expired: bool,
}

impl Ttl {
    /// A lifetime in processing time, counted from the last write; what has expired is never seen
    /// again. Counted in whole milliseconds.
    pub fn new(lifetime: Duration) -> Self {
        let lifetime = Millis::try_from(lifetime.as_millis()).unwrap_or(Millis::MAX);
        Ttl {
            state: StateTtl::new(lifetime, TimeDomain::Processing),
            refreshes_on_read: false,
            shows_expired: false,
        }
    }

    /// A read counts as a write: it starts the lifetime of what it read anew. Every read at a new
    /// millisecond is a write then, with its cost. A lifetime of a value's own
    /// ([`set_with_ttl`](crate::ValueState::set_with_ttl)) is not prolonged.
    #[must_use]
    pub const fn refresh_on_read(mut self) -> Self {
        self.refreshes_on_read = true;
        self
    }

    /// Reads return an expired value as long as it is physically there. Updates, folds and merges
    /// never build on one, and listings never name it.
    #[must_use]
    pub const fn return_expired_until_removed(mut self) -> Self {
        self.shows_expired = true;
        self
    }

    /// The lifetime is measured by the operator's watermark
    /// ([`KeyedStore::advance_watermark`](crate::KeyedStore::advance_watermark)) in place of the
    /// clock. What is written before any watermark is known lives its lifetime from the first one.
    #[must_use]
    pub const fn event_time(mut self) -> Self {
        self.state.domain = TimeDomain::Event;
        self
    }

    /// The part that is stored with the state.
    #[inline(always)]
    pub const fn state_ttl(&self) -> StateTtl {
        self.state
    }

    /// Whether reads refresh.
    #[inline(always)]
    pub(crate) const fn refreshes_on_read(&self) -> bool {
        self.refreshes_on_read
    }

    /// Whether reads see what has expired.
    #[inline(always)]
    pub(crate) const fn shows_expired(&self) -> bool {
        self.shows_expired
    }

    /// What is stored of it; refuses a lifetime of nothing.
    pub(crate) fn checked(&self, state: &str) -> Result<StateTtl> {
        if self.state.lifetime > 0 {
            return Ok(self.state);
        }
        Err(Error::new(ErrorKind::InvalidUsage, "a TTL must be at least one millisecond")
            .state(state)
            .advice("register the state without a TTL, or give it a longer one"))
    }
}
