//! The memtables of one shard, and what they say about a key.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_state_api::StateId;

use super::frozen::{Frozen, era_in};
use super::lookup::Operands;
use super::resident::{Newest, Resident};
use crate::format::EntryKind;
use crate::memtable::{Found, MapRoute, MapVersion, MapVersions, Memtable, Memtables, PointSlot};

/// What memtables say about a key.
#[derive(Debug)]
pub(crate) enum InMemory<'m> {
    /// Its value, in the current era.
    Found(&'m [u8]),
    Absent,
    /// Runs must be searched; operands that were found on the way are noted.
    Below,
    /// The oldest version is this value of an era, under the operands that were noted.
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

    /// What the memtables that are in no table have of a map, newest first, each with its eras. The keys of
    /// the map begin with `prefix`, which has this hash.
    pub(super) fn map_in_no_table(
        &self,
        hash: u64,
        prefix: &[u8],
    ) -> impl Iterator<Item = (MapVersion<'_>, &Arc<Vec<u8>>)> {
        self.memtables.map(hash, prefix).map_while(|version| {
            let eras = match version.age.checked_sub(1) {
                None => &self.eras,
                Some(behind) => &self.frozen.get(behind)?.eras,
            };
            Some((version, eras))
        })
    }

    /// The era of a state in the memtable of this age.
    pub(super) fn era_at(&self, age: usize, state: StateId) -> Option<u8> {
        let Some(behind) = age.checked_sub(1) else { return Some(self.era(state)) };
        match self.frozen.get(behind) {
            Some(frozen) => Some(frozen.era(state)),
            None => self.resident.era(behind - self.frozen.len(), state),
        }
    }

    #[inline]
    pub(super) fn look_for_point(
        &self,
        state: StateId,
        hash: u64,
        key: &[u8],
        operands: &mut Operands,
    ) -> (InMemory<'_>, Option<PointSlot>) {
        let Some((newest, slot)) = self.memtables.point(hash, key) else {
            return (InMemory::Below, None);
        };
        let mut version = Some(newest);
        while let Some(newest) = version {
            let found = Found { kind: newest.kind, value: newest.value };
            if let Some(end) = self.settle_at(newest.age, state, found, operands) {
                return (end, Some(slot));
            }
            version = self.memtables.before(&newest);
        }
        (InMemory::Below, Some(slot))
    }

    #[inline]
    pub(super) fn look_for_ordered(
        &self,
        state: StateId,
        route: MapRoute,
        key: &[u8],
        operands: &mut Operands,
    ) -> InMemory<'_> {
        match self.memtables.newest_in_map(route, key) {
            Ok(Found { kind: EntryKind::Put, value }) => InMemory::Found(value),
            Ok(Found { kind: EntryKind::Delete, .. }) => InMemory::Absent,
            Ok(Found { kind: EntryKind::Append, .. }) => {
                let versions = self.memtables.map(route.hash, &key[..route.prefix_len]);
                self.look_through(versions, state, key, operands)
            }
            Err(versions) => self.look_through(versions, state, key, operands),
        }
    }

    /// The same in all that memtables have of a map.
    fn look_through<'m>(
        &'m self,
        versions: MapVersions<'m>,
        state: StateId,
        key: &[u8],
        operands: &mut Operands,
    ) -> InMemory<'m> {
        for version in versions {
            if let Some(found) = version.get(key)
                && let Some(end) = self.settle_at(version.age, state, found, operands)
            {
                return end;
            }
        }
        InMemory::Below
    }

    /// What a version comes to in the memtable of this age. An operand that is in no table is noted, and
    /// the search goes on.
    #[inline]
    fn settle_at<'m>(
        &self,
        age: usize,
        state: StateId,
        found: Found<'m>,
        operands: &mut Operands,
    ) -> Option<InMemory<'m>> {
        match found {
            Found { kind: EntryKind::Put, value } if age == 0 => Some(InMemory::Found(value)),
            Found { kind: EntryKind::Delete, .. } if age == 0 => Some(InMemory::Absent),
            _ => self.settle_older(age, state, found, operands),
        }
    }

    /// The same of an operand, or in a memtable that takes no more writes.
    #[inline(never)]
    fn settle_older<'m>(
        &self,
        age: usize,
        state: StateId,
        Found { kind, value }: Found<'m>,
        operands: &mut Operands,
    ) -> Option<InMemory<'m>> {
        let current = self.era(state);
        let era = match age.checked_sub(1) {
            None => current,
            Some(behind) => match self.frozen.get(behind) {
                Some(frozen) => frozen.era(state),
                None => {
                    let behind = behind - self.frozen.len();
                    let newest = self.resident.version(behind, state, kind, value);
                    return Some(in_tables(newest, current, operands));
                }
            },
        };
        settle(kind, value, era, current, operands)
    }
}

/// What a version comes to that is in no table; an operand is noted, and the search goes on.
#[inline]
fn settle<'m>(
    kind: EntryKind,
    value: &'m [u8],
    era: u8,
    current: u8,
    operands: &mut Operands,
) -> Option<InMemory<'m>> {
    match kind {
        EntryKind::Put => Some(oldest_value(era, value, current, operands)),
        EntryKind::Delete if operands.is_empty() => Some(InMemory::Absent),
        EntryKind::Delete => Some(InMemory::Oldest(None)),
        EntryKind::Append => {
            operands.push(era, value);
            None
        }
    }
}

/// What the newest version in a table comes to, as far as its memtable is still there.
#[inline]
fn in_tables<'m>(newest: Newest<'m>, current: u8, operands: &Operands) -> InMemory<'m> {
    match newest {
        Newest::Known(Some((era, value))) => oldest_value(era, value, current, operands),
        Newest::Known(None) => InMemory::Oldest(None),
        Newest::InTables => InMemory::Below,
    }
}

/// The oldest version is a value: the answer as it stands, if it is of the current era and has no operands.
#[inline]
fn oldest_value<'m>(era: u8, value: &'m [u8], current: u8, operands: &Operands) -> InMemory<'m> {
    if era == current && operands.is_empty() {
        InMemory::Found(value)
    } else {
        InMemory::Oldest(Some((era, value)))
    }
}
