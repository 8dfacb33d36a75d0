use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use opendal::Operator;
use opendal::services::Memory;
use proptest::prelude::*;
use weir_state_api::stored_key::{push_map, push_map_prefix, push_point, state_of, successor};
use weir_state_api::ttl::TtlTime;
use weir_state_api::{
    BoxFuture, Environment, ErrorKind, InlineSpawner, KeyGroup, KeyGroupRange, KeyRef, ManualClock,
    Spawner, StateId, StateKind, block_on,
};
use weir_tests::faults::{Faults, StoreOp, When};

use super::input::{Input, RunInput};
use super::*;
use crate::format::{Entry, EntryKind, TableOptions, TableWriter};
use crate::lsm::{
    CompactionOptions, CompactionPlan, Direction, Era, KeyVersion, Merge, Pick, Resolver, Shard,
    ShardEdit, ShardState, SortedSource, StateEras, TableId, TableView, Version, everything, pick,
    span, traits_of, unite,
};
use crate::store::{Destination, ForstResources, ObjectNames, RequestLimits, Table, Tables};

const GROUPS: u16 = 16;
const VALUE: StateId = StateId(0);
const LIST: StateId = StateId(1);
const MAP: StateId = StateId(2);

type Memtable = BTreeMap<Vec<u8>, (EntryKind, Vec<u8>)>;

/// An instance without memtables, and what it should hold.
struct Instance {
    faults: Faults,
    plain: Operator,
    tables: Arc<Tables>,
    version: Version<Arc<Table>>,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    destination: Destination,
}

fn environment(store: Operator, spawner: Arc<dyn Spawner>) -> Environment {
    Environment::new(Arc::new(ManualClock::new(0)), store, spawner)
}

fn resources() -> ForstResources {
    let limits = RequestLimits {
        attempts: 2,
        first_pause: Duration::ZERO,
        longest_pause: Duration::ZERO,
        ..RequestLimits::default()
    };
    ForstResources::builder().cache_bytes(1 << 20).request_limits(limits).build().unwrap()
}

fn options() -> CompactionOptions {
    CompactionOptions {
        level0_runs: 2,
        tier_runs: 2,
        small_bytes: 1,
        table_bytes: 900,
        slice_bytes: 6_000,
        ..CompactionOptions::default()
    }
}

fn table_options() -> TableOptions {
    TableOptions { block_len: 96, ..TableOptions::default() }
}

impl Instance {
    fn new() -> Self {
        let states = [StateKind::Value, StateKind::List, StateKind::Map].map(|kind| ShardState {
            name: kind.to_string(),
            eras: StateEras::new(kind, vec![Era::new(None, TtlTime::new(0))]),
        });
        let groups = KeyGroupRange::new(0, GROUPS - 1);
        let shard = Shard::new(groups, Arc::new(states.to_vec()), Vec::new());
        let (faults, plain) = (Faults::new(), Operator::new(Memory::default()).unwrap());
        let store = plain.clone().layer(faults.layer());
        Instance {
            tables: Tables::new(&environment(store, Arc::new(InlineSpawner)), &resources()),
            faults,
            plain,
            version: Version::new(vec![shard], groups).unwrap(),
            model: BTreeMap::new(),
            destination: Destination::Store(ObjectNames::below("live/")),
        }
    }

    fn output_options(&self) -> OutputOptions {
        let (destination, table_bytes) = (self.destination.clone(), options().table_bytes);
        OutputOptions { destination, table: table_options(), table_bytes }
    }

    fn shard(&self) -> &Shard<Arc<Table>> {
        &self.version.shards()[0]
    }

    fn flush(&mut self, memtable: &Memtable, range_deletes: &[(Vec<u8>, Vec<u8>)]) {
        let mut writer = TableWriter::new(table_options()).unwrap();
        for (key, (kind, value)) in memtable {
            let entry = Entry { key, kind: *kind, value };
            let state = &self.shard().states()[state_of(key).unwrap().index()];
            writer.add(entry, traits_of(&state.eras, entry)).unwrap();
        }
        range_deletes.iter().for_each(|(from, to)| writer.add_range_delete(from, to));
        let sink = self.tables.sink(self.destination.clone(), 1, None);
        let new = block_on(sink.finish(writer.finish().unwrap())).unwrap();
        let length = new.table.length();
        let view = TableView::new(TableId::unique(), new.table, new.properties, length);
        self.version = self.version.apply(0, ShardEdit::Flushed(view)).unwrap();
    }

    fn next(&self) -> Option<CompactionPlan> {
        match pick(self.shard(), &options(), &[], &TtlTime::new(0))? {
            Pick::Compact(plan) => Some(plan),
            // Nothing expires here, but a table of deletes alone may come to hide nothing.
            Pick::Drop(_) => None,
        }
    }

    fn compaction(&self, plan: &CompactionPlan) -> Compaction {
        Compaction::of_plan(self.shard(), plan, TtlTime::new(0)).unwrap()
    }

    fn carry_out(&mut self, plan: &CompactionPlan, how: How) -> weir_state_api::Result<()> {
        let compaction = self.compaction(plan);
        let options = self.output_options();
        let finished = match (Finished::nothing_but_moves(plan), how) {
            (Some(moved), _) => moved,
            (None, How::Here | How::Stopped) => {
                let stop = StopSignal::default();
                if how == How::Stopped {
                    stop.stop();
                }
                block_on(compaction.run(&self.tables, options, &stop))?
            }
            (None, How::Elsewhere) => {
                let store = self.plain.clone().layer(self.faults.layer());
                let there = environment(store, Arc::new(InlineSpawner));
                let worker = CompactionWorker::new(&there, &resources());
                let job = encode_job(&compaction, &options).unwrap();
                let result = block_on(worker.run(&job))?;
                block_on(decode_result(&result, &job, plan.groups, &self.tables))?
            }
        };
        let compacted = outcome(self.shard(), plan, finished);
        self.version = self.version.apply(0, ShardEdit::Compacted(compacted)).unwrap();
        self.version.check_invariants().unwrap();
        Ok(())
    }

    fn compact_everything(&mut self) {
        for plan in everything(self.shard(), &options()) {
            self.carry_out(&plan, How::Here).unwrap();
        }
    }

    /// All that reads see.
    fn scan(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut found = BTreeMap::new();
        for shard in self.version.shards() {
            let runs = shard.runs().iter().map(|run| {
                let views = run.tables().iter();
                let inputs =
                    views.map(|view| Input { table: view.table().clone(), groups: view.visible() });
                block_on(RunInput::open(inputs.collect())).unwrap()
            });
            let mut merge = Merge::new(runs.collect(), Direction::Forward);
            while block_on(poll_fn(|context| merge.poll_next(context))).unwrap() {
                let number = state_of(merge.key()).unwrap();
                let versions = merge.versions().map(|(source, entry)| KeyVersion {
                    kind: entry.kind,
                    era: source.era(number),
                    value: entry.value,
                });
                let eras = &shard.states()[number.index()].eras;
                let resolved = Resolver::for_reads().resolve(eras, versions, true).unwrap();
                if let Some(value) = resolved.value() {
                    found.insert(merge.key().to_vec(), value.into_owned());
                }
            }
        }
        found
    }

    fn objects(&self) -> Vec<String> {
        let listing = block_on(self.plain.list_options(
            "",
            opendal::options::ListOptions { recursive: true, ..Default::default() },
        ));
        let mut paths: Vec<_> = listing
            .unwrap()
            .into_iter()
            .filter(|entry| entry.metadata().is_file())
            .map(|entry| entry.path().to_string())
            .collect();
        paths.sort();
        paths
    }

    fn named(&self) -> Vec<String> {
        let objects = self.version.tables().filter_map(|view| view.table().object());
        let mut paths: Vec<_> = objects.map(|object| object.path.clone()).collect();
        paths.sort();
        paths.dedup();
        paths
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Here,
    Elsewhere,
    /// Ends after its first key group.
    Stopped,
}

#[derive(Debug, Clone)]
enum Step {
    Flush(Vec<(u16, u8, What)>),
    Compact(How),
    Everything,
    /// Two instances, and one again.
    Rescale(u16),
    /// The n-th write of a compaction fails, however often it is tried.
    FailedCompaction(u64),
}

#[derive(Debug, Clone, Copy)]
enum What {
    Put(u8),
    PutInMap(u8),
    Delete,
    DeleteInMap,
    Append(u8),
    ClearMap,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let what = prop_oneof![
        4 => any::<u8>().prop_map(What::Put),
        4 => any::<u8>().prop_map(What::PutInMap),
        2 => Just(What::Delete),
        1 => Just(What::DeleteInMap),
        3 => any::<u8>().prop_map(What::Append),
        1 => Just(What::ClearMap),
    ];
    let how = prop::sample::select(vec![How::Here, How::Elsewhere, How::Stopped]);
    let writes = proptest::collection::vec((0..GROUPS, 0..8_u8, what), 1..80);
    let step = prop_oneof![
        8 => writes.prop_map(Step::Flush),
        8 => how.prop_map(Step::Compact),
        1 => Just(Step::Everything),
        1 => (1..GROUPS).prop_map(Step::Rescale),
        1 => (1..4_u64).prop_map(Step::FailedCompaction),
    ];
    proptest::collection::vec(step, 1..24)
}

fn stored(state: StateId, group: u16, key: u8) -> Vec<u8> {
    let (bytes, mut stored) = ([key / 4], Vec::new());
    let of = KeyRef::with_group(&bytes, KeyGroup(group)).unwrap();
    if state == MAP {
        push_map(MAP, of, b"", &[key], &mut stored);
    } else {
        push_point(state, of, &[key], &mut stored);
    }
    stored
}

impl Instance {
    fn write(&mut self, writes: &[(u16, u8, What)]) {
        let mut memtable = Memtable::new();
        let mut range_deletes = Vec::new();
        for &(group, key, what) in writes {
            let list = stored(LIST, group, key);
            match what {
                What::Put(value) | What::PutInMap(value) => {
                    let state = if matches!(what, What::Put(_)) { VALUE } else { MAP };
                    let (at, value) = (stored(state, group, key), vec![value; 20]);
                    self.model.insert(at.clone(), value.clone());
                    memtable.insert(at, (EntryKind::Put, value));
                }
                What::Delete | What::DeleteInMap => {
                    let state = if matches!(what, What::Delete) { LIST } else { MAP };
                    let at = stored(state, group, key);
                    self.model.remove(&at);
                    memtable.insert(at, (EntryKind::Delete, Vec::new()));
                }
                What::Append(value) => {
                    let element = [1, value];
                    self.model.entry(list.clone()).or_default().extend(element);
                    let (kind, there) =
                        memtable.entry(list).or_insert((EntryKind::Append, Vec::new()));
                    if *kind == EntryKind::Delete {
                        *kind = EntryKind::Put;
                    }
                    there.extend(element);
                }
                What::ClearMap => {
                    let (bytes, mut from) = ([key / 4], Vec::new());
                    let of = KeyRef::with_group(&bytes, KeyGroup(group)).unwrap();
                    push_map_prefix(MAP, of, b"", &mut from);
                    let mut to = from.clone();
                    assert!(successor(&mut to));
                    memtable.retain(|at, _| *at < from || *at >= to);
                    self.model.retain(|at, _| *at < from || *at >= to);
                    range_deletes.push((from, to));
                }
            }
        }
        self.flush(&memtable, &range_deletes);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Flush(writes) => self.write(writes),
            Step::Compact(how) => {
                if let Some(plan) = self.next() {
                    self.carry_out(&plan, *how).unwrap();
                }
            }
            Step::Everything => self.compact_everything(),
            Step::Rescale(at) => {
                let shard = self.shard();
                let parts = [KeyGroupRange::new(0, at - 1), KeyGroupRange::new(*at, GROUPS - 1)];
                let parts = parts.iter().filter_map(|part| shard.clipped(*part)).collect();
                let all = KeyGroupRange::new(0, GROUPS - 1);
                self.version = Version::new(unite(parts), all).unwrap();
            }
            Step::FailedCompaction(nth) => {
                let Some(plan) = self.next() else { return };
                let (before, named) = (self.objects(), self.named());
                // Both attempts, and both of the request that repeats it.
                for more in 0..2 {
                    self.faults.fail(StoreOp::Close, nth + more, When::Before);
                }
                if self.carry_out(&plan, How::Here).is_err() {
                    assert_eq!(self.named(), named);
                    assert_eq!(self.objects(), before, "unused tables are deleted");
                }
                self.faults.heal();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Real tables in a store, compacted here, in another process, in part, or in vain.
    #[test]
    fn any_history_of_compactions_reads_like_an_ordered_map(
        steps in steps(),
        in_memory in prop::bool::weighted(0.2),
    ) {
        let mut instance = Instance::new();
        if in_memory {
            instance.destination = Destination::Memory;
        }
        for step in &steps {
            if in_memory && matches!(step, Step::Compact(How::Elsewhere)) {
                continue;
            }
            instance.step(step);
            prop_assert_eq!(&instance.scan(), &instance.model);
        }
        instance.compact_everything();
        prop_assert_eq!(&instance.scan(), &instance.model);
        let deletes: u64 = instance.version.tables().map(TableView::deletes).sum();
        prop_assert_eq!(deletes, 0, "nothing older is left to hide");
    }

    /// Whatever stands in a frame with an intact checksum: an error or a compaction.
    #[test]
    fn odd_jobs_and_results_are_refused_without_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
        random in proptest::collection::vec(any::<u8>(), 0..80),
        use_random in prop::bool::weighted(0.3),
    ) {
        let instance = sample();
        let plan = instance.next().unwrap();
        let compaction = instance.compaction(&plan);
        let job = encode_job(&compaction, &instance.output_options()).unwrap();
        let mut body = if use_random { random } else { job[16..job.len() - 4].to_vec() };
        for (at, value) in changes {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = value;
            }
        }
        if cuts && !body.is_empty() {
            body.truncate(cut.index(body.len()));
        }
        let framed = |magic: &[u8; 8]| {
            let length = (body.len() as u32).to_le_bytes();
            let mut bytes = [&magic[..], &1_u32.to_le_bytes(), &length, &body].concat();
            let checksum = crc32fast::hash(&bytes);
            bytes.extend(checksum.to_le_bytes());
            bytes
        };
        let worker = CompactionWorker::new(
            &environment(instance.plain.clone(), Arc::new(InlineSpawner)),
            &resources(),
        );
        let before = instance.scan();
        drop(block_on(worker.run(&framed(b"WEIRFCJB"))));
        let result = framed(b"WEIRFCRS");
        let decoded = block_on(decode_result(&result, &job, plan.groups, &instance.tables));
        if let Ok(finished) = decoded {
            prop_assert_eq!(finished.groups.intersection(plan.groups), finished.groups);
        }
        prop_assert_eq!(instance.scan(), before);
    }
}

/// Two runs over all key groups.
fn sample() -> Instance {
    let mut instance = Instance::new();
    for round in 0..2 {
        let all = (0..GROUPS).flat_map(|group| (0..8).map(move |key| (group, key)));
        let writes = all.map(|(group, key)| (group, key, What::Put(round + key)));
        instance.write(&writes.collect::<Vec<_>>());
    }
    instance
}

#[test]
fn outputs_end_where_key_groups_do() {
    let mut instance = sample();
    while let Some(plan) = instance.next() {
        instance.carry_out(&plan, How::Here).unwrap();
    }
    let [run] = instance.shard().runs() else { panic!("one run is left") };
    assert!(run.tables().len() > 2, "{}", run.tables().len());
    for pair in run.tables().windows(2) {
        assert!(span(pair[0].visible()).1 <= span(pair[1].visible()).0, "a group in two tables");
    }
}

#[test]
fn a_large_key_group_is_cut_within_and_its_range_deletes_with_it() {
    let mut instance = Instance::new();
    let all =
        |what: fn(u8) -> What| -> Vec<_> { (0..=255).map(|key| (3, key, what(key))).collect() };
    instance.write(&all(What::PutInMap));
    // Nothing else may be compacted with it: the ranges stay as long as it lies below.
    let clear: Vec<_> = (0..=255).step_by(8).map(|key| (3, key, What::ClearMap)).collect();
    instance.write(&clear);
    let more: Vec<_> = (0..=255).map(|key| (3, key, What::Append(key))).collect();
    instance.write(&more);
    let ids: Vec<_> =
        instance.version.tables().take(2).map(|view| (view.id(), view.visible())).collect();
    let groups = KeyGroupRange::new(3, 3);
    let plan = CompactionPlan { groups, level: 1, inputs: ids, moved: Vec::new() };
    let mut compaction = instance.compaction(&plan);
    compaction.cuts = vec![stored(MAP, 3, 130).into()];
    let finished = block_on(compaction.run(
        &instance.tables,
        instance.output_options(),
        &StopSignal::default(),
    ));
    let finished = finished.unwrap();
    assert!(finished.tables.len() > 2);
    let ranges: u64 = finished.tables.iter().map(|new| new.properties.range_deletes).sum();
    assert!(ranges >= 32, "{ranges}");
    let compacted = outcome(instance.shard(), &plan, finished);
    instance.version = instance.version.apply(0, ShardEdit::Compacted(compacted)).unwrap();
    assert_eq!(instance.scan(), instance.model);
}

#[test]
fn what_a_stopped_compaction_has_done_counts_and_the_rest_follows() {
    let mut instance = sample();
    let mut steps = 0;
    while let Some(plan) = instance.next() {
        instance.carry_out(&plan, How::Stopped).unwrap();
        assert_eq!(instance.scan(), instance.model);
        steps += 1;
        assert!(steps <= 2 * GROUPS, "it makes no progress");
    }
    assert!(steps > 1);
    assert_eq!(instance.shard().runs().len(), 1);
}

/// A process that dies, or was never there.
#[derive(Debug)]
struct Dying;

impl Spawner for Dying {
    fn spawn(&self, _future: BoxFuture<'static, ()>) {}

    fn spawn_blocking(&self, _work: Box<dyn FnOnce() + Send + 'static>) {}
}

#[test]
fn a_dead_worker_costs_nothing_but_time() {
    let mut instance = sample();
    let plan = instance.next().unwrap();
    let job = encode_job(&instance.compaction(&plan), &instance.output_options()).unwrap();
    let dying =
        CompactionWorker::new(&environment(instance.plain.clone(), Arc::new(Dying)), &resources());
    let error = block_on(dying.compact(job.clone())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    // Another one has done it, and its answer comes too late.
    let there = environment(instance.plain.clone(), Arc::new(InlineSpawner));
    let late = block_on(CompactionWorker::new(&there, &resources()).compact(job.clone())).unwrap();
    instance.carry_out(&plan, How::Here).unwrap();
    let finished = block_on(decode_result(&late, &job, plan.groups, &instance.tables)).unwrap();
    let compacted = outcome(instance.shard(), &plan, finished);
    assert!(instance.version.apply(0, ShardEdit::Compacted(compacted)).is_none(), "obsolete");
    assert!(Compaction::of_plan(instance.shard(), &plan, TtlTime::new(0)).is_none());
    assert_eq!(instance.scan(), instance.model);
}

#[test]
fn a_missing_or_damaged_input_is_named() {
    let instance = sample();
    let plan = instance.next().unwrap();
    let job = encode_job(&instance.compaction(&plan), &instance.output_options()).unwrap();
    let path = instance.named().pop().unwrap();
    let whole = block_on(instance.plain.read(&path)).unwrap().to_vec();
    let run = || {
        let there = environment(instance.plain.clone(), Arc::new(InlineSpawner));
        block_on(CompactionWorker::new(&there, &resources()).run(&job)).unwrap_err()
    };
    let mut damaged = whole.clone();
    damaged[whole.len() / 3] ^= 1;
    block_on(instance.plain.write(&path, damaged)).unwrap();
    let error = run();
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::Corrupt, Some(path.as_str())));
    block_on(instance.plain.delete(&path)).unwrap();
    let error = run();
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::NotFound, Some(path.as_str())));
    let mut left = instance.named();
    left.retain(|other| *other != path);
    assert_eq!(instance.objects(), left, "nothing is left behind");
}

#[test]
fn every_changed_byte_of_a_job_or_result_is_found() {
    let instance = sample();
    let plan = instance.next().unwrap();
    let job = encode_job(&instance.compaction(&plan), &instance.output_options()).unwrap();
    let there = environment(instance.plain.clone(), Arc::new(InlineSpawner));
    let worker = CompactionWorker::new(&there, &resources());
    let result = block_on(worker.run(&job)).unwrap();
    let damage = |bytes: &[u8], at: usize| {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1;
        damaged
    };
    for at in 0..job.len() {
        assert!(block_on(worker.run(&damage(&job, at))).is_err(), "byte {at}");
    }
    for at in 0..result.len() {
        let damaged = damage(&result, at);
        let decoded = block_on(decode_result(&damaged, &job, plan.groups, &instance.tables));
        assert!(decoded.is_err(), "byte {at}");
    }
    let other = damage(&job, 20);
    let error =
        block_on(decode_result(&result, &other, plan.groups, &instance.tables)).unwrap_err();
    assert!(error.to_string().contains("another one"), "{error}");
}
