//! Memtables that are tables already, and still answer reads of single keys while memory has room.
//!
//! Each checkpoint freezes what was written. Without these, the next access to each key that is in use
//! would look into a table: find the block, take it from the cache, search it. The budget for
//! memtables is often not used up; what is left of it keeps the newest keys in their hash tables.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_state_api::StateId;

use super::frozen::era_in;
use crate::format::EntryKind;
use crate::store::ResidentPermit;

/// What is known of such a memtable beside what is in it. Not which table it has become: that may be
/// compacted away meanwhile.
#[derive(Debug)]
pub(super) struct Retired {
    /// The era of each state in it.
    pub(super) eras: Arc<Vec<u8>>,
    pub(super) permit: ResidentPermit,
}

/// The memtables of the newest tables of one shard.
#[derive(Debug, Default)]
pub(super) struct Resident {
    /// Newest first, without gaps: no table between them has no memtable here.
    memtables: VecDeque<Retired>,
}

/// What they say about a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Newest<'m> {
    /// The newest version in a table is this value, of an era; or there is none.
    Known(Option<(u8, &'m [u8])>),
    /// The tables must be searched, all of them.
    InTables,
}

impl Resident {
    /// Keeps the memtable of a table that is the newest now.
    pub(super) fn keep(&mut self, memtable: Retired) {
        self.memtables.push_front(memtable);
    }

    /// The oldest one, which is of no use any more.
    pub(super) fn evict(&mut self) -> Option<Retired> {
        self.memtables.pop_back()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.memtables.is_empty()
    }

    /// Memory they take.
    pub(super) fn bytes(&self) -> u64 {
        self.memtables.iter().map(|retired| retired.permit.bytes()).sum()
    }

    /// What a version says that is in one of them, and in none above it: the first, the second.
    #[inline]
    pub(super) fn version<'m>(
        &self,
        behind: usize,
        state: StateId,
        kind: EntryKind,
        value: &'m [u8],
    ) -> Newest<'m> {
        let Some(retired) = self.memtables.get(behind) else { return Newest::InTables };
        match kind {
            EntryKind::Put => Newest::Known(Some((era_in(&retired.eras, state), value))),
            EntryKind::Delete => Newest::Known(None),
            // What it continues is further down, and so is the operand itself.
            EntryKind::Append => Newest::InTables,
        }
    }

    /// The era of a state in one of them.
    pub(super) fn era(&self, behind: usize, state: StateId) -> Option<u8> {
        self.memtables.get(behind).map(|retired| era_in(&retired.eras, state))
    }
}
