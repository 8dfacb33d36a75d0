//! Scans over the entries of one map.

use std::task::{Context, Poll, Waker, ready};

use weir_state_api::{Page, Result, Scan, ScanStep, StateId};

use super::sources::MapPart;
use super::tree::{InOne, Tree};
use super::view::{ShardView, Walk};
use crate::format::{Entry, EntryKind};
use crate::lsm::Direction;

/// Begins a scan over a part of a map. As long as one memtable has all of it, entries go to the page
/// straight from there.
pub(crate) fn scan_map(
    tree: &Tree,
    map: &mut MapPart,
    direction: Direction,
    page: &mut Page,
) -> Result<ScanStep> {
    match tree.in_one(map) {
        InOne::Nothing => return Ok(ScanStep::Last),
        InOne::Memtable(entries) => {
            let mut left = entries.bound(&map.range.from)..entries.bound(&map.range.to);
            if page.limit() > 1 {
                page.reserve(entries.bytes_from(left.start));
            }
            let push = |entry: Entry<'_>| {
                let more = !page.is_full();
                if more && entry.kind != EntryKind::Delete {
                    page.push(&entry.key[map.prefix_len..], entry.value);
                }
                more
            };
            let all = match direction {
                Direction::Forward => entries.visit(&mut left, push),
                Direction::Backward => entries.visit_backwards(&mut left, push),
            };
            if all {
                return Ok(ScanStep::Last);
            }
            // The rest of it is pinned.
            let (bound, at) = match direction {
                Direction::Forward => (&mut map.range.from, left.start),
                Direction::Backward => (&mut map.range.to, left.end),
            };
            if let Some(entry) = entries.entry(at) {
                entry.key.clone_into(bound);
            }
        }
        InOne::Other => {}
    }
    let pinned = PinnedMap { view: tree.pin(map), map: map.clone(), direction };
    if page.is_full() {
        return Ok(ScanStep::More(Box::new(pinned)));
    }
    Box::new(pinned.walk()).next(page)
}

/// A part of a map that is scanned only if it is asked for.
#[derive(Debug)]
struct PinnedMap {
    view: ShardView,
    map: MapPart,
    direction: Direction,
}

impl PinnedMap {
    fn walk(self) -> MapScan {
        let MapPart { state, hash, prefix_len, range, .. } = self.map;
        let walk = self.view.walk(&range, self.direction, Some(hash));
        MapScan { walk, state, prefix_len }
    }
}

impl Scan for PinnedMap {
    fn next(self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        Box::new(self.walk()).next(page)
    }
}

/// The rest of a scan. It owns what it reads from.
#[derive(Debug)]
pub(crate) struct MapScan {
    pub(crate) walk: Walk,
    /// The state's stored number.
    pub(crate) state: StateId,
    /// Length of what precedes the map key.
    pub(crate) prefix_len: usize,
}

/// A scan that can stop for a read at any entry.
pub(crate) trait PollScan: Scan + Sized + 'static {
    /// Appends entries until the page is full; whether the scan has ended.
    fn poll_fill(&mut self, page: &mut Page, context: &mut Context<'_>) -> Poll<Result<bool>>;

    /// A step of the scan: what is in memory at once, else a future.
    fn step(mut self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        match self.poll_fill(page, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => Ok(if ended? { ScanStep::Last } else { ScanStep::More(self) }),
            Poll::Pending if !page.is_empty() => Ok(ScanStep::More(self)),
            Poll::Pending => Ok(ScanStep::Pending(Box::pin(async move {
                let mut page = Page::new();
                let ended =
                    std::future::poll_fn(|context| match self.poll_fill(&mut page, context) {
                        // What is there goes out before the next read is waited for.
                        Poll::Pending if !page.is_empty() => Poll::Ready(Ok(false)),
                        polled => polled,
                    });
                let ended = ended.await?;
                let step = if ended { ScanStep::Last } else { ScanStep::More(self) };
                Ok((page, step))
            }))),
        }
    }
}

impl PollScan for MapScan {
    fn poll_fill(&mut self, page: &mut Page, context: &mut Context<'_>) -> Poll<Result<bool>> {
        while ready!(self.walk.poll_key(context))? {
            if page.is_full() {
                return Poll::Ready(Ok(false));
            }
            let map_key = self.walk.key().get(self.prefix_len..).unwrap_or_default();
            self.walk.with_value(self.state, |value| page.push(map_key, value))?;
            self.walk.leave();
        }
        Poll::Ready(Ok(true))
    }
}

impl Scan for MapScan {
    fn next(self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        self.step(page)
    }
}
