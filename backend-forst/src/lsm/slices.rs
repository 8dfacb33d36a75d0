//! Slices of a shard: ranges of key groups that are compacted each on its own.

use std::collections::HashSet;
use std::ops::Range;

use weir_state_api::KeyGroupRange;

use super::pick::{CompactionOptions, CompactionPlan, Merging};
use super::table_view::{TableId, TableView, groups_between, span};
use super::version::Shard;

/// What a shard has in some key groups.
#[derive(Debug)]
pub(super) struct Slice<'a, T> {
    groups: KeyGroupRange,
    /// The runs that have something here, newest first.
    runs: Vec<SlicedRun<'a, T>>,
}

#[derive(Debug)]
pub(super) struct SlicedRun<'a, T> {
    pub(super) level: u8,
    tables: &'a [TableView<T>],
    /// Bytes, and those of older runs that its deletes are estimated to make useless.
    weight: u64,
}

/// Cuts a shard into slices of at most about `slice_bytes`: into 1, 2, 4, 8 … parts of equally many
/// key groups. So the cuts stay where they are while the shard grows, and what was compacted together
/// once is compacted together again.
pub(super) fn slices<T>(shard: &Shard<T>, slice_bytes: u64) -> Vec<Slice<'_, T>> {
    let bytes: u64 = shard.tables().map(|table| table.bytes_in(shard.groups())).sum();
    let (start, end) = span(shard.groups());
    let groups = u64::from(end - start);
    let parts = bytes.div_ceil(slice_bytes.max(1)).max(1).next_power_of_two();
    let parts = parts.min(groups.next_power_of_two());
    let cut = |part: u64| start + (groups * part / parts) as u16; // at most `end`
    let ranges = (0..parts).map(|part| groups_between(cut(part), cut(part + 1)));
    ranges.filter(|range| !range.is_empty()).map(|range| Slice::new(shard, range)).collect()
}

impl<'a, T> Slice<'a, T> {
    fn new(shard: &'a Shard<T>, groups: KeyGroupRange) -> Self {
        let sliced = shard.runs().iter().map(|run| (run.level(), run.in_groups(groups)));
        let present = sliced.filter(|(_, tables)| !tables.is_empty());
        let bytes = |tables: &[TableView<T>]| -> u64 {
            tables.iter().map(|table| table.bytes_in(groups)).sum()
        };
        let mut runs: Vec<_> = present
            .map(|(level, tables)| SlicedRun { level, tables, weight: bytes(tables) })
            .collect();
        // A delete takes few bytes and makes an entry below useless.
        if let Some((oldest, newer)) = runs.split_last_mut() {
            let entries: u64 = oldest.tables.iter().map(|t| t.properties().entries()).sum();
            let lengths: u64 = oldest.tables.iter().map(TableView::length).sum();
            let entry_bytes = lengths / entries.max(1);
            for run in newer {
                for table in run.tables {
                    let here = table.bytes_in(groups) as f64 / table.length().max(1) as f64;
                    run.weight += (table.deletes() as f64 * here) as u64 * entry_bytes;
                }
            }
        }
        Slice { groups, runs }
    }

    pub(super) fn runs(&self) -> &[SlicedRun<'a, T>] {
        &self.runs
    }

    pub(super) fn weight(&self, runs: Range<usize>) -> u64 {
        self.runs[runs].iter().map(|run| run.weight).sum()
    }

    /// How many runs are newer than all that these plans merge here.
    pub(super) fn newer_than(&self, plans: &[CompactionPlan]) -> usize {
        let here = plans.iter().filter(|plan| !plan.groups.intersection(self.groups).is_empty());
        let merged: HashSet<TableId> =
            here.flat_map(|plan| plan.inputs.iter().map(|(id, _)| *id)).collect();
        let is_merged =
            |run: &SlicedRun<'_, T>| run.tables.iter().any(|t| merged.contains(&t.id()));
        self.runs.iter().position(is_merged).unwrap_or(self.runs.len())
    }

    /// How much of its tables is visible at all, in percent of their number.
    pub(super) fn visible_percent(&self) -> u64 {
        let tables = || self.runs.iter().flat_map(|run| run.tables);
        let percents: u64 = tables().map(TableView::visible_percent).sum();
        percents / (tables().count() as u64).max(1)
    }

    /// The same merge together with everything older, if that is no larger: it leaves one run, at
    /// no more than twice the cost.
    pub(super) fn with_all_older(&self, merging: Merging) -> Merging {
        let older = merging.oldest + 1..self.runs.len();
        let own = self.weight(merging.newest..merging.oldest + 1);
        if older.is_empty() || self.weight(older) > own {
            return merging;
        }
        let oldest = self.runs.len() - 1;
        Merging { oldest, level: merging.level.max(self.runs[oldest].level), ..merging }
    }

    pub(super) fn plan(&self, merging: &Merging, options: &CompactionOptions) -> CompactionPlan {
        let groups = self.touched_by(&self.runs[merging.newest..=merging.cause]);
        let runs = &self.runs[merging.newest..=merging.oldest];
        let visible = |table: &TableView<T>| (table.id(), table.visible().intersection(groups));
        let inputs = runs.iter().flat_map(|run| run.tables.iter().map(visible));
        let is_last = merging.oldest + 1 == self.runs.len();
        CompactionPlan {
            groups,
            level: merging.level,
            inputs: inputs.filter(|(_, part)| !part.is_empty()).collect(),
            moved: movable(runs, groups, is_last, options),
        }
    }

    /// The key groups from the first to the last of which these runs have something.
    fn touched_by(&self, runs: &[SlicedRun<'a, T>]) -> KeyGroupRange {
        let visible = runs.iter().flat_map(|run| run.tables).map(|table| span(table.visible()));
        let all = visible.reduce(|(a, b), (start, end)| (a.min(start), b.max(end)));
        let (start, end) = all.unwrap_or_default();
        self.groups.intersection(groups_between(start, end))
    }
}

/// The tables whose keys no other table of these runs has in these groups, and that are good as they
/// are.
fn movable<T>(
    runs: &[SlicedRun<'_, T>],
    groups: KeyGroupRange,
    is_last: bool,
    options: &CompactionOptions,
) -> Vec<(TableId, KeyGroupRange)> {
    let tables = runs.iter().flat_map(|run| run.tables);
    let mut tables: Vec<_> =
        tables.filter(|table| !table.visible().intersection(groups).is_empty()).collect();
    tables.sort_by(|a, b| a.first_key().cmp(b.first_key()));
    let mut movable = Vec::new();
    let mut reached: &[u8] = &[];
    for (at, table) in tables.iter().enumerate() {
        let next = tables.get(at + 1);
        let alone = reached <= table.first_key()
            && next.is_none_or(|next| table.end_key() <= next.first_key());
        let whole = table.visible().intersection(groups) == table.visible()
            && table.visible_percent() >= 50
            && table.length() >= options.table_bytes / 4;
        // The last level is where deletes end.
        if alone && whole && (!is_last || table.deletes() == 0) {
            movable.push((table.id(), table.visible()));
        }
        reached = reached.max(table.end_key());
    }
    movable
}
