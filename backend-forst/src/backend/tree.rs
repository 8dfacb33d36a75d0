//! All that an instance holds: per shard the memtable that takes writes, frozen ones, and the tables.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use weir_state_api::stored_key::{STATE_PREFIX_LEN, push_state, state_of};
use weir_state_api::ttl::{StateTtl, TtlTime};
use weir_state_api::{
    KeyGroup, KeyGroupRange, KeyRef, Result, StateDescriptor, StateId, StateShape, foreign_key,
};

use super::frozen::{Frozen, era_in};
use super::lookup::Operands;
use super::read::Target;
use super::shard_memory::{InMemory, ShardMemory};
use super::sources::{MapPart, PinnedMemory};
use super::view::ShardView;
use super::{ShardEdit, Table, TableView, Version};
use crate::format::{EntryKind, StateProperties, filter_hash};
use crate::lsm::{ShardState, StateEras, TableId};
use crate::memtable::{
    Churn, DeletedRanges, LogEntry, MapRoute, MapVersion, Memtable, Memtables, PointSlot, Route,
    Sequence,
};
use crate::store::{MemtableBudget, MemtablePermit};

/// Shards with their memtables and tables.
#[derive(Debug)]
pub(crate) struct Tree {
    version: Arc<Version>,
    /// In the order of the version's shards.
    memory: Vec<ShardMemory>,
    owned: KeyGroupRange,
}

/// Where a part of a map is.
#[derive(Debug)]
pub(crate) enum InOne<'m> {
    /// There is none.
    Nothing,
    /// In this memtable: all its entries, of the current era.
    Memtable(&'m Sequence),
    /// In several, or in tables.
    Other,
}

impl Tree {
    pub(crate) fn new(version: Version, owned: KeyGroupRange) -> Self {
        let memory = version.shards().iter().map(|shard| ShardMemory {
            eras: current_eras(shard.states()),
            ..ShardMemory::default()
        });
        Tree { memory: memory.collect(), version: Arc::new(version), owned }
    }

    pub(crate) fn version(&self) -> &Arc<Version> {
        &self.version
    }

    pub(crate) fn groups(&self) -> KeyGroupRange {
        self.owned
    }

    pub(crate) fn shard_count(&self) -> usize {
        self.memory.len()
    }

    /// The shard of a key, which the instance must own.
    #[inline]
    pub(crate) fn shard_of(&self, key: KeyRef<'_>) -> Result<usize> {
        match self.version.shards() {
            [only] if only.groups().contains(key.group()) => Ok(0),
            _ => self.shard_of_group(key.group()).ok_or_else(|| foreign_key(key, self.owned)),
        }
    }

    pub(crate) fn shard_of_group(&self, group: KeyGroup) -> Option<usize> {
        self.version.shard_index(group)
    }

    /// The number that a shard's keys hold for a state of the instance.
    #[inline]
    pub(crate) fn stored(&self, shard: usize, state: StateId) -> StateId {
        self.memory[shard].stored[state.index()]
    }

    /// The instance's next state gets its number in each shard: the one it had, or a new one.
    ///
    /// # Errors
    /// Those of [`StateEras::set_ttl`]; nothing has changed then.
    pub(crate) fn add_state(&mut self, descriptor: &StateDescriptor, time: TtlTime) -> Result<()> {
        let mut numbers = Vec::with_capacity(self.memory.len());
        let mut changed = Vec::new();
        for (index, shard) in self.version.shards().iter().enumerate() {
            let states = shard.states();
            let mut states = Vec::clone(states);
            let known = states.iter().position(|state| state.name == descriptor.name);
            let number = known.unwrap_or_else(|| {
                let eras = StateEras::new(descriptor.kind, Vec::new());
                states.push(ShardState { name: descriptor.name.clone(), eras });
                states.len() - 1
            });
            // An instance has at most 65,536 states, and a shard none that its instance has not.
            numbers.push(StateId(number as u16));
            // The shards of one restore may have had different TTLs.
            if states[number].eras.set_ttl(descriptor.ttl, time)? || known.is_none() {
                changed.push((index, states));
            }
        }
        for (index, states) in changed {
            self.set_states(index, states);
        }
        for (memory, number) in self.memory.iter_mut().zip(numbers) {
            memory.stored.push(number);
        }
        Ok(())
    }

    /// Changes the TTL of a state from now on. Memtables with values of the former one are frozen.
    ///
    /// # Errors
    /// Those of [`StateEras::set_ttl`]; nothing has changed then.
    pub(crate) fn set_ttl(
        &mut self,
        state: StateId,
        ttl: Option<StateTtl>,
        time: TtlTime,
    ) -> Result<()> {
        let mut changed = Vec::new();
        for (index, shard) in self.version.shards().iter().enumerate() {
            let mut states = Vec::clone(shard.states());
            let number = self.stored(index, state);
            if let Some(known) = states.get_mut(number.index())
                && known.eras.set_ttl(ttl, time)?
            {
                changed.push((index, states));
            }
        }
        for (index, states) in changed {
            self.freeze(index, time, None);
            self.set_states(index, states);
        }
        Ok(())
    }

    fn set_states(&mut self, shard: usize, states: Vec<ShardState>) {
        let states = Arc::new(states);
        self.memory[shard].eras = current_eras(&states);
        self.edit(shard, ShardEdit::States(states));
    }

    /// Changes the version. Whether the change was still valid.
    pub(crate) fn edit(&mut self, shard: usize, edit: ShardEdit) -> bool {
        match self.version.apply(shard, edit) {
            Some(version) => {
                self.version = Arc::new(version);
                true
            }
            None => false,
        }
    }

    /// Changes the version. Which tables are not part of it any more, each once.
    pub(crate) fn edit_removing(&mut self, shard: usize, edit: ShardEdit) -> Vec<TableView> {
        let before = Arc::clone(&self.version);
        if !self.edit(shard, edit) {
            return Vec::new();
        }
        let now: HashSet<TableId> = self.version.tables().map(TableView::id).collect();
        let mut seen = HashSet::new();
        let gone = before.tables().filter(|view| !now.contains(&view.id()));
        gone.filter(|view| seen.insert(view.id())).cloned().collect()
    }

    /// Makes this the newest version of a key.
    #[inline]
    pub(crate) fn set(
        &mut self,
        shard: usize,
        route: Route,
        key: &[u8],
        kind: EntryKind,
        value: &[u8],
    ) {
        self.memory[shard].memtables.set(route, key, kind, value);
    }

    /// Makes this value the newest version of a key, which a read has just found in this slot, or in none.
    #[inline]
    pub(crate) fn set_found(
        &mut self,
        slot: Option<PointSlot>,
        target: Target,
        key: &[u8],
        value: &[u8],
    ) {
        let memtables = &mut self.memory[target.shard].memtables;
        match (slot, target.route) {
            (Some(slot), Route::Point { hash }) => memtables.set_found(slot, hash, key, value),
            (_, route) => memtables.set(route, key, EntryKind::Put, value),
        }
    }

    /// Deletes a key. Of an entry of a map that nothing older can have, no trace is left: what is put and soon
    /// removed again, such as the entries of a queue or the worst of the best ten, would otherwise be a delete
    /// that each scan of the map passes and each flush writes.
    pub(crate) fn delete(&mut self, shard: usize, route: Route, key: &[u8]) {
        match route {
            Route::Map(map) if self.is_in_active_only(shard, map, key) => {
                self.memory[shard].memtables.take_out(map, key);
            }
            _ => self.set(shard, route, key, EntryKind::Delete, &[]),
        }
    }

    /// Whether the memtable that takes writes has a key of a map, and nothing older can have it.
    fn is_in_active_only(&self, shard: usize, map: MapRoute, key: &[u8]) -> bool {
        if !self.memory[shard].memtables.is_in_active_only(map, key) {
            return false;
        }
        let hash = filter_hash(key);
        let tables = self.version.shards()[shard].runs().iter().filter_map(|run| run.find(key));
        let mut ends = tables.map(|view| view.table().meta_now());
        !ends.any(|end| end.is_none_or(|end| end.may_contain(hash)))
    }

    /// Appends to the newest version of a key.
    pub(crate) fn append(&mut self, shard: usize, route: Route, key: &[u8], more: &[u8]) {
        self.memory[shard].memtables.append(route, key, more);
    }

    /// Deletes a range of the entries of one map. Where nothing older can have any, no range delete is
    /// left behind.
    pub(crate) fn delete_range(&mut self, map: &MapPart) {
        let MapPart { shard, hash, range, .. } = map;
        let (from, to) = (&range.from[..], &range.to[..]);
        let memory = &self.memory[*shard];
        let is_frozen = |(version, _): (MapVersion<'_>, _)| {
            version.age > 0 && version.entries().is_some_and(|entries| entries.has_any(from, to))
        };
        let older = !memory.frozen.is_empty()
            && memory.map_in_no_table(*hash, map.prefix()).any(is_frozen)
            || self.may_be_in_tables(map);
        self.memory[*shard].memtables.delete_range((*hash, map.prefix()), from, to, older);
    }

    /// Whether tables may hold entries of a part of a map.
    fn may_be_in_tables(&self, map: &MapPart) -> bool {
        self.version.shards()[map.shard].runs().iter().any(|run| {
            run.overlapping(&map.range.from, &map.range.to).iter().any(|view| {
                let meta = view.table().meta_now();
                meta.is_none_or(|meta| meta.may_contain(map.hash))
            })
        })
    }

    /// What memtables say about a key, and where one of a point state is among them.
    #[inline]
    pub(crate) fn look_in_memory(
        &self,
        target: Target,
        key: &[u8],
        operands: &mut Operands,
    ) -> (InMemory<'_>, Option<PointSlot>) {
        let memory = &self.memory[target.shard];
        match target.route {
            Route::Point { hash } => memory.look_for_point(target.state, hash, key, operands),
            Route::Map(route) => {
                (memory.look_for_ordered(target.state, route, key, operands), None)
            }
        }
    }

    /// Whether one memtable has all that there is of a part of a map.
    pub(crate) fn in_one(&self, map: &MapPart) -> InOne<'_> {
        let memory = &self.memory[map.shard];
        let current = memory.era(map.state);
        let (mut found, mut deleted) = (InOne::Nothing, false);
        for (version, eras) in memory.map_in_no_table(map.hash, map.prefix()) {
            if let Some(entries) = version.entries() {
                // What is older may be hidden or continued.
                let is_current = era_in(eras, map.state) == current;
                if deleted || !is_current || matches!(found, InOne::Memtable(_)) {
                    return InOne::Other;
                }
                found = InOne::Memtable(entries);
            }
            deleted |= version.deleted().is_some();
        }
        if self.may_be_in_tables(map) { InOne::Other } else { found }
    }

    /// Whether a map has entries: as far as the newest memtable that has any knows.
    pub(crate) fn has_entries(&self, map: &MapPart) -> Option<bool> {
        let memory = &self.memory[map.shard];
        let newest = memory.memtables.map(map.hash, map.prefix()).next();
        let newest = newest.and_then(|version| Some((version.age, version.entries()?)));
        let Some((age, entries)) = newest else {
            return matches!(self.in_one(map), InOne::Nothing).then_some(false);
        };
        let is_current = memory.era_at(age, map.state) == Some(memory.era(map.state));
        (is_current && entries.begins_with_a_value()).then_some(true)
    }

    /// Pins what a scan of one map reads.
    pub(crate) fn pin(&self, map: &MapPart) -> ShardView {
        let (from, to) = (&map.range.from[..], &map.range.to[..]);
        let versions = self.memory[map.shard].map_in_no_table(map.hash, map.prefix());
        let memory = versions.map(|(version, eras)| PinnedMemory {
            entries: version.entries().map(|entries| entries.pin(from, to)).into_iter().collect(),
            deleted: version.deleted().and_then(|deleted| within(deleted, from, Some(to))),
            eras: Arc::clone(eras),
        });
        let memory = memory.filter(PinnedMemory::is_any).collect();
        ShardView { version: Arc::clone(&self.version), shard: map.shard, memory }
    }

    /// Pins all of a queue in all shards, with its number in each.
    pub(crate) fn pin_queue(&self, queue: StateId) -> Vec<(ShardView, StateId)> {
        let pin = |(shard, memory): (usize, &ShardMemory)| {
            let number = self.stored(shard, queue);
            let mut entries = vec![Vec::new(); 1 + memory.frozen.len()];
            let mut prefix = Vec::new();
            for group in self.version.shards()[shard].groups().iter() {
                prefix.clear();
                push_state(group, number, &mut prefix);
                for (version, _) in memory.map_in_no_table(filter_hash(&prefix), &prefix) {
                    entries[version.age].extend(version.entries().cloned());
                }
            }
            // Of queues no ranges are deleted.
            let pinned =
                entries.into_iter().zip(memory.in_no_table()).map(|(entries, (_, eras))| {
                    PinnedMemory { entries: entries.into(), deleted: None, eras: Arc::clone(eras) }
                });
            let memory = pinned.filter(PinnedMemory::is_any).collect();
            (ShardView { version: Arc::clone(&self.version), shard, memory }, number)
        };
        self.memory.iter().enumerate().map(pin).collect()
    }

    /// Pins all entries of a state in all shards, with its number in each. Those of a point state are
    /// copied from memtables.
    pub(crate) fn pin_state(&self, state: StateId, shape: StateShape) -> Vec<(ShardView, StateId)> {
        let pin = |(shard, memory): (usize, &ShardMemory)| {
            let number = self.stored(shard, state);
            let pinned = memory.in_no_table().map(|(memtable, eras)| PinnedMemory {
                entries: match shape {
                    StateShape::Point => sorted_points(memtable, number),
                    StateShape::Ordered | StateShape::Queue => memtable.ordered().pin_state(number),
                },
                deleted: within(memtable.deleted(), &[], None),
                eras: Arc::clone(eras),
            });
            let memory = pinned.filter(PinnedMemory::is_any).collect();
            (ShardView { version: Arc::clone(&self.version), shard, memory }, number)
        };
        self.memory.iter().enumerate().map(pin).collect()
    }

    /// Ends the memtable that takes writes, unless it is empty.
    pub(crate) fn freeze(
        &mut self,
        shard: usize,
        time: TtlTime,
        permit: Option<Arc<MemtablePermit>>,
    ) {
        let memory = &mut self.memory[shard];
        if memory.memtables.active().is_empty() {
            return;
        }
        let memtable = memory.memtables.freeze();
        let states = Arc::clone(self.version.shards()[shard].states());
        let eras = Arc::clone(&memory.eras);
        memory.frozen.push_front(Arc::new(Frozen::new(memtable, states, eras, time, permit)));
    }

    /// Frozen memtables of a shard, newest first.
    pub(crate) fn frozen(&self, shard: usize) -> &VecDeque<Arc<Frozen>> {
        &self.memory[shard].frozen
    }

    /// Replaces frozen memtables by the tables that they have become, oldest first. They go on to answer
    /// reads until [`evict_resident`](Self::evict_resident).
    pub(crate) fn install_flushed(&mut self, budget: &Arc<MemtableBudget>) {
        for shard in 0..self.memory.len() {
            while let Some(flushed) =
                self.memory[shard].frozen.back().and_then(|oldest| oldest.flushed())
            {
                let memory = &mut self.memory[shard];
                if let Some(frozen) = memory.frozen.pop_back() {
                    let bytes = memory.memtables.held_bytes(memory.frozen.len());
                    memory.resident.keep(frozen.retire(bytes, budget));
                }
                if let Some(table) = flushed {
                    self.edit(shard, ShardEdit::Flushed(table));
                }
            }
        }
    }

    /// Whether memtables are held that are tables already.
    #[inline]
    pub(crate) fn has_resident(&self) -> bool {
        self.memory.iter().any(|memory| !memory.resident.is_empty())
    }

    /// The oldest memtable that is a table already, of the shard that holds most, is of no use any more, and
    /// does not count as held from now on. It may be long work to drop it.
    pub(super) fn evict_resident(&mut self) -> Option<Arc<Memtable>> {
        let memory = self.memory.iter_mut().max_by_key(|memory| memory.resident.bytes())?;
        drop(memory.resident.evict()?);
        memory.memtables.forget_oldest()
    }

    /// A table is read through another handle from now on, wherever it is seen.
    pub(crate) fn moved(&mut self, id: TableId, table: &Table) {
        for shard in 0..self.memory.len() {
            // Where it is not seen, or not any more, nothing changes.
            self.edit(shard, ShardEdit::Moved(id, Arc::clone(table)));
        }
    }

    /// Bytes in the memtables that take writes.
    #[inline]
    pub(crate) fn active_bytes(&self) -> usize {
        self.memory.iter().map(|memory| memory.memtables.active().memory_bytes()).sum()
    }

    /// Entries in the memtables that take writes.
    pub(crate) fn active_entries(&self) -> usize {
        self.memory.iter().map(|memory| memory.memtables.active().len()).sum()
    }

    /// What has become of what was written since the last call. Everything is frozen.
    pub(crate) fn take_churn(&mut self) -> Churn {
        let of_shards = self.memory.iter_mut().map(|memory| memory.memtables.take_churn());
        of_shards.fold(Churn::default(), |all, one| Churn {
            puts: all.puts + one.puts,
            superseded: all.superseded + one.superseded,
        })
    }

    /// The most frozen memtables that a shard has.
    pub(crate) fn most_frozen(&self) -> usize {
        self.memory.iter().map(|memory| memory.frozen.len()).max().unwrap_or(0)
    }

    /// The most flushed tables that lie above each other in a shard.
    pub(crate) fn most_level0_tables(&self) -> usize {
        let shards = self.version.shards().iter();
        shards.map(|shard| shard.runs().partition_point(|run| run.level() == 0)).max().unwrap_or(0)
    }

    /// The frozen memtable that must become a table first, of the shard that has the most.
    pub(crate) fn next_to_flush(&self) -> Option<Arc<Frozen>> {
        let memory = self.memory.iter().max_by_key(|memory| memory.frozen.len())?;
        memory.frozen.back().cloned()
    }

    /// Bytes in all memtables, and keys in those that are no tables.
    pub(crate) fn in_memory(&self) -> (u64, u64) {
        let memtables = self.memory.iter().flat_map(ShardMemory::in_no_table);
        let (bytes, keys) = memtables.fold((0, 0), |(bytes, keys), (memtable, _)| {
            (bytes + memtable.memory_bytes() as u64, keys + memtable.len() as u64)
        });
        (bytes + self.memory.iter().map(|memory| memory.resident.bytes()).sum::<u64>(), keys)
    }

    /// Versions of keys of a state, in memtables and tables; each is counted.
    pub(crate) fn versions_of(&self, state: StateId) -> u64 {
        let mut count = 0;
        for (index, memory) in self.memory.iter().enumerate() {
            let number = self.stored(index, state);
            let of_state = |key: &[u8]| state_of(key).is_some_and(|of_key| of_key == number);
            for (memtable, _) in memory.in_no_table() {
                let points = memtable.points().iter().filter(|entry| of_state(entry.key));
                count += (points.count() + memtable.ordered().count_of(number)) as u64;
            }
            for view in self.version.shards()[index].tables() {
                count += view.properties().of_state(number).map_or(0, StateProperties::entries);
            }
        }
        count
    }
}

fn current_eras(states: &[ShardState]) -> Arc<Vec<u8>> {
    Arc::new(states.iter().map(|state| state.eras.current()).collect())
}

/// Ranges that reach into another one; `None` without any.
fn within(deleted: &DeletedRanges, from: &[u8], to: Option<&[u8]>) -> Option<Arc<DeletedRanges>> {
    let part = deleted.within(from, to);
    (!part.is_empty()).then(|| Arc::new(part))
}

/// The entries of a point state, copied, in the order of their keys.
fn sorted_points(memtable: &Memtable, state: StateId) -> Arc<[Sequence]> {
    let mut sorted = Memtables::default();
    for LogEntry { key, found, .. } in memtable.points().iter() {
        if state_of(key) == Some(state) {
            // By key group.
            let route = Route::Map(MapRoute::to(key, STATE_PREFIX_LEN));
            sorted.set(route, key, found.kind, found.value);
        }
    }
    sorted.active().ordered().pin_state(state)
}
