//! The memtables of one shard, and what they say about a key.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_state_api::StateId;

use super::frozen::{Frozen, era_in};
use super::lookup::Search;
use super::resident::{Newest, Resident};
use crate::format::EntryKind;
use crate::memtable::{Found, MapRoute, Memtable, Memtables, PointVersion};

/// What memtables say about a key.
#[derive(Debug)]
pub(crate) enum InMemory<'m> {
    /// Its value, in the current era.
    Found(&'m [u8]),
    Absent,
    /// Runs must be searched; operands found on the way are in the search.
    Below,
    /// The oldest version is this value of an era, under the operands of the search.
    Oldest(Option<(u8, &'m [u8])>),
}

/// The memtables of one shard.
#[derive(Debug, Default)]
pub(super) struct ShardMemory {
    /// All of them: one that takes writes, the frozen ones, and the resident ones.
    pub(super) memtables: Memtables,
    /// On their way into tables, newest first.
    pub(super) frozen: VecDeque<Arc<Frozen>>,
    /// Those that are tables already, older than all frozen ones.
    pub(super) resident: Resident,
    /// The number that stored keys hold for each state of the instance.
    pub(super) stored: Vec<StateId>,
    /// The current era of each state, by its stored number.
    pub(super) eras: Arc<Vec<u8>>,
}

impl ShardMemory {
    /// The current era of a state.
    #[inline]
    pub(super) fn era(&self, state: StateId) -> u8 {
        era_in(&self.eras, state)
    }

    /// What is in no table yet: the memtable that takes writes and the frozen ones, newest first, each with
    /// the eras of the states in it.
    pub(super) fn in_no_table(&self) -> impl Iterator<Item = (&Memtable, &Arc<Vec<u8>>)> {
        let frozen = self.frozen.iter().map(|frozen| (&*frozen.memtable, &frozen.eras));
        std::iter::once((self.memtables.active(), &self.eras)).chain(frozen)
    }

    #[inline]
    pub(super) fn look_for_point(
        &self,
        state: StateId,
        hash: u64,
        key: &[u8],
        search: &mut Search,
    ) -> InMemory<'_> {
        let current = self.era(state);
        let mut version = self.memtables.point(hash, key);
        while let Some(found) = version {
            let era = match found.age.checked_sub(1) {
                None => current,
                Some(behind) => match self.frozen.get(behind) {
                    Some(frozen) => frozen.era(state),
                    None => {
                        let behind = behind - self.frozen.len();
                        let PointVersion { kind, value, .. } = found;
                        let newest = self.resident.version(behind, state, kind, value);
                        return in_tables(newest, current, search);
                    }
                },
            };
            if let Some(end) = settle(found.kind, found.value, era, current, search) {
                return end;
            }
            version = self.memtables.before(&found);
        }
        InMemory::Below
    }

    #[inline]
    pub(super) fn look_for_ordered(
        &self,
        state: StateId,
        route: MapRoute,
        key: &[u8],
        search: &mut Search,
    ) -> InMemory<'_> {
        let active = self.memtables.active();
        match active.ordered().get(route, key) {
            Some(Found { kind: EntryKind::Put, value }) => return InMemory::Found(value),
            Some(Found { kind: EntryKind::Delete, .. }) => return InMemory::Absent,
            Some(Found { kind: EntryKind::Append, value }) => {
                search.push_operand(self.era(state), value);
            }
            None => {}
        }
        if active.deleted().covers(key) {
            return InMemory::Oldest(None);
        }
        self.look_in_earlier(state, route, key, search)
    }

    /// The same in memtables that take no more writes.
    fn look_in_earlier(
        &self,
        state: StateId,
        route: MapRoute,
        key: &[u8],
        search: &mut Search,
    ) -> InMemory<'_> {
        let current = self.era(state);
        for frozen in &self.frozen {
            let (memtable, era) = (&frozen.memtable, frozen.era(state));
            let found = memtable.ordered().get(route, key);
            let end = found.and_then(|f| settle(f.kind, f.value, era, current, search));
            if let Some(end) = end {
                return end;
            }
            if memtable.deleted().covers(key) {
                return InMemory::Oldest(None);
            }
        }
        in_tables(self.resident.newest_ordered(state, route, key), current, search)
    }
}

/// What a version comes to that is in no table; an operand is noted, and the search goes on.
#[inline]
fn settle<'m>(
    kind: EntryKind,
    value: &'m [u8],
    era: u8,
    current: u8,
    search: &mut Search,
) -> Option<InMemory<'m>> {
    match kind {
        EntryKind::Put => Some(oldest_value(era, value, current, search)),
        EntryKind::Delete if search.is_empty() => Some(InMemory::Absent),
        EntryKind::Delete => Some(InMemory::Oldest(None)),
        EntryKind::Append => {
            search.push_operand(era, value);
            None
        }
    }
}

/// What the newest version in a table comes to, as far as its memtable is still there.
#[inline]
fn in_tables<'m>(newest: Newest<'m>, current: u8, search: &Search) -> InMemory<'m> {
    match newest {
        Newest::Known(Some((era, value))) => oldest_value(era, value, current, search),
        Newest::Known(None) => InMemory::Oldest(None),
        Newest::InTables => InMemory::Below,
    }
}

/// The oldest version is a value: the answer as it stands, if it is of the current era and has no operands.
#[inline]
fn oldest_value<'m>(era: u8, value: &'m [u8], current: u8, search: &Search) -> InMemory<'m> {
    if era == current && search.is_empty() {
        InMemory::Found(value)
    } else {
        InMemory::Oldest(Some((era, value)))
    }
}
