//! Walks over the entries of a map and over the keys of a state.
//!
//! A RocksDB iterator sees the database as it was when the iterator was made, and here it owns its
//! database: a scan neither borrows the instance nor sees later changes.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use rocksdb::ReadOptions;
use weir_state_api::stored_key::{
    DecodedAddress, decode, group_of, push_group, push_map_prefix, push_state, state_of, successor,
};
use weir_state_api::ttl::TtlTime;
use weir_state_api::{
    Error, ErrorKind, KeyGroup, KeyRef, Order, Page, Result, Scan, ScanStep, StateId, StateShape,
};

use crate::database::Walk;
use crate::eras::StateEras;
use crate::shard::{Shard, StoredState};

/// Room for some small entries: growing to it step by step takes six allocations.
const FIRST_PAGE_BYTES: usize = 512;

/// Entries that are stepped over one by one before the walk jumps behind their map.
const STEPS_BEFORE_JUMP: usize = 8;

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
        shard: &Shard,
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
        let mut walk = shard.database.walk(StateShape::Ordered, options)?;
        match order {
            Order::Ascending => walk.seek(&from)?,
            Order::Descending => walk.seek_to_last()?,
        };
        Ok(MapScan { walk, order, prefix_len, state })
    }

    /// Reads the first page. Most scans end with it.
    pub(crate) fn first_page(mut self, page: &mut Page) -> Result<ScanStep> {
        page.reserve(FIRST_PAGE_BYTES);
        Ok(if self.fill(page)? { ScanStep::Last } else { ScanStep::More(Box::new(self)) })
    }

    /// Whether it comes to any entry.
    pub(crate) fn finds_any(mut self) -> Result<bool> {
        let MapScan { walk, order, state, .. } = &mut self;
        let to_the_end = walk.each(*order, |database, _, value| {
            let stands_for_something = match value {
                [.., era] if *era == state.era => true,
                _ => database.eras().states()[state.id.index()].load(value)?.is_some(),
            };
            Ok(if stands_for_something {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
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
            let map_key = stored.get(*prefix_len..).unwrap_or_default();
            match value {
                [value @ .., era] if *era == state.era => page.push(map_key, value),
                _ => {
                    if let Some(value) = database.eras().states()[state.id.index()].load(value)? {
                        page.push(map_key, &value);
                    }
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}

impl Scan for MapScan {
    fn next(mut self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        Ok(if self.fill(page)? { ScanStep::Last } else { ScanStep::More(self) })
    }
}

/// The rest of an enumeration within one shard.
#[derive(Debug)]
struct ShardKeys {
    walk: Walk,
    state: StateId,
    /// Key groups not walked yet, but for the first one, which the walk may be in.
    groups: VecDeque<KeyGroup>,
    started: bool,
    /// How to tell live values, and when; `None` when all are.
    expiry: Option<(Arc<Vec<StateEras>>, TtlTime)>,
}

/// A scan over the distinct (key, namespace) pairs of a state.
#[derive(Debug)]
pub(crate) struct KeyScan {
    shards: VecDeque<ShardKeys>,
    shape: StateShape,
    namespace: Option<Vec<u8>>,
    decoded: DecodedAddress,
}

impl KeyScan {
    /// Pins the shards as they are now.
    pub(crate) fn start<'s>(
        shards: impl Iterator<Item = &'s Shard>,
        state: StateId,
        shape: StateShape,
        namespace: Option<&[u8]>,
    ) -> Result<Self> {
        let pinned = shards.map(|shard| {
            let mut options = ReadOptions::default();
            // It crosses the borders of what shares a prefix.
            options.set_total_order_seek(true);
            let mut end = Vec::new();
            if let Some(last) = shard.groups.iter().next_back() {
                push_group(last, &mut end);
            }
            if successor(&mut end) {
                options.set_iterate_upper_bound(end);
            }
            let eras = shard.database.eras();
            let states = eras.states();
            let all_live = states[shard.stored_id(state).index()].never_expires();
            Ok(ShardKeys {
                expiry: (!all_live).then(|| (states, eras.time())),
                walk: shard.database.walk(shape, options)?,
                state: shard.stored_id(state),
                groups: shard.groups.iter().collect(),
                started: false,
            })
        });
        Ok(KeyScan {
            shards: pinned.collect::<Result<_>>()?,
            shape,
            namespace: namespace.map(<[u8]>::to_vec),
            decoded: DecodedAddress::default(),
        })
    }
}

impl Scan for KeyScan {
    fn next(mut self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        let KeyScan { shards, shape, namespace, decoded } = &mut *self;
        while let Some(shard) = shards.front_mut() {
            if !shard.fill(*shape, namespace.as_deref(), decoded, page)? {
                return Ok(ScanStep::More(self));
            }
            shards.pop_front();
        }
        Ok(ScanStep::Last)
    }
}

impl ShardKeys {
    /// Appends keys until the page is full; whether the shard has been walked.
    fn fill(
        &mut self,
        shape: StateShape,
        namespace: Option<&[u8]>,
        decoded: &mut DecodedAddress,
        page: &mut Page,
    ) -> Result<bool> {
        while let Some(&group) = self.groups.front() {
            let mut there = true;
            if !std::mem::replace(&mut self.started, true) {
                let mut start = Vec::new();
                push_state(group, self.state, &mut start);
                there = self.walk.seek(&start)?;
            }
            while there {
                let Some((stored, value)) = self.walk.entry() else { break };
                if group_of(stored) != Some(group) || state_of(stored) != Some(self.state) {
                    break;
                }
                if page.is_full() {
                    return Ok(false);
                }
                if !self.is_live(value)? {
                    there = self.walk.next()?;
                    continue;
                }
                decode(shape, stored, decoded).ok_or_else(odd_key)?;
                if namespace.is_none_or(|wanted| decoded.namespace == wanted) {
                    page.push_key(group, &decoded.key, &decoded.namespace);
                }
                there = match shape {
                    StateShape::Ordered => self.leave_map(group, decoded)?,
                    _ => self.walk.next()?,
                };
            }
            self.groups.pop_front();
            self.started = false;
            // Groups without any keys are skipped at once.
            let next = self.walk.entry().filter(|_| there).and_then(|(stored, _)| group_of(stored));
            match next {
                Some(next) => {
                    while self.groups.front().is_some_and(|group| *group < next) {
                        self.groups.pop_front();
                    }
                }
                None => self.groups.clear(),
            }
        }
        Ok(true)
    }

    fn is_live(&self, value: &[u8]) -> Result<bool> {
        match &self.expiry {
            None => Ok(true),
            Some((states, time)) => states[self.state.index()].is_live(value, time),
        }
    }

    /// Moves behind the entries of the map that the walk is in.
    fn leave_map(&mut self, group: KeyGroup, map: &DecodedAddress) -> Result<bool> {
        let mut prefix = Vec::new();
        push_map_prefix(
            self.state,
            KeyRef::with_group(&map.key, group)?,
            &map.namespace,
            &mut prefix,
        );
        for _ in 0..STEPS_BEFORE_JUMP {
            if !self.walk.next()? {
                return Ok(false);
            }
            if self.walk.entry().is_some_and(|(stored, _)| !stored.starts_with(&prefix)) {
                return Ok(true);
            }
        }
        // A prefix ends with the code that ends a part, so it has a successor.
        successor(&mut prefix);
        self.walk.seek(&prefix)
    }
}

/// Counts the entries of a state as they are stored: expired ones too.
pub(crate) fn count_entries<'s>(
    shards: impl Iterator<Item = &'s Shard>,
    state: StateId,
    shape: StateShape,
) -> Result<u64> {
    let mut count = 0;
    for shard in shards {
        let mut options = ReadOptions::default();
        options.set_total_order_seek(true);
        options.fill_cache(false);
        let mut walk = shard.database.walk(shape, options)?;
        let stored = shard.stored_id(state);
        for group in shard.groups.iter() {
            let mut start = Vec::new();
            push_state(group, stored, &mut start);
            let mut there = walk.seek(&start)?;
            while there && walk.entry().is_some_and(|(key, _)| key.starts_with(&start)) {
                count += 1;
                there = walk.next()?;
            }
        }
    }
    Ok(count)
}

#[cold]
pub(crate) fn odd_key() -> Error {
    Error::new(ErrorKind::Corrupt, "a stored key has not the layout of its state")
        .advice("restore another checkpoint")
}
