//! Whose ends a checkpoint puts side by side: a pure decision.
//!
//! After a restore the first read of a key looks into each run that may have it, and needs the end of a
//! table of each: a request each. Tables of one level that lie above each other get copies of their ends
//! in one object, so that a request reads them together. There are few levels.
//!
//! A copy costs its bytes once more, and again when another table comes to lie above those that it stands
//! beside. So it is only made where there are many runs, and only as long as what is written is a small
//! share of the new tables: it is they that pay, however often checkpoints are taken.

use std::collections::HashSet;
use std::hash::Hash;

use weir_state_api::KeyGroupRange;

/// As many runs are read one by one. With a block of the oldest and a manifest that is an object, the
/// first read takes five requests.
const FEW_RUNS: usize = 3;

/// Copies take at most this share of the tables because of which they are made: one part in so many.
const SHARE: u64 = 8;

/// A part of a table that is an object, as the plan sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored<I> {
    pub(crate) id: I,
    /// The shard that sees it.
    pub(crate) shard: usize,
    pub(crate) level: u8,
    pub(crate) visible: KeyGroupRange,
    /// The length of the whole file.
    pub(crate) length: u64,
    pub(crate) end_length: u64,
    /// Whether there is a copy of its end that may be named.
    pub(crate) copied: bool,
    /// Whether its end is in memory: it is not read to be copied.
    pub(crate) at_hand: bool,
}

impl<I> Stored<I> {
    /// Its first group, and the one behind its last.
    fn span(&self) -> (u16, u16) {
        let first = self.visible.first().0;
        (first, first + self.visible.len() as u16) // both ends of a range are u16
    }
}

/// The tables whose ends go into a new object, in this order; those above each other are neighbours.
/// `tables` are the newest first.
pub(crate) fn plan<I: Copy + Eq + Hash>(tables: &[Stored<I>]) -> Vec<I> {
    let mut chosen: Vec<I> = Vec::new();
    if most_above_each_other(tables) <= FEW_RUNS {
        return chosen;
    }
    let mut known = HashSet::new();
    for piled in piles(tables) {
        let new: Vec<&Stored<I>> = piled.iter().copied().filter(|of| !of.copied).collect();
        let lengths = new.iter().map(|of| of.length).sum::<u64>();
        // All of them anew, or those that are new, whichever the new ones can pay.
        let choice = [piled, new].into_iter().find(|tables| {
            let ends: u64 = tables.iter().map(|of| of.end_length).sum();
            tables.len() > 1 && ends <= lengths / SHARE
        });
        let ids = choice.into_iter().flatten().map(|of| of.id);
        chosen.extend(ids.filter(|id| known.insert(*id)));
    }
    chosen
}

/// In how many tables a read looks at most.
fn most_above_each_other<I>(tables: &[Stored<I>]) -> usize {
    let bounds = tables.iter().flat_map(|of| {
        let (first, behind) = of.span();
        [(of.shard, first, true), (of.shard, behind, false)]
    });
    let mut bounds: Vec<_> = bounds.collect();
    // Where one ends and another begins, the end comes first.
    bounds.sort_unstable();
    let (mut open, mut most) = (0_usize, 0);
    for (.., begins) in bounds {
        open = if begins { open + 1 } else { open.saturating_sub(1) };
        most = most.max(open);
    }
    most
}

/// Tables of one shard and level that overlap, directly or through others. Of a table that is seen in
/// parts, the first part in a pile counts.
fn piles<I: Copy + Eq + Hash>(tables: &[Stored<I>]) -> Vec<Vec<&Stored<I>>> {
    let mut sorted: Vec<&Stored<I>> = tables.iter().filter(|of| of.at_hand).collect();
    // Stable: the newest of those that begin alike stays the first.
    sorted.sort_by_key(|of| (of.shard, of.level, of.span().0));
    let mut piles: Vec<Vec<&Stored<I>>> = Vec::new();
    let mut in_pile = HashSet::new();
    let (mut place, mut end) = (None, 0);
    for of in sorted {
        let (first, behind) = of.span();
        if place != Some((of.shard, of.level)) || first >= end {
            piles.push(Vec::new());
            in_pile.clear();
            (place, end) = (Some((of.shard, of.level)), behind);
        }
        end = end.max(behind);
        if let Some(pile) = piles.last_mut()
            && in_pile.insert(of.id)
        {
            pile.push(of);
        }
    }
    piles
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u32; 0] = [];

    /// A table of these groups with an end of a hundredth of it, that nobody has copied.
    fn table(id: u32, level: u8, groups: (u16, u16), length: u64) -> Stored<u32> {
        Stored {
            id,
            shard: 0,
            level,
            visible: KeyGroupRange::new(groups.0, groups.1),
            length,
            end_length: length / 100,
            copied: false,
            at_hand: true,
        }
    }

    fn flushed(ids: std::ops::Range<u32>) -> Vec<Stored<u32>> {
        ids.map(|id| table(id, 0, (0, 63), 1_000)).collect()
    }

    fn copied(tables: Vec<Stored<u32>>) -> Vec<Stored<u32>> {
        tables.into_iter().map(|of| Stored { copied: true, ..of }).collect()
    }

    #[test]
    fn few_runs_are_left_as_they_are() {
        assert_eq!(plan::<u32>(&[]), NONE);
        assert_eq!(plan(&flushed(0..3)), NONE);
        assert_eq!(plan(&flushed(0..4)), [0, 1, 2, 3]);
        // In tables, not on top of each other.
        let beside = (0..9).map(|at| table(at.into(), 1, (7 * at, 7 * at + 6), 1_000));
        let beside: Vec<_> = beside.collect();
        assert_eq!(plan(&[flushed(10..12), beside].concat()), NONE);
    }

    #[test]
    fn tables_of_one_level_that_lie_above_each_other_are_neighbours() {
        let tables = [
            flushed(0..2),
            vec![
                table(2, 1, (0, 15), 1_000),
                table(3, 1, (32, 63), 1_000),
                table(4, 1, (0, 31), 1_000),
                table(5, 1, (40, 50), 1_000),
                // The oldest run: nothing of its level lies above or below.
                table(6, 2, (0, 31), 1_000),
                table(7, 2, (32, 63), 1_000),
            ],
        ]
        .concat();
        assert_eq!(plan(&tables), [0, 1, 2, 4, 3, 5]);
    }

    /// A table of another shard is not above one of this.
    #[test]
    fn shards_are_apart() {
        let mut tables = flushed(0..5);
        tables[3].shard = 1;
        tables[4].shard = 1;
        assert_eq!(plan(&tables), NONE);
    }

    #[test]
    fn nothing_is_copied_again_because_of_nothing_or_of_little() {
        assert_eq!(plan(&copied(flushed(0..8))), NONE);
        let with_new = |new: Vec<Stored<u32>>| plan(&[new, copied(flushed(0..8))].concat());
        assert_eq!(with_new(flushed(8..9)), [8, 0, 1, 2, 3, 4, 5, 6, 7]);
        let small = |ids: std::ops::Range<u32>| -> Vec<_> {
            ids.map(|id| table(id, 0, (0, 63), 100)).collect()
        };
        assert_eq!(with_new(small(8..9)), NONE, "80 bytes because of 100");
        assert_eq!(with_new(small(8..11)), [8, 9, 10], "those alone");
        // Keys without much of a value: ends are a fourth of the tables.
        let dense = flushed(0..8).into_iter().map(|of| Stored { end_length: 250, ..of });
        assert_eq!(plan(&dense.collect::<Vec<_>>()), NONE);
    }

    #[test]
    fn ends_that_would_have_to_be_read_are_not_copied() {
        let mut tables = flushed(0..5);
        tables[1].at_hand = false;
        assert_eq!(plan(&tables), [0, 2, 3, 4]);
    }

    /// What a compaction has left of a table is two parts.
    #[test]
    fn a_table_in_parts_is_copied_once() {
        let parts = [table(9, 0, (0, 3), 1_000), table(9, 0, (8, 63), 1_000)];
        assert_eq!(plan(&[flushed(0..4), parts.to_vec()].concat()), [0, 1, 2, 3, 9]);
    }
}
