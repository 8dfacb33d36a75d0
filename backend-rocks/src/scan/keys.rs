//! Enumerations of the keys of a state.

use std::collections::VecDeque;
use std::sync::Arc;

use rocksdb::ReadOptions;
use weir_state_api::stored_key::{
    DecodedAddress, decode, group_of, push_group, push_map_prefix, push_state, state_of, successor,
};
use weir_state_api::ttl::TtlTime;
use weir_state_api::{KeyGroup, KeyRef, Page, Result, Scan, ScanStep, StateId, StateShape};

use super::odd_key;
use crate::database::Walk;
use crate::eras::StateEras;
use crate::shard::Shard;

/// Entries that are stepped over one by one before the walk jumps behind their map.
const STEPS_BEFORE_JUMP: usize = 8;

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
