//! How stored bytes are to be read: the eras of a state.
//!
//! Each time a state comes back with another TTL, a new era begins for it. Stored bytes stay as they
//! are and are converted when they are read or compacted, so switching a TTL costs nothing at the
//! time, however large the state is. All entries of a state in a table, and in a memtable, are of one
//! era; the table's properties name it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use weir_state_api::ttl::{EventTime, StateTtl, TtlTime, Verdict, convert, sweep};
use weir_state_api::{Error, ErrorKind, Result, StateKind};

use crate::format::Era;

/// A state has at most so many eras.
const MAX_ERAS: usize = 255;

impl Era {
    pub(crate) fn new(ttl: Option<StateTtl>, time: TtlTime) -> Self {
        let since_event = time.event.map(|event| (event.now, event.first));
        Era { ttl, since: time.processing, since_event }
    }

    fn began(&self) -> TtlTime {
        let time = TtlTime::new(self.since);
        match self.since_event {
            Some((now, first)) => time.with_event(EventTime { now, first }),
            None => time,
        }
    }
}

/// The kind of a state, and its eras, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateEras {
    kind: StateKind,
    eras: Vec<Era>,
}

impl StateEras {
    /// A state with the eras it had; none for a new one, which has no TTL until one is set.
    pub(crate) fn new(kind: StateKind, eras: Vec<Era>) -> Self {
        StateEras { kind, eras }
    }

    pub(crate) fn kind(&self) -> StateKind {
        self.kind
    }

    pub(crate) fn eras(&self) -> &[Era] {
        &self.eras
    }

    /// Whether it can be one that [`set_ttl`](StateEras::set_ttl) has made. To be asked of what was
    /// read.
    pub(crate) fn is_sound(&self) -> bool {
        self.eras.len() <= MAX_ERAS
    }

    /// The era of what is written now.
    #[inline]
    pub(crate) fn current(&self) -> u8 {
        (self.eras.len().max(1) - 1) as u8 // at most MAX_ERAS
    }

    /// The TTL of what is written now.
    #[inline]
    pub(crate) fn ttl(&self) -> Option<&StateTtl> {
        self.eras.last().and_then(|era| era.ttl.as_ref())
    }

    /// Makes `ttl` the state's from now on. Whether that began an era: then a memtable with entries
    /// of the former one must be frozen first.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) when it has changed too often; nothing has changed then.
    pub(crate) fn set_ttl(&mut self, ttl: Option<StateTtl>, time: TtlTime) -> Result<bool> {
        if self.eras.last().is_some_and(|era| era.ttl == ttl) {
            return Ok(false);
        }
        if self.eras.len() == MAX_ERAS {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("the TTL of a state can change {} times", MAX_ERAS - 1),
            )
            .advice("restore through a savepoint of another backend"));
        }
        self.eras.push(Era::new(ttl, time));
        Ok(true)
    }

    /// A value of an era as of the current one; `None` when it has expired on the way.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) for an era that the state has not had.
    #[inline]
    pub(crate) fn convert<'v>(&self, value: &'v [u8], era: u8) -> Result<Option<Cow<'v, [u8]>>> {
        if era == self.current() {
            return Ok(Some(Cow::Borrowed(value)));
        }
        self.convert_from(value, usize::from(era))
    }

    #[cold]
    fn convert_from<'v>(&self, value: &'v [u8], era: usize) -> Result<Option<Cow<'v, [u8]>>> {
        let later = self.eras.get(era..).filter(|later| !later.is_empty()).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("stored bytes are of the unknown era {era}"))
                .advice("restore another checkpoint")
        })?;
        let mut value = Cow::Borrowed(value);
        for step in later.windows(2) {
            let (from, to) = (&step[0], &step[1]);
            match convert(self.kind, from.ttl.as_ref(), to.ttl.as_ref(), &value, &to.began()) {
                Verdict::Keep => {}
                Verdict::Drop => return Ok(None),
                Verdict::Replace(new) => value = Cow::Owned(new),
            }
        }
        Ok(Some(value))
    }

    /// A value of the current era without what has expired; `None` when nothing is left.
    pub(crate) fn swept<'v>(&self, value: Cow<'v, [u8]>, time: &TtlTime) -> Option<Cow<'v, [u8]>> {
        let Some(ttl) = self.ttl() else { return Some(value) };
        match sweep(self.kind, ttl, &value, time) {
            Verdict::Keep => Some(value),
            Verdict::Drop => None,
            Verdict::Replace(live) => Some(Cow::Owned(live)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_state_api::Millis;
    use weir_state_api::ttl::{Stamp, TimeDomain};

    const TTL: StateTtl = StateTtl::new(100, TimeDomain::Processing);

    #[test]
    fn a_value_is_converted_through_all_eras_since_its_own() {
        let eras = [(None, 0), (Some(TTL), 1_000), (None, 1_050)]
            .map(|(ttl, at)| Era::new(ttl, TtlTime::new(at)));
        let state = StateEras::new(StateKind::Value, eras.to_vec());
        let convert = |value: &[u8], era| state.convert(value, era).unwrap().map(Cow::into_owned);
        let stamped = |at: Millis| [&Stamp::Written(at).to_bytes()[..], b"v"].concat();
        assert_eq!(convert(b"v", 0).as_deref(), Some(&b"v"[..]));
        assert_eq!(convert(&stamped(960), 1).as_deref(), Some(&b"v"[..]));
        assert_eq!(convert(&stamped(950), 1), None, "expired when it was switched off");
        assert_eq!(convert(b"v", 2).as_deref(), Some(&b"v"[..]));
        for unknown in [3, 255] {
            assert_eq!(state.convert(b"v", unknown).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn an_era_begins_only_with_another_ttl_and_there_is_a_limit() {
        let mut state = StateEras::new(StateKind::Value, Vec::new());
        let time = TtlTime::new(5);
        assert_eq!((state.current(), state.ttl()), (0, None));
        assert!(state.set_ttl(None, time).unwrap());
        assert!(!state.set_ttl(None, time).unwrap());
        for era in 1..255_u8 {
            let ttl = (era % 2 == 1).then_some(TTL);
            assert!(state.set_ttl(ttl, time).unwrap());
            assert!(!state.set_ttl(ttl, time).unwrap());
            assert_eq!(state.current(), era);
        }
        assert_eq!(state.set_ttl(Some(TTL), time).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(state.current(), 254);
    }

    #[test]
    fn bytes_of_an_era_that_is_over_are_not_judged_by_its_ttl() {
        let longer = StateTtl::new(1_000, TimeDomain::Processing);
        let eras = [(Some(TTL), 0), (Some(longer), 1_050)]
            .map(|(ttl, at)| Era::new(ttl, TtlTime::new(at)));
        let state = StateEras::new(StateKind::Value, eras.to_vec());
        let stored = [&Stamp::Written(1_000).to_bytes()[..], b"v"].concat();
        let value = state.convert(&stored, 0).unwrap().unwrap();
        assert!(state.swept(value.clone(), &TtlTime::new(1_999)).is_some());
        assert!(state.swept(value, &TtlTime::new(2_000)).is_none());
    }
}
