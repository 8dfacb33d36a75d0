//! When stored bytes are over, known as soon as they are written.

use super::elements::Elements;
use super::{NEVER, Stamp, StateTtl};
use crate::{Millis, StateKind};

/// The instant at which nothing of the stored bytes lives any more, in the time of their state; of a
/// list that of its last element. For files that remember when all they hold has expired.
///
/// `None` when that is never, or cannot be told from the bytes: what counts from a watermark still to
/// come, and what is damaged.
pub fn expiry(kind: StateKind, ttl: &StateTtl, stored: &[u8]) -> Option<Millis> {
    let of_one = |stored: &[u8]| {
        let at = match Stamp::split(stored)?.0 {
            Stamp::Written(at) => at.saturating_add(ttl.lifetime),
            Stamp::Until(at) => at,
            Stamp::BeforeFirst | Stamp::FirstPlus(_) => return None,
        };
        (at < NEVER).then_some(at)
    };
    if kind != StateKind::List {
        return of_one(stored);
    }
    Elements::new(stored)
        .try_fold(Millis::MIN, |latest, element| Some(latest.max(of_one(element.ok()?)?)))
}

#[cfg(test)]
mod tests {
    use super::super::elements::write_stamped;
    use super::super::{TimeDomain, TtlTime, is_live};
    use super::*;

    const TTL: StateTtl = StateTtl::new(10, TimeDomain::Processing);

    fn list(stamps: &[Stamp]) -> Vec<u8> {
        let mut stored = Vec::new();
        stamps.iter().for_each(|stamp| write_stamped(&mut stored, *stamp, b"v"));
        stored
    }

    #[test]
    fn it_is_the_first_instant_without_life() {
        let value = |stamp: Stamp| (StateKind::Map, [&stamp.to_bytes()[..], b"v"].concat());
        let lists = list(&[Stamp::Until(7), Stamp::Written(20), Stamp::Written(3)]);
        for ((kind, stored), expected) in [
            (value(Stamp::Written(20)), 30),
            (value(Stamp::Until(21)), 21),
            ((StateKind::List, lists), 30),
        ] {
            assert_eq!(expiry(kind, &TTL, &stored), Some(expected));
            assert!(is_live(kind, &TTL, &stored, &TtlTime::new(expected - 1)));
            assert!(!is_live(kind, &TTL, &stored, &TtlTime::new(expected)));
        }
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        for stamp in [Stamp::BeforeFirst, Stamp::FirstPlus(1), Stamp::Until(NEVER)] {
            assert_eq!(expiry(StateKind::Value, &TTL, &stamp.to_bytes()), None);
            assert_eq!(expiry(StateKind::List, &TTL, &list(&[Stamp::Written(1), stamp])), None);
        }
        assert_eq!(expiry(StateKind::Value, &TTL, b"short"), None);
        assert_eq!(expiry(StateKind::List, &TTL, &[200]), None);
    }
}
