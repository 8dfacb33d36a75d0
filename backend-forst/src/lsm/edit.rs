//! Changes of a version.

use std::collections::HashSet;
use std::sync::Arc;

use weir_state_api::KeyGroupRange;

use super::table_view::{TableId, TableView};
use super::version::{Run, Shard, ShardState, Version};

/// One change of one shard.
#[derive(Debug, Clone)]
pub(crate) enum ShardEdit<T> {
    /// A memtable has become a table.
    Flushed(TableView<T>),
    /// A compaction has ended.
    Compacted(Compacted<T>),
    /// These tables hold nothing that anybody may still see.
    Dropped(Vec<TableId>),
    /// A table is read in another way: it has been moved to the store.
    Moved(TableId, T),
    /// States were added or have begun eras.
    States(Arc<Vec<ShardState>>),
}

/// What a compaction has made of some tables in a range of key groups. Elsewhere they stay.
#[derive(Debug, Clone)]
pub(crate) struct Compacted<T> {
    pub groups: KeyGroupRange,
    /// All tables of neighbouring ages that are visible in these groups, with what was visible.
    pub inputs: Vec<(TableId, KeyGroupRange)>,
    /// The level of the outputs.
    pub level: u8,
    /// In the order of their keys; inputs that are moved as they are among them.
    pub outputs: Vec<TableView<T>>,
}

impl<T: Clone> Version<T> {
    /// The version after a change. `None` when the change is obsolete: what it was worked out from
    /// is not there any more, or not as it was. Then nothing of it counts, and tables that were
    /// written for it are named by nobody.
    pub(crate) fn apply(&self, shard: usize, edit: ShardEdit<T>) -> Option<Version<T>> {
        let mut next = self.clone();
        next.shards_mut().get_mut(shard)?.apply(edit)?;
        debug_assert_eq!(next.check_invariants(), Ok(()));
        Some(next)
    }
}

impl<T: Clone> Shard<T> {
    fn apply(&mut self, edit: ShardEdit<T>) -> Option<()> {
        match edit {
            ShardEdit::Flushed(table) => self.runs.insert(0, Run::new(0, vec![table])),
            ShardEdit::Compacted(compacted) => self.replace(compacted)?,
            ShardEdit::Dropped(ids) => {
                let ids: HashSet<_> = ids.into_iter().collect();
                if !ids.iter().all(|id| self.tables().any(|table| table.id() == *id)) {
                    return None;
                }
                for run in &mut self.runs {
                    run.tables.retain(|table| !ids.contains(&table.id()));
                }
                self.runs.retain(|run| !run.tables.is_empty());
            }
            ShardEdit::Moved(id, handle) => {
                let views = self.runs.iter_mut().flat_map(|run| &mut run.tables);
                let mut found = None;
                for view in views.filter(|view| view.id() == id) {
                    *view = view.clone().with_table(handle.clone());
                    found = Some(());
                }
                found?;
            }
            ShardEdit::States(states) => self.states = states,
        }
        Some(())
    }

    fn replace(&mut self, compacted: Compacted<T>) -> Option<()> {
        let Compacted { groups, inputs, level, outputs } = compacted;
        // Where the inputs are, and that they are all there as they were, once each.
        let ids: HashSet<_> = inputs.iter().map(|(id, _)| *id).collect();
        let mut missing: HashSet<_> = inputs.into_iter().collect();
        let (mut newest, mut oldest) = (None, 0);
        for (index, run) in self.runs.iter().enumerate() {
            for table in run.in_groups(groups) {
                if missing.remove(&(table.id(), table.visible().intersection(groups))) {
                    newest.get_or_insert(index);
                    oldest = index;
                } else if newest.is_some() && !missing.is_empty() {
                    // Another table lies between the inputs in age.
                    return None;
                }
            }
        }
        let newest = newest.filter(|_| missing.is_empty())?;
        let known = |table: &TableView<T>| table.visible().intersection(groups) == table.visible();
        if !outputs.iter().all(known) {
            return None;
        }
        for run in &mut self.runs[newest..=oldest] {
            let rest = std::mem::take(&mut run.tables).into_iter().flat_map(|table| {
                let hole = if ids.contains(&table.id()) { groups } else { KeyGroupRange::EMPTY };
                table.without(hole).collect::<Vec<_>>()
            });
            run.tables = rest.collect();
        }
        if !outputs.is_empty() {
            self.place(groups, newest, oldest, level, outputs);
        }
        self.runs.retain(|run| !run.tables.is_empty());
        // A run that came to lie above older ones may have pushed them down.
        let mut deepest = 0;
        for run in &mut self.runs {
            deepest = run.level.max(deepest);
            run.level = deepest;
        }
        Some(())
    }

    /// Puts outputs where the inputs were: younger than all runs behind `oldest` that are visible in
    /// `groups`, and older than all before `newest` that are. They join a run of their level there
    /// that has nothing in these groups, or make up a new one: always in level 0, whose other runs may be
    /// being merged as they are.
    fn place(
        &mut self,
        groups: KeyGroupRange,
        newest: usize,
        oldest: usize,
        level: u8,
        outputs: Vec<TableView<T>>,
    ) {
        let taken = |run: &Run<T>| !run.in_groups(groups).is_empty();
        let older = self.runs[oldest + 1..].iter().position(taken);
        let end = older.map_or(self.runs.len(), |behind| oldest + 1 + behind);
        let is_same = |index: &usize| level > 0 && self.runs[*index].level == level;
        let same = (newest..end).rev().find(is_same);
        if let Some(run) = same.and_then(|index| self.runs.get_mut(index)) {
            let at = run.tables.partition_point(|table| table.first_key() < outputs[0].first_key());
            run.tables.splice(at..at, outputs);
            return;
        }
        let at = self.runs[..end].partition_point(|run| run.level < level).max(newest);
        self.runs.insert(at, Run::new(level, outputs));
    }
}
