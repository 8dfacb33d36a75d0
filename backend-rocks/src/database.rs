//! One RocksDB database: opening, writing without a log, reading, walking.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use rocksdb::{
    ColumnFamily, DB, DBPinnableSlice, DBRawIteratorWithThreadMode, ErrorKind as ErrorKindOfRocks,
    Options, ReadOptions, WriteBatch, WriteOptions,
};
use self_cell::self_cell;
use weir_state_api::{Error, ErrorKind, KeyGroupRange, Order, Result, StateShape};

use crate::column_families::{DatabaseOptions, SHAPES, family_name};
use crate::eras::Eras;
use crate::error;
use crate::options::RocksOptions;
use crate::work_directory::WorkDirectory;

/// Entries of a range that are deleted one by one; the rest of a larger one is deleted by one range
/// tombstone. Few tombstones of single keys are cheaper than one of a range, which each later read of
/// the write buffer has to look at.
const MAX_SINGLE_DELETES: usize = 1_024;

/// Its column families, looked up by name once and not at each access.
struct Families<'d> {
    points: &'d ColumnFamily,
    maps: &'d ColumnFamily,
    timers: &'d ColumnFamily,
}

impl<'d> Families<'d> {
    fn of(db: &'d DB) -> Result<Self> {
        let find = |shape| {
            let name = family_name(shape);
            db.cf_handle(name).ok_or_else(|| {
                let what = format!("the database lacks the column family {name}");
                Error::new(ErrorKind::Closed, what)
            })
        };
        Ok(Families {
            points: find(StateShape::Point)?,
            maps: find(StateShape::Ordered)?,
            timers: find(StateShape::Queue)?,
        })
    }
}

self_cell!(
    struct Opened {
        owner: DB,
        #[covariant]
        dependent: Families,
    }
);

/// An open database. Its folder lives as long as anything uses it.
pub(crate) struct Database {
    opened: Opened,
    path: PathBuf,
    write: WriteOptions,
    read: ReadOptions,
    /// What holds the statistics, when they are on.
    statistics: Option<Options>,
    eras: Arc<Eras>,
    _directory: Arc<WorkDirectory>,
}

impl Database {
    /// Opens the database in `path`, which lies in `directory`; an empty one if nothing is there.
    ///
    /// It keeps the state of `groups`; what else it holds goes with compactions. Without
    /// `compactions` none starts before [`start_compactions`](Database::start_compactions).
    pub(crate) fn open(
        path: PathBuf,
        options: &RocksOptions,
        groups: KeyGroupRange,
        eras: Arc<Eras>,
        compactions: bool,
        directory: Arc<WorkDirectory>,
    ) -> Result<Self> {
        let DatabaseOptions { database, families } =
            DatabaseOptions::new(options, groups, &eras, compactions)?;
        let db = DB::open_cf_descriptors(&database, &path, families)
            .map_err(|source| error::rocks("open a database", source))?;
        let opened = Opened::try_new(db, |db| Families::of(db))?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let read = ReadOptions::default();
        let statistics = options.statistics.then_some(database);
        Ok(Database { opened, path, write, read, statistics, eras, _directory: directory })
    }

    /// How its values are to be read.
    #[inline]
    pub(crate) fn eras(&self) -> &Eras {
        &self.eras
    }

    #[inline]
    pub(crate) fn rocks(&self) -> &DB {
        self.opened.borrow_owner()
    }

    #[inline]
    pub(crate) fn family(&self, shape: StateShape) -> &ColumnFamily {
        let families = self.opened.borrow_dependent();
        match shape {
            StateShape::Point => families.points,
            StateShape::Ordered => families.maps,
            StateShape::Queue => families.timers,
        }
    }

    /// Reads without copying what is in the block cache.
    #[inline]
    pub(crate) fn get(
        &self,
        family: StateShape,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'_>>> {
        let found = self.rocks().get_pinned_cf_opt(self.family(family), key, &self.read);
        found.map_err(|source| error::rocks("read", source))
    }

    /// Reads many keys of one family at once.
    pub(crate) fn multi_get(
        &self,
        family: StateShape,
        keys: &[&[u8]],
    ) -> Result<Vec<Result<Option<DBPinnableSlice<'_>>>>> {
        let family = self.family(family);
        let found =
            self.rocks().batched_multi_get_cf_opt(family, keys.iter().copied(), false, &self.read);
        let typed = |found: Result<_, _>| found.map_err(|source| error::rocks("read", source));
        Ok(found.into_iter().map(typed).collect())
    }

    #[inline]
    pub(crate) fn put(&self, family: StateShape, key: &[u8], value: &[u8]) -> Result<()> {
        let done = self.rocks().put_cf_opt(self.family(family), key, value, &self.write);
        done.map_err(|source| error::rocks("write", source))
    }

    #[inline]
    pub(crate) fn merge(&self, family: StateShape, key: &[u8], operand: &[u8]) -> Result<()> {
        let done = self.rocks().merge_cf_opt(self.family(family), key, operand, &self.write);
        done.map_err(|source| error::rocks("append", source))
    }

    #[inline]
    pub(crate) fn delete(&self, family: StateShape, key: &[u8]) -> Result<()> {
        let done = self.rocks().delete_cf_opt(self.family(family), key, &self.write);
        done.map_err(|source| error::rocks("delete", source))
    }

    pub(crate) fn write(&self, batch: WriteBatch) -> Result<()> {
        self.rocks().write_opt(batch, &self.write).map_err(|source| error::rocks("write", source))
    }

    /// Deletes all entries with keys in `from..to`. Their keys are handed to `seen` before, at least the
    /// first `look_at` of them; whether those were all.
    pub(crate) fn delete_all(
        self: &Arc<Self>,
        family: StateShape,
        (from, to): (Vec<u8>, Vec<u8>),
        look_at: usize,
        mut seen: impl FnMut(&[u8]),
    ) -> Result<bool> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to.clone());
        let mut walk = self.walk(family, options)?;
        let handle = self.family(family);
        let mut batch = WriteBatch::default();
        let mut keys = 0;
        let mut there = walk.seek(&from)?;
        while let Some((key, _)) = walk.entry().filter(|_| there) {
            if keys == MAX_SINGLE_DELETES {
                batch.delete_range_cf(handle, key, &to);
            }
            if keys >= MAX_SINGLE_DELETES.max(look_at) {
                break;
            }
            if keys < MAX_SINGLE_DELETES {
                batch.delete_cf(handle, key);
            }
            seen(key);
            keys += 1;
            there = walk.next()?;
        }
        if !batch.is_empty() {
            self.write(batch)?;
        }
        Ok(!there)
    }

    /// Drops the files whose keys all lie in `from..=to`, except on the first level.
    pub(crate) fn drop_files(&self, family: StateShape, from: &[u8], to: &[u8]) -> Result<()> {
        self.rocks()
            .delete_file_in_range_cf(self.family(family), from, to)
            .map_err(|source| error::rocks("drop files", source))
    }

    /// Lets compactions run in a database that was opened without.
    pub(crate) fn start_compactions(&self) -> Result<()> {
        for shape in SHAPES {
            self.rocks()
                .set_options_cf(self.family(shape), &[("disable_auto_compactions", "false")])
                .map_err(|source| error::rocks("start compactions", source))?;
        }
        Ok(())
    }

    /// Entries by RocksDB's estimate, which counts an overwritten one twice until it is compacted.
    pub(crate) fn estimated_entries(&self) -> u64 {
        self.family_property(rocksdb::properties::ESTIMATE_NUM_KEYS)
    }

    /// What it holds outside of the shared block cache.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.family_property(rocksdb::properties::SIZE_ALL_MEM_TABLES)
            + self.family_property(rocksdb::properties::ESTIMATE_TABLE_READERS_MEM)
    }

    /// A counter of RocksDB's statistics; `None` when they are off.
    pub(crate) fn ticker(&self, ticker: rocksdb::statistics::Ticker) -> Option<u64> {
        self.statistics.as_ref().map(|options| options.get_ticker_count(ticker))
    }

    /// A numeric property of the database; 0 where RocksDB does not tell.
    pub(crate) fn property(&self, property: &rocksdb::properties::PropName) -> u64 {
        self.rocks().property_int_value(property).ok().flatten().unwrap_or(0)
    }

    /// The sum of a numeric property over all families; 0 where RocksDB does not tell.
    pub(crate) fn family_property(&self, property: &rocksdb::properties::PropName) -> u64 {
        let values = SHAPES.iter().filter_map(|shape| {
            let family = self.family(*shape);
            self.rocks().property_int_value_cf(family, property).ok()?
        });
        values.sum()
    }

    /// Walks one family as it is now. The iterator owns its database.
    pub(crate) fn walk(self: &Arc<Self>, family: StateShape, options: ReadOptions) -> Result<Walk> {
        Walk::try_new(Arc::clone(self), |database| {
            Ok(database.rocks().raw_iterator_cf_opt(database.family(family), options))
        })
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("path", &self.path).finish_non_exhaustive()
    }
}

type RawIterator<'d> = DBRawIteratorWithThreadMode<'d, DB>;

self_cell!(
    /// A walk over a database that it keeps open.
    pub(crate) struct Walk {
        owner: Arc<Database>,
        #[covariant]
        dependent: RawIterator,
    }
);

/// Each move answers whether an entry is there.
impl Walk {
    #[inline]
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.with_dependent_mut(|_, iterator| {
            iterator.seek(key);
            is_there(iterator)
        })
    }

    /// Sees the database as it is now, and seeks.
    pub(crate) fn restart(&mut self, key: &[u8]) -> Result<bool> {
        self.with_dependent_mut(|_, iterator| {
            iterator.refresh().map_err(|source| error::rocks("scan", source))?;
            iterator.seek(key);
            is_there(iterator)
        })
    }

    /// Whether its last move failed because it met more deleted entries than it was to step over.
    pub(crate) fn has_given_up(&self) -> bool {
        let status = self.borrow_dependent().status();
        status.is_err_and(|error| error.kind() == ErrorKindOfRocks::Incomplete)
    }

    pub(crate) fn seek_to_last(&mut self) -> Result<bool> {
        self.with_dependent_mut(|_, iterator| {
            iterator.seek_to_last();
            is_there(iterator)
        })
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<bool> {
        self.with_dependent_mut(|_, iterator| {
            iterator.next();
            is_there(iterator)
        })
    }

    /// Hands over the entry it stands at and those behind it, until `take` breaks off, before the
    /// walk moves on; whether it has come to the end.
    #[inline]
    pub(crate) fn each(
        &mut self,
        order: Order,
        mut take: impl FnMut(&Database, &[u8], &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<bool> {
        self.with_dependent_mut(|database, iterator| {
            while let Some((key, value)) = iterator.item() {
                if take(database, key, value)?.is_break() {
                    return Ok(false);
                }
                match order {
                    Order::Ascending => iterator.next(),
                    Order::Descending => iterator.prev(),
                }
            }
            is_there(iterator).map(|there| !there)
        })
    }

    /// The entry it stands at.
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.borrow_dependent().item()
    }
}

/// The end and an error look alike until RocksDB is asked which it is.
#[inline]
fn is_there(iterator: &RawIterator<'_>) -> Result<bool> {
    if iterator.valid() {
        return Ok(true);
    }
    iterator.status().map_err(|source| error::rocks("scan", source))?;
    Ok(false)
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Walk").field(self.borrow_owner()).finish()
    }
}
