//! The timers of one queue in one key group: an ordered sequence, and a log of what was registered and
//! deleted since it was last brought up to date.
//!
//! Registering appends to the log, which is all that most timers cost until they are due. The log is
//! sorted and merged into the sequence at once: many timers that go to the same chunk are one pass
//! over it, where inserting each would be a search in memory that no cache holds. That happens when
//! the log is as long as the sequence, within limits, and when the first timer is needed.

use std::sync::Arc;

use crate::sorted_chunks::SortedChunks;
use crate::stored_timer::StoredTimer;

/// The log may always have so many entries.
const MIN_LOG_LEN: usize = 64;

/// And never more, so that no single call pays for many.
const MAX_LOG_LEN: usize = 4096;

/// A timer is registered, or deleted.
#[derive(Debug, Clone)]
struct LogEntry {
    timer: StoredTimer,
    registered: bool,
}

type Log = Vec<LogEntry>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct TimerGroup {
    sorted: SortedChunks<StoredTimer>,
    /// Entries of the log that snapshots hold too, before the others.
    sealed: Vec<Arc<Log>>,
    log: Log,
    /// Whether anything in the log is a deletion.
    has_deletions: bool,
    /// Bytes behind the timers of `sorted`.
    content_bytes: usize,
}

/// The timers of a group as they were when a snapshot began.
#[derive(Debug)]
pub(crate) struct FrozenTimers {
    sorted: SortedChunks<StoredTimer>,
    logs: Vec<Arc<Log>>,
}

impl FrozenTimers {
    /// Whether there is certainly no timer.
    pub(crate) fn are_none(&self) -> bool {
        self.sorted.is_empty() && self.logs.is_empty()
    }

    /// The timers in order.
    pub(crate) fn into_sorted(mut self) -> SortedChunks<StoredTimer> {
        let log: Log = self.logs.iter().flat_map(|log| log.iter().cloned()).collect();
        self.sorted.apply(last_of_each(&log), |_, _| {});
        self.sorted
    }
}

/// What a log comes to: the timers in it in order, and whether they are registered in the end.
fn last_of_each(log: &[LogEntry]) -> Vec<(StoredTimer, bool)> {
    // Times decide between most timers; to sort these and numbers moves little.
    let mut order: Vec<_> = log.iter().map(|entry| entry.timer.time).zip(0..).collect();
    order.sort_unstable();
    let mut changes: Vec<(StoredTimer, bool)> = Vec::with_capacity(log.len());
    for same_time in order.chunk_by_mut(|(a, _), (b, _)| a == b) {
        // Stable: of one timer the entries stay in the order of the calls.
        same_time.sort_by(|(_, a), (_, b)| log[*a].timer.cmp(&log[*b].timer));
        for LogEntry { timer, registered } in same_time.iter().map(|(_, index)| &log[*index]) {
            match changes.last_mut() {
                Some(last) if last.0 == *timer => last.1 = *registered,
                _ => changes.push((timer.clone(), *registered)),
            }
        }
    }
    changes
}

impl TimerGroup {
    /// A group of these timers.
    pub(crate) fn new(sorted: SortedChunks<StoredTimer>) -> Self {
        let content_bytes = sorted.iter().map(StoredTimer::heap_bytes).sum();
        TimerGroup { sorted, content_bytes, ..TimerGroup::default() }
    }

    /// The number of timers. Costs a look at all of the log, and a search for each.
    pub(crate) fn len(&self) -> usize {
        let log = self.sealed.iter().flat_map(|log| log.iter()).chain(&self.log);
        let mut len = self.sorted.len();
        for (timer, registered) in last_of_each(&log.cloned().collect::<Log>()) {
            match (self.sorted.search(|other| other.cmp(&timer)).is_ok(), registered) {
                (false, true) => len += 1,
                (true, false) => len -= 1,
                _ => {}
            }
        }
        len
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let logs = self.sealed.iter().map(|log| &**log).chain([&self.log]);
        let content = |log: &Log| log.iter().map(|entry| entry.timer.heap_bytes()).sum::<usize>();
        let logged = logs.map(|log| log.capacity() * size_of::<LogEntry>() + content(log));
        let sorted = self.sorted.len() * size_of::<StoredTimer>() + self.content_bytes;
        size_of::<TimerGroup>() + sorted + logged.sum::<usize>()
    }

    /// Adds a timer; one that is there already stays one.
    #[inline]
    pub(crate) fn register(&mut self, timer: StoredTimer) {
        self.log.push(LogEntry { timer, registered: true });
    }

    /// Removes a timer if it is there.
    pub(crate) fn delete(&mut self, timer: StoredTimer) {
        self.log.push(LogEntry { timer, registered: false });
        self.has_deletions = true;
    }

    /// Whether there may be a timer.
    pub(crate) fn has_any(&self) -> bool {
        !self.sorted.is_empty() || self.has_log()
    }

    /// Whether there is anything that the sequence does not have yet.
    #[inline]
    pub(crate) fn has_log(&self) -> bool {
        !self.log.is_empty() || !self.sealed.is_empty()
    }

    /// Whether the first timer may not be there any more.
    pub(crate) fn has_deletions(&self) -> bool {
        self.has_deletions
    }

    /// Whether it is time to bring the sequence up to date.
    #[inline]
    pub(crate) fn is_log_full(&self) -> bool {
        self.log.len() >= MIN_LOG_LEN
            && self.log.len() >= self.sorted.len().clamp(MIN_LOG_LEN, MAX_LOG_LEN)
    }

    /// Brings the sequence up to date.
    pub(crate) fn settle(&mut self) {
        let mut log = std::mem::take(&mut self.log);
        if !self.sealed.is_empty() {
            let sealed = self.sealed.drain(..).flat_map(Arc::unwrap_or_clone);
            log = sealed.chain(log).collect();
        }
        self.has_deletions = false;
        let (mut came, mut gone) = (0, 0);
        self.sorted.apply(last_of_each(&log), |timer, registered| {
            *if registered { &mut came } else { &mut gone } += timer.heap_bytes();
        });
        self.content_bytes = self.content_bytes + came - gone;
        log.clear();
        log.shrink_to(MIN_LOG_LEN);
        self.log = log;
    }

    /// The first timer, once everything is settled.
    pub(crate) fn first(&self) -> Option<&StoredTimer> {
        self.sorted.first()
    }

    /// Removes and returns the first timer, once everything is settled.
    pub(crate) fn pop_first(&mut self) -> Option<StoredTimer> {
        let first = self.sorted.pop_first()?;
        self.content_bytes -= first.heap_bytes();
        Some(first)
    }

    /// The timers as they are now: O(1).
    pub(crate) fn freeze(&mut self) -> FrozenTimers {
        if !self.log.is_empty() {
            self.sealed.push(Arc::new(std::mem::take(&mut self.log)));
        }
        FrozenTimers { sorted: self.sorted.clone(), logs: self.sealed.clone() }
    }

    /// Takes all timers out.
    pub(crate) fn take(&mut self) -> SortedChunks<StoredTimer> {
        self.settle();
        std::mem::take(self).sorted
    }
}
