//! A queue over the shards of an instance.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use weir_state_api::stored_key::{STATE_PREFIX_LEN, push_state, push_timer, time_of};
use weir_state_api::{
    BoxFuture, HeadTimer, KeyGroup, Millis, Result, StateId, TimerHead, TimerRef,
};

use super::refill::{Refill, Refilled};
use crate::backend::tree::Tree;
use crate::format::EntryKind;
use crate::memtable::{MapRoute, Route};

/// Differences between the head and the tree beyond which they are written: bounds what the synchronous
/// part of a snapshot has left to write.
const MAX_CHANGES: usize = 8_192;

/// Timers that a refill takes from each key group at least.
const MIN_PER_GROUP: usize = 32;

/// A timer queue: its head apart, the rest in the tree.
#[derive(Debug)]
pub(crate) struct TimerQueue {
    head: TimerHead,
    refill: Option<RunningRefill>,
    /// Stored keys are built here.
    buffer: Vec<u8>,
}

/// A refill that waits for the store.
#[derive(Debug)]
struct RunningRefill {
    result: Arc<Mutex<Option<Result<Refilled>>>>,
    /// What was written behind the horizon since it began: whether each timer is there.
    changes: Vec<(HeadTimer, bool)>,
}

/// The first timer of a queue.
pub(crate) enum QueueHead {
    Empty,
    First(HeadTimer),
    /// It must be read.
    Pending(BoxFuture<'static, Result<()>>),
}

impl TimerQueue {
    /// A queue without timers; `capacity` of the head.
    pub(crate) fn empty(capacity: usize) -> Self {
        TimerQueue { head: TimerHead::empty(capacity), refill: None, buffer: Vec::new() }
    }

    /// A queue whose timers are in the tree, none of them before `first`.
    pub(crate) fn stored(capacity: usize, first: Option<Millis>) -> Self {
        let from = first.map(|time| (time ^ Millis::MIN).to_be_bytes());
        let from = from.as_ref().map_or(&[][..], |time| &time[..]);
        TimerQueue { head: TimerHead::stored(capacity, from), refill: None, buffer: Vec::new() }
    }

    pub(crate) fn register(
        &mut self,
        queue: StateId,
        timer: &TimerRef<'_>,
        tree: &mut Tree,
    ) -> Result<()> {
        let shard = tree.shard_of(timer.key)?;
        self.encode(tree.stored(shard, queue), timer);
        let group = timer.key.group();
        if !self.head.holds(self.suffix()) {
            tree.set(shard, route_of(&self.buffer), &self.buffer, EntryKind::Put, &[]);
            self.note_change(group, true);
            return Ok(());
        }
        self.head.insert((self.suffix().into(), group));
        if self.head.changes() > MAX_CHANGES {
            self.write_out(queue, tree);
        }
        if self.head.is_over_capacity() {
            self.write_out(queue, tree);
            self.head.shrink();
        }
        Ok(())
    }

    pub(crate) fn delete(
        &mut self,
        queue: StateId,
        timer: &TimerRef<'_>,
        tree: &mut Tree,
    ) -> Result<()> {
        let shard = tree.shard_of(timer.key)?;
        self.encode(tree.stored(shard, queue), timer);
        let group = timer.key.group();
        if !self.head.holds(self.suffix()) {
            tree.delete(shard, route_of(&self.buffer), &self.buffer);
            self.note_change(group, false);
            return Ok(());
        }
        self.remove(queue, &(self.suffix().into(), group), tree);
        Ok(())
    }

    /// The first timer, read from the tree if it must be.
    pub(crate) fn first(&mut self, queue: StateId, tree: &Tree) -> Result<QueueHead> {
        while self.head.needs_refill() {
            if self.take_refill()? {
                continue;
            }
            if let Some(pending) = self.begin_refill(queue, tree) {
                return Ok(QueueHead::Pending(pending));
            }
        }
        Ok(self.head.first().cloned().map_or(QueueHead::Empty, QueueHead::First))
    }

    /// The time of the first timer, if there is one; `None` when that must be read from the store.
    pub(crate) fn next_time(
        &mut self,
        queue: StateId,
        tree: &Tree,
    ) -> Result<Option<Option<Millis>>> {
        // One that somebody waits for is not disturbed.
        if self.head.needs_refill() && self.refill.is_some() && !self.take_refill()? {
            return Ok(None);
        }
        Ok(match self.first(queue, tree)? {
            QueueHead::Empty => Some(None),
            QueueHead::First((suffix, _)) => Some(Some(time_of_suffix(&suffix))),
            QueueHead::Pending(_) => None,
        })
    }

    /// Removes a timer that [`first`](TimerQueue::first) returned.
    pub(crate) fn remove(&mut self, queue: StateId, timer: &HeadTimer, tree: &mut Tree) {
        self.head.remove(timer);
        if self.head.changes() > MAX_CHANGES {
            self.write_out(queue, tree);
        }
    }

    /// Writes what differs from the tree. Afterwards the memtables have all timers that no table has.
    pub(crate) fn write_out(&mut self, queue: StateId, tree: &mut Tree) {
        if self.head.changes() == 0 {
            return;
        }
        let (added, deleted) = self.head.differences();
        let (added, deleted) =
            (added.map(|timer| (timer, true)), deleted.map(|timer| (timer, false)));
        let buffer = &mut self.buffer;
        for ((suffix, group), is_added) in added.chain(deleted) {
            let Some(shard) = tree.shard_of_group(*group) else { continue };
            buffer.clear();
            push_state(*group, tree.stored(shard, queue), buffer);
            buffer.extend_from_slice(suffix);
            if is_added {
                tree.set(shard, route_of(buffer), buffer, EntryKind::Put, &[]);
            } else {
                tree.delete(shard, route_of(buffer), buffer);
            }
        }
        self.head.written();
    }

    /// No timer is before this time; `None` when there is none.
    pub(crate) fn lower_bound(&self) -> Option<Millis> {
        let suffix = match self.head.first() {
            Some((suffix, _)) => suffix,
            None => self.head.horizon()?,
        };
        Some(if suffix.len() >= 8 { time_of_suffix(suffix) } else { Millis::MIN })
    }

    /// How many timers there are: those in the tree, corrected by what is not written yet.
    pub(crate) fn count(&self, in_tree: u64) -> u64 {
        let (added, deleted) = self.head.net_unwritten();
        (in_tree + added).saturating_sub(deleted)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.head.memory_bytes()
    }

    fn encode(&mut self, stored: StateId, timer: &TimerRef<'_>) {
        self.buffer.clear();
        push_timer(stored, timer.time, timer.key, timer.namespace, &mut self.buffer);
    }

    /// The stored key in the buffer without key group and queue.
    fn suffix(&self) -> &[u8] {
        &self.buffer[STATE_PREFIX_LEN..]
    }

    /// The timer whose stored key is in the buffer has come or gone behind the horizon.
    fn note_change(&mut self, group: KeyGroup, there: bool) {
        if let Some(refill) = &mut self.refill {
            let timer = (self.buffer[STATE_PREFIX_LEN..].into(), group);
            refill.changes.push((timer, there));
        }
    }

    /// Takes the result of a refill that has ended.
    fn take_refill(&mut self) -> Result<bool> {
        let Some(refill) = &self.refill else { return Ok(false) };
        let result = refill.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(result), Some(refill)) = (result, self.refill.take()) else {
            return Ok(false);
        };
        self.apply(result?, refill.changes);
        Ok(true)
    }

    fn apply(&mut self, refilled: Refilled, changes: Vec<(HeadTimer, bool)>) {
        let Refilled { mut timers, horizon } = refilled;
        for (timer, there) in changes {
            if horizon.as_ref().is_some_and(|horizon| timer.0 >= *horizon) {
                continue;
            }
            if there {
                timers.insert(timer);
            } else {
                timers.remove(&timer);
            }
        }
        self.head.refill(timers, horizon);
    }

    /// Reads the next timers: at once if they are in memory, else the future says when to ask again.
    /// One that was given out before and not awaited is given up.
    fn begin_refill(
        &mut self,
        queue: StateId,
        tree: &Tree,
    ) -> Option<BoxFuture<'static, Result<()>>> {
        let groups: usize = tree.groups().len();
        let from = self.head.horizon().unwrap_or_default().to_vec();
        let refill = Refill {
            shards: tree.pin_queue(queue),
            from,
            per_group: (self.head.capacity() / groups.max(1)).max(MIN_PER_GROUP),
        };
        let result = Arc::new(Mutex::new(None));
        let deliver = Arc::clone(&result);
        let mut future: BoxFuture<'static, Result<()>> = Box::pin(async move {
            let refilled = refill.run().await;
            *deliver.lock().unwrap_or_else(PoisonError::into_inner) = Some(refilled);
            Ok(())
        });
        self.refill = Some(RunningRefill { result, changes: Vec::new() });
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(_) => None,
            Poll::Pending => Some(future),
        }
    }
}

/// Where memtables have a timer: among those of its queue and key group.
fn route_of(key: &[u8]) -> Route {
    Route::Map(MapRoute::to(key, STATE_PREFIX_LEN))
}

/// The time of a timer by its stored key without key group and queue.
pub(crate) fn time_of_suffix(suffix: &[u8]) -> Millis {
    let mut stored = [0; STATE_PREFIX_LEN + 8];
    let (_, time) = stored.split_at_mut(STATE_PREFIX_LEN);
    if let Some(bytes) = suffix.get(..8) {
        time.copy_from_slice(bytes);
    }
    time_of(&stored).unwrap_or(Millis::MIN)
}
