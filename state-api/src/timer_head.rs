//! The first timers of a queue that is otherwise stored, as pure bookkeeping.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::KeyGroup;

/// A timer of a [`TimerHead`]: its [stored key](crate::stored_key::push_timer) without key group and
/// queue, which sorts as timers fire; and its group.
pub type HeadTimer = (Arc<[u8]>, KeyGroup);

/// A timer with its first bytes as a number, which nearly always decide how it compares with another:
/// they are its time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Numbered {
    first: u64,
    timer: HeadTimer,
}

impl Numbered {
    fn new(timer: HeadTimer) -> Self {
        let mut first = [0; size_of::<u64>()];
        match timer.0.first_chunk() {
            Some(bytes) => first = *bytes,
            None => first[..timer.0.len()].copy_from_slice(&timer.0),
        }
        Numbered { first: u64::from_be_bytes(first), timer }
    }
}

/// The head of a timer queue that is kept in an ordered key space, per key group: all its timers before
/// a horizon, over all key groups, and how they differ from what is stored.
///
/// A backend polls the head, writes the [differences](TimerHead::differences) out when there are many
/// and before each snapshot, and [refills](TimerHead::refill) it from the store when it is empty. So a
/// timer that comes and goes between two write-outs is never stored, and polling walks over no
/// tombstones. Timers at the horizon or later the backend stores and deletes itself.
///
/// ```
/// use weir_state_api::{KeyGroup, TimerHead};
///
/// let mut head = TimerHead::empty(1_000);
/// head.insert((b"1".as_slice().into(), KeyGroup(7)));
/// head.insert((b"0".as_slice().into(), KeyGroup(9)));
/// assert_eq!(head.first().map(|(_, group)| *group), Some(KeyGroup(9)));
/// assert_eq!(head.net_unwritten(), (2, 0));
/// ```
#[derive(Debug)]
pub struct TimerHead {
    /// Whether each is stored.
    timers: BTreeMap<Numbered, bool>,
    /// Where the timers begin that are stored only; `None` when all are here.
    horizon: Option<Arc<[u8]>>,
    /// Timers here that may not be stored yet.
    unwritten: Vec<Numbered>,
    /// Stored timers that are gone.
    deleted: BTreeSet<Numbered>,
    capacity: usize,
}

impl TimerHead {
    /// Of a queue without timers; it lets the last ones go beyond `capacity` of them, at least one.
    pub fn empty(capacity: usize) -> Self {
        TimerHead {
            timers: BTreeMap::new(),
            horizon: None,
            unwritten: Vec::new(),
            deleted: BTreeSet::new(),
            capacity: capacity.max(1),
        }
    }

    /// Of a queue whose timers are stored, the first one at `from` or later.
    pub fn stored(capacity: usize, from: &[u8]) -> Self {
        TimerHead { horizon: Some(from.into()), ..TimerHead::empty(capacity) }
    }

    /// Whether a timer belongs here; otherwise it is stored or deleted at once.
    pub fn holds(&self, timer: &[u8]) -> bool {
        self.horizon.as_ref().is_none_or(|horizon| timer < &horizon[..])
    }

    /// Adds a timer that [belongs here](TimerHead::holds).
    pub fn insert(&mut self, timer: HeadTimer) {
        let Entry::Vacant(place) = self.timers.entry(Numbered::new(timer)) else { return };
        let stored = self.deleted.remove(place.key());
        if !stored {
            self.unwritten.push(place.key().clone());
        }
        place.insert(stored);
    }

    /// Removes a timer that [belongs here](TimerHead::holds).
    pub fn remove(&mut self, timer: &HeadTimer) {
        let timer = Numbered::new(timer.clone());
        if self.timers.remove(&timer) == Some(true) {
            self.deleted.insert(timer);
        }
    }

    /// The first timer, if it is known.
    pub fn first(&self) -> Option<&HeadTimer> {
        self.timers.first_key_value().map(|(numbered, _)| &numbered.timer)
    }

    /// Whether stored timers must be read to know the first one.
    pub fn needs_refill(&self) -> bool {
        self.timers.is_empty() && self.horizon.is_some()
    }

    /// Where the timers begin that are stored only; `None` when all are here.
    pub fn horizon(&self) -> Option<&[u8]> {
        self.horizon.as_deref()
    }

    /// The most timers it takes on before it lets the last ones go.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes in stored timers: all that lie before `horizon`.
    pub fn refill(
        &mut self,
        timers: impl IntoIterator<Item = HeadTimer>,
        horizon: Option<Arc<[u8]>>,
    ) {
        self.timers.extend(timers.into_iter().map(|timer| (Numbered::new(timer), true)));
        self.horizon = horizon;
    }

    /// How many differences from what is stored there are at most.
    pub fn changes(&self) -> usize {
        self.unwritten.len() + self.deleted.len()
    }

    /// What must be stored and what deleted, to have the same there.
    pub fn differences(
        &self,
    ) -> (impl Iterator<Item = &HeadTimer>, impl Iterator<Item = &HeadTimer>) {
        let added = self.unwritten.iter().filter(|timer| self.timers.get(*timer) == Some(&false));
        (added.map(|numbered| &numbered.timer), self.deleted.iter().map(|numbered| &numbered.timer))
    }

    /// The differences have been written.
    pub fn written(&mut self) {
        for timer in self.unwritten.drain(..) {
            if let Some(stored) = self.timers.get_mut(&timer) {
                *stored = true;
            }
        }
        self.deleted.clear();
    }

    /// Whether it is time to [let timers go](TimerHead::shrink).
    pub fn is_over_capacity(&self) -> bool {
        self.timers.len() / 2 > self.capacity
    }

    /// Lets the last timers go. The differences must have been written before.
    pub fn shrink(&mut self) {
        let Some(first_gone) = self.timers.keys().nth(self.capacity) else { return };
        let horizon = Arc::clone(&first_gone.timer.0);
        // Timers of the same bytes and another group go too: the horizon is between bytes.
        self.timers.split_off(&Numbered::new((Arc::clone(&horizon), KeyGroup(0))));
        self.horizon = Some(horizon);
    }

    /// How many timers here are not stored, and how many stored ones are gone.
    pub fn net_unwritten(&self) -> (u64, u64) {
        let (added, deleted) = self.differences();
        (added.count() as u64, deleted.count() as u64)
    }

    /// Memory, in bytes, roughly.
    pub fn memory_bytes(&self) -> u64 {
        let bytes = self.first().map_or(0, |(bytes, _)| bytes.len());
        (self.timers.len() * (bytes + 80) + self.changes() * 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(bytes: &[u8], group: u16) -> HeadTimer {
        (bytes.into(), KeyGroup(group))
    }

    #[test]
    fn what_comes_and_goes_is_no_difference() {
        let mut head = TimerHead::empty(10);
        head.insert(timer(b"a", 1));
        head.remove(&timer(b"a", 1));
        assert_eq!(head.net_unwritten(), (0, 0));

        head.insert(timer(b"b", 1));
        head.written();
        assert_eq!(head.net_unwritten(), (0, 0));
        head.remove(&timer(b"b", 1));
        assert_eq!(head.net_unwritten(), (0, 1));
        head.insert(timer(b"b", 1));
        assert_eq!(head.net_unwritten(), (0, 0), "it is stored already");
    }

    #[test]
    fn what_is_let_go_is_behind_the_horizon_and_comes_back_by_a_refill() {
        let mut head = TimerHead::empty(1);
        for bytes in [b"a", b"b", b"c", b"d"] {
            head.insert(timer(bytes, 1));
        }
        assert!(head.is_over_capacity());
        head.written();
        head.shrink();
        assert_eq!((head.holds(b"a"), head.holds(b"b")), (true, false));
        head.remove(&timer(b"a", 1));
        assert!(head.needs_refill());
        head.refill([timer(b"b", 1)], Some(b"c".as_slice().into()));
        assert_eq!(head.first(), Some(&timer(b"b", 1)));
        assert_eq!(head.horizon(), Some(b"c".as_slice()));
    }
}
