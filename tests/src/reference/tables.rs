//! All state of an instance, as plain ordered maps.

use std::collections::BTreeMap;

use super::ttl::Cursor;
use serde::{Deserialize, Serialize};
use weir_state_api::{
    Error, ErrorKind, KeyGroup, KeyGroupRange, Millis, Result, StateDescriptor, StateId,
    StateShape, unknown_state,
};

/// Key group, key, namespace.
pub(super) type Place = (KeyGroup, Vec<u8>, Vec<u8>);

/// Time, key, namespace, key group: the order in which timers come due.
pub(super) type TimerEntry = (Millis, Vec<u8>, Vec<u8>, KeyGroup);

/// The entries of a map.
pub(super) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// What one state holds, by shape.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Content {
    Point(BTreeMap<Place, Vec<u8>>),
    Ordered(BTreeMap<Place, Entries>),
    /// How often each timer is registered: once, unless a defect is planted.
    Queue(BTreeMap<TimerEntry, u32>),
}

impl Content {
    /// Divided by key group.
    pub(super) fn by_group(&self) -> BTreeMap<KeyGroup, Content> {
        let mut parts = BTreeMap::new();
        match self {
            Content::Point(values) => {
                for (place, value) in values {
                    let part = parts.entry(place.0).or_insert(Content::Point(BTreeMap::new()));
                    if let Content::Point(part) = part {
                        part.insert(place.clone(), value.clone());
                    }
                }
            }
            Content::Ordered(maps) => {
                for (place, map) in maps {
                    let part = parts.entry(place.0).or_insert(Content::Ordered(BTreeMap::new()));
                    if let Content::Ordered(part) = part {
                        part.insert(place.clone(), map.clone());
                    }
                }
            }
            Content::Queue(timers) => {
                for (timer, count) in timers {
                    let part = parts.entry(timer.3).or_insert(Content::Queue(BTreeMap::new()));
                    if let Content::Queue(part) = part {
                        part.insert(timer.clone(), *count);
                    }
                }
            }
        }
        parts
    }

    /// The key groups that have data.
    pub(super) fn groups(&self) -> Vec<KeyGroup> {
        match self {
            Content::Point(values) => values.keys().map(|place| place.0).collect(),
            Content::Ordered(maps) => maps.keys().map(|place| place.0).collect(),
            Content::Queue(timers) => timers.keys().map(|timer| timer.3).collect(),
        }
    }
}

/// One state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Table {
    pub(super) descriptor: StateDescriptor,
    pub(super) content: Content,
    /// Whether it was registered since the instance was opened.
    #[serde(skip)]
    pub(super) registered: bool,
    /// Where clean-up goes on.
    #[serde(skip)]
    pub(super) cursor: Cursor,
}

impl Table {
    pub(super) fn new(descriptor: StateDescriptor) -> Self {
        let content = match descriptor.kind.shape() {
            StateShape::Point => Content::Point(BTreeMap::new()),
            StateShape::Ordered => Content::Ordered(BTreeMap::new()),
            StateShape::Queue => Content::Queue(BTreeMap::new()),
        };
        Table { descriptor, content, registered: false, cursor: None }
    }

    /// Adds what `other` holds for the given groups.
    pub(super) fn absorb(&mut self, other: Content, wanted: impl Fn(KeyGroup) -> bool) {
        match (&mut self.content, other) {
            (Content::Point(mine), Content::Point(theirs)) => {
                mine.extend(theirs.into_iter().filter(|(place, _)| wanted(place.0)));
            }
            (Content::Ordered(mine), Content::Ordered(theirs)) => {
                mine.extend(theirs.into_iter().filter(|(place, _)| wanted(place.0)));
            }
            (Content::Queue(mine), Content::Queue(theirs)) => {
                mine.extend(theirs.into_iter().filter(|(timer, _)| wanted(timer.3)));
            }
            _ => {}
        }
    }

    /// The key groups that have data.
    pub(super) fn groups(&self) -> Vec<KeyGroup> {
        self.content.groups()
    }

    pub(super) fn entries(&self) -> u64 {
        let count = match &self.content {
            Content::Point(values) => values.len(),
            Content::Ordered(maps) => maps.values().map(BTreeMap::len).sum(),
            Content::Queue(timers) => timers.len(),
        };
        count as u64
    }
}

/// All states of an instance; the position is the [`StateId`].
#[derive(Debug, Clone, Default)]
pub(super) struct Tables(pub(super) Vec<Table>);

impl Tables {
    pub(super) fn get(&self, state: StateId) -> Result<&Table> {
        self.0.get(state.index()).ok_or_else(|| unknown_state(state))
    }

    pub(super) fn get_mut(&mut self, state: StateId) -> Result<&mut Table> {
        self.0.get_mut(state.index()).ok_or_else(|| unknown_state(state))
    }

    pub(super) fn timers(&mut self, state: StateId) -> Result<&mut BTreeMap<TimerEntry, u32>> {
        match &mut self.get_mut(state)?.content {
            Content::Queue(timers) => Ok(timers),
            _ => Err(wrong_shape(state, "no timer queue")),
        }
    }

    pub(super) fn content_mut(&mut self, state: StateId) -> Result<&mut Content> {
        Ok(&mut self.get_mut(state)?.content)
    }

    pub(super) fn covered(&self) -> KeyGroupRange {
        let groups: Vec<_> = self.0.iter().flat_map(Table::groups).collect();
        match (groups.iter().min(), groups.iter().max()) {
            (Some(first), Some(last)) => KeyGroupRange::new(first.0, last.0),
            _ => KeyGroupRange::EMPTY,
        }
    }
}

pub(super) fn wrong_shape(state: StateId, what: &str) -> Error {
    Error::new(ErrorKind::InvalidUsage, format!("state {} is {what}", state.0))
}
