//! A frozen memtable becomes a table.

use weir_state_api::Result;
use weir_state_api::stored_key::state_of;

use super::frozen::Frozen;

use crate::format::{Entry, EntryKind, TableOptions, TableWriter};
use crate::lsm::{KeyVersion, Resolver, traits_of};
use crate::memtable::Sorted;

/// Writes all entries in the order of their keys, without values that had expired when the memtable was
/// frozen. `None` when there is nothing to write.
pub(crate) fn encode(frozen: &Frozen, options: TableOptions) -> Result<Option<TableWriter>> {
    let mut writer = TableWriter::new(options)?;
    let resolver = Resolver::sweeping(frozen.time);
    let mut empty = true;
    for Sorted { hash, key, found } in frozen.memtable.sorted() {
        let known = state_of(key).and_then(|state| frozen.states.get(state.index()));
        // Only states of the shard are written to.
        let Some(state) = known.map(|known| &known.eras) else { continue };
        let mut add = |kind: EntryKind, value: &[u8]| {
            let entry = Entry { key, kind, value };
            empty = false;
            writer.add_hashed(entry, hash, traits_of(state, entry))
        };
        if state.ttl().is_none() {
            add(found.kind, found.value)?;
            continue;
        }
        let version = KeyVersion { kind: found.kind, era: state.current(), value: found.value };
        // What has expired hides what is older, so it becomes a delete.
        if let Some((kind, value)) = resolver.resolve(state, [version], false)?.entry() {
            add(kind, value)?;
        }
    }
    for (from, to) in frozen.memtable.deleted().iter() {
        empty = false;
        writer.add_range_delete(from, to);
    }
    writer.set_eras((0..).map(weir_state_api::StateId).zip(frozen.eras.iter().copied()).collect());
    Ok((!empty).then_some(writer))
}
