//! Reads and writes of one shard, through what has been collected for RocksDB.
//!
//! A write that fails has not happened, and what was collected before stays and is read: the next write
//! that needs room tries again. A look-up asks what has been collected and then RocksDB. A walk sees
//! RocksDB alone, so the caller has written what it is to find.

use rocksdb::WriteBatch;
use weir_state_api::stored_key::state_of;
use weir_state_api::{Result, StateId, StateShape};

use crate::collected_writes::{Collected, CollectedWrites, Room};
use crate::shard::{Shard, StoredState, load};

/// The stored key of an access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredKey<'k> {
    pub(crate) shape: StateShape,
    pub(crate) bytes: &'k [u8],
    /// Where the map key begins; only for maps.
    pub(crate) prefix_len: usize,
}

impl Shard {
    /// Hands the value of a key to `read`, as of now; `None` when there is none.
    #[inline]
    pub(crate) fn read<R>(
        &self,
        key: StoredKey<'_>,
        state: StoredState,
        read: impl FnOnce(Option<&[u8]>) -> Result<R>,
    ) -> Result<R> {
        match self.collected(key.shape).find(key.bytes) {
            None => match self.database.get(key.shape, key.bytes)? {
                None => read(None),
                Some(stored) => read(load(self, state, &stored)?.as_deref()),
            },
            Some(Collected::Put(stored)) => read(load(self, state, stored)?.as_deref()),
            Some(Collected::Append(operand)) => {
                let stored = self.database.get(key.shape, key.bytes)?;
                let base = stored.as_deref().map(|stored| load(self, state, stored)).transpose()?;
                match (base.flatten(), load(self, state, operand)?) {
                    (None, alone) | (alone, None) => read(alone.as_deref()),
                    (Some(base), Some(added)) => read(Some(&[&*base, &*added].concat())),
                }
            }
            Some(Collected::Delete) => read(None),
        }
    }

    #[inline]
    pub(crate) fn put(&mut self, key: StoredKey<'_>, stored: &[u8]) -> Result<()> {
        if self.collects(key, stored.len())? {
            self.collected_mut(key.shape).put(key.bytes, stored);
            return Ok(());
        }
        self.kept_walk.note_writes(1);
        self.database.put(key.shape, key.bytes, stored)
    }

    #[inline]
    pub(crate) fn delete(&mut self, key: StoredKey<'_>) -> Result<()> {
        if self.collects(key, 0)? {
            self.collected_mut(key.shape).delete(key.bytes);
            return Ok(());
        }
        self.kept_walk.note_writes(1);
        self.database.delete(key.shape, key.bytes)
    }

    /// Adds to the value of a key without reading it.
    #[inline]
    pub(crate) fn append(&mut self, key: StoredKey<'_>, operand: &[u8]) -> Result<()> {
        if self.collects(key, operand.len())? {
            if self.collected_mut(key.shape).append(key.bytes, operand) {
                return Ok(());
            }
            self.write_out(key.shape)?;
        }
        self.kept_walk.note_writes(1);
        self.database.merge(key.shape, key.bytes, operand)
    }

    /// Deletes the entries of a map whose stored keys lie in `range`; all keys of the map begin with
    /// `prefix`.
    pub(crate) fn delete_range(&mut self, prefix: &[u8], range: (Vec<u8>, Vec<u8>)) -> Result<()> {
        self.write_out_map(prefix)?;
        self.kept_walk.note_writes(1);
        self.database.delete_all(StateShape::Ordered, range)
    }

    /// Writes past what has been collected, which must have nothing of these keys.
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
        self.collected_mut(shape).clear();
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
            if state_of(key) == Some(stored) {
                let is_there = self.database.get(shape, key)?.is_some();
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

    /// Whether a write is to be collected, for which there is room then. Otherwise nothing of its key
    /// is collected any more.
    #[inline]
    fn collects(&mut self, key: StoredKey<'_>, len: usize) -> Result<bool> {
        let writes = self.collected(key.shape);
        match writes.room_for(key.bytes.len() + len) {
            Room::Enough => {}
            Room::WhenWritten => self.write_out(key.shape)?,
            Room::Never => {
                if writes.find(key.bytes).is_some() {
                    self.write_out(key.shape)?;
                }
                return Ok(false);
            }
        }
        if key.shape == StateShape::Ordered {
            self.maps.note_map(&key.bytes[..key.prefix_len]);
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
