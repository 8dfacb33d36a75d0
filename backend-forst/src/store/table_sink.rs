//! New tables on their way out.

use std::sync::Arc;

use bytes::Bytes;
use weir_state_api::{Error, ErrorKind, Result};

use super::disk_cache::NewFile;
use super::heat::Density;
use super::names::{ObjectKind, ObjectNames};
use super::table::{Table, Tables};
use crate::format::{FinishedTable, TableProperties};

/// Where a new table goes.
#[derive(Debug, Clone)]
pub(crate) enum Destination {
    /// To the store, and to local disk on the way.
    Store(ObjectNames),
    /// To memory, until somebody stores it.
    Memory,
}

/// Takes the bytes of a table as it is written.
///
/// They stay in memory until the store has them: a table is put in one request, which can be repeated
/// as a whole. So a table under construction takes its length of memory, which is bounded where tables
/// are cut.
#[derive(Debug)]
pub(crate) struct TableSink {
    tables: Arc<Tables>,
    destination: Destination,
    parts: Vec<Bytes>,
    local: Option<NewFile>,
}

/// A table that is written.
#[derive(Debug)]
pub(crate) struct NewTable {
    pub(crate) table: Arc<Table>,
    pub(crate) properties: Arc<TableProperties>,
}

impl Tables {
    /// Begins a table of about `expected` bytes. `density` says how much it will be read (for a
    /// compaction: as its inputs were) and so which tables on local disk make way for it; `None`: as the
    /// average.
    pub(crate) fn sink(
        self: &Arc<Self>,
        destination: Destination,
        expected: u64,
        density: Option<Density>,
    ) -> TableSink {
        let disk = match destination {
            Destination::Store(_) => self.caches().disk.as_ref(),
            Destination::Memory => None,
        };
        let local = disk.and_then(|disk| disk.begin(expected, density));
        TableSink { tables: Arc::clone(self), destination, parts: Vec::new(), local }
    }
}

impl TableSink {
    /// Takes what the writer has finished. Writes to local disk, at most.
    pub(crate) fn write(&mut self, bytes: Vec<Bytes>) {
        if let Some(file) = &mut self.local {
            for part in &bytes {
                file.write(part);
            }
        }
        self.parts.extend(bytes);
    }

    /// Takes the rest and puts the table where it belongs. It is open then, its meta in memory.
    ///
    /// # Errors
    /// Those of [`put_new`](super::object_store::ObjectStore::put_new); [`Corrupt`](ErrorKind::Corrupt)
    /// when the bytes have changed in memory. Nothing is left behind but what the store does not tell
    /// of.
    pub(crate) async fn finish(mut self, finished: FinishedTable) -> Result<NewTable> {
        let FinishedTable { ready, length, crc32, meta, properties } = finished;
        self.write(ready);
        let table = match self.destination {
            Destination::Memory => {
                self.tables.open_resident(Bytes::from(self.parts.concat()), meta)?
            }
            Destination::Store(names) => {
                let store = self.tables.store();
                let object = store.put_new(&names, ObjectKind::Table, &self.parts).await?;
                if (object.length, object.crc32) != (length, crc32) {
                    drop(store.delete(&object.path).await);
                    return Err(damaged(&object.path));
                }
                let table = self.tables.open(object, meta);
                // The writer ends a table with one part that is its whole end.
                let tail = self.parts.pop().filter(|part| part.len() == meta.length as usize);
                if let Some(tail) = tail {
                    table.keep_meta(&tail)?;
                }
                if let Some(file) = self.local {
                    file.keep(table.shared.id, &table.shared.heat);
                }
                table
            }
        };
        Ok(NewTable { table, properties: Arc::new(properties) })
    }
}

#[cold]
fn damaged(path: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "a table changed in memory while it was written")
        .object(path)
        .advice("check the machine's memory")
}
