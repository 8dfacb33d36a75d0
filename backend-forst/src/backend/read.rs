//! The path of a point read through an instance.

use weir_state_api::{Result, StateId};

use super::lookup::{Operands, PendingReads, Reached, Search, Wanted};
use super::shard_memory::InMemory;
use super::tree::Tree;
use crate::format::filter_hash;
use crate::memtable::{PointSlot, Route};

/// Where an access goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) shard: usize,
    /// The state's number in the shard.
    pub(crate) state: StateId,
    /// Where memtables have the key.
    pub(crate) route: Route,
}

impl Target {
    /// What tables are searched for.
    #[inline]
    pub(crate) fn wanted<'k>(&self, key: &'k [u8]) -> Wanted<'k> {
        let hash = match self.route {
            Route::Point { hash } => hash,
            Route::Map(_) => filter_hash(key),
        };
        Wanted { key, hash, state: self.state }
    }
}

/// The answer, as far as it is known without the store.
#[derive(Debug)]
pub(crate) enum Read<'b> {
    Found(&'b [u8]),
    Absent,
    /// How far the search has come.
    Pending(Search),
}

/// Reads what is at a stored key. A value that must be put together, converted or copied out of a block
/// goes to the buffer.
#[inline]
pub(crate) fn read<'b>(
    tree: &'b Tree,
    target: Target,
    key: &[u8],
    buffer: &'b mut Vec<u8>,
) -> Result<Read<'b>> {
    read_to_write(tree, target, key, buffer).map(|(read, _)| read)
}

/// The same, and where memtables have a key of a point state: to write it next.
#[inline]
pub(crate) fn read_to_write<'b>(
    tree: &'b Tree,
    target: Target,
    key: &[u8],
    buffer: &'b mut Vec<u8>,
) -> Result<(Read<'b>, Option<PointSlot>)> {
    let mut operands = Operands::default();
    let (memory, slot) = tree.look_in_memory(target, key, &mut operands);
    match memory {
        InMemory::Found(value) => return Ok((Read::Found(value), slot)),
        InMemory::Absent => return Ok((Read::Absent, slot)),
        InMemory::Oldest(_) | InMemory::Below => {}
    }
    let mut search = Search::below(operands);
    let shard = &tree.version().shards()[target.shard];
    let reached = match memory {
        InMemory::Oldest(value) => {
            search.finish(&shard.states()[target.state.index()].eras, value, buffer)?
        }
        _ => search.go_on(shard, target.wanted(key), buffer)?,
    };
    let read = match reached {
        Reached::Found => Read::Found(buffer),
        Reached::Absent => Read::Absent,
        Reached::Meta(_) | Reached::Block(..) => Read::Pending(search),
    };
    Ok((read, slot))
}

/// A read that goes on without the instance.
#[cold]
pub(crate) fn pending(tree: &Tree, target: Target, key: &[u8], search: Search) -> PendingReads {
    let mut pending = PendingReads::of(tree.version());
    pending.push(target, key, search);
    pending
}
