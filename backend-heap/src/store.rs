//! The tables of one state: by shape, one per key group.

use weir_state_api::{Error, ErrorKind, KeyGroupRange, StateDescriptor, StateShape};

use crate::keyed_table::FrozenSegments;
use crate::map_table::{MapSlot, MapTable};
use crate::point_slot::PointSlot;
use crate::point_table::PointTable;
use crate::sorted_chunks::SortedChunks;
use crate::timer_queue::{StoredTimer, TimerQueue};

/// A state and its tables.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) descriptor: StateDescriptor,
    pub(crate) tables: Tables,
}

/// Tables by position of the key group in the instance's range.
#[derive(Debug)]
pub(crate) enum Tables {
    Point(Vec<PointTable>),
    Map(Vec<MapTable>),
    Timers(TimerQueue),
}

/// What one key group holds of one state, as it was when a snapshot began.
#[derive(Debug)]
pub(crate) enum FrozenTable {
    Point(FrozenSegments<PointSlot>),
    Map(FrozenSegments<MapSlot>),
    Timers(SortedChunks<StoredTimer>),
}

impl State {
    /// An empty state over the key groups.
    pub(crate) fn new(descriptor: StateDescriptor, key_groups: KeyGroupRange) -> Self {
        let groups = key_groups.len();
        let tables = match descriptor.kind.shape() {
            StateShape::Point => Tables::Point(default_tables(groups)),
            StateShape::Ordered => Tables::Map(default_tables(groups)),
            StateShape::Queue => Tables::Timers(TimerQueue::new(groups)),
        };
        State { descriptor, tables }
    }

    /// Shares what a key group holds; `None` when that is nothing.
    pub(crate) fn freeze(&mut self, group: usize) -> Option<FrozenTable> {
        match &mut self.tables {
            Tables::Point(tables) => {
                (tables[group].len() > 0).then(|| FrozenTable::Point(tables[group].freeze()))
            }
            Tables::Map(tables) => {
                (tables[group].len() > 0).then(|| FrozenTable::Map(tables[group].freeze()))
            }
            Tables::Timers(queue) => {
                let timers = queue.freeze(group);
                (!timers.is_empty()).then_some(FrozenTable::Timers(timers))
            }
        }
    }

    /// Physical entries over all key groups.
    pub(crate) fn entries(&self) -> u64 {
        let entries: usize = match &self.tables {
            Tables::Point(tables) => tables.iter().map(PointTable::entries).sum(),
            Tables::Map(tables) => tables.iter().map(MapTable::entries).sum(),
            Tables::Timers(queue) => queue.len(),
        };
        entries as u64
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let bytes: usize = match &self.tables {
            Tables::Point(tables) => {
                tables.iter().map(|table| size_of::<PointTable>() + table.memory_bytes()).sum()
            }
            Tables::Map(tables) => {
                tables.iter().map(|table| size_of::<MapTable>() + table.memory_bytes()).sum()
            }
            Tables::Timers(queue) => queue.memory_bytes(),
        };
        bytes as u64
    }

    /// The error for a call that does not fit the state's kind.
    #[cold]
    pub(crate) fn misused(&self, call: &str) -> Error {
        Error::new(
            ErrorKind::InvalidUsage,
            format!("{call} does not work on a state of kind {}", self.descriptor.kind),
        )
        .state(&self.descriptor.name)
        .advice("use the calls of the kind that the state was registered with")
    }
}

fn default_tables<T: Default>(groups: usize) -> Vec<T> {
    std::iter::repeat_with(T::default).take(groups).collect()
}
