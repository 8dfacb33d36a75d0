//! Tables that are not part of the state any more.
//!
//! The instance's own objects that no handle has named are its to delete; the others are the collector's,
//! and never come back into a handle. Both leave the local disk.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::Table;
use super::TableView;
use crate::lsm::TableId;

/// Which tables handles have named. Shared with the tasks of snapshots.
#[derive(Debug, Default)]
pub(crate) struct NamedByHandles(Mutex<HashSet<TableId>>);

impl NamedByHandles {
    /// A handle names these tables, or is about to.
    pub(crate) fn add(&self, ids: impl IntoIterator<Item = TableId>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
    }

    fn take(&self, id: TableId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }
}

/// Tables that left the version and may still be read by who began before.
#[derive(Debug, Default)]
pub(crate) struct Obsolete {
    tables: Vec<(TableId, Table)>,
}

impl Obsolete {
    /// These tables are gone from the version.
    pub(crate) fn add(&mut self, views: impl IntoIterator<Item = TableView>) {
        self.tables.extend(views.into_iter().map(|view| (view.id(), Arc::clone(view.table()))));
    }

    /// Those that nobody reads any more, each with whether a handle has named it. The others, which are to
    /// be deleted if they are the instance's own, no handle will name.
    pub(crate) fn sweep(&mut self, named: &NamedByHandles) -> Vec<(Table, bool)> {
        if self.tables.is_empty() {
            return Vec::new();
        }
        let (read, unread): (Vec<_>, Vec<_>) = std::mem::take(&mut self.tables)
            .into_iter()
            .partition(|(_, table)| Arc::strong_count(table) > 1);
        self.tables = read;
        unread.into_iter().map(|(id, table)| (table, named.take(id))).collect()
    }
}
