//! Accesses in the default namespace while the writer alone holds the segment: the most common path, kept
//! free of everything that the others need.

use weir_state_api::{Address, KeyGroupRange};

use crate::backend::HeapBackend;
use crate::map_table::MapTable;
use crate::point_slot::PointSlot;
use crate::point_table::PointTable;
use crate::store::{State, Tables};

impl HeapBackend {
    /// The table for a point access in the default namespace; `None` for all else, be it right or
    /// wrong.
    #[inline(always)]
    pub(crate) fn plain_point_table(&self, at: &Address<'_>) -> Option<&PointTable> {
        let group = self.request.key_groups.index_of(at.key.group())?;
        match &self.states.get(at.state.index())?.tables {
            Tables::Point(tables) if at.namespace.is_empty() => tables.get(group),
            _ => None,
        }
    }

    /// Whether such an access reads without a lock. Apart from the read: what is lent may borrow the
    /// instance only where nothing else is tried afterwards.
    #[inline(always)]
    pub(crate) fn is_plain_readable(&self, at: &Address<'_>) -> bool {
        self.plain_point_table(at).is_some_and(|table| {
            table.cell(at.key.hash()).is_none_or(|cell| cell.readable().is_some())
        })
    }

    /// The table for writing in such an access.
    #[inline(always)]
    pub(crate) fn plain_point_table_mut(&mut self, at: &Address<'_>) -> Option<&mut PointTable> {
        let group = self.request.key_groups.index_of(at.key.group())?;
        match &mut self.states.get_mut(at.state.index())?.tables {
            Tables::Point(tables) if at.namespace.is_empty() => tables.get_mut(group),
            _ => None,
        }
    }

    /// The table for such an access to a map state.
    #[inline(always)]
    pub(crate) fn plain_map_table(&self, at: &Address<'_>) -> Option<&MapTable> {
        let group = self.request.key_groups.index_of(at.key.group())?;
        match &self.states.get(at.state.index())?.tables {
            Tables::Map(tables) if at.namespace.is_empty() => tables.get(group),
            _ => None,
        }
    }

    /// See [`is_plain_readable`](HeapBackend::is_plain_readable).
    #[inline(always)]
    pub(crate) fn is_plain_map_readable(&self, at: &Address<'_>) -> bool {
        self.plain_map_table(at).is_some_and(|table| {
            table.cell(at.key.hash()).is_none_or(|cell| cell.readable().is_some())
        })
    }

    /// The table for writing in such an access to a map state.
    #[inline(always)]
    pub(crate) fn plain_map_table_mut(&mut self, at: &Address<'_>) -> Option<&mut MapTable> {
        let group = self.request.key_groups.index_of(at.key.group())?;
        match &mut self.states.get_mut(at.state.index())?.tables {
            Tables::Map(tables) if at.namespace.is_empty() => tables.get_mut(group),
            _ => None,
        }
    }
}

/// The slot for an access in the default namespace with a key of one word, if it exists, the writer
/// alone holds it and it holds its content.
#[inline(always)]
pub(crate) fn plain_word_slot<'s>(
    states: &'s mut [State],
    owned: KeyGroupRange,
    at: &Address<'_>,
) -> Option<&'s mut PointSlot> {
    let group = owned.index_of(at.key.group())?;
    match &mut states.get_mut(at.state.index())?.tables {
        Tables::Point(tables) if at.namespace.is_empty() => {
            tables.get_mut(group)?.find_word_mut(at.key)
        }
        _ => None,
    }
}
