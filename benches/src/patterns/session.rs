//! Session windows: an event joins the sessions that are near it, and may merge several.

use weir_state_api::{MapState, Millis, Order, Ordered as OrderedCodec, Postcard, Result};

use super::events::{DISORDER, Event};
use super::operator::{Operator, account, key_bytes, last_part, remove_between};
use crate::backends::Instance;
use crate::peers::ordered::Ordered;

/// The silence that ends a session. Shorter than the disorder, so that sessions do merge.
const GAP: Millis = DISORDER / 4;
/// What began so long ago is removed.
const KEPT: Millis = 16 * DISORDER;

/// Where sessions that an event may join begin.
fn near(event: &Event) -> std::ops::RangeInclusive<Millis> {
    event.time - KEPT..=event.time + GAP
}

/// A session: its first and last event, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Session {
    first: Millis,
    last: Millis,
    events: u64,
}

impl Session {
    fn of(event: &Event) -> Self {
        Session { first: event.time, last: event.time, events: 1 }
    }

    /// Takes in another one, if it is near.
    fn join(&mut self, other: Session) -> bool {
        let near = other.last + GAP >= self.first && self.last + GAP >= other.first;
        if near {
            self.first = self.first.min(other.first);
            self.last = self.last.max(other.last);
            self.events += other.events;
        }
        near
    }

    fn answer(&self) -> u64 {
        self.events.wrapping_mul(31).wrapping_add((self.last - self.first).unsigned_abs())
    }
}

pub(crate) struct OnWeir {
    instance: Instance,
    /// The last event and the number of events, by the first event.
    sessions: MapState<Millis, (Millis, u64), OrderedCodec, Postcard>,
}

impl OnWeir {
    pub(crate) fn open(mut instance: Instance) -> Result<Self> {
        let codec = Postcard::schema("session", 1);
        let sessions = instance.store.map_with("sessions", OrderedCodec, codec)?;
        Ok(OnWeir { instance, sessions })
    }
}

impl Operator for OnWeir {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let store = &mut self.instance.store;
        store.set_key(&event.key)?;
        let mut session = Session::of(event);
        let mut joined = Vec::new();
        for entry in self.sessions.range(store, near(event), Order::Ascending).wait()? {
            let (first, (last, events)) = entry?;
            if session.join(Session { first, last, events }) {
                joined.push(first);
            }
        }
        if joined.is_empty() {
            self.sessions.remove_range(store, ..event.number - KEPT)?;
        }
        for first in joined.iter().filter(|first| **first != session.first) {
            self.sessions.remove(store, first)?;
        }
        self.sessions.put(store, &session.first, &(session.last, session.events))?;
        Ok(session.answer())
    }

    fn own_account(&self) -> Option<u64> {
        account(&self.instance)
    }
}

pub(crate) struct ByHand {
    store: Box<dyn Ordered>,
}

impl ByHand {
    pub(crate) fn new(store: Box<dyn Ordered>) -> Self {
        ByHand { store }
    }
}

impl Operator for ByHand {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let at = |first: Millis| key_bytes(b's', event.key, &[first]);
        let mut session = Session::of(event);
        let mut joined = Vec::new();
        let (from, to) = near(event).into_inner();
        self.store.scan(&at(from), &at(to + 1), &mut |key, value| {
            let first = last_part(key);
            let (last, events) = postcard::from_bytes(value).unwrap_or_default();
            if session.join(Session { first, last, events }) {
                joined.push(first);
            }
        })?;
        if joined.is_empty() {
            remove_between(&mut *self.store, &at(i64::MIN), &at(event.number - KEPT))?;
        }
        for first in joined.iter().filter(|first| **first != session.first) {
            self.store.delete(&at(*first))?;
        }
        let mut bytes = [0; 24];
        let value = postcard::to_slice(&(session.last, session.events), &mut bytes);
        self.store.put(&at(session.first), value.map_or(&[], |value| value))?;
        Ok(session.answer())
    }
}
