//! A queue over the databases of an instance.

use std::collections::BTreeSet;
use std::sync::Arc;

use rocksdb::{ReadOptions, WriteBatch};
use weir_state_api::stored_key::{
    STATE_PREFIX_LEN, group_of, push_group, push_state, push_timer, state_of, successor, time_of,
};
use weir_state_api::{
    HeadTimer, KeyGroup, Millis, Result, StateId, StateShape, TimerHead, TimerRef,
};

use crate::options::TimerMemory;
use crate::shard::{Shard, Shards};

/// Differences between memory and disk beyond which they are written: bounds what the synchronous
/// part of a snapshot has left to write.
const MAX_CHANGES: usize = 8_192;

/// Timers that a refill takes from each key group at least.
const MIN_PER_GROUP: usize = 32;

/// A timer queue: its head in memory, the rest on disk.
#[derive(Debug)]
pub(crate) struct TimerQueue {
    head: TimerHead,
    /// Stored keys are built here.
    buffer: Vec<u8>,
}

impl TimerQueue {
    /// A queue without timers.
    pub(crate) fn empty(memory: TimerMemory) -> Self {
        TimerQueue { head: TimerHead::empty(capacity(memory)), buffer: Vec::new() }
    }

    /// A queue whose timers are on disk, none of them before `first`.
    pub(crate) fn stored(memory: TimerMemory, first: Option<Millis>) -> Self {
        let from = first.map(|time| (time ^ Millis::MIN).to_be_bytes());
        let from = from.as_ref().map_or(&[][..], |time| &time[..]);
        TimerQueue { head: TimerHead::stored(capacity(memory), from), buffer: Vec::new() }
    }

    pub(crate) fn register(
        &mut self,
        queue: StateId,
        timer: &TimerRef<'_>,
        shards: &Shards,
    ) -> Result<()> {
        let shard = shards.of_key(timer.key)?;
        self.encode(shard.stored_id(queue), timer);
        let suffix = &self.buffer[STATE_PREFIX_LEN..];
        if !self.head.holds(suffix) {
            return shard.database.put(StateShape::Queue, &self.buffer, &[]);
        }
        self.head.insert((suffix.into(), timer.key.group()));
        if self.head.changes() > MAX_CHANGES {
            self.write_out(queue, shards)?;
        }
        if self.head.is_over_capacity() {
            self.write_out(queue, shards)?;
            self.head.shrink();
        }
        Ok(())
    }

    pub(crate) fn delete(
        &mut self,
        queue: StateId,
        timer: &TimerRef<'_>,
        shards: &Shards,
    ) -> Result<()> {
        let shard = shards.of_key(timer.key)?;
        self.encode(shard.stored_id(queue), timer);
        let suffix = &self.buffer[STATE_PREFIX_LEN..];
        if !self.head.holds(suffix) {
            return shard.database.delete(StateShape::Queue, &self.buffer);
        }
        self.remove(queue, &(suffix.into(), timer.key.group()), shards)
    }

    /// The first timer, read from disk if it must be.
    pub(crate) fn first(&mut self, queue: StateId, shards: &Shards) -> Result<Option<HeadTimer>> {
        while self.head.needs_refill() {
            self.refill(queue, shards)?;
        }
        Ok(self.head.first().cloned())
    }

    /// The time of the first timer.
    pub(crate) fn next_time(&mut self, queue: StateId, shards: &Shards) -> Result<Option<Millis>> {
        Ok(self.first(queue, shards)?.map(|(suffix, _)| time_of_suffix(&suffix)))
    }

    /// Removes a timer that [`first`](TimerQueue::first) returned.
    pub(crate) fn remove(
        &mut self,
        queue: StateId,
        timer: &HeadTimer,
        shards: &Shards,
    ) -> Result<()> {
        self.head.remove(timer);
        if self.head.changes() > MAX_CHANGES {
            self.write_out(queue, shards)?;
        }
        Ok(())
    }

    /// Writes what differs from the disk. Afterwards a snapshot of the databases has all timers.
    pub(crate) fn write_out(&mut self, queue: StateId, shards: &Shards) -> Result<()> {
        if self.head.changes() == 0 {
            return Ok(());
        }
        for shard in shards.iter() {
            let family = shard.database.family(StateShape::Queue);
            let (added, deleted) = self.head.differences();
            let mut batch = WriteBatch::default();
            let mut stored = Vec::new();
            let mut stored_key = |(suffix, group): &HeadTimer| {
                stored.clear();
                push_state(*group, shard.stored_id(queue), &mut stored);
                stored.extend_from_slice(suffix);
                stored.clone()
            };
            for timer in added.filter(|timer| shard.groups.contains(timer.1)) {
                batch.put_cf(family, stored_key(timer), []);
            }
            for timer in deleted.filter(|timer| shard.groups.contains(timer.1)) {
                batch.delete_cf(family, stored_key(timer));
            }
            // A shard that fails leaves the others written: writing them again changes nothing.
            shard.database.write(batch)?;
        }
        self.head.written();
        Ok(())
    }

    /// No timer is before this time.
    pub(crate) fn lower_bound(&self) -> Option<Millis> {
        let suffix = match self.head.first() {
            Some((suffix, _)) => suffix,
            None => self.head.horizon()?,
        };
        (suffix.len() >= 8).then(|| time_of_suffix(suffix))
    }

    /// How many timers there are: those on disk, corrected by what is not written yet.
    pub(crate) fn count(&self, on_disk: u64) -> u64 {
        let (added, deleted) = self.head.net_unwritten();
        (on_disk + added).saturating_sub(deleted)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.head.memory_bytes()
    }

    fn encode(&mut self, stored: StateId, timer: &TimerRef<'_>) {
        self.buffer.clear();
        push_timer(stored, timer.time, timer.key, timer.namespace, &mut self.buffer);
    }

    /// Reads the next timers of every key group and keeps those before the first that a group has
    /// left.
    fn refill(&mut self, queue: StateId, shards: &Shards) -> Result<()> {
        let groups: usize = shards.iter().map(|shard| shard.groups.len()).sum();
        let per_group = (self.head.capacity() / groups.max(1)).max(MIN_PER_GROUP);
        let from = self.head.horizon().unwrap_or_default().to_vec();
        let mut found = BTreeSet::new();
        let mut horizon: Option<Arc<[u8]>> = None;
        for shard in shards.iter() {
            for_each_group(shard, queue, &from, per_group, |timers, more| {
                if let (true, Some((last, _))) = (more, timers.last()) {
                    // Behind the last one read.
                    let behind: Arc<[u8]> = [last, &[0][..]].concat().into();
                    if horizon.as_ref().is_none_or(|horizon| behind < *horizon) {
                        horizon = Some(behind);
                    }
                }
                found.extend(timers);
            })?;
        }
        if let Some(horizon) = &horizon {
            found = found.into_iter().take_while(|(suffix, _)| suffix < horizon).collect();
        }
        self.head.refill(found, horizon);
        Ok(())
    }
}

/// Hands over up to `limit` timers of each key group that has some from `from` on, and whether it has
/// more.
fn for_each_group(
    shard: &Shard,
    queue: StateId,
    from: &[u8],
    limit: usize,
    mut take: impl FnMut(Vec<HeadTimer>, bool),
) -> Result<()> {
    let stored = shard.stored_id(queue);
    let (mut start, mut end) = (Vec::new(), Vec::new());
    let Some(last) = shard.groups.iter().next_back() else { return Ok(()) };
    push_group(last, &mut end);
    let mut options = ReadOptions::default();
    if successor(&mut end) {
        options.set_iterate_upper_bound(end);
    }
    let mut walk = shard.database.walk(StateShape::Queue, options)?;
    let mut group = shard.groups.first();
    loop {
        start.clear();
        push_state(group, stored, &mut start);
        start.extend_from_slice(from);
        let mut timers = Vec::new();
        let mut there = walk.seek(&start)?;
        let inside = |key: &[u8]| group_of(key) == Some(group) && state_of(key) == Some(stored);
        while there && timers.len() < limit {
            let Some((key, _)) = walk.entry().filter(|(key, _)| inside(key)) else { break };
            timers.push((Arc::from(&key[STATE_PREFIX_LEN..]), group));
            there = walk.next()?;
        }
        let next = walk.entry().filter(|_| there).map(|(key, _)| (group_of(key), inside(key)));
        let (found, more) = next.map_or((None, false), |(group, inside)| (group, inside));
        if !timers.is_empty() {
            take(timers, more);
        }
        // Groups without any timers are skipped at once.
        let following = KeyGroup(group.0.saturating_add(1));
        group = match found {
            None => return Ok(()),
            Some(found) => found.max(following),
        };
        if group > last {
            return Ok(());
        }
    }
}

fn capacity(memory: TimerMemory) -> usize {
    match memory {
        TimerMemory::Head(timers) => timers,
        TimerMemory::All => usize::MAX,
    }
}

/// The time of a timer by its stored key without key group and queue.
pub(crate) fn time_of_suffix(suffix: &[u8]) -> Millis {
    let mut stored = [0; STATE_PREFIX_LEN + 8];
    let (_, time) = stored.split_at_mut(STATE_PREFIX_LEN);
    time.copy_from_slice(&suffix[..8]);
    time_of(&stored).unwrap_or(Millis::MIN)
}
