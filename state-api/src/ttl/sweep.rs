//! Stored bytes without what has expired.

use super::elements::{Elements, write_stamped};
use super::{Stamp, StateTtl, TtlTime};
use crate::StateKind;

/// What becomes of stored bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// They stay as they are.
    Keep,
    /// They go; nothing is stored there any more. Where older versions may exist below, leave a
    /// tombstone.
    Drop,
    /// These take their place.
    Replace(Vec<u8>),
}

/// What a clean-up, a compaction or the writer of a snapshot does with a stored value of a state
/// with a TTL: the bytes at one [`Address`](crate::Address), so for a map those of one entry.
///
/// It drops what has expired at `time`, an expired list element out of a list too, and turns stamps
/// that count from the first watermark into ones that name it. Bytes that no write of such a state
/// can have left are kept; reading them reports the damage.
#[inline]
pub fn sweep(kind: StateKind, ttl: &StateTtl, stored: &[u8], time: &TtlTime) -> Verdict {
    if kind == StateKind::List {
        return sweep_list(ttl, stored, time);
    }
    match Stamp::split(stored) {
        Some((stamp, _)) if ttl.is_expired(stamp, time) => Verdict::Drop,
        None | Some((Stamp::Written(_) | Stamp::Until(_), _)) => Verdict::Keep,
        Some((stamp, value)) => settle(ttl, stamp, value, time),
    }
}

/// Out of line: few values count from the first watermark, and a clean-up visits one at each access.
#[inline(never)]
fn settle(ttl: &StateTtl, stamp: Stamp, value: &[u8], time: &TtlTime) -> Verdict {
    let settled = stamp.settled(ttl.domain, time);
    if settled == stamp {
        return Verdict::Keep;
    }
    Verdict::Replace([&settled.to_bytes()[..], value].concat())
}

fn sweep_list(ttl: &StateTtl, stored: &[u8], time: &TtlTime) -> Verdict {
    let parse = |element| Stamp::split(element);
    let mut changes = false;
    let mut live = 0;
    for element in Elements::new(stored) {
        let Some((stamp, _)) = element.ok().and_then(parse) else { return Verdict::Keep };
        let expired = ttl.is_expired(stamp, time);
        live += usize::from(!expired);
        changes |= expired || stamp.settled(ttl.domain, time) != stamp;
    }
    if live == 0 {
        return Verdict::Drop;
    }
    if !changes {
        return Verdict::Keep;
    }
    let mut kept = Vec::with_capacity(stored.len());
    for (stamp, value) in Elements::new(stored).flatten().filter_map(parse) {
        if !ttl.is_expired(stamp, time) {
            write_stamped(&mut kept, stamp.settled(ttl.domain, time), value);
        }
    }
    Verdict::Replace(kept)
}

/// Whether a stored value of a state with a TTL holds anything that has not expired: whether a
/// listing of keys names its key. Damaged bytes count as live.
pub fn is_live(kind: StateKind, ttl: &StateTtl, stored: &[u8], time: &TtlTime) -> bool {
    let live = |stored| Stamp::split(stored).is_none_or(|(stamp, _)| !ttl.is_expired(stamp, time));
    if kind == StateKind::List {
        Elements::new(stored).any(|element| element.map_or(true, live))
    } else {
        live(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EventTime, TimeDomain};
    use super::*;

    #[test]
    fn a_list_loses_its_expired_elements_wherever_they_stand() {
        let ttl = StateTtl::new(10, TimeDomain::Event);
        let mut stored = Vec::new();
        for (stamp, value) in [
            (Stamp::Written(0), "old"),
            (Stamp::Written(95), "new"),
            (Stamp::Until(100), "due"),
            (Stamp::BeforeFirst, ""),
        ] {
            write_stamped(&mut stored, stamp, value.as_bytes());
        }
        let at = |now| TtlTime::new(0).with_event(EventTime { now, first: 95 });
        let mut expected = Vec::new();
        write_stamped(&mut expected, Stamp::Written(95), b"new");
        write_stamped(&mut expected, Stamp::Written(95), b"");
        let swept = Verdict::Replace(expected.clone());
        assert_eq!(sweep(StateKind::List, &ttl, &stored, &at(100)), swept);
        assert_eq!(sweep(StateKind::List, &ttl, &expected, &at(104)), Verdict::Keep);
        assert_eq!(sweep(StateKind::List, &ttl, &stored, &at(105)), Verdict::Drop);
        assert!(is_live(StateKind::List, &ttl, &stored, &at(104)));
        assert!(!is_live(StateKind::List, &ttl, &stored, &at(105)));
        // Nothing expires before a watermark is known.
        let unknown = TtlTime::new(i64::MAX);
        assert_eq!(sweep(StateKind::List, &ttl, &stored, &unknown), Verdict::Keep);
    }

    #[test]
    fn a_stamp_that_counts_from_the_first_watermark_comes_to_name_it() {
        let ttl = StateTtl::new(10, TimeDomain::Event);
        let time = TtlTime::new(0).with_event(EventTime { now: 7, first: 5 });
        let stored = [&Stamp::FirstPlus(4).to_bytes()[..], b"v"].concat();
        let expected = [&Stamp::Until(9).to_bytes()[..], b"v"].concat();
        assert_eq!(sweep(StateKind::Map, &ttl, &stored, &time), Verdict::Replace(expected));
    }
}
