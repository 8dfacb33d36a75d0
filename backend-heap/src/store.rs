//! The tables of one state: by shape, one per key group.

use weir_state_api::{KeyGroupRange, StateDescriptor, StateShape};

use crate::clean_up::Cursor;
use crate::keyed_table::{KeyedTable, Slot, TableView};
use crate::map_slot::MapSlot;
use crate::map_table::MapTable;
use crate::point_slot::PointSlot;
use crate::point_table::PointTable;
use crate::sorted_chunks::SortedChunks;
use crate::stored_timer::StoredTimer;
use crate::timer_group::FrozenTimers;
use crate::timer_queue::TimerQueue;

/// A state and its tables.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) descriptor: StateDescriptor,
    pub(crate) tables: Tables,
    /// Where clean-up goes on.
    pub(crate) cursor: Cursor,
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
pub(crate) enum PinnedTable {
    Point(TableView<PointSlot>),
    Map(TableView<MapSlot>),
    /// Always all of them.
    Timers(FrozenTimers),
}

/// What one key group holds of one state, apart from the others: a restore fills it aside.
#[derive(Debug)]
pub(crate) enum GroupTable {
    Point(PointTable),
    Map(MapTable),
    Timers(SortedChunks<StoredTimer>),
}

impl PinnedTable {
    /// Whether it is all that the key group holds, not only what changed.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            PinnedTable::Point(table) => table.extent.base().is_none(),
            PinnedTable::Map(table) => table.extent.base().is_none(),
            PinnedTable::Timers(_) => true,
        }
    }
}

impl State {
    /// Takes out what a key group holds.
    pub(crate) fn take_group(&mut self, group: usize) -> GroupTable {
        match &mut self.tables {
            Tables::Point(tables) => {
                let epoch = tables[group].epoch();
                let empty = KeyedTable::new(epoch);
                GroupTable::Point(std::mem::replace(&mut tables[group], empty))
            }
            Tables::Map(tables) => {
                let epoch = tables[group].epoch();
                let empty = KeyedTable::new(epoch);
                GroupTable::Map(std::mem::replace(&mut tables[group], empty))
            }
            Tables::Timers(queue) => GroupTable::Timers(queue.replace(group, SortedChunks::Empty)),
        }
    }

    /// Puts back what was taken out.
    pub(crate) fn put_group(&mut self, group: usize, table: GroupTable) {
        match (&mut self.tables, table) {
            (Tables::Point(tables), GroupTable::Point(table)) => tables[group] = table,
            (Tables::Map(tables), GroupTable::Map(table)) => tables[group] = table,
            (Tables::Timers(queue), GroupTable::Timers(timers)) => {
                queue.replace(group, timers);
            }
            _ => unreachable!("the shape of a state does not change"),
        }
    }

    /// An empty state over the key groups, in this epoch.
    pub(crate) fn new(descriptor: StateDescriptor, key_groups: KeyGroupRange, epoch: u32) -> Self {
        let groups = key_groups.len();
        let tables = match descriptor.kind.shape() {
            StateShape::Point => Tables::Point(empty_tables(groups, epoch)),
            StateShape::Ordered => Tables::Map(empty_tables(groups, epoch)),
            StateShape::Queue => Tables::Timers(TimerQueue::new(groups, epoch)),
        };
        State { descriptor, tables, cursor: Cursor::default() }
    }

    /// Shares what a key group holds: everything, or what changed after the epoch `base`. `None` when
    /// that is nothing. The epoch is over.
    pub(crate) fn pin(&mut self, group: usize, base: Option<u32>) -> Option<PinnedTable> {
        match &mut self.tables {
            Tables::Point(tables) => pin_table(&mut tables[group], base).map(PinnedTable::Point),
            Tables::Map(tables) => pin_table(&mut tables[group], base).map(PinnedTable::Map),
            Tables::Timers(queue) => {
                let changed = base.is_none_or(|base| queue.changed_after(group, base));
                let timers = queue.freeze(group);
                let wanted = changed && (base.is_some() || !timers.are_none());
                wanted.then_some(PinnedTable::Timers(timers))
            }
        }
    }

    /// Begins an epoch, once all key groups are pinned or restored.
    pub(crate) fn begin_epoch(&mut self, epoch: u32) {
        match &mut self.tables {
            Tables::Point(tables) => tables.iter_mut().for_each(|table| table.begin_epoch(epoch)),
            Tables::Map(tables) => tables.iter_mut().for_each(|table| table.begin_epoch(epoch)),
            Tables::Timers(queue) => queue.begin_epoch(epoch),
        }
    }

    /// See [`KeyedTable::record_removals`].
    pub(crate) fn record_removals(&mut self) {
        match &mut self.tables {
            Tables::Point(tables) => tables.iter_mut().for_each(KeyedTable::record_removals),
            Tables::Map(tables) => tables.iter_mut().for_each(KeyedTable::record_removals),
            Tables::Timers(_) => {}
        }
    }

    /// See [`KeyedTable::forget_up_to`].
    pub(crate) fn forget_up_to(&mut self, base: u32) {
        match &mut self.tables {
            Tables::Point(tables) => tables.iter_mut().for_each(|table| table.forget_up_to(base)),
            Tables::Map(tables) => tables.iter_mut().for_each(|table| table.forget_up_to(base)),
            Tables::Timers(_) => {}
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
}

fn empty_tables<S: Slot>(groups: usize, epoch: u32) -> Vec<KeyedTable<S>> {
    std::iter::repeat_with(|| KeyedTable::new(epoch)).take(groups).collect()
}

fn pin_table<S: Slot>(table: &mut KeyedTable<S>, base: Option<u32>) -> Option<TableView<S>> {
    // A table that is empty in a snapshot of its own is not mentioned there.
    let nothing = table.len() == 0 && base.is_none();
    let view = table.pin(base);
    (!nothing).then_some(view)
}
