//! Which tables make up the state, and in which order.

use std::sync::Arc;

use weir_state_api::{Error, ErrorKind, KeyGroup, KeyGroupRange, Result};

use super::StateEras;
use super::table_view::{TableView, span};

/// All tables of an instance at one moment. Immutable: what changes makes a new one, and readers keep
/// the one they began with.
#[derive(Debug, Clone)]
pub(crate) struct Version<T> {
    shards: Vec<Shard<T>>,
}

/// A range of key groups whose tables number the states alike.
///
/// An instance that was opened empty has one; restored from several snapshots it may have one for
/// each, until their numberings and eras are found to be equal.
#[derive(Debug, Clone)]
pub(crate) struct Shard<T> {
    pub(super) groups: KeyGroupRange,
    pub(super) states: Arc<Vec<ShardState>>,
    pub(super) runs: Vec<Run<T>>,
}

/// A state as the tables of a shard have it. Its place in the list is its number in their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardState {
    pub name: String,
    pub eras: StateEras,
}

/// Tables that are disjoint, in the order of their keys: within a run a key occurs once.
#[derive(Debug, Clone)]
pub(crate) struct Run<T> {
    pub(super) level: u8,
    pub(super) tables: Vec<TableView<T>>,
}

impl<T> Run<T> {
    /// Tables in the order of their keys. Level 0 is what was flushed; each deeper one was merged
    /// once more.
    pub(crate) fn new(level: u8, tables: Vec<TableView<T>>) -> Self {
        Run { level, tables }
    }

    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    pub(crate) fn tables(&self) -> &[TableView<T>] {
        &self.tables
    }

    /// The only table that can say something about a key.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<&TableView<T>> {
        let behind = self.tables.partition_point(|table| table.first_key() <= key);
        self.tables.get(behind.checked_sub(1)?).filter(|table| key < table.end_key())
    }

    /// The tables that say something about keys from `from` up to and without `to`.
    pub(crate) fn overlapping(&self, from: &[u8], to: &[u8]) -> &[TableView<T>] {
        let first = self.tables.partition_point(|table| table.end_key() <= from);
        let behind = self.tables.partition_point(|table| table.first_key() < to);
        self.tables.get(first..behind).unwrap_or_default()
    }

    /// The tables of which something is visible in these key groups.
    pub(crate) fn in_groups(&self, groups: KeyGroupRange) -> &[TableView<T>] {
        let (start, end) = span(groups);
        let first = self.tables.partition_point(|table| span(table.visible()).1 <= start);
        let behind = self.tables.partition_point(|table| span(table.visible()).0 < end);
        self.tables.get(first..behind).unwrap_or_default()
    }
}

impl<T> Shard<T> {
    /// `runs` newest first.
    pub(crate) fn new(
        groups: KeyGroupRange,
        states: Arc<Vec<ShardState>>,
        runs: Vec<Run<T>>,
    ) -> Self {
        Shard { groups, states, runs }
    }

    pub(crate) fn groups(&self) -> KeyGroupRange {
        self.groups
    }

    /// The states by their stored numbers.
    pub(crate) fn states(&self) -> &Arc<Vec<ShardState>> {
        &self.states
    }

    /// Newest first.
    pub(crate) fn runs(&self) -> &[Run<T>] {
        &self.runs
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableView<T>> {
        self.runs.iter().flat_map(|run| &run.tables)
    }
}

impl<T> Version<T> {
    /// Nothing yet, in these key groups.
    pub(crate) fn empty(groups: KeyGroupRange) -> Self {
        Version { shards: vec![Shard::new(groups, Arc::default(), Vec::new())] }
    }

    /// Shards that together hold `owned`, each group once.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when they do not, or tables are not in the order that makes
    /// up a shard.
    pub(crate) fn new(mut shards: Vec<Shard<T>>, owned: KeyGroupRange) -> Result<Self> {
        let refuse = |what: String| {
            Error::new(ErrorKind::Corrupt, what).advice("restore another checkpoint")
        };
        shards.sort_by_key(|shard| shard.groups.first());
        let groups = shards.iter().flat_map(|shard| shard.groups.iter());
        if !groups.eq(owned.iter()) {
            return Err(refuse(format!(
                "the snapshots' shards do not make up the key groups {owned}"
            )));
        }
        let version = Version { shards };
        version.check_invariants().map_err(refuse)?;
        Ok(version)
    }

    /// Ordered by their key groups.
    pub(crate) fn shards(&self) -> &[Shard<T>] {
        &self.shards
    }

    pub(super) fn shards_mut(&mut self) -> &mut [Shard<T>] {
        &mut self.shards
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableView<T>> {
        self.shards.iter().flat_map(Shard::tables)
    }

    /// The index of the shard of a key group, if the instance owns it.
    #[inline]
    pub(crate) fn shard_index(&self, group: KeyGroup) -> Option<usize> {
        let behind = self.shards.partition_point(|shard| shard.groups.first() <= group);
        let index = behind.checked_sub(1)?;
        self.shards[index].groups.contains(group).then_some(index)
    }

    /// What must hold of every version.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let starts: Vec<_> = self.shards.iter().map(|shard| span(shard.groups)).collect();
        if !starts.windows(2).all(|pair| pair[0].1 <= pair[1].0) {
            return Err("the key groups of shards are not in order".to_string());
        }
        self.shards.iter().try_for_each(Shard::check_invariants)
    }
}

impl<T> Shard<T> {
    fn check_invariants(&self) -> Result<(), String> {
        if !self.runs.is_sorted_by_key(Run::level) {
            return Err("an older run has a lower level than a newer one".to_string());
        }
        for run in &self.runs {
            if run.tables.is_empty() {
                return Err("a run is empty".to_string());
            }
            if !run.tables.windows(2).all(|pair| pair[0].end_key() <= pair[1].first_key()) {
                return Err("the tables of a run are not disjoint and in order".to_string());
            }
            for table in &run.tables {
                let (visible, whole) = (table.visible(), table.properties().groups());
                if visible.is_empty()
                    || visible.intersection(self.groups) != visible
                    || visible.intersection(whole) != visible
                    || table.first_key() >= table.end_key()
                {
                    return Err(format!(
                        "a table of the key groups {whole} is visible in {visible}, in a shard of {}",
                        self.groups
                    ));
                }
                let known = |of: &crate::format::StateProperties| {
                    self.states
                        .get(of.state.index())
                        .is_some_and(|state| usize::from(of.era) < state.eras.eras().len().max(1))
                };
                if let Some(of) = table.properties().states.iter().find(|of| !known(of)) {
                    return Err(format!(
                        "a table has entries of state {} in its era {}, which are unknown",
                        of.state.0, of.era
                    ));
                }
            }
        }
        Ok(())
    }
}
