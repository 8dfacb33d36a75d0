//! Removing what has expired: step by step, and at once when a state comes back with another TTL.
//!
//! A step walks on over the entries from where the last one ended, notes what the judge says of
//! each, and then changes them like any other write: what a snapshot or scan holds is copied first.

use std::ops::{Bound, Range};

use weir_state_api::ttl::{TtlTime, Verdict, convert, is_live, sweep};
use weir_state_api::{CleanUp, MapRange, Result, StateDescriptor, StateKind, StateTtl, key_hash};

use crate::keyed_table::{Locator, Place, Slot};
use crate::map_slot::MapSlot;
use crate::map_table::MapTable;
use crate::point_table::PointTable;
use crate::store::{State, Tables};

/// Decides about the values of a state with a TTL at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sieve {
    kind: StateKind,
    ttl: StateTtl,
    time: TtlTime,
}

impl Sieve {
    /// For a state, if it has a TTL.
    pub(crate) fn new(state: &StateDescriptor, time: TtlTime) -> Option<Self> {
        state.ttl.map(|ttl| Sieve { kind: state.kind, ttl, time })
    }

    /// What becomes of a stored value.
    #[inline]
    pub(crate) fn sweep(&self, stored: &[u8]) -> Verdict {
        sweep(self.kind, &self.ttl, stored, &self.time)
    }

    /// Whether a stored value holds anything that has not expired.
    pub(crate) fn is_live(&self, stored: &[u8]) -> bool {
        is_live(self.kind, &self.ttl, stored, &self.time)
    }
}

/// Where the clean-up of a state goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    group: usize,
    place: Place,
    /// The last map key that was visited, in the middle of a map.
    map_key: Option<Vec<u8>>,
}

impl State {
    /// A step of clean-up: visits about `budget` entries.
    pub(crate) fn clean_up(&mut self, time: TtlTime, budget: u64) -> Result<CleanUp> {
        let Some(sieve) = Sieve::new(&self.descriptor, time) else {
            return Ok(CleanUp::NOTHING_TO_DO);
        };
        let judge = |stored: &[u8]| sieve.sweep(stored);
        let cursor = &mut self.cursor;
        match &mut self.tables {
            Tables::Point(tables) => walk(tables, cursor, budget, judge),
            Tables::Map(tables) => walk(tables, cursor, budget, judge),
            Tables::Timers(_) => Ok(CleanUp::NOTHING_TO_DO),
        }
    }

    /// Gives the state another TTL, and its values the form that goes with it.
    pub(crate) fn convert(&mut self, to: Option<StateTtl>, time: TtlTime) -> Result<()> {
        let from = std::mem::replace(&mut self.descriptor.ttl, to);
        self.cursor = Cursor::default();
        self.convert_groups(0..usize::MAX, from, time)
    }

    /// Gives the values of some key groups, which have another TTL, the form of the state's.
    pub(crate) fn convert_groups(
        &mut self,
        groups: Range<usize>,
        from: Option<StateTtl>,
        time: TtlTime,
    ) -> Result<()> {
        let (kind, to) = (self.descriptor.kind, self.descriptor.ttl);
        let judge = |stored: &[u8]| convert(kind, from.as_ref(), to.as_ref(), stored, &time);
        let cursor = &mut Cursor::default();
        match &mut self.tables {
            Tables::Point(tables) => walk(within(tables, groups), cursor, u64::MAX, judge)?,
            Tables::Map(tables) => walk(within(tables, groups), cursor, u64::MAX, judge)?,
            Tables::Timers(_) => CleanUp::NOTHING_TO_DO,
        };
        Ok(())
    }
}

fn within<T>(tables: &mut [T], groups: Range<usize>) -> &mut [T] {
    let end = groups.end.min(tables.len());
    tables.get_mut(groups.start..end).unwrap_or_default()
}

/// A table whose entries can be judged.
trait Walked {
    /// Walks on from the cursor within the table, about `budget` entries; says whether the table
    /// ends there.
    fn walk(
        &mut self,
        cursor: &mut Cursor,
        budget: u64,
        judge: &impl Fn(&[u8]) -> Verdict,
        done: &mut CleanUp,
    ) -> Result<bool>;
}

/// Walks on over the tables of all key groups; from the end on from the beginning, once, as far as
/// the budget goes.
fn walk<T: Walked>(
    tables: &mut [T],
    cursor: &mut Cursor,
    budget: u64,
    judge: impl Fn(&[u8]) -> Verdict,
) -> Result<CleanUp> {
    let from_the_beginning = *cursor == Cursor::default();
    let done = walk_to_end(tables, cursor, budget, &judge)?;
    if !done.finished || from_the_beginning || done.visited >= budget {
        return Ok(done);
    }
    let more = walk_to_end(tables, cursor, budget - done.visited, &judge)?;
    Ok(CleanUp::new(done.visited + more.visited, done.removed + more.removed, true))
}

fn walk_to_end<T: Walked>(
    tables: &mut [T],
    cursor: &mut Cursor,
    budget: u64,
    judge: &impl Fn(&[u8]) -> Verdict,
) -> Result<CleanUp> {
    let mut done = CleanUp::new(0, 0, false);
    while let Some(table) = tables.get_mut(cursor.group) {
        if done.visited >= budget {
            return Ok(done);
        }
        if table.walk(cursor, budget, judge, &mut done)? {
            *cursor = Cursor { group: cursor.group + 1, ..Cursor::default() };
        }
    }
    *cursor = Cursor::default();
    done.finished = true;
    Ok(done)
}

/// A verdict to carry out: of an entry in a table.
struct Change {
    place: Place,
    key: Vec<u8>,
    namespace: Vec<u8>,
    verdict: Verdict,
}

impl Change {
    fn of(place: Place, slot: &impl Slot, verdict: Verdict) -> Self {
        let (key, namespace) = slot.key_and_namespace();
        Change { place, key: key.to_vec(), namespace: namespace.to_vec(), verdict }
    }

    fn locator(&self) -> Locator<'_> {
        Locator::with_key_hash(&self.key, key_hash(&self.key), &self.namespace)
    }
}

/// Where a walk that ended at `end` goes on, when these entries were removed.
fn go_on(end: Place, mut removed: impl Iterator<Item = Place>) -> Place {
    removed.find(|place| place.segment == end.segment).unwrap_or(end)
}

impl Walked for PointTable {
    fn walk(
        &mut self,
        cursor: &mut Cursor,
        budget: u64,
        judge: &impl Fn(&[u8]) -> Verdict,
        done: &mut CleanUp,
    ) -> Result<bool> {
        let mut changes = Vec::new();
        let mut end = cursor.place;
        let ended = self.visit_from(cursor.place, |place, slot| {
            end = Place { place: place.place + 1, ..place };
            done.visited += 1;
            match judge(slot.value()) {
                Verdict::Keep => {}
                verdict => changes.push(Change::of(place, slot, verdict)),
            }
            done.visited < budget
        });
        for change in &changes {
            match &change.verdict {
                Verdict::Keep => {}
                Verdict::Drop => {
                    done.removed += 1;
                    self.remove(change.locator());
                }
                Verdict::Replace(value) => self.put(change.locator(), value)?,
            }
        }
        let removed = changes.iter().filter(|change| change.verdict == Verdict::Drop);
        cursor.place = go_on(end, removed.map(|change| change.place));
        Ok(ended)
    }
}

impl Walked for MapTable {
    fn walk(
        &mut self,
        cursor: &mut Cursor,
        budget: u64,
        judge: &impl Fn(&[u8]) -> Verdict,
        done: &mut CleanUp,
    ) -> Result<bool> {
        while done.visited < budget {
            let mut judged = None;
            self.visit_from(cursor.place, |place, map| {
                if place != cursor.place {
                    cursor.map_key = None;
                }
                let mut changes = Vec::new();
                let after = cursor.map_key.as_deref();
                let last = judge_map(map, after, budget, judge, done, &mut changes);
                judged = Some((Change::of(place, map, Verdict::Keep), changes, last));
                false
            });
            let Some((map, changes, last)) = judged else { return Ok(true) };
            cursor.map_key = last;
            cursor.place = map.place;
            for (map_key, verdict) in &changes {
                match verdict {
                    Verdict::Keep => {}
                    Verdict::Drop => {
                        done.removed += 1;
                        self.remove_entry(map.locator(), map_key)?;
                    }
                    Verdict::Replace(value) => self.put_entry(map.locator(), map_key, value)?,
                }
            }
            // A map that is gone has made place for others.
            if cursor.map_key.is_none() && self.get(map.locator()).is_some() {
                cursor.place.place += 1;
            }
        }
        Ok(false)
    }
}

/// Judges the entries of a map behind `after`, about `budget` of them; returns the last map key, if
/// more are left.
fn judge_map(
    map: &MapSlot,
    after: Option<&[u8]>,
    budget: u64,
    judge: &impl Fn(&[u8]) -> Verdict,
    done: &mut CleanUp,
    changes: &mut Vec<(Vec<u8>, Verdict)>,
) -> Option<Vec<u8>> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let (from, to) = map.entries().bounds(MapRange { from, to: Bound::Unbounded });
    for (key, value) in map.entries().range(from, to) {
        match judge(value) {
            Verdict::Keep => {}
            verdict => changes.push((key.to_vec(), verdict)),
        }
        done.visited += 1;
        if done.visited >= budget {
            return Some(key.to_vec());
        }
    }
    None
}
