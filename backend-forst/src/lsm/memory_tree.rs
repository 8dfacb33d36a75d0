//! A whole tree in memory, for tests: tables are vectors, compactions are carried out at once.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;

use weir_state_api::stored_key::{group_of, state_of};
use weir_state_api::ttl::{Stamp, TtlTime};
use weir_state_api::{KeyGroupRange, StateId, block_on};

use super::pick::{CompactionOptions, CompactionPlan, Pick, everything, pick};
use super::vec_source::VecSource;
use super::*;
use crate::format::{EntryKind, StateProperties, TableProperties};

type Stored = (Vec<u8>, EntryKind, Vec<u8>);
type Range = (Vec<u8>, Vec<u8>);

/// A table in memory.
#[derive(Debug, Default)]
pub(super) struct MemoryTable {
    entries: Vec<Stored>,
    range_deletes: Vec<Range>,
    /// The era of the entries of each state.
    eras: Vec<u8>,
}

pub(super) type View = TableView<Arc<MemoryTable>>;

/// One instance.
#[derive(Debug, Clone)]
pub(super) struct MemoryTree {
    pub(super) version: Version<Arc<MemoryTable>>,
    pub(super) options: CompactionOptions,
    /// Entries that compactions have written.
    pub(super) written: usize,
    /// What an entry counts as in lengths of tables.
    pub(super) entry_bytes: u64,
    cut_at: usize,
}

impl MemoryTree {
    pub(super) fn new(groups: KeyGroupRange, states: Vec<ShardState>) -> Self {
        let shard = Shard::new(groups, Arc::new(states), Vec::new());
        MemoryTree {
            version: Version::new(vec![shard], groups).unwrap(),
            options: CompactionOptions::default(),
            written: 0,
            entry_bytes: 1,
            cut_at: 8,
        }
    }

    pub(super) fn with_options(mut self, options: CompactionOptions, entry_bytes: u64) -> Self {
        self.cut_at = (options.table_bytes / entry_bytes).max(1) as usize;
        self.options = options;
        self.entry_bytes = entry_bytes;
        self
    }

    /// Other shards, with the same options.
    pub(super) fn with_version(&self, version: Version<Arc<MemoryTable>>) -> Self {
        MemoryTree { version, ..self.clone() }
    }

    fn view(&self, shard: usize, table: MemoryTable) -> Option<View> {
        let properties = properties(&table, self.version.shards()[shard].states());
        let length = table.entries.len() as u64 * self.entry_bytes + 1;
        (!properties.is_empty()).then(|| {
            TableView::new(TableId::unique(), Arc::new(table), Arc::new(properties), length)
        })
    }

    /// What a memtable held: `range_deletes` apply to what was there before.
    pub(super) fn flush(
        &mut self,
        entries: &BTreeMap<Vec<u8>, (EntryKind, Vec<u8>)>,
        range_deletes: &[(Vec<u8>, Vec<u8>)],
    ) {
        for shard in 0..self.version.shards().len() {
            let of = &self.version.shards()[shard];
            let own = |key: &[u8]| group_of(key).is_some_and(|group| of.groups().contains(group));
            let entries = entries.iter().filter(|(key, _)| own(key));
            let table = MemoryTable {
                entries: entries
                    .map(|(key, (kind, value))| (key.clone(), *kind, value.clone()))
                    .collect(),
                range_deletes: range_deletes
                    .iter()
                    .filter(|(from, _)| own(from))
                    .cloned()
                    .collect(),
                eras: of.states().iter().map(|state| state.eras.current()).collect(),
            };
            if let Some(view) = self.view(shard, table) {
                self.apply(shard, ShardEdit::Flushed(view)).unwrap();
            }
        }
    }

    pub(super) fn apply(&mut self, shard: usize, edit: ShardEdit<Arc<MemoryTable>>) -> Option<()> {
        self.version = self.version.apply(shard, edit)?;
        self.version.check_invariants().unwrap();
        Some(())
    }

    /// What to merge next in each shard, while these plans are being carried out there.
    pub(super) fn picks(
        &self,
        busy: &[Option<CompactionPlan>],
        time: &TtlTime,
    ) -> Vec<Option<CompactionPlan>> {
        let pick_in = |shard: usize| {
            let busy: Vec<_> = busy.get(shard).cloned().flatten().into_iter().collect();
            match pick(&self.version.shards()[shard], &self.options, &busy, time)? {
                Pick::Drop(_) => None,
                Pick::Compact(plan) => Some(plan),
            }
        };
        (0..self.version.shards().len()).map(pick_in).collect()
    }

    /// Does the next thing that a shard wants; whether there was one.
    pub(super) fn compact_once(&mut self, shard: usize, time: &TtlTime) -> bool {
        match pick(&self.version.shards()[shard], &self.options, &[], time) {
            None => false,
            Some(Pick::Drop(ids)) => {
                self.apply(shard, ShardEdit::Dropped(ids)).unwrap();
                true
            }
            Some(Pick::Compact(plan)) => {
                let compacted = self.carry_out(shard, &plan, time);
                self.apply(shard, ShardEdit::Compacted(compacted)).unwrap();
                true
            }
        }
    }

    pub(super) fn compact_until_idle(&mut self, time: &TtlTime) {
        for shard in 0..self.version.shards().len() {
            let mut steps = 0;
            while self.compact_once(shard, time) {
                steps += 1;
                assert!(steps < 1_000, "compactions never end");
            }
        }
    }

    pub(super) fn compact_everything(&mut self, time: &TtlTime) {
        for shard in 0..self.version.shards().len() {
            for plan in everything(&self.version.shards()[shard], &self.options) {
                let compacted = self.carry_out(shard, &plan, time);
                self.apply(shard, ShardEdit::Compacted(compacted)).unwrap();
            }
        }
    }

    /// What carrying out a plan comes to.
    pub(super) fn carry_out(
        &mut self,
        shard: usize,
        plan: &CompactionPlan,
        time: &TtlTime,
    ) -> Compacted<Arc<MemoryTable>> {
        let of = self.version.shards()[shard].clone();
        let moved: Vec<View> = of
            .tables()
            .filter(|view| plan.moved.contains(&(view.id(), view.visible())))
            .cloned()
            .collect();
        let (entries, range_deletes) = merged(&of, plan, time);
        self.written += entries.len();
        // A table ends when it is long enough, and where one begins that is moved.
        let mut cuts: Vec<Vec<u8>> =
            entries.iter().step_by(self.cut_at).skip(1).map(|(key, ..)| key.clone()).collect();
        for view in &moved {
            cuts.extend([view.first_key().to_vec(), view.end_key().to_vec()]);
        }
        cuts.extend([Vec::new(), vec![0xff; 8]]);
        cuts.sort();
        cuts.dedup();
        let mut outputs = moved;
        for pair in cuts.windows(2) {
            let within = |key: &[u8]| pair[0][..] <= *key && *key < pair[1][..];
            let clip = |(from, to): &(Vec<u8>, Vec<u8>)| {
                (from.max(&pair[0]).clone(), to.min(&pair[1]).clone())
            };
            let table = MemoryTable {
                entries: entries.iter().filter(|(key, ..)| within(key)).cloned().collect(),
                range_deletes: range_deletes.iter().map(clip).filter(|(a, b)| a < b).collect(),
                eras: of.states().iter().map(|state| state.eras.current()).collect(),
            };
            outputs.extend(self.view(shard, table));
        }
        outputs.sort_by(|a, b| a.first_key().cmp(b.first_key()));
        Compacted { groups: plan.groups, inputs: plan.inputs.clone(), level: plan.level, outputs }
    }

    /// What a read sees.
    pub(super) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let shard = self.version.shard_index(group_of(key)?)?;
        let shard = &self.version.shards()[shard];
        let state = state_of(key)?;
        let mut versions = Vec::new();
        for view in shard.runs().iter().filter_map(|run| run.find(key)) {
            let table = view.table();
            if let Ok(at) = table.entries.binary_search_by(|(other, ..)| other[..].cmp(key)) {
                let (_, kind, value) = &table.entries[at];
                versions.push(KeyVersion { kind: *kind, era: table.eras[state.index()], value });
            }
            if table.range_deletes.iter().any(|(from, to)| from[..] <= *key && *key < to[..]) {
                break;
            }
        }
        let eras = &shard.states()[state.index()].eras;
        let resolved = Resolver::for_reads().resolve(eras, versions, true).unwrap();
        resolved.value().map(std::borrow::Cow::into_owned)
    }

    /// All keys that a scan in `direction` finds, with what it sees.
    pub(super) fn scan(&self, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        for shard in self.version.shards() {
            let sources =
                shard.runs().iter().map(|run| source(run.tables().iter().cloned(), direction));
            let mut merge = Merge::new(sources.collect(), direction);
            while block_on(poll_fn(|context| merge.poll_next(context))).unwrap() {
                let state = state_of(merge.key()).unwrap();
                let versions = merge.versions().map(|(source, entry)| KeyVersion {
                    kind: entry.kind,
                    era: source.era(state),
                    value: entry.value,
                });
                let eras = &shard.states()[state.index()].eras;
                let resolved = Resolver::for_reads().resolve(eras, versions, true).unwrap();
                if let Some(value) = resolved.value() {
                    found.push((merge.key().to_vec(), value.into_owned()));
                }
            }
        }
        found.sort();
        found
    }

    pub(super) fn most_runs(&self) -> usize {
        self.version.shards().iter().map(|shard| shard.runs().len()).max().unwrap_or(0)
    }

    pub(super) fn entries(&self) -> usize {
        self.version.tables().map(|view| view.table().entries.len()).sum()
    }
}

/// What the tables that a plan merges come to: entries, and range deletes.
fn merged(
    shard: &Shard<Arc<MemoryTable>>,
    plan: &CompactionPlan,
    time: &TtlTime,
) -> (Vec<Stored>, Vec<Range>) {
    let part = |view: &View| (view.id(), view.visible().intersection(plan.groups));
    let is_input = |view: &View| plan.inputs.contains(&part(view));
    let runs = shard.runs();
    let oldest = runs.iter().rposition(|run| run.in_groups(plan.groups).iter().any(is_input));
    let older = &runs[oldest.unwrap() + 1..];
    let sources = runs.iter().map(|run| {
        let views = run.in_groups(plan.groups).iter();
        let views = views.filter(|view| plan.merged().any(|input| *input == part(view)));
        source(views.filter_map(|view| view.clipped(plan.groups)), Direction::Forward)
    });
    let sources: Vec<_> = sources.collect();
    let needed = |(from, to): &&(Vec<u8>, Vec<u8>)| {
        older.iter().any(|run| !run.overlapping(from, to).is_empty())
    };
    let range_deletes = sources.iter().flat_map(VecSource::range_deletes).filter(needed);
    let range_deletes = range_deletes.cloned().collect();
    let mut merge = Merge::new(sources, Direction::Forward);
    let mut entries = Vec::new();
    while block_on(poll_fn(|context| merge.poll_next(context))).unwrap() {
        let key = merge.key();
        let nothing_older = older.iter().all(|run| run.find(key).is_none());
        let state = state_of(key).unwrap();
        let versions = merge.versions().map(|(source, entry)| KeyVersion {
            kind: entry.kind,
            era: source.era(state),
            value: entry.value,
        });
        let eras = &shard.states()[state.index()].eras;
        let resolved = Resolver::sweeping(*time).resolve(eras, versions, nothing_older).unwrap();
        if let Some((kind, value)) = resolved.entry() {
            entries.push((key.to_vec(), kind, value.to_vec()));
        }
    }
    (entries, range_deletes)
}

/// The visible part of the tables of one run.
fn source(views: impl Iterator<Item = View>, direction: Direction) -> VecSource {
    let (mut entries, mut range_deletes, mut eras) = (Vec::new(), Vec::new(), Vec::new());
    for view in views {
        let table = view.table();
        entries.extend(table.entries.iter().filter(|(key, ..)| view.spans(key)).cloned().map(
            |(key, kind, value)| {
                let era = table.eras[state_of(&key).unwrap().index()];
                eras.push((key.clone(), era));
                (key, kind, value)
            },
        ));
        let clip = |(from, to): &(Vec<u8>, Vec<u8>)| {
            let from = from.as_slice().max(view.first_key()).to_vec();
            (from, to.as_slice().min(view.end_key()).to_vec())
        };
        let clipped = table.range_deletes.iter().map(clip);
        range_deletes.extend(clipped.filter(|(from, to)| from < to));
    }
    VecSource::new(entries, direction).with_range_deletes(range_deletes).with_eras(eras)
}

fn properties(table: &MemoryTable, states: &[ShardState]) -> TableProperties {
    let mut properties = TableProperties::default();
    let ends = |key: &Vec<u8>| [&key[..], &[0]].concat();
    let entries = table.entries.first().zip(table.entries.last());
    let entries = entries.map(|(first, last)| (first.0.clone(), ends(&last.0)));
    let ranges = entries.into_iter().chain(table.range_deletes.iter().cloned());
    if let Some((from, to)) = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) {
        properties.first_key = from.into();
        properties.end_key = to.into();
    }
    properties.range_deletes = table.range_deletes.len() as u64;
    let mut of_states: BTreeMap<StateId, StateProperties> = BTreeMap::new();
    for (key, kind, value) in &table.entries {
        let state = state_of(key).unwrap();
        let ttl = states[state.index()].eras.ttl();
        let of = of_states.entry(state).or_insert(StateProperties {
            state,
            era: table.eras[state.index()],
            puts: 0,
            deletes: 0,
            appends: 0,
            earliest_expiry: None,
            latest_expiry: None,
        });
        if *kind == EntryKind::Delete {
            of.deletes += 1;
            continue;
        }
        // In tests, values with a TTL begin with the time they were written at.
        let expiry = ttl.and_then(|ttl| match Stamp::split(value) {
            Some((Stamp::Written(at), _)) => Some(at + ttl.lifetime),
            _ => None,
        });
        let first = of.puts + of.appends == 0;
        of.latest_expiry =
            if first { expiry } else { of.latest_expiry.zip(expiry).map(|(a, b)| a.max(b)) };
        of.earliest_expiry = of.earliest_expiry.into_iter().chain(expiry).min();
        if *kind == EntryKind::Put { of.puts += 1 } else { of.appends += 1 }
    }
    properties.states = of_states.into_values().collect();
    properties
}
