//! Scans: over the entries of one map, and over the keys of a state.

use weir_state_api::{KeyGroup, Order, Page, Result, Scan, ScanStep};

use crate::clean_up::Sieve;
use crate::keyed_table::{FrozenSegments, Slot};
use crate::map_table::MapEntry;
use crate::sorted_chunks::{Position, SortedChunks};

/// Appends entries of `from..to` until the page is full; moves the end it reads from. Answers
/// whether nothing is left.
pub(crate) fn fill_from_map(
    entries: &SortedChunks<MapEntry>,
    from: &mut Position,
    to: &mut Position,
    order: Order,
    page: &mut Page,
) -> bool {
    while *from < *to {
        let at = match order {
            Order::Ascending => std::mem::replace(from, entries.after(*from)),
            Order::Descending => {
                *to = entries.before(*to);
                *to
            }
        };
        if let Some(entry) = entries.get(at) {
            page.push(entry.key.as_slice(), entry.value.as_slice());
        }
        if page.is_full() {
            break;
        }
    }
    *from >= *to
}

/// The rest of a scan over a map. It shares the map's entries, so it sees them as they were.
pub(crate) struct MapScan {
    pub(crate) entries: SortedChunks<MapEntry>,
    pub(crate) from: Position,
    pub(crate) to: Position,
    pub(crate) order: Order,
}

impl Scan for MapScan {
    fn next(mut self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        let Self { entries, from, to, order } = &mut *self;
        let done = fill_from_map(entries, from, to, *order, page);
        Ok(if done { ScanStep::Last } else { ScanStep::More(self) })
    }
}

/// An enumeration of the keys of a state. It shares the tables, so it sees them as they were; each
/// key group's table is let go as soon as it has been walked.
pub(crate) struct KeyScan<S> {
    /// The key groups still to walk, the next one last.
    groups: Vec<(KeyGroup, FrozenSegments<S>)>,
    namespace: Option<Vec<u8>>,
    /// The next place of the last segment of the last group.
    place: usize,
    /// What it leaves out.
    sieve: Option<Sieve>,
}

impl<S: Slot> KeyScan<S> {
    /// An enumeration of the given tables; with `namespace` of that namespace only, with `sieve`
    /// without what has expired.
    pub(crate) fn new(
        groups: impl Iterator<Item = (KeyGroup, FrozenSegments<S>)>,
        namespace: Option<&[u8]>,
        sieve: Option<Sieve>,
    ) -> Self {
        let mut groups: Vec<_> = groups.collect();
        groups.reverse();
        KeyScan { groups, namespace: namespace.map(<[u8]>::to_vec), place: 0, sieve }
    }

    /// Appends keys until the page is full; answers whether nothing is left.
    fn fill(&mut self, page: &mut Page) -> bool {
        while let Some((group, segments)) = self.groups.last_mut() {
            let Some(segment) = segments.last() else {
                self.groups.pop();
                continue;
            };
            while self.place < segment.place_count() {
                let slot = segment.get(self.place);
                self.place += 1;
                let Some(slot) = slot else { continue };
                let (key, namespace) = slot.key_and_namespace();
                if self.namespace.as_ref().is_some_and(|wanted| wanted != namespace) {
                    continue;
                }
                if self.sieve.is_some_and(|sieve| !slot.is_live(&sieve)) {
                    continue;
                }
                page.push_key(*group, key, namespace);
                if page.is_full() {
                    return false;
                }
            }
            segments.pop();
            self.place = 0;
        }
        true
    }
}

impl<S: Slot + Send + Sync + 'static> Scan for KeyScan<S> {
    fn next(mut self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        Ok(if self.fill(page) { ScanStep::Last } else { ScanStep::More(self) })
    }
}
