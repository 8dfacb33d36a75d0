//! Driven clean-up: a walk over a state, some entries at a time, that removes what has expired.
//!
//! Compactions do the same in the background, when they come by. A walk gets everywhere, and it can
//! shorten lists of which only a part has expired.

use std::sync::Arc;

use rocksdb::{ReadOptions, WriteBatch};
use weir_state_api::stored_key::{STATE_PREFIX_LEN, push_state};
use weir_state_api::ttl::Verdict;
use weir_state_api::{CleanUp, KeyGroup, Result, StateId, StateShape};

use crate::eras::store;
use crate::hashed_key::HashedKey;
use crate::shard::Shards;

/// Where the next step begins: a key group, and a stored key without group and state.
pub(crate) type Cursor = Option<(KeyGroup, Vec<u8>)>;

/// One step over a state of points or maps.
pub(crate) fn clean_up(
    shards: &mut Shards,
    state: StateId,
    shape: StateShape,
    cursor: &mut Cursor,
    budget: u64,
) -> Result<CleanUp> {
    let (mut visited, mut removed) = (0, 0);
    for shard in shards.iter_mut() {
        let from = cursor.as_ref().map(|(group, _)| *group);
        let stored_state = shard.stored(state);
        let eras = shard.database.eras().states();
        let eras = &eras[stored_state.id.index()];
        if eras.never_expires() {
            continue;
        }
        if from.is_none() {
            shard.write_out(shape)?;
        }
        let database = Arc::clone(&shard.database);
        let (family, time) = (database.family(shape), database.eras().time());
        let mut options = ReadOptions::default();
        options.set_total_order_seek(true);
        // A walk over everything would wash out what is in use.
        options.fill_cache(false);
        let mut walk = database.walk(shape, options)?;
        let mut batch = WriteBatch::default();
        for group in shard.groups.iter().filter(|group| from.is_none_or(|from| *group >= from)) {
            let mut start = Vec::new();
            push_state(group, stored_state.id, &mut start);
            if let Some((_, rest)) = cursor.take_if(|(from, _)| *from == group) {
                start.extend_from_slice(&rest);
            }
            let mut there = walk.seek(&start)?;
            start.truncate(STATE_PREFIX_LEN);
            while let Some((key, value)) = walk.entry().filter(|_| there) {
                if !key.starts_with(&start) {
                    break;
                }
                if visited >= budget.max(1) {
                    *cursor = Some((group, key[STATE_PREFIX_LEN..].to_vec()));
                    shard.write(batch)?;
                    return Ok(CleanUp::new(visited, removed, false));
                }
                visited += 1;
                // Written since the walk began: the next one comes to it.
                let hashed = HashedKey::from(key);
                if shard.collected(shape).find(hashed).is_some() {
                    there = walk.next()?;
                    continue;
                }
                let verdict = eras.clean(value, &time)?;
                if verdict != Verdict::Keep {
                    shard.rows.remove(hashed);
                }
                match verdict {
                    Verdict::Keep => {}
                    Verdict::Drop => {
                        removed += 1;
                        batch.delete_cf(family, key);
                    }
                    Verdict::Replace(new) => {
                        let mut stored = Vec::new();
                        store(&new, stored_state.era, &mut stored);
                        batch.put_cf(family, key, stored);
                    }
                }
                there = walk.next()?;
            }
        }
        shard.write(batch)?;
    }
    *cursor = None;
    Ok(CleanUp::new(visited, removed, true))
}
