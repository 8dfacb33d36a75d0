//! Other parallelism: shards are clipped and united. Nothing is read or written.

use weir_state_api::KeyGroupRange;

use super::table_view::{groups_between, span};
use super::version::{Run, Shard};

impl<T: Clone> Shard<T> {
    /// The part of a shard in a range of key groups, which it may hold only in part; `None` when it
    /// holds none of them.
    pub(crate) fn clipped(&self, groups: KeyGroupRange) -> Option<Shard<T>> {
        let groups = self.groups.intersection(groups);
        if groups.is_empty() {
            return None;
        }
        let runs = self.runs.iter().map(|run| {
            let tables = run.in_groups(groups).iter().filter_map(|table| table.clipped(groups));
            Run::new(run.level, tables.collect())
        });
        let runs = runs.filter(|run| !run.tables.is_empty()).collect();
        Some(Shard { groups, states: self.states.clone(), runs })
    }

    /// This shard and the next as one.
    ///
    /// Their key groups are disjoint, so it does not matter which run of one is joined with which
    /// run of the other, as long as each keeps its order: the deepest first, and runs of one level
    /// with each other, so that none becomes deeper by it.
    fn united(self, next: Shard<T>) -> Shard<T> {
        let (mut left, mut right) = (self.runs, next.runs);
        let mut runs = Vec::with_capacity(left.len().max(right.len()));
        loop {
            let run = match (left.last().map(|run| run.level), right.last().map(|run| run.level)) {
                (None, None) => break,
                (Some(a), Some(b)) if a == b => left.pop().zip(right.pop()).map(|(a, b)| zip(a, b)),
                (Some(a), b) if b.is_none_or(|b| a > b) => left.pop(),
                _ => right.pop(),
            };
            runs.extend(run);
        }
        runs.reverse();
        let groups = groups_between(span(self.groups).0, span(next.groups).1);
        Shard { groups, states: self.states, runs }
    }
}

/// Two runs of disjoint key groups as one. A table that both see parts of is seen once.
fn zip<T: Clone>(mut run: Run<T>, next: Run<T>) -> Run<T> {
    let mut next = next.tables.into_iter();
    let first = next.next();
    let joined = match (run.tables.last(), &first) {
        (Some(last), Some(first)) => last.joined(first),
        _ => None,
    };
    match joined {
        Some(joined) => {
            run.tables.pop();
            run.tables.push(joined);
        }
        None => run.tables.extend(first),
    }
    run.tables.extend(next);
    run
}

/// Unites neighbouring shards that number their states alike and have the same eras; `shards` are
/// disjoint.
pub(crate) fn unite<T: Clone>(mut shards: Vec<Shard<T>>) -> Vec<Shard<T>> {
    shards.sort_by_key(|shard| shard.groups.first());
    let mut united: Vec<Shard<T>> = Vec::with_capacity(shards.len());
    for shard in shards {
        match united.pop() {
            Some(last)
                if last.states == shard.states && span(last.groups).1 == span(shard.groups).0 =>
            {
                united.push(last.united(shard));
            }
            last => united.extend(last.into_iter().chain([shard])),
        }
    }
    united
}
