//! From a plan to a compaction, and from its result to a change of the version.

use std::sync::Arc;

use weir_state_api::ttl::TtlTime;

use super::input::Input;
use super::run::{Compaction, Finished};
use crate::lsm::{Compacted, CompactionPlan, KeyRanges, Shard, TableId, TableView};
use crate::store::Table;

impl Compaction {
    /// What a plan means. `None` when it is obsolete: an input is not there any more.
    pub(crate) fn of_plan(
        shard: &Shard<Arc<Table>>,
        plan: &CompactionPlan,
        time: TtlTime,
    ) -> Option<Compaction> {
        let mut runs = Vec::new();
        let mut oldest = 0;
        let mut found = 0;
        for (age, run) in shard.runs().iter().enumerate() {
            let mut inputs = Vec::new();
            for view in run.in_groups(plan.groups) {
                let part = (view.id(), view.visible().intersection(plan.groups));
                if !plan.inputs.contains(&part) {
                    continue;
                }
                found += 1;
                oldest = age;
                if !plan.moved.contains(&part) {
                    inputs.push(Input { table: Arc::clone(view.table()), groups: part.1 });
                }
            }
            if !inputs.is_empty() {
                runs.push(inputs);
            }
        }
        if found != plan.inputs.len() {
            return None;
        }
        let older = shard.runs().iter().skip(oldest + 1);
        let older = older
            .flat_map(|run| run.in_groups(plan.groups))
            .map(|view| (view.first_key().to_vec(), view.end_key().to_vec()));
        let mut cuts: Vec<Box<[u8]>> =
            moved_views(shard, plan).map(|view| view.first_key().into()).collect();
        cuts.sort_unstable();
        Some(Compaction {
            groups: plan.groups,
            states: Arc::clone(shard.states()),
            runs,
            older: KeyRanges::union_of(older),
            cuts,
            time,
        })
    }
}

/// The change of the version that a carried out plan comes to, in the key groups that it was carried
/// out in. A plan that only moves tables is carried out by [`Finished::nothing_but_moves`].
pub(crate) fn outcome(
    shard: &Shard<Arc<Table>>,
    plan: &CompactionPlan,
    finished: Finished,
) -> Compacted<Arc<Table>> {
    let groups = finished.groups;
    let new = finished.tables.into_iter().map(|new| {
        let length = new.table.length();
        TableView::new(TableId::unique(), new.table, new.properties, length)
    });
    let moved = moved_views(shard, plan).filter_map(|view| view.clipped(groups));
    let mut outputs: Vec<_> = new.chain(moved).collect();
    outputs.sort_by(|a, b| a.first_key().cmp(b.first_key()));
    let inputs = plan.inputs.iter().map(|(id, part)| (*id, part.intersection(groups)));
    Compacted {
        groups,
        inputs: inputs.filter(|(_, part)| !part.is_empty()).collect(),
        level: plan.level,
        outputs,
    }
}

impl Finished {
    /// For a plan that merges nothing.
    pub(crate) fn nothing_but_moves(plan: &CompactionPlan) -> Option<Finished> {
        let only_moves = plan.merged().next().is_none();
        only_moves.then(|| Finished { groups: plan.groups, tables: Vec::new(), entries: 0 })
    }
}

fn moved_views<'a>(
    shard: &'a Shard<Arc<Table>>,
    plan: &'a CompactionPlan,
) -> impl Iterator<Item = &'a TableView<Arc<Table>>> {
    shard.tables().filter(|view| plan.moved.contains(&(view.id(), view.visible())))
}
