//! Which tables to compact next. A pure decision.
//!
//! The shape is lazily leveled, which suits state that is read by key: filters make a run that does
//! not hold a key nearly free, so runs may lie above each other, and bytes are rewritten rarely.
//!
//! ```text
//! level 0     runs as they were flushed, merged into one of level 1 when there are 4, or 8 small ones;
//!             8 small ones above some that are being merged, into one that stays
//! levels 1..  up to 4 runs each, merged into one of the next level
//! the oldest  takes in everything above it (but level 0) once that has grown to its own size
//! ```
//!
//! Each **slice** of key groups, up to a gigabyte, is a tree of its own: it is judged and
//! compacted alone. So a compaction is bounded however large the state is, several run at once, and
//! what one has done stays done when the next is never finished.

use std::collections::HashSet;

use weir_state_api::KeyGroupRange;
use weir_state_api::ttl::TtlTime;

use super::expiry::{expired_percent, expired_tables};
use super::slices::{Slice, slices};
use super::table_view::{TableId, TableView};
use super::version::Shard;

/// When to compact, and into what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompactionOptions {
    /// Flushed runs that are merged.
    pub level0_runs: usize,
    /// Runs of one deeper level that are merged.
    pub tier_runs: usize,
    /// Flushed runs with less bytes together wait until there are twice as many: frequent checkpoints
    /// leave small ones, and each merge with what is below rewrites that too.
    pub small_bytes: u64,
    /// About how long tables become, in bytes.
    pub table_bytes: u64,
    /// About how many bytes of a shard are compacted at a time.
    pub slice_bytes: u64,
    /// A table of which less than this share is visible, in percent, is rewritten when nothing else
    /// is to be done.
    pub min_visible_percent: u64,
    /// A table of whose values more than this share has expired, in percent, likewise.
    pub max_expired_percent: u64,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        CompactionOptions {
            level0_runs: 4,
            tier_runs: 4,
            small_bytes: 64 << 20,
            table_bytes: 64 << 20,
            slice_bytes: 1 << 30,
            min_visible_percent: 25,
            max_expired_percent: 50,
        }
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Drop these tables unread: all they hold has expired, and hides nothing.
    Drop(Vec<TableId>),
    /// Merge tables.
    Compact(CompactionPlan),
}

/// Which tables to merge, in which key groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompactionPlan {
    pub groups: KeyGroupRange,
    /// The level of what comes out.
    pub level: u8,
    /// All inputs, newest first, with what is visible of them in `groups`.
    pub inputs: Vec<(TableId, KeyGroupRange)>,
    /// Inputs whose keys no other input has: they move to the level as they are.
    pub moved: Vec<(TableId, KeyGroupRange)>,
}

impl CompactionPlan {
    /// Inputs that must be read and written.
    pub(crate) fn merged(&self) -> impl Iterator<Item = &(TableId, KeyGroupRange)> {
        self.inputs.iter().filter(|input| !self.moved.contains(input))
    }

    fn conflicts_with(&self, busy: &[CompactionPlan]) -> bool {
        busy.iter().any(|other| {
            !other.groups.intersection(self.groups).is_empty()
                && other.inputs.iter().any(|(id, _)| self.inputs.iter().any(|(own, _)| own == id))
        })
    }
}

/// What to do next in a shard; `None` for nothing. `busy` are the plans being carried out there.
pub(crate) fn pick<T: Clone>(
    shard: &Shard<T>,
    options: &CompactionOptions,
    busy: &[CompactionPlan],
    time: &TtlTime,
) -> Option<Pick> {
    let expired = expired_tables(shard, busy, time);
    if !expired.is_empty() {
        return Some(Pick::Drop(expired));
    }
    let slices = slices(shard, options.slice_bytes);
    let merges = slices.iter().flat_map(|slice| {
        let merges = [
            merge_level0(slice, options),
            merge_newest(slice, options, busy),
            merge_tiers(slice, options),
            merge_oldest(slice),
        ];
        merges.into_iter().flatten().map(move |merge| (merge.urgency, slice, merge))
    });
    let mut merges: Vec<_> = merges.collect();
    // The most urgent first, among equals that of which least is visible: its tables are shared with
    // other instances, and free them when the last one lets go.
    merges
        .sort_by_key(|(urgency, slice, _)| (std::cmp::Reverse(*urgency), slice.visible_percent()));
    let plans = merges.iter().map(|(_, slice, merge)| slice.plan(merge, options));
    plans
        .chain(rewrites(shard, options, time))
        .find(|plan| !plan.conflicts_with(busy))
        .map(Pick::Compact)
}

/// Runs of a slice to be merged: those from `newest` to `oldest`, as indexes into its runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Merging {
    pub(super) newest: usize,
    pub(super) oldest: usize,
    pub(super) level: u8,
    /// The oldest of the runs because of which it is done. Key groups that none of them has are left
    /// alone: what is older there was merged before.
    pub(super) cause: usize,
    /// Runs that there are less afterwards, in level 0 doubly: readers ask each of them.
    pub(super) urgency: usize,
}

fn merge_level0<T>(slice: &Slice<'_, T>, options: &CompactionOptions) -> Option<Merging> {
    let count = slice.runs().partition_point(|run| run.level == 0);
    let bytes = slice.weight(0..count);
    let small = bytes < options.small_bytes;
    let wanted = if small { 2 * options.level0_runs } else { options.level0_runs };
    if count < wanted.max(2) {
        return None;
    }
    let oldest = count - 1;
    let merging = Merging { newest: 0, oldest, level: 1, cause: oldest, urgency: 2 * count };
    Some(slice.with_all_older(merging))
}

/// Small flushed runs that have come while older ones are being merged, into one: it stays in level 0, as
/// nothing may pass those below. So a long compaction does not make readers ask ever more runs.
fn merge_newest<T>(
    slice: &Slice<'_, T>,
    options: &CompactionOptions,
    busy: &[CompactionPlan],
) -> Option<Merging> {
    let flushed = slice.runs().partition_point(|run| run.level == 0);
    let count = slice.newer_than(busy).min(flushed);
    let is_small = slice.weight(0..count) < options.small_bytes;
    if count == flushed || count < (2 * options.level0_runs).max(2) || !is_small {
        return None;
    }
    let oldest = count - 1;
    Some(Merging { newest: 0, oldest, level: 0, cause: oldest, urgency: count })
}

fn merge_tiers<T>(slice: &Slice<'_, T>, options: &CompactionOptions) -> Option<Merging> {
    let runs = slice.runs();
    // The oldest run is not part of a tier.
    let last = runs.len().checked_sub(1)?;
    let mut newest = runs.partition_point(|run| run.level == 0);
    while newest < last {
        let level = runs[newest].level;
        let behind = runs[..last].partition_point(|run| run.level <= level);
        let count = behind - newest;
        if count >= options.tier_runs.max(2) {
            let level = level.saturating_add(1);
            let oldest = behind - 1;
            let merging = Merging { newest, oldest, level, cause: oldest, urgency: count };
            return Some(slice.with_all_older(merging));
        }
        newest = behind;
    }
    None
}

/// Everything above the oldest run has grown to its size: half of what is stored may be outdated.
fn merge_oldest<T>(slice: &Slice<'_, T>) -> Option<Merging> {
    let runs = slice.runs();
    let newest = runs.partition_point(|run| run.level == 0);
    let last = runs.len().checked_sub(1)?;
    let grown = newest < last && slice.weight(newest..last) >= slice.weight(last..last + 1);
    let level = runs[last].level;
    grown.then(|| Merging { newest, oldest: last, level, cause: last - 1, urgency: last - newest })
}

/// Tables that are worth being written anew, each alone.
fn rewrites<T: Clone>(
    shard: &Shard<T>,
    options: &CompactionOptions,
    time: &TtlTime,
) -> Vec<CompactionPlan> {
    let mut rewrites: Vec<(u64, CompactionPlan)> = Vec::new();
    for (age, run) in shard.runs().iter().enumerate() {
        for table in run.tables() {
            let expired = expired_percent(shard, table, time);
            let wasted = table.visible_percent() < options.min_visible_percent
                || expired > options.max_expired_percent;
            // What hides something will be merged with it anyway.
            if wasted && is_oldest(shard, age, table) {
                let used = table.visible_percent() * (100 - expired.min(100));
                rewrites.push((
                    used,
                    CompactionPlan {
                        groups: table.visible(),
                        level: run.level(),
                        inputs: vec![(table.id(), table.visible())],
                        moved: Vec::new(),
                    },
                ));
            }
        }
    }
    rewrites.sort_by_key(|(used, _)| *used);
    rewrites.into_iter().map(|(_, plan)| plan).collect()
}

/// Whether no run older than the one at `age` says anything about the keys of a table.
pub(super) fn is_oldest<T>(shard: &Shard<T>, age: usize, table: &TableView<T>) -> bool {
    shard.runs()[age + 1..]
        .iter()
        .all(|run| run.overlapping(table.first_key(), table.end_key()).is_empty())
}

#[cfg(test)]
/// Merges everything there is, slice by slice.
pub(crate) fn everything<T>(shard: &Shard<T>, options: &CompactionOptions) -> Vec<CompactionPlan> {
    let slices = slices(shard, options.slice_bytes);
    let plans = slices.iter().filter_map(|slice| {
        let oldest = slice.runs().len().checked_sub(1)?;
        let level = slice.runs()[oldest].level.max(1);
        Some(slice.plan(&Merging { newest: 0, oldest, level, cause: oldest, urgency: 0 }, options))
    });
    plans.collect()
}

/// Ids of all inputs of plans.
pub(super) fn ids_of(plans: &[CompactionPlan]) -> HashSet<TableId> {
    plans.iter().flat_map(|plan| plan.inputs.iter().map(|(id, _)| *id)).collect()
}
