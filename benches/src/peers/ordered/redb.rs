//! redb: a copy-on-write B+ tree in one local file.
//!
//! Its documentation asks for few and large write transactions, and offers commits that wait for no
//! disk. So a transaction takes many writes, reads see what it has written, and no commit is durable: a
//! stream can be read again.

use redb::{
    Builder, Database, Durability, ReadableTable, Table, TableDefinition, WriteTransaction,
};
use self_cell::self_cell;
use tempfile::TempDir;
use weir_state_api::{Error, ErrorKind, Result};

use super::{Ordered, Store};
use crate::backends::{Budget, local_folder};

/// Writes until a commit: about a checkpoint of a busy task each second.
pub(super) const WRITES_IN_TRANSACTION: u32 = 100_000;

const STATE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("state");

type OpenTable<'t> = Table<'t, &'static [u8], &'static [u8]>;

self_cell!(
    /// A transaction with its table, which would cost a look-up by name for each access.
    struct Transaction {
        owner: WriteTransaction,
        #[not_covariant]
        dependent: OpenTable,
    }
);

pub(super) struct Redb {
    /// There is always one, unless a commit has failed.
    transaction: Option<Transaction>,
    writes: u32,
    database: Database,
    _folder: TempDir,
}

fn failed(error: impl Into<redb::Error>) -> Error {
    super::failed(Store::Redb, error.into())
}

/// Its options, for the report.
pub(super) fn options(budget: Budget) -> String {
    format!(
        "set_cache_size {} MiB, {WRITES_IN_TRANSACTION} writes in a transaction, Durability::None, one \
         table from bytes to bytes, the other options by default",
        budget.bytes() >> 20
    )
}

impl Redb {
    pub(super) fn open(budget: Budget) -> Result<Self> {
        let folder = local_folder()?;
        let path = folder.path().join("state.redb");
        let cache = budget.bytes() as usize;
        let database = Builder::new().set_cache_size(cache).create(path).map_err(failed)?;
        let transaction = Some(begin(&database)?);
        Ok(Redb { transaction, writes: 0, database, _folder: folder })
    }

    fn with_table<R>(
        &mut self,
        access: impl FnOnce(&mut OpenTable<'_>) -> Result<R, redb::StorageError>,
    ) -> Result<R> {
        let transaction = self.transaction.as_mut().ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "redb has no transaction after a failed commit")
        })?;
        transaction.with_dependent_mut(|_, table| access(table)).map_err(failed)
    }

    fn has_written(&mut self) -> Result<()> {
        self.writes += 1;
        if self.writes == WRITES_IN_TRANSACTION {
            self.writes = 0;
            if let Some(transaction) = self.transaction.take() {
                transaction.into_owner().commit().map_err(failed)?;
            }
            self.transaction = Some(begin(&self.database)?);
        }
        Ok(())
    }
}

fn begin(database: &Database) -> Result<Transaction> {
    let mut transaction = database.begin_write().map_err(failed)?;
    transaction.set_durability(Durability::None).map_err(failed)?;
    Transaction::try_new(transaction, |transaction| transaction.open_table(STATE)).map_err(failed)
}

impl Ordered for Redb {
    fn read(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.with_table(|table| {
            if let Some(value) = table.get(key)? {
                found(value.value());
            }
            Ok(())
        })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.with_table(|table| table.insert(key, value).map(drop))?;
        self.has_written()
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.with_table(|table| table.remove(key).map(drop))?;
        self.has_written()
    }

    fn scan(&mut self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.with_table(|table| {
            for entry in table.range(from..to)? {
                let (key, value) = entry?;
                each(key.value(), value.value());
            }
            Ok(())
        })
    }

    fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>> {
        self.with_table(|table| {
            let first = table.range(from..to)?.next();
            first.map(|entry| Ok(entry?.0.value().to_vec())).transpose()
        })
    }
}
