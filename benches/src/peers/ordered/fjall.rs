//! fjall: a log-structured merge tree on the local disk.
//!
//! As its documentation recommends: one database, one keyspace, the default blocks of 4 KiB, which it
//! calls right for point reads, and memtables of at most 64 MiB. Its journal cannot be switched off; it is
//! written when fjall's buffer is full and never synced, because a stream can be read again.

use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use tempfile::TempDir;
use weir_state_api::{Error, Result};

use super::{Ordered, Store};
use crate::backends::{Budget, local_folder};

/// The largest memtable that its documentation recommends.
const MEMTABLE: u64 = 64 << 20;

pub(super) struct Fjall {
    keyspace: Keyspace,
    _database: Database,
    _folder: TempDir,
}

fn failed(error: fjall::Error) -> Error {
    super::failed(Store::Fjall, error)
}

/// Its options, for the report.
pub(super) fn options(budget: Budget) -> String {
    format!(
        "cache_size {} MiB, max_memtable_size {} MiB, manual_journal_persist, the other options by \
         default (blocks of 4 KiB, LZ4 from level 2 on, leveled compaction)",
        budget.cache >> 20,
        budget.writes.min(MEMTABLE) >> 20
    )
}

impl Fjall {
    pub(super) fn open(budget: Budget) -> Result<Self> {
        let folder = local_folder()?;
        let database = Database::builder(folder.path().join("fjall"))
            .cache_size(budget.cache)
            .manual_journal_persist(true)
            .open()
            .map_err(failed)?;
        let options = || {
            KeyspaceCreateOptions::default()
                .manual_journal_persist(true)
                .max_memtable_size(budget.writes.min(MEMTABLE))
        };
        let keyspace = database.keyspace("state", options).map_err(failed)?;
        Ok(Fjall { keyspace, _database: database, _folder: folder })
    }
}

impl Ordered for Fjall {
    fn read(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        if let Some(value) = self.keyspace.get(key).map_err(failed)? {
            found(&value);
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value).map_err(failed)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key).map_err(failed)
    }

    fn scan(&mut self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for entry in self.keyspace.range(from..to) {
            let (key, value) = entry.into_inner().map_err(failed)?;
            each(&key, &value);
        }
        Ok(())
    }

    fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>> {
        let first = self.keyspace.range(from..to).next();
        first.map(|entry| Ok(entry.key().map_err(failed)?.to_vec())).transpose()
    }
}
