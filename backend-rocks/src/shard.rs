//! Shards: the databases of one instance, each for its own range of key groups.
//!
//! An instance that was opened empty has one. An instance restored from several snapshots (a smaller
//! parallelism) has one per snapshot that it took key groups from: files are taken over whole, never
//! read and written again, and each database keeps its history for incremental snapshots. What a
//! database holds outside its shard's range is never looked at.

use std::borrow::Cow;
use std::sync::Arc;

use weir_state_api::{
    Error, ErrorKind, KeyGroup, KeyGroupRange, KeyRef, Result, StateDescriptor, StateId,
    StateShape, StateTtl, foreign_key,
};

use crate::collected_writes::CollectedWrites;
use crate::database::Database;
use crate::memory::Taken;
use crate::options::RocksOptions;
use crate::row_cache::RowCache;
use crate::scan::KeptWalk;

/// One database and what it means.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) database: Arc<Database>,
    pub(crate) groups: KeyGroupRange,
    /// The states' names by the numbers that its keys hold. Another shard may number them otherwise.
    names: Vec<String>,
    /// What each state of the instance is here.
    stored: Vec<StoredState>,
    /// Writes to point states that RocksDB has not been given yet.
    pub(crate) points: CollectedWrites,
    /// Those to maps.
    pub(crate) maps: CollectedWrites,
    /// What has been read of both.
    pub(crate) rows: RowCache,
    /// What scans of maps begin with.
    pub(crate) kept_walk: KeptWalk,
    /// The memory of what is collected.
    _memory: Taken,
}

/// A state of the instance in one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredState {
    /// The number that the shard's keys hold for it.
    pub(crate) id: StateId,
    /// The era of what is written now.
    pub(crate) era: u8,
}

impl Shard {
    /// A shard whose states have these names.
    pub(crate) fn new(
        database: Arc<Database>,
        groups: KeyGroupRange,
        names: Vec<String>,
        options: &RocksOptions,
    ) -> Self {
        let memory = options.memory.take(options.write_batch_bytes);
        let limit = memory.bytes() / 2;
        Shard {
            database,
            groups,
            names,
            stored: Vec::new(),
            points: CollectedWrites::new(limit),
            maps: CollectedWrites::new(limit),
            rows: RowCache::new(options.memory.for_rows()),
            kept_walk: KeptWalk::default(),
            _memory: memory,
        }
    }

    /// The states' names by their stored numbers.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// What a state of the instance is here.
    #[inline]
    pub(crate) fn stored(&self, state: StateId) -> StoredState {
        self.stored[state.index()]
    }

    /// The number that its keys hold for a state of the instance.
    #[inline]
    pub(crate) fn stored_id(&self, state: StateId) -> StateId {
        self.stored(state).id
    }

    /// The instance's next state gets a number here: the one it had, or a new one.
    fn add_state(&mut self, descriptor: &StateDescriptor) -> Result<()> {
        let known = self.names.iter().position(|name| *name == descriptor.name);
        let index = known.unwrap_or_else(|| {
            self.names.push(descriptor.name.clone());
            self.database.eras().add(descriptor.kind, Vec::new());
            self.names.len() - 1
        });
        // An instance has at most 65,536 states, and a shard none that its instance has not.
        let id = StateId(index as u16);
        let era = self.database.eras().set_ttl(id, descriptor.ttl)?;
        self.stored.push(StoredState { id, era });
        Ok(())
    }

    fn set_ttl(&mut self, state: StateId, ttl: Option<StateTtl>) -> Result<()> {
        let stored = &mut self.stored[state.index()];
        stored.era = self.database.eras().set_ttl(stored.id, ttl)?;
        Ok(())
    }
}

/// All shards of an instance, ordered by their key groups.
#[derive(Debug)]
pub(crate) struct Shards {
    shards: Vec<Shard>,
    owned: KeyGroupRange,
}

impl Shards {
    /// Shards that together hold `owned`, each group once.
    pub(crate) fn new(mut shards: Vec<Shard>, owned: KeyGroupRange) -> Result<Self> {
        shards.sort_by_key(|shard| shard.groups.first());
        let whole = shards.iter().flat_map(|shard| shard.groups.iter()).eq(owned.iter());
        if !whole {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("the snapshots' databases do not make up the key groups {owned}"),
            )
            .advice("restore another checkpoint"));
        }
        Ok(Shards { shards, owned })
    }

    pub(crate) fn add_state(&mut self, descriptor: &StateDescriptor) -> Result<()> {
        self.shards.iter_mut().try_for_each(|shard| shard.add_state(descriptor))
    }

    /// Changes the TTL of a state from now on.
    pub(crate) fn set_ttl(&mut self, state: StateId, ttl: Option<StateTtl>) -> Result<()> {
        self.shards.iter_mut().try_for_each(|shard| shard.set_ttl(state, ttl))
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Shard> {
        self.shards.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Shard> {
        self.shards.iter_mut()
    }

    /// Gives RocksDB all that has been collected.
    pub(crate) fn write_out(&mut self) -> Result<()> {
        for shard in &mut self.shards {
            shard.write_out(StateShape::Point)?;
            shard.write_out(StateShape::Ordered)?;
        }
        Ok(())
    }

    /// The shard of a key, to change it.
    #[inline]
    pub(crate) fn of_key_mut(&mut self, key: KeyRef<'_>) -> Result<&mut Shard> {
        let group = key.group();
        let at = match &self.shards[..] {
            [only] if only.groups.contains(group) => 0,
            _ => self.index_of(group).ok_or_else(|| foreign_key(key, self.owned))?,
        };
        Ok(&mut self.shards[at])
    }

    /// The shard of a key, which the instance must own.
    #[inline]
    pub(crate) fn of_key(&self, key: KeyRef<'_>) -> Result<&Shard> {
        match &self.shards[..] {
            [only] if only.groups.contains(key.group()) => Ok(only),
            _ => self.of_group(key.group()).ok_or_else(|| foreign_key(key, self.owned)),
        }
    }

    /// The shard of a key group, if the instance owns it.
    pub(crate) fn of_group(&self, group: KeyGroup) -> Option<&Shard> {
        self.index_of(group).map(|at| &self.shards[at])
    }

    fn index_of(&self, group: KeyGroup) -> Option<usize> {
        let behind = self.shards.partition_point(|shard| shard.groups.first() <= group);
        let at = behind.checked_sub(1)?;
        self.shards[at].groups.contains(group).then_some(at)
    }
}

/// The value in a stored one, as of now; `None` when it stands for nothing.
#[inline]
pub(crate) fn load<'v>(
    database: &Database,
    state: StoredState,
    stored: &'v [u8],
) -> Result<Option<Cow<'v, [u8]>>> {
    match stored {
        [value @ .., era] if *era == state.era => Ok(Some(Cow::Borrowed(value))),
        _ => database.eras().states()[state.id.index()].load(stored),
    }
}
