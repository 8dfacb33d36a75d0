//! A segment in its table: with the writer alone, or shared with scans and snapshots.
//!
//! - **Owned**: the writer's. This is the state of nearly all segments nearly all the time.
//! - **Frozen**: a scan of the keys holds it; the next write copies the segment, or takes it back if
//!   the scan has passed.
//! - **Pinned**: snapshots hold it as it was, and the writer changes it in place nevertheless: it
//!   saves the old form of an entry before the first change after the pin. So a snapshot under full
//!   load costs memory for the entries that change meanwhile, not for the segments they lie in. The
//!   one segment that a snapshot reads at the time is copied by a write that comes just then: the
//!   writer never waits for the reader, which the system may have taken off its processor. The first
//!   access after the last snapshot has passed takes the segment back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::keyed_table::Slot;
use crate::segment::Segment;

/// So many bytes that the entries of a segment refer to are shown to a snapshot at once; what is beyond
/// is left to it, so that it can hand over what it has in between.
const SHOWN_LEN: usize = 512 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) enum Cell<S> {
    Owned(Segment<S>),
    Frozen(Arc<Segment<S>>),
    Pinned(Arc<Mutex<Pinned<S>>>),
}

/// A segment that snapshots read while the writer changes it.
#[derive(Debug)]
pub(crate) struct Pinned<S> {
    /// Shared only with the snapshot that reads it right now.
    segment: Arc<Segment<S>>,
    pins: Vec<Pin<S>>,
}

/// What a snapshot needs of a pinned segment beside its unchanged entries.
#[derive(Debug)]
struct Pin<S> {
    /// Entries of a later epoch have changed since.
    epoch: u32,
    /// Their former selves.
    saved: Vec<S>,
}

impl<S> Default for Cell<S> {
    fn default() -> Self {
        Cell::Owned(Segment::default())
    }
}

impl<S: Slot> Cell<S> {
    /// The segment, if it can be read without a lock.
    #[inline(always)]
    pub(crate) fn readable(&self) -> Option<&Segment<S>> {
        match self {
            Cell::Owned(segment) => Some(segment),
            Cell::Frozen(segment) => Some(segment),
            Cell::Pinned(_) => None,
        }
    }

    /// The segment, if the writer alone holds it.
    #[inline(always)]
    pub(crate) fn owned(&mut self) -> Option<&mut Segment<S>> {
        match self {
            Cell::Owned(segment) => Some(segment),
            Cell::Frozen(_) | Cell::Pinned(_) => None,
        }
    }

    /// The segment for writing: taken back from readers that are gone, copied for a scan that is
    /// not. `Err` while snapshots hold it, or a scan that began while they did.
    #[inline]
    pub(crate) fn writable(&mut self) -> Result<&mut Segment<S>, &Arc<Mutex<Pinned<S>>>> {
        if !matches!(self, Cell::Owned(_)) {
            self.reclaim();
        }
        match self {
            Cell::Owned(segment) => Ok(segment),
            Cell::Pinned(pinned) => Err(pinned),
            Cell::Frozen(_) => unreachable!("a frozen segment was reclaimed above"),
        }
    }

    #[cold]
    fn reclaim(&mut self) {
        *self = match std::mem::take(self) {
            Cell::Frozen(shared) => Cell::Owned(Arc::unwrap_or_clone(shared)),
            Cell::Pinned(pinned) => match lock(&pinned).release() {
                Some(segment) => Cell::Owned(segment),
                None => Cell::Pinned(Arc::clone(&pinned)),
            },
            owned @ Cell::Owned(_) => owned,
        }
    }

    /// Shares the segment with a scan as it is now.
    pub(crate) fn freeze(&mut self) -> Arc<Segment<S>> {
        if let Cell::Pinned(_) = self {
            self.reclaim();
        }
        let shared = match std::mem::take(self) {
            Cell::Owned(segment) => Arc::new(segment),
            Cell::Frozen(shared) => shared,
            Cell::Pinned(pinned) => {
                let shared = Arc::clone(&lock(&pinned).segment);
                *self = Cell::Pinned(pinned);
                return shared;
            }
        };
        *self = Cell::Frozen(Arc::clone(&shared));
        shared
    }

    /// Shares the segment with a snapshot as it is now. Every later write carries a later epoch.
    pub(crate) fn pin(&mut self, epoch: u32) -> View<S> {
        let pinned = match std::mem::take(self) {
            Cell::Owned(segment) => {
                let segment = Arc::new(segment);
                Arc::new(Mutex::new(Pinned { segment, pins: Vec::new() }))
            }
            Cell::Pinned(pinned) => pinned,
            Cell::Frozen(shared) => {
                *self = Cell::Frozen(Arc::clone(&shared));
                return View::Shared(shared);
            }
        };
        lock(&pinned).pins.push(Pin { epoch, saved: Vec::new() });
        *self = Cell::Pinned(Arc::clone(&pinned));
        View::Pinned(PinnedView { pinned, epoch })
    }

    /// Bytes of the segment itself and of entries saved for snapshots.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Cell::Owned(segment) => segment.memory_bytes(),
            Cell::Frozen(segment) => segment.memory_bytes(),
            Cell::Pinned(pinned) => {
                let pinned = lock(pinned);
                let saved = pinned.pins.iter().map(|pin| {
                    let content: usize = pin.saved.iter().map(Slot::heap_bytes).sum();
                    pin.saved.capacity() * size_of::<S>() + content
                });
                pinned.segment.memory_bytes() + saved.sum::<usize>()
            }
        }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        match self {
            Cell::Owned(segment) => segment.len(),
            Cell::Frozen(segment) => segment.len(),
            Cell::Pinned(pinned) => lock(pinned).segment.len(),
        }
    }
}

impl<S: Slot> Pinned<S> {
    /// The segment as it is now.
    pub(crate) fn segment(&self) -> &Segment<S> {
        &self.segment
    }

    /// The segment for writing; a copy, if a snapshot reads it right now.
    pub(crate) fn segment_mut(&mut self) -> &mut Segment<S> {
        Arc::make_mut(&mut self.segment)
    }

    /// The former self of an entry that is about to change, if a snapshot needs it.
    pub(crate) fn copy_for_snapshots(&self, slot: &S) -> Option<S> {
        self.pins.iter().any(|pin| slot.epoch() <= pin.epoch).then(|| slot.clone())
    }

    /// Keeps the former self of an entry that has changed.
    pub(crate) fn save(&mut self, former: Option<S>) {
        let Some(former) = former else { return };
        for pin in self.pins.iter_mut().filter(|pin| former.epoch() <= pin.epoch) {
            pin.saved.push(former.clone());
        }
    }

    /// The segment, once nobody needs it any more.
    fn release(&mut self) -> Option<Segment<S>> {
        let segment = Arc::get_mut(&mut self.segment).filter(|_| self.pins.is_empty());
        segment.map(std::mem::take)
    }
}

/// A segment as a snapshot sees it: as it was at the pin.
#[derive(Debug)]
pub(crate) enum View<S> {
    Shared(Arc<Segment<S>>),
    Pinned(PinnedView<S>),
}

/// Lets go of its pin when it is dropped.
#[derive(Debug)]
pub(crate) struct PinnedView<S> {
    pinned: Arc<Mutex<Pinned<S>>>,
    epoch: u32,
}

impl<S: Slot> View<S> {
    /// Shows the entries that were last changed after the epoch `base`, and lets the segment go.
    /// Those beyond [`SHOWN_LEN`] are returned instead.
    ///
    /// To show an entry takes no longer than to share it: counting references keeps the processor from
    /// overlapping the cache misses of neighbouring entries.
    pub(crate) fn take(self, base: Option<u32>, mut show: impl FnMut(&S)) -> Vec<S> {
        let wanted = |slot: &&S| base.is_none_or(|base| slot.epoch() > base);
        let (mut may_show, mut shared) = (SHOWN_LEN, Vec::new());
        let mut each = |slot: &S| match may_show.checked_sub(slot.heap_bytes()) {
            Some(rest) => {
                may_show = rest;
                show(slot);
            }
            None => shared.push(slot.clone()),
        };
        match self {
            View::Shared(segment) => for_each_touched(&segment, wanted, each),
            View::Pinned(view) => {
                let (segment, saved) = view.end();
                let unchanged = |slot: &&S| slot.epoch() <= view.epoch && wanted(slot);
                for_each_touched(&segment, unchanged, &mut each);
                drop(segment);
                saved.iter().filter(wanted).for_each(each);
            }
        }
        shared
    }
}

/// Shows the entries that are `wanted`, a run at a time: all of a run are touched before the first one
/// is shown.
fn for_each_touched<S: Slot>(
    segment: &Segment<S>,
    wanted: impl Fn(&&S) -> bool,
    mut each: impl FnMut(&S),
) {
    for run in segment.runs() {
        run.iter().flatten().filter(&wanted).for_each(Slot::touch);
        run.iter().flatten().filter(&wanted).for_each(&mut each);
    }
}

impl<S> PinnedView<S> {
    /// Ends the pin: the segment as it is now, and the former selves of entries that have changed.
    fn end(&self) -> (Arc<Segment<S>>, Vec<S>) {
        let mut pinned = lock(&self.pinned);
        let saved = pinned.take_saved(self.epoch);
        (Arc::clone(&pinned.segment), saved)
    }
}

impl<S> Pinned<S> {
    /// Ends one pin of this epoch, and returns what was saved for it.
    fn take_saved(&mut self, epoch: u32) -> Vec<S> {
        let found = self.pins.iter().position(|pin| pin.epoch == epoch);
        found.map_or_else(Vec::new, |index| self.pins.swap_remove(index).saved)
    }
}

impl<S> Drop for PinnedView<S> {
    fn drop(&mut self) {
        drop(lock(&self.pinned).take_saved(self.epoch));
    }
}

/// A panic while the lock was held is not possible between two changes that belong together.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed_table::Locator;
    use crate::point_slot::PointSlot;
    use crate::segment::Hashed;

    fn slot(key: u8, value: u8, epoch: u32) -> PointSlot {
        let bytes = [key];
        let at = Locator::with_key_hash(&bytes, weir_state_api::key_hash(&bytes), b"");
        PointSlot::new(at, &[value], epoch)
    }

    fn insert(segment: &mut Segment<PointSlot>, slot: PointSlot) {
        segment.insert(slot.hash(), slot);
    }

    fn values(view: View<PointSlot>, base: Option<u32>) -> Vec<(u8, u8)> {
        let value = |slot: &PointSlot| (slot.key_and_namespace().0[0], slot.value()[0]);
        let mut values = Vec::new();
        let shared = view.take(base, |slot| values.push(value(slot)));
        values.extend(shared.iter().map(value));
        values.sort_unstable();
        values
    }

    #[test]
    fn long_entries_are_shared_with_a_snapshot_and_not_shown() {
        let mut cell = Cell::default();
        let long = vec![9; SHOWN_LEN / 2];
        for key in 0..5 {
            let bytes = [key];
            let at = Locator::with_key_hash(&bytes, weir_state_api::key_hash(&bytes), b"");
            insert(cell.owned().unwrap(), PointSlot::new(at, &long, 1));
        }
        insert(cell.owned().unwrap(), slot(9, 9, 1));
        let mut shown = 0;
        let shared = cell.pin(1).take(None, |_| shown += 1);
        assert_eq!((shown, shared.len()), (2, 4));
        assert_eq!(values(cell.pin(2), None).len(), 6);
    }

    #[test]
    fn each_snapshot_sees_the_segment_as_it_was_at_its_pin() {
        let mut cell = Cell::default();
        (0..4).for_each(|key| insert(cell.owned().unwrap(), slot(key, 0, 1)));
        let first = cell.pin(1);
        let change = |cell: &mut Cell<PointSlot>, key: u8, value: u8, epoch: u32| {
            let pinned = Arc::clone(cell.writable().unwrap_err());
            let mut pinned = lock(&pinned);
            let place =
                pinned.segment().find(slot(key, 0, 0).hash(), |s| s.key_and_namespace().0 == [key]);
            let former = pinned.segment().get(place.unwrap()).unwrap().clone();
            let former = pinned.copy_for_snapshots(&former);
            *pinned.segment_mut().get_mut(place.unwrap()).unwrap() = slot(key, value, epoch);
            pinned.save(former);
        };
        change(&mut cell, 1, 10, 2);
        change(&mut cell, 1, 11, 2);
        let second = cell.pin(2);
        change(&mut cell, 1, 20, 3);
        change(&mut cell, 2, 20, 3);
        assert_eq!(values(first, None), [(0, 0), (1, 0), (2, 0), (3, 0)]);
        assert!(cell.writable().is_err(), "the second snapshot still needs it");
        assert_eq!(values(second, Some(1)), [(1, 11)], "what changed after the first");
        assert!(cell.writable().is_ok(), "taken back");
    }

    /// In the middle of a `take` a write goes through, and the snapshot does not see it.
    #[test]
    fn a_write_does_not_wait_for_the_snapshot_that_reads_the_segment() {
        let mut cell = Cell::default();
        (0..20).for_each(|key| insert(cell.owned().unwrap(), slot(key, 0, 1)));
        let view = cell.pin(1);
        let mut seen = Vec::new();
        let shared = view.take(None, |entry| {
            let new = 100 + seen.len() as u8;
            seen.push((entry.key_and_namespace().0[0], entry.value()[0]));
            match cell.writable() {
                Ok(segment) => insert(segment, slot(new, 7, 2)),
                Err(pinned) => {
                    let mut pinned = pinned.try_lock().expect("the snapshot holds no lock");
                    insert(pinned.segment_mut(), slot(new, 7, 2));
                }
            }
        });
        seen.sort_unstable();
        assert_eq!(seen, (0..20).map(|key| (key, 0)).collect::<Vec<_>>());
        assert!(shared.is_empty());
        assert_eq!(cell.len(), 40);
        assert!(cell.writable().is_ok(), "taken back");
    }

    #[test]
    fn a_snapshot_that_is_given_up_lets_go() {
        let mut cell: Cell<PointSlot> = Cell::default();
        drop(cell.pin(1));
        assert!(cell.writable().is_ok());
    }

    #[test]
    fn a_scan_keeps_what_it_froze_and_the_last_reader_gives_it_back() {
        let mut cell = Cell::default();
        insert(cell.owned().unwrap(), slot(1, 1, 1));
        let frozen = cell.freeze();
        let view = cell.pin(1);
        insert(cell.writable().unwrap(), slot(2, 2, 2));
        assert_eq!((frozen.len(), cell.len()), (1, 2));
        assert_eq!(values(view, None), [(1, 1)]);
        let pinned = cell.pin(2);
        let copy = cell.freeze();
        assert_eq!(copy.len(), 2);
        drop(pinned);
        insert(lock(cell.writable().unwrap_err()).segment_mut(), slot(3, 3, 3));
        assert_eq!((copy.len(), cell.len()), (2, 3));
        drop((frozen, copy));
        assert!(cell.writable().is_ok());
    }
}
