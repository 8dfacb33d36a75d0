//! What the state of a job must be, by the contract: the digits at each place, and when they expire.

use std::collections::BTreeMap;

use weir_state_api::Millis;

use super::axes::{Kind, TtlMode};

/// How long a digit lives, where there is a TTL.
pub(super) const LIFETIME: Millis = 100;

/// A key and a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) key: u32,
    pub(super) namespace: u8,
}

impl Place {
    /// Both namespaces of so many keys.
    pub(super) fn first(keys: u32) -> impl Iterator<Item = Place> {
        (0..keys).flat_map(|key| (0..2).map(move |namespace| Place { key, namespace }))
    }

    pub(super) fn key(self) -> String {
        format!("key {}", self.key)
    }
}

#[derive(Debug, Clone)]
struct Element {
    digit: u64,
    /// When it has expired, if ever.
    deadline: Option<Millis>,
}

impl Element {
    fn is_live(&self, now: Millis) -> bool {
        self.deadline.is_none_or(|deadline| deadline > now)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    kind: Kind,
    ttl: TtlMode,
    places: BTreeMap<Place, Vec<Element>>,
}

impl Model {
    pub(super) fn new(kind: Kind, ttl: TtlMode) -> Self {
        Model { kind, ttl, places: BTreeMap::new() }
    }

    pub(super) fn write(&mut self, place: Place, digit: u64, now: Millis) {
        let deadline = (self.ttl != TtlMode::None).then_some(now + LIFETIME);
        let elements = self.places.entry(place).or_default();
        elements.retain(|element| element.is_live(now));
        match self.kind {
            Kind::Value => elements.clear(),
            Kind::List => {}
            Kind::Map | Kind::SortedMap | Kind::Timers => {
                elements.retain(|element| element.digit != digit);
            }
            // One value with one stamp.
            Kind::Reducing | Kind::Aggregating => {
                elements.iter_mut().for_each(|element| element.deadline = deadline);
            }
        }
        elements.push(Element { digit, deadline });
        if matches!(self.kind, Kind::Map | Kind::SortedMap | Kind::Timers) {
            elements.sort_by_key(|element| element.digit);
        }
    }

    /// What a read returns; it may prolong what it returns.
    pub(super) fn read(&mut self, place: Place, now: Millis) -> Vec<u64> {
        let elements = self.places.get_mut(&place).into_iter().flatten();
        let live = elements.filter(|element| element.is_live(now));
        live.map(|element| {
            if self.ttl == TtlMode::Refreshed {
                element.deadline = Some(now + LIFETIME);
            }
            element.digit
        })
        .collect()
    }

    pub(super) fn clear(&mut self, place: Place) {
        self.places.remove(&place);
    }

    /// What a listing returns.
    pub(super) fn live_places(&self, now: Millis) -> Vec<Place> {
        let live = |elements: &[Element]| elements.iter().any(|element| element.is_live(now));
        self.places.iter().filter(|(_, elements)| live(elements)).map(|(place, _)| *place).collect()
    }

    /// Everything, as timers come due; nothing is left.
    pub(super) fn drain(&mut self) -> Vec<(u64, Place)> {
        let places = std::mem::take(&mut self.places).into_iter();
        places.flat_map(|(at, found)| found.into_iter().map(move |e| (e.digit, at))).collect()
    }

    /// When the last digit has expired; `None` when something never does, or nothing is there.
    pub(super) fn last_deadline(&self) -> Option<Millis> {
        self.places.values().flatten().map(|element| element.deadline).max().flatten()
    }
}
