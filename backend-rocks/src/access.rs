//! Reads and writes of one shard, through what has been collected for RocksDB and what has been read
//! from it.
//!
//! A write that fails has not happened, and what was collected before stays and is read: the next write
//! that needs room tries again. A look-up asks what has been collected, then the rows that were read
//! before, and then RocksDB. A walk sees RocksDB alone, so the caller has written what it is to find.

use std::ops::Deref;

use rocksdb::{DBPinnableSlice, WriteBatch};
use weir_state_api::stored_key::state_of;
use weir_state_api::{Result, StateId, StateShape};

use crate::collected_writes::{Collected, CollectedWrites, Room};
use crate::database::Database;
use crate::hashed_key::HashedKey;
use crate::row_cache::RowCache;
use crate::shard::{Shard, StoredState, load};

/// Entries of a range that is deleted whose rows are looked for one by one. A larger range takes all
/// rows with it: what it takes to walk it would be felt.
const MAX_LOOKED_FOR: usize = 100_000;

/// The stored key of an access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredKey<'k> {
    pub(crate) shape: StateShape,
    pub(crate) key: HashedKey<'k>,
    /// Where the map key begins; only for maps.
    pub(crate) prefix_len: usize,
}

/// What RocksDB has for a key, in its stored form.
enum Row<'r> {
    /// Read before.
    Kept(&'r [u8]),
    /// Read just now.
    Read(DBPinnableSlice<'r>),
}

impl Deref for Row<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Row::Kept(stored) => stored,
            Row::Read(stored) => stored,
        }
    }
}

/// What RocksDB has for a key, which is kept.
#[inline]
fn row<'r>(
    rows: &'r mut RowCache,
    database: &'r Database,
    StoredKey { shape, key, .. }: StoredKey<'_>,
) -> Result<Option<Row<'r>>> {
    if let Some(place) = rows.find(key) {
        return Ok(Some(Row::Kept(rows.value(place))));
    }
    let found = database.get(shape, key.bytes)?;
    if let Some(stored) = &found {
        rows.insert(key, stored);
    }
    Ok(found.map(Row::Read))
}

impl Shard {
    /// Hands the value of a key to `read`, as of now; `None` when there is none.
    #[inline]
    pub(crate) fn read<R>(
        &mut self,
        key: StoredKey<'_>,
        state: StoredState,
        read: impl FnOnce(Option<&[u8]>) -> Result<R>,
    ) -> Result<R> {
        let Shard { database, rows, points, maps, .. } = self;
        let collected = match key.shape {
            StateShape::Ordered => maps,
            _ => points,
        };
        match collected.find(key.key) {
            None => match row(rows, database, key)? {
                None => read(None),
                Some(stored) => read(load(database, state, &stored)?.as_deref()),
            },
            Some(Collected::Put(stored)) => read(load(database, state, stored)?.as_deref()),
            Some(Collected::Append(operand)) => {
                let stored = row(rows, database, key)?;
                let base = stored.as_deref().map(|stored| load(database, state, stored));
                match (base.transpose()?.flatten(), load(database, state, operand)?) {
                    (None, alone) | (alone, None) => read(alone.as_deref()),
                    (Some(base), Some(added)) => read(Some(&[&*base, &*added].concat())),
                }
            }
            Some(Collected::Delete) => read(None),
        }
    }

    /// Whether something is known of a key without RocksDB.
    pub(crate) fn knows(&self, key: StoredKey<'_>) -> bool {
        self.collected(key.shape).find(key.key).is_some() || self.rows.contains(key.key)
    }

    #[inline]
    pub(crate) fn put(&mut self, key: StoredKey<'_>, stored: &[u8]) -> Result<()> {
        if self.collects(key, stored.len())? {
            self.collected_mut(key.shape).put(key.key, stored);
            return Ok(());
        }
        self.kept_walk.note_writes(1);
        self.rows.remove(key.key);
        self.database.put(key.shape, key.key.bytes, stored)
    }

    #[inline]
    pub(crate) fn delete(&mut self, key: StoredKey<'_>) -> Result<()> {
        if self.collects(key, 0)? {
            self.collected_mut(key.shape).delete(key.key);
            return Ok(());
        }
        self.kept_walk.note_writes(1);
        self.rows.remove(key.key);
        self.database.delete(key.shape, key.key.bytes)
    }

    /// Adds to the value of a key without reading it.
    #[inline]
    pub(crate) fn append(&mut self, key: StoredKey<'_>, operand: &[u8]) -> Result<()> {
        if self.collects(key, operand.len())? {
            if self.collected_mut(key.shape).append(key.key, operand) {
                return Ok(());
            }
            self.write_out(key.shape)?;
        }
        self.kept_walk.note_writes(1);
        self.rows.remove(key.key);
        self.database.merge(key.shape, key.key.bytes, operand)
    }

    /// Deletes the entries of a map whose stored keys lie in `range`; all keys of the map begin with
    /// `prefix`.
    pub(crate) fn delete_range(&mut self, prefix: &[u8], range: (Vec<u8>, Vec<u8>)) -> Result<()> {
        self.write_out_map(prefix)?;
        self.kept_walk.note_writes(1);
        let Shard { database, rows, .. } = self;
        let look_for = if rows.is_empty() { 0 } else { MAX_LOOKED_FOR };
        let forget = |key: &[u8]| rows.remove(key.into());
        if !database.delete_all(StateShape::Ordered, range, look_for, forget)? {
            rows.clear();
        }
        Ok(())
    }

    /// Writes past what has been collected and read, which must have nothing of these keys.
    pub(crate) fn write(&mut self, batch: WriteBatch) -> Result<()> {
        self.kept_walk.note_writes(batch.len());
        self.database.write(batch)
    }

    /// Gives RocksDB what has been collected for a family, in the order of the keys.
    pub(crate) fn write_out(&mut self, shape: StateShape) -> Result<()> {
        let writes = self.collected(shape);
        if writes.is_empty() {
            return Ok(());
        }
        let family = self.database.family(shape);
        let mut batch = WriteBatch::default();
        for (key, write) in writes.in_order() {
            match write {
                Collected::Put(stored) => batch.put_cf(family, key, stored),
                Collected::Append(operand) => batch.merge_cf(family, key, operand),
                Collected::Delete => batch.delete_cf(family, key),
            }
        }
        self.write(batch)?;
        let Shard { rows, points, maps, .. } = self;
        let collected = match shape {
            StateShape::Ordered => maps,
            _ => points,
        };
        if !rows.is_empty() {
            for (key, write) in collected.iter() {
                match write {
                    Collected::Put(stored) => rows.change(key, stored),
                    Collected::Append(_) | Collected::Delete => rows.remove(key),
                }
            }
        }
        collected.clear();
        Ok(())
    }

    /// Does so for maps, if anything has been collected for the one whose keys begin with `prefix`.
    #[inline]
    pub(crate) fn write_out_map(&mut self, prefix: &[u8]) -> Result<()> {
        if self.collected(StateShape::Ordered).has_map(prefix) {
            self.write_out(StateShape::Ordered)?;
        }
        Ok(())
    }

    /// By how much what has been collected changes the number of entries of a state.
    pub(crate) fn entries_to_come(&self, state: StateId, shape: StateShape) -> Result<i64> {
        let stored = self.stored_id(state);
        let mut change = 0;
        for (key, write) in self.collected(shape).iter() {
            if state_of(key.bytes) == Some(stored) {
                let is_there = self.database.get(shape, key.bytes)?.is_some();
                let will_be = write != Collected::Delete;
                change += i64::from(will_be) - i64::from(is_there);
            }
        }
        Ok(change)
    }

    /// By how much what has been collected changes the estimated number of entries of all states.
    pub(crate) fn collected_entries(&self) -> i64 {
        self.points.net_entries() + self.maps.net_entries()
    }

    /// The memory of what has been collected.
    pub(crate) fn collected_bytes(&self) -> u64 {
        (self.points.memory_bytes() + self.maps.memory_bytes()) as u64
    }

    /// The memory of rows that have been read.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.rows.memory_bytes() as u64
    }

    /// Whether a write is to be collected, for which there is room then. Otherwise nothing of its key
    /// is collected any more.
    #[inline]
    fn collects(&mut self, key: StoredKey<'_>, len: usize) -> Result<bool> {
        let writes = self.collected(key.shape);
        match writes.room_for(key.key.bytes.len() + len) {
            Room::Enough => {}
            Room::WhenWritten => self.write_out(key.shape)?,
            Room::Never => {
                if writes.find(key.key).is_some() {
                    self.write_out(key.shape)?;
                }
                return Ok(false);
            }
        }
        if key.shape == StateShape::Ordered {
            self.maps.note_map(&key.key.bytes[..key.prefix_len]);
        }
        Ok(true)
    }

    #[inline]
    pub(crate) fn collected(&self, shape: StateShape) -> &CollectedWrites {
        match shape {
            StateShape::Ordered => &self.maps,
            _ => &self.points,
        }
    }

    #[inline]
    fn collected_mut(&mut self, shape: StateShape) -> &mut CollectedWrites {
        match shape {
            StateShape::Ordered => &mut self.maps,
            _ => &mut self.points,
        }
    }
}
