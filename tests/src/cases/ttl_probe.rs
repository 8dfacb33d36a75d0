//! One state of any kind with a TTL, written and read as a set of digits; and a time to move.

use std::time::Duration;

use weir_state_api::{
    AggregatingState, Bind, ListState, MapState, Millis, Native, Order, Ordered, ReducingState,
    Result, SortedMapState, TimeDomain, Ttl, ValueState,
};

use super::folding::Join;
use crate::harness::{Harness, Store};

/// The kinds of state that can have a TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Value,
    List,
    Map,
    SortedMap,
    Reducing,
    Aggregating,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Value, Kind::List, Kind::Map, Kind::SortedMap, Kind::Reducing, Kind::Aggregating];

    /// Whether each written digit expires on its own.
    pub(crate) fn has_elements(self) -> bool {
        matches!(self, Kind::List | Kind::Map | Kind::SortedMap)
    }
}

/// A state under the name `s`.
#[derive(Debug, Clone)]
pub(crate) enum Probe {
    Value(ValueState<u64>),
    List(ListState<u64>),
    Map(MapState<u64, u64>),
    SortedMap(SortedMapState<u64, u64>),
    Reducing(ReducingState<u64>),
    Aggregating(AggregatingState<Join>),
}

impl Probe {
    pub(crate) fn open(kind: Kind, store: &mut Store, ttl: Option<Ttl>) -> Result<Self> {
        Self::named("s", kind, store, ttl)
    }

    pub(crate) fn named(
        name: &str,
        kind: Kind,
        store: &mut Store,
        ttl: Option<Ttl>,
    ) -> Result<Self> {
        // A reduced value holds its elements as decimal digits.
        let digits = |a: u64, b: u64| Ok(a * 10 + b);
        Ok(match (kind, ttl) {
            (Kind::Value, None) => Probe::Value(store.value(name)?),
            (Kind::Value, Some(ttl)) => Probe::Value(store.with_ttl(ttl).value(name)?),
            (Kind::List, None) => Probe::List(store.list(name)?),
            (Kind::List, Some(ttl)) => Probe::List(store.with_ttl(ttl).list(name)?),
            (Kind::Map, None) => Probe::Map(store.map(name)?),
            (Kind::Map, Some(ttl)) => {
                Probe::Map(store.with_ttl(ttl).map_with(name, Ordered, Native)?)
            }
            (Kind::SortedMap, None) => Probe::SortedMap(store.sorted_map(name)?),
            (Kind::SortedMap, Some(ttl)) => Probe::SortedMap(store.with_ttl(ttl).sorted_map(name)?),
            (Kind::Reducing, None) => Probe::Reducing(store.reducing(name, digits)?),
            (Kind::Reducing, Some(ttl)) => {
                Probe::Reducing(store.with_ttl(ttl).reducing(name, digits)?)
            }
            (Kind::Aggregating, None) => Probe::Aggregating(store.aggregating(name, Join)?),
            (Kind::Aggregating, Some(ttl)) => {
                Probe::Aggregating(store.with_ttl(ttl).aggregating(name, Join)?)
            }
        })
    }

    /// Writes a digit: as the value, an element, an entry under itself, or into the fold.
    pub(crate) fn write(&self, store: &mut Store, digit: u64) -> Result<()> {
        match self {
            Probe::Value(state) => state.set(store, &digit),
            Probe::List(state) => state.add(store, &digit),
            Probe::Map(state) => state.put(store, &digit, &digit),
            Probe::SortedMap(state) => state.put(store, &digit, &digit),
            Probe::Reducing(state) => state.add(store, digit).wait().map(drop),
            Probe::Aggregating(state) => state.add(store, digit.to_string()).wait().map(drop),
        }
    }

    /// Writes a digit with a lifetime of its own, where the kind of state has such writes.
    pub(crate) fn write_with_ttl(
        &self,
        store: &mut Store,
        digit: u64,
        lifetime: Duration,
    ) -> Result<()> {
        match self {
            Probe::Value(state) => state.set_with_ttl(store, &digit, lifetime),
            Probe::List(state) => state.add_with_ttl(store, &digit, lifetime),
            Probe::Map(state) => state.put_with_ttl(store, &digit, &digit, lifetime),
            Probe::SortedMap(state) => state.put_with_ttl(store, &digit, &digit, lifetime),
            Probe::Reducing(_) | Probe::Aggregating(_) => panic!("folds have one lifetime"),
        }
    }

    /// The same with an instant.
    pub(crate) fn write_expiring_at(
        &self,
        store: &mut Store,
        digit: u64,
        instant: Millis,
    ) -> Result<()> {
        match self {
            Probe::Value(state) => state.set_expiring_at(store, &digit, instant),
            Probe::List(state) => state.add_expiring_at(store, &digit, instant),
            Probe::Map(state) => state.put_expiring_at(store, &digit, &digit, instant),
            Probe::SortedMap(state) => state.put_expiring_at(store, &digit, &digit, instant),
            Probe::Reducing(_) | Probe::Aggregating(_) => panic!("folds have one lifetime"),
        }
    }

    /// All digits of the current key, in order.
    pub(crate) fn read(&self, store: &mut Store) -> Result<Vec<u64>> {
        let digits = |text: String| -> Vec<u64> {
            let text = text.rsplit(':').next().unwrap_or_default();
            text.bytes().map(|digit| u64::from(digit - b'0')).collect()
        };
        Ok(match self {
            Probe::Value(state) => state.get(store).wait()?.into_iter().collect(),
            Probe::List(state) => state.get(store).wait()?,
            Probe::Map(state) => {
                let entries = state.entries(store).wait()?;
                entries.map(|entry| entry.map(|(key, _)| key)).collect::<Result<_>>()?
            }
            Probe::SortedMap(state) => {
                let entries = state.range(store, .., Order::Descending).wait()?;
                let mut digits: Vec<u64> =
                    entries.map(|entry| entry.map(|(key, _)| key)).collect::<Result<_>>()?;
                digits.reverse();
                digits
            }
            Probe::Reducing(state) => {
                state.get(store).wait()?.map(|n| digits(n.to_string())).unwrap_or_default()
            }
            Probe::Aggregating(state) => state.get(store).wait()?.map(digits).unwrap_or_default(),
        })
    }

    pub(crate) fn clear(&self, store: &mut Store) -> Result<()> {
        match self {
            Probe::Value(state) => state.clear(store),
            Probe::List(state) => state.clear(store),
            Probe::Map(state) => state.clear(store),
            Probe::SortedMap(state) => state.clear(store),
            Probe::Reducing(state) => state.clear(store),
            Probe::Aggregating(state) => state.clear(store),
        }
    }

    /// The same state in a namespace with these encoded bytes.
    pub(crate) fn bind(&self, namespace: &[u8]) -> Self {
        match self {
            Probe::Value(state) => Probe::Value(state.bind(namespace)),
            Probe::List(state) => Probe::List(state.bind(namespace)),
            Probe::Map(state) => Probe::Map(state.bind(namespace)),
            Probe::SortedMap(state) => Probe::SortedMap(state.bind(namespace)),
            Probe::Reducing(state) => Probe::Reducing(state.bind(namespace)),
            Probe::Aggregating(state) => Probe::Aggregating(state.bind(namespace)),
        }
    }
}

/// A lifetime of so many milliseconds.
pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::new(Duration::from_millis(millis))
}

/// The same in a time domain.
pub(crate) fn ttl_in(domain: TimeDomain, millis: u64) -> Ttl {
    match domain {
        TimeDomain::Processing => ttl(millis),
        TimeDomain::Event => ttl(millis).event_time(),
    }
}

pub(crate) const DOMAINS: [TimeDomain; 2] = [TimeDomain::Processing, TimeDomain::Event];

/// How far ahead the time of the domain is that must not matter.
pub(crate) const AHEAD: Millis = 1_000_000;

/// Moves the time of a domain; that of the other one runs far ahead, which must not matter.
pub(crate) fn set_time(h: &Harness<'_>, store: &mut Store, domain: TimeDomain, now: Millis) {
    let ahead = now + AHEAD;
    match domain {
        TimeDomain::Processing => {
            h.clock().set(now);
            store.advance_watermark(ahead);
        }
        TimeDomain::Event => {
            h.clock().set(ahead);
            store.advance_watermark(now);
        }
    }
}
