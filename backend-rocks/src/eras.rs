//! How stored bytes are to be read: their era.
//!
//! ```text
//! payload | era u8
//! ```
//!
//! The era stands at the end, where adding and taking it off copies nothing. Each time a state comes
//! back with another TTL, a new era begins for it; what is stored keeps its era until it is written
//! again, and is converted whenever it is read, merged or cleaned up. So switching a TTL costs nothing
//! at the time, however large the state is.
//!
//! Era 255 says that there is nothing: a list whose elements have all expired, until a compaction
//! removes it.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use weir_state_api::stored_key::state_of;
use weir_state_api::ttl::{
    EventTime, StateTtl, TtlClock, TtlTime, Verdict, convert, is_live, sweep,
};
use weir_state_api::{Error, ErrorKind, Millis, Result, StateId, StateKind};

thread_local! {
    /// The time of the compaction that runs on this thread. Merges for reads run on the reader's
    /// thread: they leave everything in, since what a read may see is not for the backend to decide.
    static COMPACTION: Cell<Option<TtlTime>> = const { Cell::new(None) };
}

/// Says that a compaction runs on this thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct CompactionScope(());

impl CompactionScope {
    pub(crate) fn enter(time: TtlTime) -> Self {
        COMPACTION.set(Some(time));
        CompactionScope(())
    }
}

impl Drop for CompactionScope {
    fn drop(&mut self) {
        COMPACTION.set(None);
    }
}

/// A state has at most so many eras.
const MAX_ERAS: usize = 255;

/// The era of a stored value that stands for nothing.
const GONE: u8 = 255;

/// Writes `value` in its stored form over `out`.
#[inline]
pub(crate) fn store(value: &[u8], era: u8, out: &mut Vec<u8>) {
    out.clear();
    out.reserve(value.len() + 1);
    out.extend_from_slice(value);
    out.push(era);
}

/// One era of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Era {
    /// The TTL that values of this era are stamped for.
    ttl: Option<StateTtl>,
    /// When it began: processing time, and the current and the first watermark, if known.
    since: (Millis, Option<(Millis, Millis)>),
}

impl Era {
    fn new(ttl: Option<StateTtl>, time: TtlTime) -> Self {
        let event = time.event.map(|event| (event.now, event.first));
        Era { ttl, since: (time.processing, event) }
    }

    fn began(&self) -> TtlTime {
        let time = TtlTime::new(self.since.0);
        match self.since.1 {
            Some((now, first)) => time.with_event(EventTime { now, first }),
            None => time,
        }
    }
}

/// The eras of one state in one database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateEras {
    kind: StateKind,
    eras: Vec<Era>,
}

impl StateEras {
    pub(crate) fn eras(&self) -> &[Era] {
        &self.eras
    }

    /// The era of what is written now.
    pub(crate) fn current(&self) -> u8 {
        (self.eras.len().max(1) - 1) as u8 // at most MAX_ERAS
    }

    fn ttl(&self) -> Option<&StateTtl> {
        self.eras.last().and_then(|era| era.ttl.as_ref())
    }

    /// The value in a stored one, as of the current era; `None` when it has expired on the way, or
    /// stands for nothing.
    pub(crate) fn load<'v>(&self, stored: &'v [u8]) -> Result<Option<Cow<'v, [u8]>>> {
        self.load_as(stored, self.current())
    }

    fn load_as<'v>(&self, stored: &'v [u8], wanted: u8) -> Result<Option<Cow<'v, [u8]>>> {
        let (payload, era) = match stored {
            [.., GONE] => return Ok(None),
            [payload @ .., era] if *era <= wanted && usize::from(*era) < self.eras.len() => {
                (payload, *era)
            }
            _ => return Err(unknown_era(stored)),
        };
        let mut value = Cow::Borrowed(payload);
        for next in usize::from(era)..usize::from(wanted) {
            let (from, to) = (&self.eras[next], &self.eras[next + 1]);
            let time = to.began();
            match convert(self.kind, from.ttl.as_ref(), to.ttl.as_ref(), &value, &time) {
                Verdict::Keep => {}
                Verdict::Drop => return Ok(None),
                Verdict::Replace(new) => value = Cow::Owned(new),
            }
        }
        Ok(Some(value))
    }

    /// Whether a stored value has anything to show at `time`.
    pub(crate) fn is_live(&self, stored: &[u8], time: &TtlTime) -> Result<bool> {
        let value = self.load(stored)?;
        Ok(match (value, self.ttl()) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(value), Some(ttl)) => is_live(self.kind, ttl, &value, time),
        })
    }

    /// Whether every stored value is live: then listings need not look at them.
    pub(crate) fn never_expires(&self) -> bool {
        self.eras.iter().all(|era| era.ttl.is_none())
    }

    /// What a clean-up at `time` does with a stored value; what takes its place is of the current era.
    pub(crate) fn clean(&self, stored: &[u8], time: &TtlTime) -> Result<Verdict> {
        let Some(value) = self.load(stored)? else { return Ok(Verdict::Drop) };
        let verdict = self.ttl().map_or(Verdict::Keep, |ttl| sweep(self.kind, ttl, &value, time));
        Ok(match (verdict, value) {
            (Verdict::Keep, Cow::Borrowed(_)) => Verdict::Keep,
            (Verdict::Keep, Cow::Owned(converted)) => Verdict::Replace(converted),
            (verdict, _) => verdict,
        })
    }

    /// Joins what was appended, oldest first; in a compaction, whose time it is then, without what has
    /// expired. Bytes of an era that is over are not judged by its TTL: they are converted first.
    fn join<'v, I: Iterator<Item = &'v [u8]>>(
        &self,
        parts: impl Fn() -> I,
        compaction: Option<TtlTime>,
    ) -> Result<Vec<u8>> {
        // The newest era among them: what is newer still is not known to this merge.
        let eras = parts().filter_map(<[u8]>::last).filter(|era| **era != GONE);
        let Some(era) = eras.max().copied() else { return Ok(vec![GONE]) };
        let mut joined = Vec::with_capacity(parts().map(<[u8]>::len).sum());
        let mut present = false;
        for part in parts() {
            if let Some(value) = self.load_as(part, era)? {
                joined.extend_from_slice(&value);
                present = true;
            }
        }
        let sweeps = present && self.kind == StateKind::List && era == self.current();
        if let (true, Some(ttl), Some(time)) = (sweeps, self.ttl(), compaction) {
            match sweep(self.kind, ttl, &joined, &time) {
                Verdict::Keep => {}
                Verdict::Replace(live) => joined = live,
                Verdict::Drop => present = false,
            }
        }
        if !present {
            return Ok(vec![GONE]);
        }
        joined.push(era);
        Ok(joined)
    }
}

/// The eras of all states of one database, and the time. Shared with RocksDB's threads, which merge
/// and compact.
#[derive(Debug)]
pub(crate) struct Eras {
    states: RwLock<Arc<Vec<StateEras>>>,
    clock: Arc<Mutex<TtlClock>>,
}

impl Eras {
    pub(crate) fn new(clock: Arc<Mutex<TtlClock>>) -> Self {
        Eras { states: RwLock::default(), clock }
    }

    /// All states, by their stored numbers.
    pub(crate) fn states(&self) -> Arc<Vec<StateEras>> {
        Arc::clone(&self.states.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn time(&self) -> TtlTime {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner).time()
    }

    /// Adds the next state, with the eras it had.
    pub(crate) fn add(&self, kind: StateKind, eras: Vec<Era>) {
        let mut states = self.states.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut states).push(StateEras { kind, eras });
    }

    /// Makes `ttl` the one of a state, beginning a new era if it was another; the current era.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) when it has changed too often.
    pub(crate) fn set_ttl(&self, state: StateId, ttl: Option<StateTtl>) -> Result<u8> {
        let time = self.time();
        let mut states = self.states.write().unwrap_or_else(PoisonError::into_inner);
        let eras = &mut Arc::make_mut(&mut states)[state.index()].eras;
        if eras.last().is_none_or(|era| era.ttl != ttl) {
            if eras.len() == MAX_ERAS {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    format!("the TTL of a state can change {} times", MAX_ERAS - 1),
                )
                .advice("restore through a savepoint of another backend"));
            }
            eras.push(Era::new(ttl, time));
        }
        Ok((eras.len() - 1) as u8) // at most MAX_ERAS
    }

    /// RocksDB's merge operator: joins a value and what was appended to it. `None`, which RocksDB
    /// reports as corruption, for bytes that this backend has not stored.
    pub(crate) fn merge<'v, I: Iterator<Item = &'v [u8]>>(
        &self,
        key: &[u8],
        parts: impl Fn() -> I,
    ) -> Option<Vec<u8>> {
        let compaction = COMPACTION.get();
        if compaction.is_none()
            && let Some(joined) = join_of_one_era(&parts)
        {
            return Some(joined);
        }
        let states = self.states();
        let state = states.get(state_of(key)?.index())?;
        state.join(parts, compaction).ok()
    }
}

/// Joins parts that are all of one era, which needs no conversion: nearly every read of a list.
fn join_of_one_era<'v, I: Iterator<Item = &'v [u8]>>(parts: impl Fn() -> I) -> Option<Vec<u8>> {
    let era = *parts().next()?.last()?;
    let (mut length, mut all_alike) = (1, era != GONE);
    for part in parts() {
        length += part.len();
        all_alike &= part.last() == Some(&era);
    }
    if !all_alike {
        return None;
    }
    let mut joined = Vec::with_capacity(length);
    for part in parts() {
        joined.extend_from_slice(&part[..part.len() - 1]);
    }
    joined.push(era);
    Some(joined)
}

#[cold]
fn unknown_era(stored: &[u8]) -> Error {
    let what = match stored.last() {
        Some(era) => format!("a stored value is of the unknown era {era}"),
        None => "a stored value lacks its era".to_string(),
    };
    Error::new(ErrorKind::Corrupt, what).advice("restore another checkpoint")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_state_api::ttl::{Stamp, TimeDomain};

    const TTL: StateTtl = StateTtl::new(100, TimeDomain::Processing);

    fn eras(kind: StateKind, eras: &[(Option<StateTtl>, Millis)]) -> StateEras {
        let eras = eras.iter().map(|(ttl, at)| Era::new(*ttl, TtlTime::new(*at))).collect();
        StateEras { kind, eras }
    }

    fn element(at: Millis, value: u8) -> Vec<u8> {
        [&[9][..], &Stamp::Written(at).to_bytes(), &[value]].concat()
    }

    #[test]
    fn a_value_is_converted_through_all_eras_since_its_own() {
        let state = eras(StateKind::Value, &[(None, 0), (Some(TTL), 1_000), (None, 1_050)]);
        assert_eq!(state.load(b"v\0").unwrap().as_deref(), Some(&b"v"[..]));
        let stamped = |at: Millis| [&Stamp::Written(at).to_bytes()[..], b"v\x01"].concat();
        assert_eq!(state.load(&stamped(960)).unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(state.load(&stamped(950)).unwrap(), None, "expired when it was switched off");
        assert_eq!(state.load(b"v\x02").unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(state.load(b"\xff").unwrap(), None);
        for odd in [&b""[..], b"v\x03", b"v\xfe"] {
            assert_eq!(state.load(odd).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn merging_joins_converts_and_leaves_out_the_expired() {
        let state = eras(StateKind::List, &[(None, 0), (Some(TTL), 1_000)]);
        let time = Some(TtlTime::new(1_050));
        let join = |parts: &[&[u8]]| state.join(|| parts.iter().copied(), time).unwrap();
        assert_eq!(join(&[b"\x01a\0", b"\x01b\0"]), b"\x01a\x01b\0");
        let new = [element(1_040, b'c'), vec![1]].concat();
        let expected = [element(1_000, b'a'), element(1_040, b'c'), vec![1]].concat();
        assert_eq!(join(&[b"\x01a\0", &new]), expected);
        let old = [element(950, b'd'), vec![1]].concat();
        assert_eq!(join(&[&old, &new]), new);
        assert_eq!(join(&[&old, &old]), [GONE]);
        assert_eq!(join(&[&[GONE], &new]), new);
        assert_eq!(join(&[&[GONE], &[GONE]]), [GONE]);
        // For a read, nothing is left out.
        let all = [element(950, b'd'), element(1_040, b'c'), vec![1]].concat();
        assert_eq!(state.join(|| [&old[..], &new].into_iter(), None).unwrap(), all);
    }

    /// The short way gives what the long one gives, or leaves it to that.
    #[test]
    fn parts_of_one_era_are_joined_without_a_look_at_the_eras() {
        let state = eras(StateKind::List, &[(None, 0), (Some(TTL), 1_000)]);
        let of_one: [&[&[u8]]; 4] =
            [&[b"\x01a\0"], &[b"\x01a\0", b"\x01b\0"], &[b"\0"], &[b"\0", b"\x01a\0"]];
        for parts in of_one {
            let parts = || parts.iter().copied();
            let joined = join_of_one_era(parts);
            assert_eq!(joined, Some(state.join(parts, None).unwrap()));
        }
        let left: [&[&[u8]]; 5] =
            [&[], &[b""], &[&[GONE]], &[b"\x01a\0", b"\x01b\x01"], &[b"\x01a\0", b""]];
        for parts in left {
            assert_eq!(join_of_one_era(|| parts.iter().copied()), None, "{parts:?}");
        }
    }

    /// A longer lifetime applies to elements that the former one would have ended in the meantime.
    #[test]
    fn bytes_of_an_era_that_is_over_are_not_judged_by_its_ttl() {
        let longer = StateTtl::new(1_000, TimeDomain::Processing);
        let state = eras(StateKind::List, &[(Some(TTL), 0), (Some(longer), 1_050)]);
        let part = [element(1_000, b'a'), vec![0]].concat();
        let joined =
            state.join(|| [&part[..], &part].into_iter(), Some(TtlTime::new(1_200))).unwrap();
        assert_eq!(joined, [element(1_000, b'a'), element(1_000, b'a'), vec![0]].concat());
        assert!(state.load(&joined).unwrap().is_some());
    }

    #[test]
    fn an_era_begins_only_with_another_ttl_and_there_is_a_limit() {
        let clock = Arc::new(weir_state_api::ManualClock::new(5));
        let tables = Eras::new(Arc::new(Mutex::new(TtlClock::new(clock, None))));
        tables.add(StateKind::Value, Vec::new());
        let id = StateId(0);
        assert_eq!(tables.set_ttl(id, None).unwrap(), 0);
        assert_eq!(tables.set_ttl(id, None).unwrap(), 0);
        for era in 1..255_u8 {
            let ttl = (era % 2 == 1).then_some(TTL);
            assert_eq!(tables.set_ttl(id, ttl).unwrap(), era);
            assert_eq!(tables.set_ttl(id, ttl).unwrap(), era);
        }
        assert_eq!(tables.set_ttl(id, Some(TTL)).unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
