//! Batched reads: RocksDB looks up the keys of one database and family together, but for those that
//! have been written just now.

use weir_state_api::stored_key::{push_map, push_point};
use weir_state_api::{Address, Result, StateShape, Values};

use crate::access::StoredKey;
use crate::hashed_key::HashedKey;
use crate::shard::{Shards, load};
use crate::state::States;

/// Reads all addresses into `values`, which has been reset to their number.
pub(crate) fn multi_get(
    shards: &mut Shards,
    states: &States,
    addresses: &[Address<'_>],
    values: &mut Values,
) -> Result<()> {
    // All stored keys in one buffer.
    let (mut keys, mut ends) = (Vec::new(), Vec::with_capacity(addresses.len()));
    for at in addresses {
        let shard = shards.of_key(at.key)?;
        let state = states.get(at.state)?;
        let stored = shard.stored_id(at.state);
        match state.shape {
            StateShape::Point => push_point(stored, at.key, at.namespace, &mut keys),
            StateShape::Ordered => {
                push_map(stored, at.key, at.namespace, at.map_key, &mut keys);
            }
            StateShape::Queue => state.descriptor.expect(false, "multi_get")?,
        }
        ends.push(keys.len());
    }
    let stored_key = |index: usize| {
        let start = index.checked_sub(1).map_or(0, |previous| ends[previous]);
        &keys[start..ends[index]]
    };
    for shard in shards.iter_mut() {
        for shape in [StateShape::Point, StateShape::Ordered] {
            let mut indexes = Vec::new();
            for (index, at) in addresses.iter().enumerate() {
                if !shard.groups.contains(at.key.group()) || states.get(at.state)?.shape != shape {
                    continue;
                }
                let key = HashedKey::from(stored_key(index));
                let key = StoredKey { shape, key, prefix_len: 0 };
                if !shard.knows(key) {
                    indexes.push(index);
                    continue;
                }
                shard.read(key, shard.stored(at.state), |value| {
                    if let Some(value) = value {
                        values.set(index, value);
                    }
                    Ok(())
                })?;
            }
            if indexes.is_empty() {
                continue;
            }
            let wanted: Vec<&[u8]> = indexes.iter().map(|&index| stored_key(index)).collect();
            for (index, found) in indexes.into_iter().zip(shard.database.multi_get(shape, &wanted)?)
            {
                let Some(stored) = found? else { continue };
                let key = HashedKey::from(stored_key(index));
                // It may have been asked for twice.
                if !shard.rows.contains(key) {
                    shard.rows.insert(key, &stored);
                }
                let state = shard.stored(addresses[index].state);
                if let Some(value) = load(&shard.database, state, &stored)? {
                    values.set(index, &value);
                }
            }
        }
    }
    Ok(())
}
