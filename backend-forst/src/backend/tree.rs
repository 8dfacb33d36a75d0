//! All that an instance holds: per shard the memtable that takes writes, frozen ones, and the tables.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use weir_state_api::stored_key::{STATE_PREFIX_LEN, push_state, state_of};
use weir_state_api::ttl::{StateTtl, TtlTime};
use weir_state_api::{
    KeyGroup, KeyGroupRange, KeyRef, Result, StateDescriptor, StateId, StateShape, foreign_key,
};

use super::frozen::{Frozen, era_in};
use super::lookup::Search;
use super::read::Target;
use super::resident::Retired;
use super::shard_memory::{InMemory, ShardMemory};
use super::sources::{MapPart, PinnedMemory};
use super::view::ShardView;
use super::{ShardEdit, Table, TableView, Version};
use crate::format::{EntryKind, StateProperties, filter_hash};
use crate::lsm::{ShardState, StateEras, TableId};
use crate::memtable::{Churn, LogEntry, MapRoute, Memtable, OrderedTable, Route, Sequence};
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

    /// Appends to the newest version of a key.
    pub(crate) fn append(&mut self, shard: usize, route: Route, key: &[u8], more: &[u8]) {
        self.memory[shard].memtables.append(route, key, more);
    }

    /// Deletes a range of the entries of one map. Where nothing older can have any, no range delete is
    /// left behind.
    pub(crate) fn delete_range(&mut self, map: &MapPart) {
        let MapPart { shard, hash, range, .. } = map;
        let (from, to) = (&range.from[..], &range.to[..]);
        let frozen = &self.memory[*shard].frozen;
        let is_frozen =
            |frozen: &Arc<Frozen>| frozen.memtable.ordered().has_any(*hash, map.prefix(), from, to);
        let older = frozen.iter().any(is_frozen) || self.may_be_in_tables(map);
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

    /// What memtables say about a key.
    #[inline]
    pub(crate) fn look_in_memory(
        &self,
        target: Target,
        key: &[u8],
        search: &mut Search,
    ) -> InMemory<'_> {
        let memory = &self.memory[target.shard];
        match target.route {
            Route::Point { hash } => memory.look_for_point(target.state, hash, key, search),
            Route::Map(route) => memory.look_for_ordered(target.state, route, key, search),
        }
    }

    /// Whether one memtable has all that there is of a part of a map.
    pub(crate) fn in_one(&self, map: &MapPart) -> InOne<'_> {
        let memory = &self.memory[map.shard];
        let current = memory.era(map.state);
        let (mut found, mut deleted) = (InOne::Nothing, false);
        for (memtable, eras) in memory.in_no_table() {
            if let Some(entries) = memtable.ordered().map(map.hash, map.prefix()) {
                // What is older may be hidden or continued.
                let is_current = era_in(eras, map.state) == current;
                if deleted || !is_current || matches!(found, InOne::Memtable(_)) {
                    return InOne::Other;
                }
                found = InOne::Memtable(entries);
            }
            deleted |= !memtable.deleted().is_empty();
        }
        if self.may_be_in_tables(map) { InOne::Other } else { found }
    }

    /// Whether a map has entries: as far as the memtable that takes writes knows.
    pub(crate) fn has_entries(&self, map: &MapPart) -> Option<bool> {
        let memory = &self.memory[map.shard];
        match memory.memtables.active().ordered().map(map.hash, map.prefix()) {
            Some(entries) if entries.begins_with_a_value() => Some(true),
            Some(_) => None,
            None => matches!(self.in_one(map), InOne::Nothing).then_some(false),
        }
    }

    /// Pins what a scan of one map reads.
    pub(crate) fn pin(&self, map: &MapPart) -> ShardView {
        let (from, to) = (&map.range.from[..], &map.range.to[..]);
        let entries = |memtable: &Memtable| {
            let entries = memtable.ordered().map(map.hash, map.prefix());
            entries.map(|entries| Arc::from([entries.pin(from, to)]))
        };
        self.view(map.shard, entries, (from, Some(to)))
    }

    /// Pins all of a queue in all shards, with its number in each.
    pub(crate) fn pin_queue(&self, queue: StateId) -> Vec<(ShardView, StateId)> {
        self.pin_all(queue, |memtable, shard, number| {
            let mut prefix = Vec::new();
            let of_groups = self.version.shards()[shard].groups().iter().filter_map(|group| {
                prefix.clear();
                push_state(group, number, &mut prefix);
                memtable.ordered().map(filter_hash(&prefix), &prefix).cloned()
            });
            of_groups.collect()
        })
    }

    /// Pins all entries of a state in all shards, with its number in each. Those of a point state are
    /// copied from memtables.
    pub(crate) fn pin_state(&self, state: StateId, shape: StateShape) -> Vec<(ShardView, StateId)> {
        self.pin_all(state, |memtable, _, number| match shape {
            StateShape::Point => sorted_points(memtable, number),
            StateShape::Ordered | StateShape::Queue => memtable.ordered().pin_state(number),
        })
    }

    fn pin_all(
        &self,
        state: StateId,
        entries: impl Fn(&Memtable, usize, StateId) -> Arc<[Sequence]>,
    ) -> Vec<(ShardView, StateId)> {
        let shards = 0..self.memory.len();
        shards
            .map(|shard| {
                let number = self.stored(shard, state);
                let entries = |memtable: &Memtable| Some(entries(memtable, shard, number));
                (self.view(shard, entries, (&[], None)), number)
            })
            .collect()
    }

    /// What a scan of a range of keys sees: of memtables only those that have something of it.
    fn view(
        &self,
        shard: usize,
        entries: impl Fn(&Memtable) -> Option<Arc<[Sequence]>>,
        (from, to): (&[u8], Option<&[u8]>),
    ) -> ShardView {
        let memory = &self.memory[shard];
        let pinned = memory.in_no_table().filter_map(|(memtable, eras)| {
            let entries = entries(memtable).unwrap_or_default();
            let deleted = memtable.deleted().within(from, to);
            let deleted = (!deleted.is_empty()).then(|| Arc::new(deleted));
            let any = !entries.is_empty() || deleted.is_some();
            any.then(|| PinnedMemory { entries, deleted, eras: Arc::clone(eras) })
        });
        ShardView { version: Arc::clone(&self.version), shard, memory: pinned.collect() }
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

    /// The oldest memtable that is a table already, of the shard that holds most, is of no use any more.
    pub(super) fn evict_resident(&mut self) -> Option<Retired> {
        let memory = self.memory.iter_mut().max_by_key(|memory| memory.resident.bytes())?;
        let oldest = memory.resident.evict()?;
        memory.memtables.forget_oldest();
        Some(oldest)
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

/// The entries of a point state, copied, in the order of their keys.
fn sorted_points(memtable: &Memtable, state: StateId) -> Arc<[Sequence]> {
    let mut sorted = OrderedTable::default();
    for LogEntry { key, found, .. } in memtable.points().iter() {
        if state_of(key) == Some(state) {
            // By key group.
            sorted.set(MapRoute::to(key, STATE_PREFIX_LEN), key, found.kind, found.value);
        }
    }
    sorted.pin_state(state)
}
