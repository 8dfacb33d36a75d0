//! The part of a queue that is held apart, as pure bookkeeping.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use weir_state_api::KeyGroup;

/// A timer: its stored key without key group and queue, which sorts as timers fire; and its group.
pub(crate) type Timer = (Arc<[u8]>, KeyGroup);

/// All timers of a queue before its horizon, and how they differ from what is in the tree.
///
/// A timer that comes and goes between two write-outs never reaches the tree.
#[derive(Debug)]
pub(crate) struct Head {
    /// Whether each is in the tree.
    timers: BTreeMap<Timer, bool>,
    /// Where the timers begin that are in the tree only; `None` when all are here.
    horizon: Option<Arc<[u8]>>,
    /// Timers here that may not be in the tree yet.
    unwritten: Vec<Timer>,
    /// Timers in the tree that are gone.
    deleted: HashSet<Timer>,
    capacity: usize,
}

impl Head {
    /// Of a queue without timers.
    pub(crate) fn empty(capacity: usize) -> Self {
        Head {
            timers: BTreeMap::new(),
            horizon: None,
            unwritten: Vec::new(),
            deleted: HashSet::new(),
            capacity: capacity.max(1),
        }
    }

    /// Of a queue whose timers are in the tree, the first one at `from` or later.
    pub(crate) fn in_tree(capacity: usize, from: &[u8]) -> Self {
        Head { horizon: Some(from.into()), ..Head::empty(capacity) }
    }

    /// Whether a timer belongs here and not on the tree.
    pub(crate) fn holds(&self, timer: &[u8]) -> bool {
        self.horizon.as_ref().is_none_or(|horizon| timer < &horizon[..])
    }

    /// Adds a timer that [belongs here](Head::holds).
    pub(crate) fn insert(&mut self, timer: Timer) {
        if self.timers.contains_key(&timer) {
            return;
        }
        let in_tree = self.deleted.remove(&timer);
        if !in_tree {
            self.unwritten.push(timer.clone());
        }
        self.timers.insert(timer, in_tree);
    }

    /// Removes a timer that [belongs here](Head::holds).
    pub(crate) fn remove(&mut self, timer: &Timer) {
        if self.timers.remove(timer) == Some(true) {
            self.deleted.insert(timer.clone());
        }
    }

    /// The first timer, if it is known.
    pub(crate) fn first(&self) -> Option<&Timer> {
        self.timers.first_key_value().map(|(timer, _)| timer)
    }

    /// Whether timers are in the tree that must be read to know the first one.
    pub(crate) fn needs_refill(&self) -> bool {
        self.timers.is_empty() && self.horizon.is_some()
    }

    pub(crate) fn horizon(&self) -> Option<&[u8]> {
        self.horizon.as_deref()
    }

    /// The most timers it takes on before it lets the last ones go.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes in timers read from the tree: all that lie before `horizon`.
    pub(crate) fn refill(
        &mut self,
        timers: impl IntoIterator<Item = Timer>,
        horizon: Option<Arc<[u8]>>,
    ) {
        self.timers.extend(timers.into_iter().map(|timer| (timer, true)));
        self.horizon = horizon;
    }

    /// How many differences from the tree there are at most.
    pub(crate) fn changes(&self) -> usize {
        self.unwritten.len() + self.deleted.len()
    }

    /// What must be added to the tree and removed from it, to have the same there.
    pub(crate) fn differences(
        &self,
    ) -> (impl Iterator<Item = &Timer>, impl Iterator<Item = &Timer>) {
        let added = self.unwritten.iter().filter(|timer| self.timers.get(*timer) == Some(&false));
        (added, self.deleted.iter())
    }

    /// The differences have been written.
    pub(crate) fn written(&mut self) {
        for timer in self.unwritten.drain(..) {
            if let Some(in_tree) = self.timers.get_mut(&timer) {
                *in_tree = true;
            }
        }
        self.deleted.clear();
    }

    pub(crate) fn is_over_capacity(&self) -> bool {
        self.timers.len() / 2 > self.capacity
    }

    /// Lets the last timers go. The differences must have been written before.
    pub(crate) fn shrink(&mut self) {
        let Some((first_gone, _)) = self.timers.keys().nth(self.capacity).cloned() else { return };
        // Timers of the same bytes and another group go too: the horizon is between bytes.
        self.timers.split_off(&(first_gone.clone(), KeyGroup(0)));
        self.horizon = Some(first_gone);
    }

    /// Timers here that are not in the tree, less those in the tree that are gone.
    pub(crate) fn net_unwritten(&self) -> (u64, u64) {
        let (added, deleted) = self.differences();
        (added.count() as u64, deleted.count() as u64)
    }

    /// Memory, roughly.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let bytes = self.timers.first_key_value().map_or(0, |((bytes, _), _)| bytes.len());
        (self.timers.len() * (bytes + 72) + self.changes() * 32) as u64
    }
}
