//! The TTL of a state as it is stored.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Millis;

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
