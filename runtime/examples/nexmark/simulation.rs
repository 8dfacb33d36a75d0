//! Keyed state, timers and unruly arrival, in memory: what the tests of the queries run on.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Event, Millis};
use super::generator::{Position, Settings, Split};

/// The state and the timers of one operator.
pub(crate) struct Keyed<K, S> {
    states: BTreeMap<K, S>,
    timers: BTreeSet<(Millis, K)>,
    watermark: Millis,
}

impl<K: Ord + Clone, S: Default> Keyed<K, S> {
    /// No state, no timers.
    pub(crate) fn new() -> Self {
        Keyed { states: BTreeMap::new(), timers: BTreeSet::new(), watermark: Millis::MIN }
    }

    /// Changes the state of a key and sets the timers that the change asks for.
    pub(crate) fn update<T: IntoIterator<Item = Millis>>(
        &mut self,
        key: &K,
        change: impl FnOnce(&mut S) -> T,
    ) {
        for timer in change(self.states.entry(key.clone()).or_default()) {
            assert!(timer > self.watermark, "timer {timer} is late at {}", self.watermark);
            self.timers.insert((timer, key.clone()));
        }
    }

    /// Fires the timers up to the watermark in order of time. `fire` says whether the key still has
    /// state.
    pub(crate) fn advance(
        &mut self,
        watermark: Millis,
        mut fire: impl FnMut(Millis, &K, &mut S) -> Remains,
    ) {
        self.watermark = watermark;
        while let Some((time, key)) = self.timers.pop_first() {
            if time > watermark {
                self.timers.insert((time, key));
                break;
            }
            if let Some(state) = self.states.get_mut(&key)
                && fire(time, &key, state) == Remains::Nothing
            {
                self.states.remove(&key);
            }
        }
    }

    /// Whether all state is gone.
    pub(crate) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }
}

/// What a fired timer leaves of the state.
#[derive(PartialEq, Eq)]
pub(crate) enum Remains {
    /// The key can be forgotten.
    Nothing,
    /// The key has state still.
    Something,
}

/// An event on its way into an operator.
pub(crate) struct Arrival {
    /// Its time.
    pub(crate) time: Millis,
    /// The event.
    pub(crate) event: Event,
    /// The operator's watermark after it.
    pub(crate) watermark: Millis,
}

/// Two event sets, and of each several arrivals: from one split in order up to several splits that
/// are out of order and read unevenly.
pub(crate) fn event_sets() -> Vec<EventSet> {
    // A slow one with long sessions and auctions, and one with many events per window.
    [500, 2_000].map(EventSet::generate).into()
}

/// One event set.
pub(crate) struct EventSet {
    /// In the order of their numbers.
    pub(crate) events: Vec<(Millis, Event)>,
    /// Ways in which they arrive.
    pub(crate) arrivals: Vec<Vec<Arrival>>,
}

impl EventSet {
    fn generate(events_per_second: u32) -> Self {
        let settings = Settings { events_per_second, ..Settings::new(60_000) };
        let events = Split::open(&settings, Position::start(0, 1)).unwrap().collect();
        let arrivals = [(1, 1), (1, 3), (1000, 1), (5000, 4)]
            .map(|(disorder, of)| arrive(&Settings { disorder, ..settings.clone() }, of));
        EventSet { events, arrivals: arrivals.into() }
    }
}

/// Reads the splits in bursts, so that some are far ahead of others.
fn arrive(settings: &Settings, of: u64) -> Vec<Arrival> {
    let mut splits: Vec<_> =
        (0..of).map(|index| Split::open(settings, Position::start(index, of)).unwrap()).collect();
    let mut arrivals = Vec::new();
    for turn in 0_usize.. {
        let burst = turn * 997 % 613;
        for _ in 0..burst {
            let split = turn % splits.len();
            let Some((time, event)) = splits[split].next() else { break };
            let watermark = splits.iter().map(Split::watermark).min().unwrap();
            arrivals.push(Arrival { time, event, watermark });
        }
        if splits.iter().all(|split| split.watermark() == Millis::MAX) {
            break;
        }
    }
    arrivals
}
