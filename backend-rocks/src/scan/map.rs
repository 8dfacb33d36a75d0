//! Scans of maps.

use std::ops::ControlFlow;
use std::sync::Arc;

use rocksdb::ReadOptions;
use weir_state_api::{Order, Page, Result, Scan, ScanStep, StateShape};

use crate::database::{Database, Walk};
use crate::shard::StoredState;

/// Room for some small entries: growing to it step by step takes six allocations.
const FIRST_PAGE_BYTES: usize = 512;

/// A scan over the entries of one map.
#[derive(Debug)]
pub(crate) struct MapScan {
    walk: Walk,
    order: Order,
    /// Length of what precedes the map key.
    prefix_len: usize,
    state: StoredState,
}

impl MapScan {
    /// Starts over the stored keys `from..to`, all of one map.
    pub(crate) fn start(
        database: &Arc<Database>,
        state: StoredState,
        (from, to): (Vec<u8>, Vec<u8>),
        order: Order,
        prefix_len: usize,
    ) -> Result<Self> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to);
        if order == Order::Descending {
            options.set_iterate_lower_bound(from.clone());
        }
        // Upwards the walk starts inside the map and the filters of its prefix apply. Downwards it
        // starts from the end, which is no key of the map.
        options.set_total_order_seek(order == Order::Descending);
        let mut walk = database.walk(StateShape::Ordered, options)?;
        match order {
            Order::Ascending => walk.seek(&from)?,
            Order::Descending => walk.seek_to_last()?,
        };
        Ok(MapScan { walk, order, prefix_len, state })
    }

    /// Reads the first page. Most scans end with it.
    pub(crate) fn first_page(mut self, page: &mut Page) -> Result<ScanStep> {
        make_room(page);
        Ok(if self.fill(page)? { ScanStep::Last } else { ScanStep::More(Box::new(self)) })
    }

    /// Whether it comes to any entry.
    pub(crate) fn finds_any(mut self) -> Result<bool> {
        let MapScan { walk, order, state, .. } = &mut self;
        let to_the_end = walk.each(*order, |database, _, value| {
            Ok(match stands_for_something(database, *state, value)? {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        Ok(!to_the_end)
    }

    /// Appends entries until the page is full; whether the scan has ended.
    fn fill(&mut self, page: &mut Page) -> Result<bool> {
        let MapScan { walk, order, prefix_len, state } = self;
        walk.each(*order, |database, stored, value| {
            if page.is_full() {
                return Ok(ControlFlow::Break(()));
            }
            push(database, *state, stored.get(*prefix_len..).unwrap_or_default(), value, page)?;
            Ok(ControlFlow::Continue(()))
        })
    }
}

impl Scan for MapScan {
    fn next(mut self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        Ok(if self.fill(page)? { ScanStep::Last } else { ScanStep::More(self) })
    }
}

/// Makes room in the first page of a scan.
pub(super) fn make_room(page: &mut Page) {
    page.reserve(FIRST_PAGE_BYTES);
}

/// Appends an entry as it is in the current era, unless it stands for nothing.
#[inline]
pub(super) fn push(
    database: &Database,
    state: StoredState,
    map_key: &[u8],
    stored: &[u8],
    page: &mut Page,
) -> Result<()> {
    match stored {
        [value @ .., era] if *era == state.era => page.push(map_key, value),
        _ => {
            if let Some(value) = database.eras().states()[state.id.index()].load(stored)? {
                page.push(map_key, &value);
            }
        }
    }
    Ok(())
}

/// Whether a stored value is one.
#[inline]
pub(super) fn stands_for_something(
    database: &Database,
    state: StoredState,
    stored: &[u8],
) -> Result<bool> {
    match stored {
        [.., era] if *era == state.era => Ok(true),
        _ => Ok(database.eras().states()[state.id.index()].load(stored)?.is_some()),
    }
}
