//! The batches of a log, in order, as an instance shares them with its checkpoints.
//!
//! A checkpoint needs all batches since the last materialization: thousands, each somewhere else in memory,
//! so that counting one more user of each would take its synchronous part milliseconds. They hang in binary
//! trees instead, none larger than the one before it, and who clones the list touches the roots only.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::format::LogPosition;
use crate::writer::Chunk;

/// So many batches are a leaf at most: each node is a place in memory of its own, too.
const LEAF: usize = 64;

/// Batches without a gap. Cloning it, and cutting it, costs the logarithm of its length.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChunkList {
    trees: VecDeque<Tree>,
    len: usize,
}

#[derive(Debug, Clone)]
struct Tree {
    len: usize,
    /// Where its first batch ends, and its last.
    ends: (LogPosition, LogPosition),
    node: Node,
}

#[derive(Debug, Clone)]
enum Node {
    Leaf(Arc<Vec<Arc<Chunk>>>),
    Pair(Arc<[Tree; 2]>),
}

impl Tree {
    /// Of one batch at least.
    fn leaf(chunks: Vec<Arc<Chunk>>) -> Option<Self> {
        let ends = (chunks.first()?.to, chunks.last()?.to);
        Some(Tree { len: chunks.len(), ends, node: Node::Leaf(Arc::new(chunks)) })
    }

    /// This one and the next one as one.
    fn join(self, next: Tree) -> Self {
        let (len, ends) = (self.len + next.len, (self.ends.0, next.ends.1));
        let node = match (self.node, next.node) {
            (Node::Leaf(mut chunks), Node::Leaf(more)) if len <= LEAF => {
                Arc::make_mut(&mut chunks).extend(Arc::unwrap_or_clone(more));
                Node::Leaf(chunks)
            }
            (left, right) => {
                let left = Tree { len: self.len, ends: self.ends, node: left };
                let right = Tree { len: next.len, ends: next.ends, node: right };
                Node::Pair(Arc::new([left, right]))
            }
        };
        Tree { len, ends, node }
    }
}

impl ChunkList {
    /// How many batches it has.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where its last batch ends.
    pub(crate) fn end(&self) -> Option<LogPosition> {
        self.trees.back().map(|tree| tree.ends.1)
    }

    /// Adds a batch behind all others.
    pub(crate) fn push(&mut self, chunk: Arc<Chunk>) {
        let ends = (chunk.to, chunk.to);
        let mut last = Tree { len: 1, ends, node: Node::Leaf(Arc::new(vec![chunk])) };
        while let Some(before) = self.trees.pop_back() {
            if before.len > last.len {
                self.trees.push_back(before);
                break;
            }
            last = before.join(last);
        }
        self.trees.push_back(last);
        self.len += 1;
    }

    /// Takes out the batches that hold nothing from `position` on.
    pub(crate) fn cut_off(&mut self, position: LogPosition) -> Self {
        let mut before = ChunkList::default();
        while let Some(first) = self.trees.pop_front() {
            if first.ends.0 > position {
                self.trees.push_front(first);
                break;
            }
            if first.ends.1 <= position {
                before.len += first.len;
                before.trees.push_back(first);
                continue;
            }
            let halves = match first.node {
                Node::Pair(pair) => Arc::unwrap_or_clone(pair).map(Some),
                Node::Leaf(chunks) => {
                    let mut chunks = Arc::unwrap_or_clone(chunks);
                    let later = chunks.partition_point(|chunk| chunk.to <= position);
                    let later = chunks.split_off(later);
                    [Tree::leaf(chunks), Tree::leaf(later)]
                }
            };
            halves.into_iter().rev().flatten().for_each(|half| self.trees.push_front(half));
        }
        self.len -= before.len;
        before
    }

    /// All batches, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        leaves(self.trees.iter().rev().collect(), |[left, right]| [right, left])
            .flat_map(|chunks| chunks.iter())
    }

    /// All batches, the newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        leaves(self.trees.iter().collect(), |[left, right]| [left, right])
            .flat_map(|chunks| chunks.iter().rev())
    }
}

/// The leaves of trees, the last tree's first. `stacked` puts the half first that comes later.
fn leaves<'a>(
    mut stack: Vec<&'a Tree>,
    stacked: impl Fn(&'a [Tree; 2]) -> [&'a Tree; 2],
) -> impl Iterator<Item = &'a [Arc<Chunk>]> {
    std::iter::from_fn(move || {
        loop {
            match &stack.pop()?.node {
                Node::Leaf(chunks) => return Some(&chunks[..]),
                Node::Pair(pair) => stack.extend(stacked(pair)),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunk(from: u64, to: u64) -> Arc<Chunk> {
        Arc::new(Chunk::new(LogPosition(from), LogPosition(to)))
    }

    fn ends(list: &ChunkList) -> Vec<u64> {
        let ends: Vec<u64> = list.iter().map(|chunk| chunk.to.0).collect();
        let mut backwards: Vec<u64> = list.newest_first().map(|chunk| chunk.to.0).collect();
        backwards.reverse();
        assert_eq!(ends, backwards);
        assert_eq!((ends.len(), ends.last().copied()), (list.len(), list.end().map(|to| to.0)));
        ends
    }

    proptest! {
        /// It is a queue, and a clone stays what it was.
        #[test]
        fn it_is_a_queue(steps in proptest::collection::vec((1_u64..9, 0_u64..12, 0..4), 0..300)) {
            let (mut list, mut model) = (ChunkList::default(), VecDeque::new());
            let mut clones = Vec::new();
            let (mut begin, mut end) = (0, 0);
            for (length, cut, kind) in steps {
                if kind == 0 {
                    begin = (begin + 3 * cut).min(end);
                    let before = list.cut_off(LogPosition(begin));
                    let count = model.iter().take_while(|to| **to <= begin).count();
                    prop_assert_eq!(ends(&before), model.drain(..count).collect::<Vec<u64>>());
                } else {
                    list.push(chunk(end, end + length));
                    end += length;
                    model.push_back(end);
                }
                prop_assert_eq!(ends(&list), Vec::from(model.clone()));
                if kind == 1 {
                    clones.push((list.clone(), Vec::from(model.clone())));
                }
            }
            for (clone, model) in clones {
                prop_assert_eq!(ends(&clone), model);
            }
        }

        /// Few roots are all that a clone touches.
        #[test]
        fn it_has_few_roots(count in 1_usize..5_000, cut in 0_u64..5_000) {
            let mut list = ChunkList::default();
            (0..count as u64).for_each(|at| list.push(chunk(at, at + 1)));
            let before = list.cut_off(LogPosition(cut));
            for list in [list, before] {
                let bound = 2 * (usize::BITS - list.len().leading_zeros()) as usize;
                prop_assert!(list.trees.len() <= bound, "{} in {}", list.len(), list.trees.len());
            }
        }
    }

    /// What is cut off ends as soon as nobody else has it.
    #[test]
    fn what_is_cut_off_is_let_go() {
        let mut list = ChunkList::default();
        let chunks: Vec<Arc<Chunk>> = (0..1_000).map(|at| chunk(at, at + 1)).collect();
        chunks.iter().for_each(|chunk| list.push(Arc::clone(chunk)));
        let clone = list.clone();
        drop(list.cut_off(LogPosition(537)));
        assert!(chunks.iter().all(|chunk| Arc::strong_count(chunk) > 1), "the clone has it");
        drop(clone);
        let users = chunks.iter().map(Arc::strong_count);
        assert_eq!(users.filter(|users| *users == 1).count(), 537);
    }
}
