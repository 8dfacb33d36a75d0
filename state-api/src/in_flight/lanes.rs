//! Who runs, who waits behind whom.
//!
//! A lane holds one running record and the records of the same key that wait behind it. Lanes are
//! used again, with everything in them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use hashbrown::HashTable;

use super::RecordOperator;
use super::record_state::{Scopes, Shared, Traces};
use super::wake::{Alarm, WakeQueue, Woken};
use crate::{Key, KeyRef};

/// What a record's future borrows while it runs. The executor holds the only other reference, so
/// between two records, and only then, it is refilled in place ([`Arc::make_mut`]).
pub(super) struct Admitted<O: RecordOperator> {
    pub(super) operator: Arc<O>,
    pub(super) shared: Arc<Mutex<Shared<dyn Scopes>>>,
    pub(super) key: Key,
    pub(super) traces: Traces,
    pub(super) record: Option<O::Record>,
}

/// An empty one for the same operator: for [`Arc::make_mut`], should a future have left a reference
/// behind.
impl<O: RecordOperator> Clone for Admitted<O> {
    fn clone(&self) -> Self {
        Admitted {
            operator: self.operator.clone(),
            shared: self.shared.clone(),
            key: self.key.clone(),
            traces: Traces::default(),
            record: None,
        }
    }
}

/// How a record counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ticket {
    /// Its place in the order of arrival.
    pub(super) sequence: u64,
    pub(super) epoch: u64,
    pub(super) weight: usize,
}

/// A record behind another one of its key.
pub(super) struct Waiting<R> {
    pub(super) record: R,
    pub(super) ticket: Ticket,
}

pub(super) struct Lane<O: RecordOperator> {
    pub(super) admitted: Arc<Admitted<O>>,
    pub(super) alarm: Alarm,
    /// Of the running record; `None` in a vacant lane.
    pub(super) ticket: Option<Ticket>,
    pub(super) waiting: VecDeque<Waiting<O::Record>>,
}

/// All lanes, found by number and, while a record runs in them, by key.
pub(super) struct Lanes<O: RecordOperator> {
    lanes: Vec<Lane<O>>,
    vacant: Vec<usize>,
    by_key: HashTable<usize>,
}

impl<O: RecordOperator> Lanes<O> {
    pub(super) fn new() -> Self {
        Lanes { lanes: Vec::new(), vacant: Vec::new(), by_key: HashTable::new() }
    }

    /// The lane that the next record of a free key gets, if there is a vacant one.
    pub(super) fn vacant(&self) -> Option<usize> {
        self.vacant.last().copied()
    }

    /// Adds a vacant lane.
    pub(super) fn grow(
        &mut self,
        queue: &Arc<WakeQueue>,
        operator: &Arc<O>,
        shared: &Arc<Mutex<Shared<dyn Scopes>>>,
    ) -> usize {
        let index = self.lanes.len();
        self.lanes.push(Lane {
            admitted: Arc::new(Admitted {
                operator: operator.clone(),
                shared: shared.clone(),
                key: Key::default(),
                traces: Traces::default(),
                record: None,
            }),
            alarm: Alarm::new(queue, Woken::Lane(index)),
            ticket: None,
            waiting: VecDeque::new(),
        });
        self.vacant.push(index);
        index
    }

    pub(super) fn get(&self, index: usize) -> &Lane<O> {
        &self.lanes[index]
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Lane<O> {
        &mut self.lanes[index]
    }

    /// The lanes in which a record runs.
    pub(super) fn running(&self) -> impl Iterator<Item = (usize, &Lane<O>)> {
        self.by_key.iter().map(|&index| (index, &self.lanes[index]))
    }

    /// The lane in which a record of this key runs.
    #[inline]
    pub(super) fn of_key(&self, key: KeyRef<'_>) -> Option<usize> {
        if self.by_key.is_empty() {
            return None;
        }
        let same = |&index: &usize| self.lanes[index].admitted.key.as_ref().bytes() == key.bytes();
        self.by_key.find(key.hash(), same).copied()
    }

    /// Takes the lane that [`vacant`](Lanes::vacant) told. The record's key is in it.
    pub(super) fn take_vacant(&mut self) {
        self.vacant.pop();
    }

    /// Makes a lane whose record pends findable by its key.
    pub(super) fn enter(&mut self, index: usize) {
        let lanes = &self.lanes;
        let hash = |&index: &usize| lanes[index].admitted.key.as_ref().hash();
        self.by_key.insert_unique(hash(&index), index, hash);
    }

    /// Gives a lane back that was [entered](Lanes::enter).
    pub(super) fn leave(&mut self, index: usize) {
        let hash = self.lanes[index].admitted.key.as_ref().hash();
        if let Ok(entry) = self.by_key.find_entry(hash, |&other| other == index) {
            entry.remove();
        }
        self.give_back(index);
    }

    /// Gives a lane back that was never entered.
    pub(super) fn give_back(&mut self, index: usize) {
        self.lanes[index].ticket = None;
        self.vacant.push(index);
    }
}
