//! Stored bytes under another TTL.

use super::elements::{Elements, write_bare, write_stamped};
use super::{NEVER, Stamp, StateTtl, TtlTime, Verdict, sweep};
use crate::StateKind;

/// What becomes of a stored value when its state is registered with another TTL than it was stored
/// with: the bytes at one [`Address`](crate::Address), so for a map those of one entry. `time` is
/// the time of that registration.
///
/// | from | to | |
/// |---|---|---|
/// | none | some | counts as written now |
/// | some | none | loses its stamp |
/// | some | another lifetime | keeps its stamp, to which the new lifetime applies |
/// | some | another domain | keeps its age, or what is left of a lifetime of its own |
///
/// In all of them, what has expired under `from` by then is gone. When the old or the new domain is
/// event time and no watermark is known, ages are unknown too: the value counts as written now.
///
/// Bytes that no write under `from` can have left are kept when they need no stamp, and reading them
/// reports the damage.
pub fn convert(
    kind: StateKind,
    from: Option<&StateTtl>,
    to: Option<&StateTtl>,
    stored: &[u8],
    time: &TtlTime,
) -> Verdict {
    match (from, to) {
        _ if from == to => return Verdict::Keep,
        (Some(from), Some(to)) if from.domain == to.domain => {
            return sweep(kind, from, stored, time);
        }
        _ => {}
    }
    let step = Step { from, to, time };
    if kind == StateKind::List { step.list(stored) } else { step.value(stored) }
}

struct Step<'a> {
    from: Option<&'a StateTtl>,
    to: Option<&'a StateTtl>,
    time: &'a TtlTime,
}

/// What one value or element becomes; `None` when it has expired.
type Converted<'v> = Option<(Option<Stamp>, &'v [u8])>;

impl Step<'_> {
    /// `Err` for bytes that are none of such a state.
    fn one<'v>(&self, stored: &'v [u8]) -> Result<Converted<'v>, ()> {
        let Some(from) = self.from else {
            return Ok(Some((self.to.map(|to| to.stamp_now(self.time)), stored)));
        };
        let (stamp, value) = Stamp::split(stored).ok_or(())?;
        if from.is_expired(stamp, self.time) {
            return Ok(None);
        }
        Ok(Some((self.to.map(|to| self.restamp(from, to, stamp)), value)))
    }

    fn restamp(&self, from: &StateTtl, to: &StateTtl, stamp: Stamp) -> Stamp {
        let stamp = stamp.settled(from.domain, self.time);
        let now = self.time.now(from.domain);
        match (stamp, now, self.time.now(to.domain)) {
            (Stamp::Until(NEVER), ..) => stamp,
            (Stamp::Written(at), Some(then), Some(now)) => {
                Stamp::Written(now.saturating_sub(then.saturating_sub(at)))
            }
            (Stamp::Until(at), Some(then), _) => {
                to.stamp_with_lifetime(at.saturating_sub(then), self.time)
            }
            (Stamp::FirstPlus(lifetime), ..) => to.stamp_with_lifetime(lifetime, self.time),
            _ => to.stamp_now(self.time),
        }
    }

    fn value(&self, stored: &[u8]) -> Verdict {
        match self.one(stored) {
            Err(()) => Verdict::Keep,
            Ok(None) => Verdict::Drop,
            Ok(Some((None, value))) => Verdict::Replace(value.to_vec()),
            Ok(Some((Some(stamp), value))) => {
                let new = [&stamp.to_bytes()[..], value].concat();
                if new == stored { Verdict::Keep } else { Verdict::Replace(new) }
            }
        }
    }

    fn list(&self, stored: &[u8]) -> Verdict {
        let mut new = Vec::with_capacity(stored.len());
        for element in Elements::new(stored) {
            match element.map_err(drop).and_then(|element| self.one(element)) {
                Err(()) => return Verdict::Keep,
                Ok(None) => {}
                Ok(Some((None, value))) => write_bare(&mut new, value),
                Ok(Some((Some(stamp), value))) => write_stamped(&mut new, stamp, value),
            }
        }
        if new == stored {
            Verdict::Keep
        } else if new.is_empty() {
            Verdict::Drop
        } else {
            Verdict::Replace(new)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EventTime, TimeDomain};
    use super::*;

    const PROCESSING: StateTtl = StateTtl::new(100, TimeDomain::Processing);
    const EVENT: StateTtl = StateTtl::new(100, TimeDomain::Event);

    fn value(stamp: Stamp) -> Vec<u8> {
        [&stamp.to_bytes()[..], b"v"].concat()
    }

    fn list(stamps: &[Stamp]) -> Vec<u8> {
        let mut stored = Vec::new();
        stamps.iter().for_each(|stamp| write_stamped(&mut stored, *stamp, b"v"));
        stored
    }

    #[test]
    fn switching_on_stamps_and_switching_off_strips_and_drops() {
        let time = TtlTime::new(1_000);
        let on = |kind, stored: &[u8]| convert(kind, None, Some(&PROCESSING), stored, &time);
        let off = |kind, stored: &[u8]| convert(kind, Some(&PROCESSING), None, stored, &time);
        let now = value(Stamp::Written(1_000));
        assert_eq!(on(StateKind::Map, b"v"), Verdict::Replace(now.clone()));
        assert_eq!(off(StateKind::Map, &now), Verdict::Replace(b"v".to_vec()));
        assert_eq!(off(StateKind::Value, &value(Stamp::Written(900))), Verdict::Drop);

        let stamped = list(&[Stamp::Written(1_000); 2]);
        assert_eq!(on(StateKind::List, b"\x01v\x01v"), Verdict::Replace(stamped));
        let mixed = list(&[Stamp::Written(900), Stamp::Until(1_001)]);
        assert_eq!(off(StateKind::List, &mixed), Verdict::Replace(b"\x01v".to_vec()));
        assert_eq!(off(StateKind::List, &list(&[Stamp::Until(1_000)])), Verdict::Drop);
        // Empty values and elements are values.
        assert_eq!(
            off(StateKind::Value, &Stamp::Written(901).to_bytes()),
            Verdict::Replace(vec![])
        );
        assert_eq!(on(StateKind::List, b""), Verdict::Keep);
    }

    #[test]
    fn another_lifetime_keeps_stamps_and_drops_what_had_expired() {
        let (time, longer) = (TtlTime::new(1_000), StateTtl::new(900, TimeDomain::Processing));
        let change = |stored: &[u8]| {
            convert(StateKind::Value, Some(&PROCESSING), Some(&longer), stored, &time)
        };
        assert_eq!(change(&value(Stamp::Written(901))), Verdict::Keep);
        assert_eq!(change(&value(Stamp::Written(900))), Verdict::Drop);
    }

    #[test]
    fn another_domain_keeps_ages_and_own_lifetimes() {
        let event = EventTime { now: 50, first: 20 };
        let time = TtlTime::new(1_000).with_event(event);
        let to_event = |stamp| {
            convert(StateKind::Value, Some(&PROCESSING), Some(&EVENT), &value(stamp), &time)
        };
        let replaced = |stamp| Verdict::Replace(value(stamp));
        assert_eq!(to_event(Stamp::Written(990)), replaced(Stamp::Written(40)));
        assert_eq!(to_event(Stamp::Until(1_007)), replaced(Stamp::Until(57)));
        assert_eq!(to_event(Stamp::Written(900)), Verdict::Drop);
        assert_eq!(to_event(Stamp::Until(NEVER)), Verdict::Keep);
        let back = |stamp, time| {
            convert(StateKind::Value, Some(&EVENT), Some(&PROCESSING), &value(stamp), time)
        };
        assert_eq!(back(Stamp::BeforeFirst, &time), replaced(Stamp::Written(970)));
        assert_eq!(back(Stamp::FirstPlus(60), &time), replaced(Stamp::Until(1_030)));
        assert_eq!(back(Stamp::FirstPlus(30), &time), Verdict::Drop);
        let unknown = TtlTime::new(1_000);
        assert_eq!(back(Stamp::Written(-5), &unknown), replaced(Stamp::Written(1_000)));
        assert_eq!(back(Stamp::FirstPlus(30), &unknown), replaced(Stamp::Until(1_030)));
    }

    #[test]
    fn damaged_bytes_stay_for_the_reader_to_report() {
        let time = TtlTime::new(0);
        for stored in [&b"short"[..], b"\x7fcut", b"\x01v"] {
            let off = convert(StateKind::List, Some(&PROCESSING), None, stored, &time);
            assert_eq!(off, Verdict::Keep);
            assert_eq!(sweep(StateKind::List, &PROCESSING, stored, &time), Verdict::Keep);
        }
        assert_eq!(sweep(StateKind::Value, &PROCESSING, b"short", &time), Verdict::Keep);
    }
}
