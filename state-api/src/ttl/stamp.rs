//! Stamps, and the one function that decides whether they have expired.

use super::{StateTtl, TimeDomain, TtlTime};
use crate::Millis;

/// The length of an encoded stamp.
pub const STAMP_LEN: usize = 8;

/// The instant at which nothing expires: 2⁶¹ - 1 ms, some 73 million years from now. Later instants
/// count as this one.
pub const NEVER: Millis = (1 << 61) - 1;

/// The last instant that the present can be.
const LATEST: Millis = NEVER - 1;

const EARLIEST: Millis = -(1 << 61);

/// When a value was written, or when it expires. The first eight bytes of each value of a state
/// with a TTL.
///
/// Encoded as a little-endian `i64`: milliseconds times four, plus the number of the variant.
/// Instants beyond ±2⁶¹ ms are cut to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// Written, or refreshed by a read, at this instant: expires the state's lifetime later.
    Written(Millis),
    /// Expires at this instant, whatever the state's lifetime is: a lifetime of its own.
    Until(Millis),
    /// Written before any watermark was known: counts as written at the first one.
    BeforeFirst,
    /// Written before any watermark was known, with a lifetime of its own in milliseconds, which
    /// counts from the first one.
    FirstPlus(Millis),
}

impl Stamp {
    /// The encoded stamp.
    #[inline(always)]
    pub fn to_bytes(self) -> [u8; STAMP_LEN] {
        let (millis, variant) = match self {
            Stamp::Written(at) => (at, 0),
            Stamp::Until(at) => (at, 1),
            Stamp::BeforeFirst => (0, 2),
            Stamp::FirstPlus(lifetime) => (lifetime, 3),
        };
        ((millis.clamp(EARLIEST, NEVER) << 2) | variant).to_le_bytes()
    }

    /// Any eight bytes are a stamp.
    #[inline(always)]
    pub fn from_bytes(bytes: [u8; STAMP_LEN]) -> Self {
        let stored = Millis::from_le_bytes(bytes);
        let millis = stored >> 2;
        match stored & 3 {
            0 => Stamp::Written(millis),
            1 => Stamp::Until(millis),
            2 => Stamp::BeforeFirst,
            _ => Stamp::FirstPlus(millis),
        }
    }

    /// The stamp of a stored value, and the value behind it; `None` when it is too short for one.
    #[inline(always)]
    pub fn split(stored: &[u8]) -> Option<(Stamp, &[u8])> {
        let (stamp, value) = stored.split_first_chunk()?;
        Some((Stamp::from_bytes(*stamp), value))
    }

    /// Names the instant where the stamp only says "at the first watermark".
    #[inline]
    pub(crate) fn settled(self, domain: TimeDomain, time: &TtlTime) -> Self {
        let first = match (domain, time.event) {
            (TimeDomain::Event, Some(event)) => event.first,
            (TimeDomain::Event, None) => return self,
            // Only a value whose bytes were not written by this crate.
            (TimeDomain::Processing, _) => time.processing,
        };
        match self {
            Stamp::BeforeFirst => Stamp::Written(first),
            Stamp::FirstPlus(lifetime) => Stamp::Until(first.saturating_add(lifetime)),
            Stamp::Written(_) | Stamp::Until(_) => self,
        }
    }
}

/// Appends a stamp, if the state has a TTL: as a word, which who reads it soon need not wait for.
#[inline(always)]
pub(crate) fn write_stamp(stamp: Option<Stamp>, out: &mut Vec<u8>) {
    if let Some(stamp) = stamp {
        out.extend_from_slice(&stamp.to_bytes());
    }
}

impl StateTtl {
    /// Whether a value with this stamp has expired: `written + lifetime <= now`, or `until <= now`.
    ///
    /// The only place where this is decided. Sums saturate. In event time nothing is expired as
    /// long as no watermark is known.
    #[inline(always)]
    pub fn is_expired(&self, stamp: Stamp, time: &TtlTime) -> bool {
        match time.now(self.domain) {
            Some(now) => self.expires_at(stamp, time) <= now.clamp(EARLIEST, LATEST),
            None => false,
        }
    }

    /// The instant at which it expires; in event time only when a watermark is known.
    #[inline(always)]
    fn expires_at(&self, stamp: Stamp, time: &TtlTime) -> Millis {
        match stamp {
            Stamp::Written(at) => at.saturating_add(self.lifetime),
            Stamp::Until(at) => at,
            Stamp::BeforeFirst | Stamp::FirstPlus(_) => match stamp.settled(self.domain, time) {
                Stamp::Written(at) => at.saturating_add(self.lifetime),
                Stamp::Until(at) => at,
                Stamp::BeforeFirst | Stamp::FirstPlus(_) => NEVER,
            },
        }
    }

    /// The stamp of what is written now.
    #[inline(always)]
    pub fn stamp_now(&self, time: &TtlTime) -> Stamp {
        match time.now(self.domain) {
            Some(now) => Stamp::Written(now.clamp(EARLIEST, LATEST)),
            None => Stamp::BeforeFirst,
        }
    }

    /// The stamp of what is written now with a lifetime of its own, in milliseconds.
    pub fn stamp_with_lifetime(&self, lifetime: Millis, time: &TtlTime) -> Stamp {
        match time.now(self.domain) {
            Some(now) => Stamp::Until(now.clamp(EARLIEST, LATEST).saturating_add(lifetime)),
            None => Stamp::FirstPlus(lifetime),
        }
    }

    /// Of two stamps the one that expires later.
    pub(crate) fn later(&self, a: Stamp, b: Stamp, time: &TtlTime) -> Stamp {
        match (a.settled(self.domain, time), b.settled(self.domain, time)) {
            // What counts from a watermark still to come outlives what counts from one that was.
            (Stamp::BeforeFirst, Stamp::FirstPlus(own)) => {
                if own > self.lifetime {
                    b
                } else {
                    a
                }
            }
            (Stamp::FirstPlus(own), Stamp::BeforeFirst) => {
                if own > self.lifetime {
                    a
                } else {
                    b
                }
            }
            (Stamp::FirstPlus(x), Stamp::FirstPlus(y)) => {
                if x >= y {
                    a
                } else {
                    b
                }
            }
            (Stamp::BeforeFirst | Stamp::FirstPlus(_), _) => a,
            (_, Stamp::BeforeFirst | Stamp::FirstPlus(_)) => b,
            (x, y) => {
                if self.expires_at(x, time) >= self.expires_at(y, time) {
                    x
                } else {
                    y
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::EventTime;
    use super::*;

    const PROCESSING: StateTtl = StateTtl::new(100, TimeDomain::Processing);
    const EVENT: StateTtl = StateTtl::new(100, TimeDomain::Event);

    fn at(now: Millis) -> TtlTime {
        TtlTime::new(now)
    }

    #[test]
    fn golden_bytes() {
        let hex = |stamp: Stamp| -> String {
            stamp.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
        };
        assert_eq!(hex(Stamp::Written(1_000)), "a00f000000000000");
        assert_eq!(hex(Stamp::Until(1_000)), "a10f000000000000");
        assert_eq!(hex(Stamp::BeforeFirst), "0200000000000000");
        assert_eq!(hex(Stamp::FirstPlus(5)), "1700000000000000");
        assert_eq!(hex(Stamp::Written(-1)), "fcffffffffffffff");
        assert_eq!(hex(Stamp::Until(Millis::MAX)), "fdffffffffffff7f");
        assert_eq!(hex(Stamp::Written(Millis::MIN)), "0000000000000080");
    }

    #[test]
    fn expiry_is_at_the_deadline_not_after_it() {
        for (now, expired) in [(1_099, false), (1_100, true), (1_101, true), (0, false)] {
            assert_eq!(PROCESSING.is_expired(Stamp::Written(1_000), &at(now)), expired, "{now}");
            assert_eq!(PROCESSING.is_expired(Stamp::Until(1_100), &at(now)), expired, "{now}");
        }
    }

    #[test]
    fn nothing_expires_before_a_watermark_and_then_counts_from_it() {
        for stamp in
            [Stamp::BeforeFirst, Stamp::FirstPlus(100), Stamp::Written(-9), Stamp::Until(0)]
        {
            assert!(!EVENT.is_expired(stamp, &at(Millis::MAX)));
        }
        let event = |now| at(0).with_event(EventTime { now, first: 50 });
        for stamp in [Stamp::BeforeFirst, Stamp::FirstPlus(100)] {
            assert!(!EVENT.is_expired(stamp, &event(149)));
            assert!(EVENT.is_expired(stamp, &event(150)));
        }
    }

    #[test]
    fn extreme_instants_neither_wrap_nor_panic() {
        let endless = StateTtl::new(Millis::MAX, TimeDomain::Processing);
        let extremes = [Millis::MIN, Millis::MIN + 1, -1, 0, 1, LATEST, NEVER, Millis::MAX];
        for written in extremes {
            for now in extremes {
                let stamp = endless.stamp_now(&at(written));
                assert!(!endless.is_expired(stamp, &at(now)), "{written} {now}");
            }
            // What is written at the end of time is not expired at once.
            let stamp = PROCESSING.stamp_now(&at(written));
            assert!(!PROCESSING.is_expired(stamp, &at(written)), "{written}");
            let never = PROCESSING.stamp_with_lifetime(Millis::MAX, &at(written.max(0)));
            assert!(!PROCESSING.is_expired(never, &at(Millis::MAX)), "{written}");
        }
        assert!(!PROCESSING.is_expired(Stamp::Until(NEVER), &at(Millis::MAX)));
        let stored = Stamp::from_bytes(Stamp::Until(Millis::MIN).to_bytes());
        assert!(PROCESSING.is_expired(stored, &at(0)), "cut to the earliest instant");
    }

    fn stamps() -> impl Strategy<Value = Stamp> {
        prop_oneof![
            (-300..300_i64).prop_map(Stamp::Written),
            (-300..300_i64).prop_map(Stamp::Until),
            Just(Stamp::BeforeFirst),
            (0..300_i64).prop_map(Stamp::FirstPlus),
        ]
    }

    proptest! {
        #[test]
        fn every_stamp_survives_its_encoding(millis in EARLIEST..=NEVER, stored: [u8; 8]) {
            for stamp in [Stamp::Written(millis), Stamp::Until(millis), Stamp::FirstPlus(millis)] {
                prop_assert_eq!(Stamp::from_bytes(stamp.to_bytes()), stamp);
            }
            let stamp = Stamp::from_bytes(stored);
            prop_assert_eq!(Stamp::from_bytes(stamp.to_bytes()), stamp);
        }

        /// The later one is expired only when both are, whatever comes.
        #[test]
        fn later_is_the_maximum(a in stamps(), b in stamps(), first in -50..50_i64, wait in 0..700_i64) {
            let first_known = at(0).with_event(EventTime { now: first, first });
            for chosen_at in [at(0), first_known] {
                let later = EVENT.later(a, b, &chosen_at);
                let time = at(0).with_event(EventTime { now: first + wait, first });
                let known = chosen_at.event.is_some();
                let settled = |stamp| matches!(stamp, Stamp::Written(_) | Stamp::Until(_));
                if known || settled(a) == settled(b) {
                    prop_assert_eq!(
                        EVENT.is_expired(later, &time),
                        EVENT.is_expired(a, &time) && EVENT.is_expired(b, &time)
                    );
                }
            }
        }
    }
}
