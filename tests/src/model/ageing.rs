//! States whose values expire, by a clock that the program moves.
//!
//! Values live in processing time and are refreshed by reads, list elements live in processing time,
//! map entries in event time. The watermark is always what the clock shows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_state_api::{ListState, MapState, Millis, Namespaced, Native, Ordered, Ttl, ValueState};

use super::instance::{Checked, Instance, bind, same, text};
use super::job::Job;
use super::oracle::Place;
use super::program::KEYS;
use crate::harness::Store;

/// How long a value lives unless it has a lifetime of its own.
const LIFETIME: Millis = 20;

/// A step on these states. `own`: a lifetime of its own.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Advance { millis: Millis },
    CleanUp { budget: u64 },
    Set { key: usize, ns: u8, value: u64, own: Option<Millis> },
    Update { key: usize, ns: u8, by: u64 },
    Get { key: usize, ns: u8 },
    ClearValue { key: usize, ns: u8 },
    Append { key: usize, ns: u8, elements: Vec<Vec<u8>>, own: Option<Millis> },
    SetList { key: usize, ns: u8, elements: Vec<Vec<u8>> },
    GetList { key: usize, ns: u8 },
    Put { key: usize, ns: u8, entry: i16, value: Vec<u8>, own: Option<Millis> },
    PutAll { key: usize, ns: u8, from: i16, count: i16 },
    Remove { key: usize, ns: u8, entry: i16 },
    GetEntry { key: usize, ns: u8, entry: i16 },
    Entries { key: usize, ns: u8 },
}

/// The handles of an instance.
pub(super) struct Ageing {
    values: Namespaced<ValueState<u64>, u8>,
    lists: Namespaced<ListState<Vec<u8>>, u8>,
    maps: Namespaced<MapState<i16, Vec<u8>>, u8>,
}

impl Ageing {
    pub(super) fn register(store: &mut Store) -> weir_state_api::Result<Self> {
        let ttl = Ttl::new(duration(LIFETIME));
        let (refreshed, by_watermark) = (ttl.refresh_on_read(), ttl.event_time());
        Ok(Ageing {
            values: store.with_ttl(refreshed).namespaced().value("ageing values")?,
            lists: store.with_ttl(ttl).namespaced().list_with("ageing lists", Native)?,
            maps: store.with_ttl(by_watermark).namespaced().map_with(
                "ageing maps",
                Ordered,
                Native,
            )?,
        })
    }
}

/// When something expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Life {
    until: Millis,
    /// Reads do not prolong it.
    is_own: bool,
}

impl Life {
    fn new(now: Millis, own: Option<Millis>) -> Self {
        Life { until: now + own.unwrap_or(LIFETIME), is_own: own.is_some() }
    }
}

/// What the states must hold, what has expired included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lives {
    values: BTreeMap<Place, (Life, u64)>,
    lists: BTreeMap<Place, Vec<(Life, Vec<u8>)>>,
    maps: BTreeMap<Place, BTreeMap<i16, (Life, Vec<u8>)>>,
}

impl Lives {
    /// The live value; a read refreshes it.
    fn read_value(&mut self, place: &Place, now: Millis) -> Option<u64> {
        let (life, value) = self.values.get_mut(place).filter(|(life, _)| life.until > now)?;
        if !life.is_own {
            *life = Life::new(now, None);
        }
        Some(*value)
    }

    fn list(&self, place: &Place, now: Millis) -> Vec<Vec<u8>> {
        let all = self.lists.get(place).into_iter().flatten();
        all.filter(|(life, _)| life.until > now).map(|(_, element)| element.clone()).collect()
    }

    fn map(&self, place: &Place, now: Millis) -> BTreeMap<i16, Vec<u8>> {
        let all = self.maps.get(place).into_iter().flatten();
        all.filter(|(_, (life, _))| life.until > now)
            .map(|(entry, (_, value))| (*entry, value.clone()))
            .collect()
    }

    /// The (key, namespace) pairs of each state, by its name.
    pub(super) fn keys(&self, now: Millis) -> [(&'static str, BTreeSet<Place>); 3] {
        let live = |(_, (life, _)): &(&Place, &(Life, u64))| life.until > now;
        let values = self.values.iter().filter(live).map(|(place, _)| place.clone());
        let lists = self.lists.keys().filter(|place| !self.list(place, now).is_empty());
        let maps = self.maps.keys().filter(|place| !self.map(place, now).is_empty());
        [
            ("ageing values", values.collect()),
            ("ageing lists", lists.cloned().collect()),
            ("ageing maps", maps.cloned().collect()),
        ]
    }
}

impl Job<'_, '_> {
    /// Tells all instances the watermark.
    pub(super) fn tell_time(&mut self) {
        let now = self.harness.now();
        self.instances.iter_mut().for_each(|instance| instance.store.advance_watermark(now));
    }

    pub(super) fn age(&mut self, step: &Step) -> Checked {
        match *step {
            Step::Advance { millis } => {
                self.harness.clock().advance(millis);
                self.tell_time();
                Ok(())
            }
            Step::CleanUp { budget } => self
                .instances
                .iter_mut()
                .try_for_each(|instance| instance.store.clean_up(budget).map(drop).map_err(text)),
            Step::Set { .. } | Step::Update { .. } | Step::Get { .. } | Step::ClearValue { .. } => {
                self.ageing_value(step)
            }
            Step::Append { .. } | Step::SetList { .. } | Step::GetList { .. } => {
                self.ageing_list(step)
            }
            _ => self.ageing_map(step),
        }
    }

    fn ageing_value(&mut self, step: &Step) -> Checked {
        let now = self.harness.now();
        match *step {
            Step::Set { key, ns, value, own } => {
                let (i, oracle, key) = self.at(key)?;
                let state = bind(&i.ageing.values, ns)?;
                match own {
                    None => state.set(&mut i.store, &value),
                    Some(own) => state.set_with_ttl(&mut i.store, &value, duration(own)),
                }
                .map_err(text)?;
                oracle.lives.values.insert((key, ns), (Life::new(now, own), value));
            }
            Step::Update { key, ns, by } => {
                let (i, oracle, key) = self.at(key)?;
                let change = move |old: Option<u64>| old.unwrap_or(0).wrapping_add(by);
                let state = bind(&i.ageing.values, ns)?;
                let new = state.update(&mut i.store, change).wait().map_err(text)?;
                let expected = change(oracle.lives.read_value(&(key.clone(), ns), now));
                oracle.lives.values.insert((key, ns), (Life::new(now, None), expected));
                same("the updated ageing value", new, expected)?;
            }
            Step::Get { key, ns } => {
                let (i, oracle, key) = self.at(key)?;
                let found = bind(&i.ageing.values, ns)?.get(&mut i.store).wait().map_err(text)?;
                same("the ageing value", found, oracle.lives.read_value(&(key, ns), now))?;
            }
            Step::ClearValue { key, ns } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.ageing.values, ns)?.clear(&mut i.store).map_err(text)?;
                oracle.lives.values.remove(&(key, ns));
            }
            _ => {}
        }
        Ok(())
    }

    fn ageing_list(&mut self, step: &Step) -> Checked {
        let now = self.harness.now();
        match *step {
            Step::Append { key, ns, ref elements, own } => {
                let (i, oracle, key) = self.at(key)?;
                let state = bind(&i.ageing.lists, ns)?;
                match own {
                    None => state.add_all(&mut i.store, elements),
                    Some(own) => elements.iter().try_for_each(|element| {
                        state.add_with_ttl(&mut i.store, element, duration(own))
                    }),
                }
                .map_err(text)?;
                let lives = elements.iter().map(|element| (Life::new(now, own), element.clone()));
                oracle.lives.lists.entry((key, ns)).or_default().extend(lives);
            }
            Step::SetList { key, ns, ref elements } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.ageing.lists, ns)?.set(&mut i.store, elements).map_err(text)?;
                let lives = elements.iter().map(|element| (Life::new(now, None), element.clone()));
                oracle.lives.lists.insert((key, ns), lives.collect());
            }
            Step::GetList { key, ns } => {
                let (i, oracle, key) = self.at(key)?;
                let found = bind(&i.ageing.lists, ns)?.get(&mut i.store).wait().map_err(text)?;
                same("the ageing list", found, oracle.lives.list(&(key, ns), now))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn ageing_map(&mut self, step: &Step) -> Checked {
        let now = self.harness.now();
        match *step {
            Step::Put { key, ns, entry, ref value, own } => {
                let (i, oracle, key) = self.at(key)?;
                let state = bind(&i.ageing.maps, ns)?;
                match own {
                    None => state.put(&mut i.store, &entry, value),
                    Some(own) => state.put_with_ttl(&mut i.store, &entry, value, duration(own)),
                }
                .map_err(text)?;
                let life = (Life::new(now, own), value.clone());
                oracle.lives.maps.entry((key, ns)).or_default().insert(entry, life);
            }
            Step::PutAll { key, ns, from, count } => {
                let (i, oracle, key) = self.at(key)?;
                let entries: Vec<_> =
                    (from..from + count).map(|entry| (entry, vec![entry as u8])).collect();
                let pairs = entries.iter().map(|(entry, value)| (entry, value));
                bind(&i.ageing.maps, ns)?.put_all(&mut i.store, pairs).map_err(text)?;
                let lives = entries
                    .into_iter()
                    .map(|(entry, value)| (entry, (Life::new(now, None), value)));
                oracle.lives.maps.entry((key, ns)).or_default().extend(lives);
            }
            Step::Remove { key, ns, entry } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.ageing.maps, ns)?.remove(&mut i.store, &entry).map_err(text)?;
                oracle.lives.maps.entry((key, ns)).or_default().remove(&entry);
            }
            Step::GetEntry { key, ns, entry } => {
                let (i, oracle, key) = self.at(key)?;
                let state = bind(&i.ageing.maps, ns)?;
                let found = state.get(&mut i.store, &entry).wait().map_err(text)?;
                let expected = oracle.lives.map(&(key, ns), now).remove(&entry);
                same("the entry of an ageing map", found, expected)?;
            }
            Step::Entries { key, ns } => {
                let (i, oracle, key) = self.at(key)?;
                let expected = oracle.lives.map(&(key, ns), now);
                same("an ageing map", entries(i, ns)?, expected.into_iter().collect())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Compares every key of these states.
    pub(super) fn check_ageing(&mut self) -> Checked {
        for (key, ns) in (0..KEYS.len()).flat_map(|key| [(key, 0), (key, 1)]) {
            self.age(&Step::Get { key, ns })?;
            self.age(&Step::GetList { key, ns })?;
            self.age(&Step::Entries { key, ns })?;
        }
        Ok(())
    }
}

fn entries(i: &mut Instance, ns: u8) -> Result<Vec<(i16, Vec<u8>)>, String> {
    let entries = bind(&i.ageing.maps, ns)?.entries(&mut i.store).wait();
    entries.and_then(Iterator::collect).map_err(text)
}

fn duration(millis: Millis) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}
