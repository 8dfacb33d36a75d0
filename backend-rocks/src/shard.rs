//! Shards: the databases of one instance, each for its own range of key groups.
//!
//! An instance that was opened empty has one. An instance restored from several snapshots (a smaller
//! parallelism) has one per snapshot that it took key groups from: files are taken over whole, never
//! read and written again, and each database keeps its history for incremental snapshots. What a
//! database holds outside its shard's range is never looked at.

use std::sync::Arc;

use weir_state_api::{
    Error, ErrorKind, KeyGroup, KeyGroupRange, KeyRef, Result, StateId, foreign_key,
};

use crate::database::Database;

/// One database and what it means.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) database: Arc<Database>,
    pub(crate) groups: KeyGroupRange,
    /// The states' names by the numbers that its keys hold. Another shard may number them otherwise.
    names: Vec<String>,
    /// The number in its keys of each state of the instance.
    stored: Vec<StateId>,
}

impl Shard {
    pub(crate) fn new(database: Arc<Database>, groups: KeyGroupRange, names: Vec<String>) -> Self {
        Shard { database, groups, names, stored: Vec::new() }
    }

    /// The states' names by their stored numbers.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The number that its keys hold for a state of the instance.
    #[inline]
    pub(crate) fn stored_id(&self, state: StateId) -> StateId {
        self.stored[state.index()]
    }

    /// The instance's next state gets a number here: the one it had, or a new one.
    fn add_state(&mut self, name: &str) {
        let known = self.names.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.names.push(name.to_string());
            self.names.len() - 1
        });
        // An instance has at most 65,536 states, and a shard none that its instance has not.
        self.stored.push(StateId(index as u16));
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

    pub(crate) fn add_state(&mut self, name: &str) {
        for shard in &mut self.shards {
            shard.add_state(name);
        }
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Shard> {
        self.shards.iter()
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
        let behind = self.shards.partition_point(|shard| shard.groups.first() <= group);
        let shard = &self.shards[behind.checked_sub(1)?];
        shard.groups.contains(group).then_some(shard)
    }
}
