//! An era of a state, as manifests have it.

use serde::{Deserialize, Serialize};
use weir_state_api::ttl::{StateTtl, TimeDomain};
use weir_state_api::{Millis, Result};

use super::wire::{Decoder, put_varint, zigzag};

/// The time in which a state had one TTL: how its values of that time are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Era {
    /// The TTL that values of this era are stamped for.
    pub(crate) ttl: Option<StateTtl>,
    /// When it began, in processing time.
    pub(crate) since: Millis,
    /// The current and the first watermark when it began, if any was known.
    pub(crate) since_event: Option<(Millis, Millis)>,
}

impl Era {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match &self.ttl {
            None => out.push(0),
            Some(ttl) => {
                out.push(match ttl.domain {
                    TimeDomain::Processing => 1,
                    TimeDomain::Event => 2,
                });
                put_varint(out, zigzag(ttl.lifetime));
            }
        }
        put_varint(out, zigzag(self.since));
        out.push(u8::from(self.since_event.is_some()));
        if let Some((now, first)) = self.since_event {
            put_varint(out, zigzag(now));
            put_varint(out, zigzag(first));
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Self> {
        let domain = match decoder.array()? {
            [0] => None,
            [1] => Some(TimeDomain::Processing),
            [2] => Some(TimeDomain::Event),
            [code] => return Err(decoder.corrupt(format!("{code} is no kind of TTL"))),
        };
        let ttl = match domain {
            Some(domain) => Some(StateTtl::new(decoder.signed()?, domain)),
            None => None,
        };
        let since = decoder.signed()?;
        let since_event =
            if decoder.flag()? { Some((decoder.signed()?, decoder.signed()?)) } else { None };
        Ok(Era { ttl, since, since_event })
    }
}
