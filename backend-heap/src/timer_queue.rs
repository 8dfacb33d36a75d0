//! Timer queues: an ordered set per key group, and the order over all of them.

use std::cmp::Ordering;

use weir_state_api::Millis;

use crate::compact_bytes::CompactBytes;
use crate::head_index::HeadIndex;
use crate::sorted_chunks::{Position, SortedChunks};

/// A stored timer, ordered by time, key bytes, namespace bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredTimer {
    /// When it is due.
    pub(crate) time: Millis,
    key_len: u32,
    /// The key followed by the namespace.
    bytes: CompactBytes,
}

impl StoredTimer {
    pub(crate) fn new(time: Millis, key: &[u8], namespace: &[u8]) -> Self {
        // Keys have at most 64 KiB.
        StoredTimer { time, key_len: key.len() as u32, bytes: CompactBytes::concat(key, namespace) }
    }

    /// The key and the namespace.
    pub(crate) fn key_and_namespace(&self) -> (&[u8], &[u8]) {
        self.bytes.as_slice().split_at(self.key_len as usize)
    }

    #[inline]
    fn compare(&self, time: Millis, key: &[u8], namespace: &[u8]) -> Ordering {
        self.time.cmp(&time).then_with(|| self.key_and_namespace().cmp(&(key, namespace)))
    }
}

impl PartialOrd for StoredTimer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StoredTimer {
    fn cmp(&self, other: &Self) -> Ordering {
        let (key, namespace) = other.key_and_namespace();
        self.compare(other.time, key, namespace)
    }
}

/// The timers of one queue in all key groups of an instance.
#[derive(Debug)]
pub(crate) struct TimerQueue {
    groups: Vec<SortedChunks<StoredTimer>>,
    /// The epoch of the last change of each group.
    changed: Vec<u32>,
    epoch: u32,
    heads: HeadIndex<StoredTimer>,
    len: usize,
    content_bytes: usize,
}

impl TimerQueue {
    /// An empty queue over so many key groups, in this epoch.
    pub(crate) fn new(groups: usize, epoch: u32) -> Self {
        TimerQueue {
            groups: std::iter::repeat_with(SortedChunks::default).take(groups).collect(),
            changed: vec![epoch; groups],
            epoch,
            heads: HeadIndex::new(groups),
            len: 0,
            content_bytes: 0,
        }
    }

    /// The number of timers.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let per_group = size_of::<SortedChunks<StoredTimer>>() + size_of::<Option<StoredTimer>>();
        self.content_bytes + self.len * size_of::<StoredTimer>() + self.groups.len() * per_group
    }

    /// Adds a timer; one that is there already stays one.
    pub(crate) fn register(&mut self, group: usize, time: Millis, key: &[u8], namespace: &[u8]) {
        let timers = &mut self.groups[group];
        let Err(at) = timers.search(|timer| timer.compare(time, key, namespace)) else { return };
        let timer = StoredTimer::new(time, key, namespace);
        self.content_bytes += timer.bytes.heap_bytes();
        self.len += 1;
        timers.insert(at, timer);
        self.changed[group] = self.epoch;
        if at == Position::START {
            self.refresh(group);
        }
    }

    /// Removes a timer if it is there.
    pub(crate) fn delete(&mut self, group: usize, time: Millis, key: &[u8], namespace: &[u8]) {
        let found = self.groups[group].search(|timer| timer.compare(time, key, namespace));
        if let Ok(at) = found {
            self.remove(group, at);
        }
    }

    /// Removes and returns the first timer of all groups if it is due, with its group's index.
    pub(crate) fn poll(&mut self, now: Millis) -> Option<(usize, StoredTimer)> {
        let (group, head) = self.heads.first()?;
        (head.time <= now).then(|| (group, self.remove(group, Position::START)))
    }

    /// The time of the first timer of all groups.
    pub(crate) fn next_time(&self) -> Option<Millis> {
        self.heads.first().map(|(_, head)| head.time)
    }

    /// The timers of a group as they are now: O(1).
    pub(crate) fn freeze(&self, group: usize) -> SortedChunks<StoredTimer> {
        self.groups[group].clone()
    }

    /// Replaces the timers of a group; returns the former ones.
    pub(crate) fn replace(
        &mut self,
        group: usize,
        timers: SortedChunks<StoredTimer>,
    ) -> SortedChunks<StoredTimer> {
        let bytes = |timers: &SortedChunks<StoredTimer>| -> usize {
            timers.iter().map(|timer| timer.bytes.heap_bytes()).sum()
        };
        self.len += timers.len();
        self.content_bytes += bytes(&timers);
        let former = std::mem::replace(&mut self.groups[group], timers);
        self.len -= former.len();
        self.content_bytes -= bytes(&former);
        self.changed[group] = self.epoch;
        self.refresh(group);
        former
    }

    /// Whether the timers of a group have changed after an epoch.
    pub(crate) fn changed_after(&self, group: usize, epoch: u32) -> bool {
        self.changed[group] > epoch
    }

    /// Begins an epoch.
    pub(crate) fn begin_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

    fn remove(&mut self, group: usize, at: Position) -> StoredTimer {
        let timer = self.groups[group].remove(at);
        self.changed[group] = self.epoch;
        self.content_bytes -= timer.bytes.heap_bytes();
        self.len -= 1;
        if at == Position::START {
            self.refresh(group);
        }
        timer
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
        assert_eq!((queue.next_time(), queue.len(), queue.content_bytes), (None, 0, 0));
        assert_eq!(frozen.len(), 2);
    }
}
