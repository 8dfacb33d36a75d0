//! The smallest of many heads: a tournament tree over the key groups of a queue.

/// The smallest element of each of a fixed number of groups, and which of them is the smallest.
///
/// Leaf `i` of the tree is group `i`; every inner node names the group with the smaller head of its
/// two children. Changing one head replays the matches on its way to the root: log2(groups).
#[derive(Debug)]
pub(crate) struct HeadIndex<T> {
    heads: Vec<Option<T>>,
    /// Node 1 is the root, the children of `n` are `2n` and `2n + 1`, the leaves come last.
    winners: Vec<u32>,
}

impl<T: Ord> HeadIndex<T> {
    /// An index over so many groups, all without a head.
    pub(crate) fn new(groups: usize) -> Self {
        let leaves = groups.next_power_of_two();
        let mut winners = vec![0; 2 * leaves];
        for (node, winner) in winners.iter_mut().enumerate() {
            // Without heads the left child always wins: the first leaf below the node.
            let mut leaf = node.max(1);
            while leaf < leaves {
                leaf *= 2;
            }
            *winner = (leaf - leaves) as u32;
        }
        HeadIndex { heads: std::iter::repeat_with(|| None).take(groups).collect(), winners }
    }

    /// Sets or clears the head of a group.
    pub(crate) fn set(&mut self, group: usize, head: Option<T>) {
        self.heads[group] = head;
        let heads = &self.heads;
        let head = |group: u32| heads.get(group as usize).and_then(Option::as_ref);
        let mut node = self.winners.len() / 2 + group;
        let (mut winner, mut first) = (group as u32, head(group as u32));
        while node > 1 {
            // Who has won so far meets who has won beside it; of equals the left one wins.
            let rival = self.winners[node ^ 1];
            let loses = match (head(rival), first) {
                (Some(rival), Some(first)) if node.is_multiple_of(2) => rival < first,
                (Some(rival), Some(first)) => rival <= first,
                (rival, None) => rival.is_some() || !node.is_multiple_of(2),
                (None, Some(_)) => false,
            };
            if loses {
                (winner, first) = (rival, head(rival));
            }
            node /= 2;
            self.winners[node] = winner;
        }
    }

    /// The head of a group.
    #[inline]
    pub(crate) fn get(&self, group: usize) -> Option<&T> {
        self.heads[group].as_ref()
    }

    /// The group with the smallest head, and that head.
    #[inline]
    pub(crate) fn first(&self) -> Option<(usize, &T)> {
        let group = self.winners[1] as usize;
        self.heads.get(group)?.as_ref().map(|head| (group, head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_head_is_first_for_any_number_of_groups() {
        for groups in [0_usize, 1, 2, 3, 5, 8, 127, 128] {
            let mut index = HeadIndex::new(groups);
            let mut model = vec![None; groups];
            assert_eq!(index.first(), None);
            let mut random = 1_u64;
            for _ in 0..groups * 20 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let group = (random >> 33) as usize % groups;
                let head = (!random.is_multiple_of(4)).then_some((random >> 20) % 50);
                index.set(group, head);
                model[group] = head;
                let smallest = model.iter().flatten().min();
                assert_eq!(index.first().map(|(_, head)| head), smallest);
                if let Some((group, head)) = index.first() {
                    assert_eq!(model[group].as_ref(), Some(head));
                }
            }
        }
    }
}
