//! Walking over the entries of a table that is changed between two steps.

use super::{KeyedTable, Slot};
use crate::cell::{Cell, lock};
use crate::segment::Segment;

/// A place in a table, to go on from. Removing an entry moves later ones of its segment to earlier
/// places, so a walk that removes goes on from where it removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Place {
    pub(crate) segment: usize,
    pub(crate) place: usize,
}

impl<S: Slot> KeyedTable<S> {
    /// Shows the entries at and behind a place to `visit`, until it says to stop; answers whether
    /// the table ended before.
    pub(crate) fn visit_from(&self, from: Place, mut visit: impl FnMut(Place, &S) -> bool) -> bool {
        let mut first = from.place;
        for (number, cell) in self.cells.iter().enumerate().skip(from.segment) {
            let mut each = |segment: &Segment<S>| {
                (first..segment.place_count()).all(|place| match segment.get(place) {
                    Some(slot) => visit(Place { segment: number, place }, slot),
                    None => true,
                })
            };
            let go_on = match cell {
                Cell::Owned(segment) => each(segment),
                Cell::Frozen(segment) => each(segment),
                Cell::Pinned(pinned) => each(lock(pinned).segment()),
            };
            if !go_on {
                return false;
            }
            first = 0;
        }
        true
    }
}
