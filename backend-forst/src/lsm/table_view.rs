//! What a version sees of a table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_state_api::KeyGroupRange;

use crate::format::TableProperties;

/// Which table, within this process. Several views of one table have one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TableId(u64);

impl TableId {
    /// An id that no other table has.
    pub(crate) fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        TableId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A table, or the part of it that lies in a range of key groups: what lies outside is never looked
/// at. `T` is how the table is read.
#[derive(Debug, Clone)]
pub(crate) struct TableView<T> {
    id: TableId,
    table: T,
    properties: Arc<TableProperties>,
    length: u64,
    visible: KeyGroupRange,
    /// The first key that it says something about, and the first behind.
    bounds: Arc<Bounds>,
}

/// From a key up to and without another.
type Bounds = (Box<[u8]>, Box<[u8]>);

impl<T> TableView<T> {
    /// A whole table; `length` is that of its file in bytes.
    pub(crate) fn new(
        id: TableId,
        table: T,
        properties: Arc<TableProperties>,
        length: u64,
    ) -> TableView<T> {
        let visible = properties.groups();
        let bounds = Arc::new(bounds(&properties, visible));
        TableView { id, table, properties, length, visible, bounds }
    }

    pub(crate) fn id(&self) -> TableId {
        self.id
    }

    pub(crate) fn table(&self) -> &T {
        &self.table
    }

    /// What is in the whole table.
    pub(crate) fn properties(&self) -> &Arc<TableProperties> {
        &self.properties
    }

    /// The length of the whole file.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The key groups that are looked at.
    pub(crate) fn visible(&self) -> KeyGroupRange {
        self.visible
    }

    /// The first key that it says something about: of an entry or a range delete.
    pub(crate) fn first_key(&self) -> &[u8] {
        &self.bounds.0
    }

    /// Behind all keys that it says something about.
    pub(crate) fn end_key(&self) -> &[u8] {
        &self.bounds.1
    }

    #[cfg(test)]
    /// Whether it may say something about a key.
    #[inline]
    pub(crate) fn spans(&self, key: &[u8]) -> bool {
        self.first_key() <= key && key < self.end_key()
    }

    pub(crate) fn overlaps<U>(&self, other: &TableView<U>) -> bool {
        self.first_key() < other.end_key() && other.first_key() < self.end_key()
    }

    /// About how many bytes of the file lie in these key groups, if all groups have equal shares.
    pub(crate) fn bytes_in(&self, groups: KeyGroupRange) -> u64 {
        let whole = self.properties.groups().len().max(1) as u128;
        let seen = self.visible.intersection(groups).len() as u128;
        (u128::from(self.length) * seen / whole) as u64 // at most the length
    }

    /// What share of the file is looked at, in percent, by the same measure.
    pub(crate) fn visible_percent(&self) -> u64 {
        self.visible.len() as u64 * 100 / self.properties.groups().len().max(1) as u64
    }

    /// Deletes and range deletes in the whole table.
    pub(crate) fn deletes(&self) -> u64 {
        let points: u64 = self.properties.states.iter().map(|of| of.deletes).sum();
        points + self.properties.range_deletes
    }

    /// The same table through another handle: it has been moved to the store.
    pub(crate) fn with_table<U>(self, table: U) -> TableView<U> {
        let TableView { id, table: _, properties, length, visible, bounds } = self;
        TableView { id, table, properties, length, visible, bounds }
    }
}

impl<T: Clone> TableView<T> {
    /// The part in these key groups; `None` when there is nothing.
    pub(crate) fn clipped(&self, groups: KeyGroupRange) -> Option<TableView<T>> {
        let visible = self.visible.intersection(groups);
        if visible == self.visible {
            return Some(self.clone());
        }
        let bounds = bounds(&self.properties, visible);
        if visible.is_empty() || bounds.0 >= bounds.1 {
            return None;
        }
        Some(TableView { visible, bounds: Arc::new(bounds), ..self.clone() })
    }

    /// The parts before and behind these key groups.
    pub(crate) fn without(&self, groups: KeyGroupRange) -> impl Iterator<Item = TableView<T>> {
        let hole = self.visible.intersection(groups);
        let parts = if hole.is_empty() {
            [self.visible, KeyGroupRange::EMPTY]
        } else {
            let ((start, end), (hole_start, hole_end)) = (span(self.visible), span(hole));
            [groups_between(start, hole_start), groups_between(hole_end, end)]
        };
        parts.into_iter().filter_map(|part| self.clipped(part))
    }

    /// This view and the next of the same table as one, when no key group lies between them.
    pub(crate) fn joined(&self, next: &TableView<T>) -> Option<TableView<T>> {
        let ((start, end), (next_start, next_end)) = (span(self.visible), span(next.visible));
        if self.id != next.id || end != next_start {
            return None;
        }
        let visible = groups_between(start, next_end);
        let bounds = Arc::new(bounds(&self.properties, visible));
        Some(TableView { visible, bounds, ..self.clone() })
    }
}

/// The first group of a range, and the one behind its last.
pub(crate) fn span(groups: KeyGroupRange) -> (u16, u16) {
    let start = groups.first().0;
    (start, start + groups.len() as u16) // both ends of a range are u16
}

/// The groups from `start` up to and without `end`.
pub(crate) fn groups_between(start: u16, end: u16) -> KeyGroupRange {
    match end.checked_sub(1) {
        Some(last) => KeyGroupRange::new(start, last),
        None => KeyGroupRange::EMPTY,
    }
}

/// Where the stored keys of a range of key groups begin, and where they end.
pub(crate) fn key_bounds(groups: KeyGroupRange) -> ([u8; 2], [u8; 2]) {
    let (start, end) = span(groups);
    (start.to_be_bytes(), end.to_be_bytes())
}

fn bounds(properties: &TableProperties, visible: KeyGroupRange) -> Bounds {
    let (from, to) = key_bounds(visible);
    let first = properties.first_key.as_ref().max(from.as_slice());
    let end = properties.end_key.as_ref().min(to.as_slice());
    (first.into(), end.into())
}
