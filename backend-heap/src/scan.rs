//! Scans: over the entries of one map, and over the keys of a state.

use std::ops::Range;

use weir_state_api::{KeyGroup, MapRange, Order, Page, Result, Scan, ScanStep};

use crate::clean_up::Sieve;
use crate::entry_chunk::Entries;
use crate::entry_chunks::EntryChunks;
use crate::keyed_table::{FrozenSegments, Slot};
use crate::sorted_chunks::Position;

/// Reads the first page of a range of a map.
#[inline]
pub(crate) fn begin_scan(
    entries: &EntryChunks,
    range: MapRange<'_>,
    order: Order,
    page: &mut Page,
) -> ScanStep {
    let (mut from, mut to) = entries.bounds(range);
    if fill_from_map(entries, &mut from, &mut to, order, page) {
        return ScanStep::Last;
    }
    ScanStep::More(Box::new(MapScan { entries: entries.clone(), from, to, order }))
}

/// Appends entries of `from..to` until the page is full; moves the end it reads from. Answers
/// whether nothing is left.
fn fill_from_map(
    map: &EntryChunks,
    from: &mut Position,
    to: &mut Position,
    order: Order,
    page: &mut Page,
) -> bool {
    let chunk_len = |chunk| map.chunk(chunk).map_or(0, Entries::len);
    while *from < *to && !page.is_full() {
        match order {
            Order::Ascending => {
                let end = if from.chunk == to.chunk { to.index } else { chunk_len(from.chunk) };
                let pushed = push_run(map, from.chunk, from.index..end, page);
                from.index += pushed;
                if from.index == end && from.chunk < to.chunk {
                    *from = Position { chunk: from.chunk + 1, index: 0 };
                }
            }
            Order::Descending => {
                if to.index == 0 {
                    let chunk = to.chunk.saturating_sub(1);
                    *to = Position { chunk, index: chunk_len(chunk) };
                }
                to.index -= 1;
                push_run(map, to.chunk, to.index..to.index + 1, page);
            }
        }
    }
    *from >= *to
}

/// Appends entries of a chunk until the page is full; answers how many.
fn push_run(map: &EntryChunks, chunk: usize, run: Range<usize>, page: &mut Page) -> usize {
    let Some(entries) = map.chunk(chunk) else { return 0 };
    page.reserve(entries.bytes_of(run.clone()));
    let mut pushed = 0;
    for (key, value) in entries.range(run) {
        page.push(key, value);
        pushed += 1;
        if page.is_full() {
            break;
        }
    }
    pushed
}

/// The rest of a scan over a map. It has the map's entries as they were: shares the chunks of a long
/// one.
struct MapScan {
    entries: EntryChunks,
    from: Position,
    to: Position,
    order: Order,
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
