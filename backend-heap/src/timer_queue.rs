//! Timer queues: the timers of each key group, and the order over all of them.

use weir_state_api::Millis;

use crate::head_index::HeadIndex;
use crate::sorted_chunks::SortedChunks;
use crate::stored_timer::StoredTimer;
use crate::timer_group::{FrozenTimers, TimerGroup};

/// The timers of one queue in all key groups of an instance.
#[derive(Debug)]
pub(crate) struct TimerQueue {
    groups: Vec<TimerGroup>,
    /// The epoch of the last call that changed each group.
    changed: Vec<u32>,
    epoch: u32,
    /// The first timer of each group, or one that comes before it and was deleted, as long as the
    /// group has a log.
    heads: HeadIndex<StoredTimer>,
}

impl TimerQueue {
    /// An empty queue over so many key groups, in this epoch.
    pub(crate) fn new(groups: usize, epoch: u32) -> Self {
        TimerQueue {
            groups: std::iter::repeat_with(TimerGroup::default).take(groups).collect(),
            changed: vec![epoch; groups],
            epoch,
            heads: HeadIndex::new(groups),
        }
    }

    /// The number of timers; as expensive as [`TimerGroup::len`].
    pub(crate) fn len(&self) -> usize {
        self.groups.iter().map(TimerGroup::len).sum()
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let heads = self.groups.len() * size_of::<Option<StoredTimer>>();
        self.groups.iter().map(TimerGroup::memory_bytes).sum::<usize>() + heads
    }

    /// Adds a timer; one that is there already stays one.
    #[inline]
    pub(crate) fn register(&mut self, group: usize, time: Millis, key: &[u8], namespace: &[u8]) {
        let timer = StoredTimer::new(time, key, namespace);
        if self.heads.get(group).is_none_or(|head| timer < *head) {
            self.heads.set(group, Some(timer.clone()));
        }
        self.groups[group].register(timer);
        self.changed[group] = self.epoch;
        self.settle_if_full(group);
    }

    /// Removes a timer if it is there.
    pub(crate) fn delete(&mut self, group: usize, time: Millis, key: &[u8], namespace: &[u8]) {
        if self.groups[group].has_any() {
            self.groups[group].delete(StoredTimer::new(time, key, namespace));
            self.changed[group] = self.epoch;
            self.settle_if_full(group);
        }
    }

    /// Removes and returns the first timer of all groups if it is due, with its group's index.
    pub(crate) fn poll(&mut self, now: Millis) -> Option<(usize, StoredTimer)> {
        loop {
            let (group, head) = self.heads.first()?;
            if head.time > now {
                return None;
            }
            if self.groups[group].has_log() {
                self.settle(group);
                continue;
            }
            let first = self.groups[group].pop_first();
            self.changed[group] = self.epoch;
            self.refresh(group);
            return first.map(|first| (group, first));
        }
    }

    /// The time of the first timer of all groups.
    pub(crate) fn next_time(&mut self) -> Option<Millis> {
        loop {
            let (group, head) = self.heads.first()?;
            if !self.groups[group].has_deletions() {
                return Some(head.time);
            }
            self.settle(group);
        }
    }

    /// The timers of a group as they are now: O(1).
    pub(crate) fn freeze(&mut self, group: usize) -> FrozenTimers {
        self.groups[group].freeze()
    }

    /// Replaces the timers of a group; returns the former ones.
    pub(crate) fn replace(
        &mut self,
        group: usize,
        timers: SortedChunks<StoredTimer>,
    ) -> SortedChunks<StoredTimer> {
        let former = self.groups[group].take();
        self.groups[group] = TimerGroup::new(timers);
        self.changed[group] = self.epoch;
        self.refresh(group);
        former
    }

    /// Whether the timers of a group may have changed after an epoch.
    pub(crate) fn changed_after(&self, group: usize, epoch: u32) -> bool {
        self.changed[group] > epoch
    }

    /// Begins an epoch.
    pub(crate) fn begin_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

    #[inline]
    fn settle_if_full(&mut self, group: usize) {
        if self.groups[group].is_log_full() {
            self.settle(group);
        }
    }

    #[inline(never)]
    fn settle(&mut self, group: usize) {
        self.groups[group].settle();
        self.refresh(group);
    }

    fn refresh(&mut self, group: usize) {
        self.heads.set(group, self.groups[group].first().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_by_time_then_key_then_namespace_over_all_groups() {
        let mut queue = TimerQueue::new(3, 1);
        let timers: [(usize, Millis, &[u8], &[u8]); 7] = [
            (2, 5, b"a", b""),
            (0, 5, b"ab", b""),
            (1, 5, b"a", b"b"),
            (1, -3, b"z", b""),
            (0, Millis::MAX, b"", b""),
            (0, Millis::MIN, b"", b""),
            (2, 5, b"", b"zz"),
        ];
        for (group, time, key, namespace) in timers.into_iter().chain(timers) {
            queue.register(group, time, key, namespace);
        }
        assert_eq!(queue.len(), 7);
        let frozen = queue.freeze(1);
        queue.register(1, 9, b"later", b"");
        queue.delete(1, 9, b"later", b"");
        let mut polled = Vec::new();
        while let Some((group, timer)) = queue.poll(5) {
            let (key, namespace) = timer.key_and_namespace();
            polled.push((group, timer.time, key.to_vec(), namespace.to_vec()));
        }
        let polled: Vec<_> = polled.iter().map(|(g, t, k, n)| (*g, *t, &k[..], &n[..])).collect();
        let order = [5, 3, 6, 0, 2, 1].map(|index| timers[index]);
        assert_eq!(polled, order);
        assert_eq!(queue.next_time(), Some(Millis::MAX));
        queue.delete(0, 1, b"", b"");
        queue.delete(0, Millis::MAX, b"", b"");
        assert_eq!((queue.next_time(), queue.len()), (None, 0));
        assert_eq!(frozen.into_sorted().len(), 2);
    }

    #[test]
    fn a_log_counts_as_what_it_comes_to_and_snapshots_keep_theirs() {
        let mut queue = TimerQueue::new(2, 1);
        let mut model = std::collections::BTreeSet::new();
        let mut frozen = Vec::new();
        let mut random = 1_u64;
        for step in 0..6_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Long stretches of registering, then of deleting, so that logs fill up either way.
            let (time, deletes) = ((random >> 40) as i64 % 900, random >> 33 & 7);
            let group = (time % 2) as usize;
            let key = [time as u8];
            if deletes < if step / 1_000 % 2 == 0 { 2 } else { 6 } {
                queue.delete(group, time, &key, b"");
                model.remove(&(time, group));
            } else {
                queue.register(group, time, &key, b"");
                model.insert((time, group));
            }
            if step % 97 == 0 {
                assert_eq!(queue.len(), model.len(), "step {step}");
                assert_eq!(queue.next_time(), model.first().map(|(time, _)| *time));
            }
            if step % 501 == 0 {
                queue.begin_epoch(step + 1);
                let of_group = |wanted| model.iter().filter(move |(_, group)| *group == wanted);
                let times: Vec<_> = of_group(0).map(|(time, _)| *time).collect();
                frozen.push((queue.freeze(0), times));
                assert!(!queue.changed_after(0, step + 1), "holding on to a log changes nothing");
            }
            if step % 29 == 0 {
                let polled = queue.poll(500).map(|(group, timer)| (timer.time, group));
                let due = model.first().copied().filter(|(time, _)| *time <= 500);
                assert_eq!(polled, due);
                model.retain(|timer| Some(*timer) != due);
            }
        }
        for (frozen, times) in frozen {
            let sorted = frozen.into_sorted();
            assert!(sorted.iter().map(|timer| timer.time).eq(times));
        }
        let rest: Vec<_> = std::iter::from_fn(|| queue.poll(900)).collect();
        assert!(rest.iter().map(|(group, timer)| (timer.time, *group)).eq(model));
        assert_eq!(queue.len(), 0);
    }
}
