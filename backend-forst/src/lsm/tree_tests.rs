//! Random histories of whole trees against ordered maps.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;
use weir_state_api::stored_key::{
    group_of, map_bounds, push_map, push_map_prefix, push_point, state_of,
};
use weir_state_api::ttl::{Stamp, StateTtl, TimeDomain, TtlTime, Verdict, convert, sweep};
use weir_state_api::{
    KeyGroup, KeyGroupRange, KeyRef, MapRange, MaxParallelism, Millis, StateId, StateKind,
};

use super::memory_tree::MemoryTree;
use super::*;
use crate::format::EntryKind;

const GROUPS: u16 = 16;
const PLAIN: StateId = StateId(0);
const LIST: StateId = StateId(1);
const MAP: StateId = StateId(2);
const EXPIRING: StateId = StateId(3);
const KINDS: [StateKind; 4] =
    [StateKind::Value, StateKind::List, StateKind::Map, StateKind::Reducing];

#[derive(Debug, Clone)]
enum Step {
    /// Writes, then a flush.
    Flush(Vec<Write>),
    CompactOnce(prop::sample::Index),
    /// A compaction while there are flushes, and another one beside it.
    CompactBeside(Vec<Write>),
    CompactUntilIdle,
    CompactEverything,
    Rescale(u16),
    /// The TTL of the list and of the expiring state in one instance.
    SetTtl(prop::sample::Index, Option<Millis>),
    Wait(Millis),
}

#[derive(Debug, Clone)]
struct Write {
    group: u16,
    key: u8,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Put(StateId, u8),
    Delete(StateId),
    Append(u8),
    ClearMap(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let states = prop::sample::select(vec![PLAIN, LIST, MAP, EXPIRING]);
    let what = prop_oneof![
        4 => (states.clone(), any::<u8>()).prop_map(|(state, value)| What::Put(state, value)),
        2 => states.prop_map(What::Delete),
        4 => any::<u8>().prop_map(What::Append),
        1 => (0..4_u8).prop_map(What::ClearMap),
    ];
    let write =
        (0..GROUPS, 0..4_u8, what).prop_map(|(group, key, what)| Write { group, key, what });
    let ttl = prop_oneof![Just(None), (1..300_i64).prop_map(Some)];
    let step = prop_oneof![
        12 => proptest::collection::vec(write.clone(), 1..40).prop_map(Step::Flush),
        2 => proptest::collection::vec(write, 8..40).prop_map(Step::CompactBeside),
        4 => any::<prop::sample::Index>().prop_map(Step::CompactOnce),
        1 => Just(Step::CompactUntilIdle),
        1 => Just(Step::CompactEverything),
        3 => (1..6_u16).prop_map(Step::Rescale),
        1 => (any::<prop::sample::Index>(), ttl).prop_map(|(at, ttl)| Step::SetTtl(at, ttl)),
        2 => (0..80_i64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..40)
}

fn stored_key(state: StateId, group: u16, key: u8) -> Vec<u8> {
    let mut stored = Vec::new();
    let bytes = [key / 2];
    let of = KeyRef::with_group(&bytes, KeyGroup(group)).unwrap();
    if state == MAP {
        push_map(state, of, b"", &[key], &mut stored);
    } else {
        push_point(state, of, &[key], &mut stored);
    }
    stored
}

/// All instances of a job, and what they should hold.
struct Job {
    instances: Vec<MemoryTree>,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The TTL of the list and the expiring state, by key group.
    ttls: Vec<Option<StateTtl>>,
    now: Millis,
}

impl Job {
    fn new() -> Self {
        let states = KINDS.iter().zip(["plain", "list", "map", "expiring"]);
        let states = states.map(|(kind, name)| ShardState {
            name: name.to_string(),
            eras: StateEras::new(*kind, vec![Era::new(None, TtlTime::new(0))]),
        });
        let groups = KeyGroupRange::new(0, GROUPS - 1);
        let options = CompactionOptions {
            level0_runs: 2,
            tier_runs: 2,
            small_bytes: 60,
            table_bytes: 8,
            slice_bytes: 60,
            min_visible_percent: 30,
            max_expired_percent: 50,
        };
        let tree = MemoryTree::new(groups, states.collect()).with_options(options, 1);
        Job {
            instances: vec![tree],
            model: BTreeMap::new(),
            ttls: vec![None; usize::from(GROUPS)],
            now: 1_000,
        }
    }

    fn time(&self) -> TtlTime {
        TtlTime::new(self.now)
    }

    fn ttl(&self, state: StateId, group: KeyGroup) -> Option<StateTtl> {
        let expires = state == LIST || state == EXPIRING;
        if expires { self.ttls[usize::from(group.0)] } else { None }
    }

    fn stamped(&self, state: StateId, group: u16, value: u8) -> Vec<u8> {
        let mut bytes = match self.ttl(state, KeyGroup(group)) {
            Some(_) => Stamp::Written(self.now).to_bytes().to_vec(),
            None => Vec::new(),
        };
        bytes.push(value);
        if state == LIST {
            bytes.insert(0, bytes.len() as u8);
        }
        bytes
    }

    fn flush(&mut self, writes: &[Write]) {
        let mut memtable: BTreeMap<Vec<u8>, (EntryKind, Vec<u8>)> = BTreeMap::new();
        let mut range_deletes = Vec::new();
        for Write { group, key, what } in writes {
            match *what {
                What::Put(state, value) => {
                    let (at, value) =
                        (stored_key(state, *group, *key), self.stamped(state, *group, value));
                    self.model.insert(at.clone(), value.clone());
                    memtable.insert(at, (EntryKind::Put, value));
                }
                What::Delete(state) => {
                    let at = stored_key(state, *group, *key);
                    self.model.remove(&at);
                    memtable.insert(at, (EntryKind::Delete, Vec::new()));
                }
                What::Append(value) => {
                    let (at, value) =
                        (stored_key(LIST, *group, *key), self.stamped(LIST, *group, value));
                    self.model.entry(at.clone()).or_default().extend(&value);
                    let (kind, there) =
                        memtable.entry(at).or_insert((EntryKind::Append, Vec::new()));
                    if *kind == EntryKind::Delete {
                        *kind = EntryKind::Put;
                    }
                    there.extend(value);
                }
                What::ClearMap(from) => {
                    let (bytes, mut prefix) = ([key / 2], Vec::new());
                    let of = KeyRef::with_group(&bytes, KeyGroup(*group)).unwrap();
                    push_map_prefix(MAP, of, b"", &mut prefix);
                    let from = [from];
                    let range = MapRange { from: Bound::Included(&from), to: Bound::Unbounded };
                    let (from, to) = map_bounds(&prefix, range);
                    let outside = |at: &Vec<u8>| *at < from || *at >= to;
                    memtable.retain(|at, _| outside(at));
                    self.model.retain(|at, _| outside(at));
                    range_deletes.push((from, to));
                }
            }
        }
        self.instances.iter_mut().for_each(|tree| tree.flush(&memtable, &range_deletes));
    }

    fn rescale(&mut self, parallelism: u16) {
        let max = MaxParallelism::new(GROUPS).unwrap();
        let template = &self.instances[0];
        let instances = (0..parallelism).map(|subtask| {
            let owned = KeyGroupRange::of_subtask(max, parallelism, subtask).unwrap();
            let shards = self.instances.iter().flat_map(|tree| tree.version.shards());
            let clipped = shards.filter_map(|shard| shard.clipped(owned)).collect();
            template.with_version(Version::new(unite(clipped), owned).unwrap())
        });
        self.instances = instances.collect();
    }

    fn set_ttl(&mut self, instance: usize, lifetime: Option<Millis>) {
        let ttl = lifetime.map(|lifetime| StateTtl::new(lifetime, TimeDomain::Processing));
        let time = self.time();
        let tree = &mut self.instances[instance];
        for shard in 0..tree.version.shards().len() {
            let of = &tree.version.shards()[shard];
            let groups = of.groups();
            let mut states = of.states().to_vec();
            for state in [LIST, EXPIRING] {
                states[state.index()].eras.set_ttl(ttl, time).unwrap();
            }
            tree.apply(shard, ShardEdit::States(Arc::new(states))).unwrap();
            for group in groups.iter() {
                let from = std::mem::replace(&mut self.ttls[usize::from(group.0)], ttl);
                self.model.retain(|key, value| {
                    let state = state_of(key).unwrap();
                    let affected = state == LIST || state == EXPIRING;
                    if group_of(key) != Some(group) || !affected {
                        return true;
                    }
                    let kind = KINDS[state.index()];
                    match convert(kind, from.as_ref(), ttl.as_ref(), value, &time) {
                        Verdict::Keep => true,
                        Verdict::Drop => false,
                        Verdict::Replace(new) => {
                            *value = new;
                            true
                        }
                    }
                });
            }
        }
    }

    /// What of a value has not expired.
    fn live(&self, key: &[u8], value: Vec<u8>) -> Option<Vec<u8>> {
        let (state, group) = (state_of(key)?, group_of(key)?);
        let Some(ttl) = self.ttl(state, group) else { return Some(value) };
        match sweep(KINDS[state.index()], &ttl, &value, &self.time()) {
            Verdict::Keep => Some(value),
            Verdict::Drop => None,
            Verdict::Replace(live) => Some(live),
        }
    }

    /// In each shard: what is picked first ends last, after a flush for each write and what is picked beside.
    fn compact_beside(&mut self, writes: &[Write]) {
        let time = self.time();
        let first: Vec<Vec<_>> = self.instances.iter().map(|tree| tree.picks(&[], &time)).collect();
        writes.iter().for_each(|write| self.flush(std::slice::from_ref(write)));
        for (tree, first) in self.instances.iter_mut().zip(first) {
            let beside = tree.picks(&first, &time);
            let mut carry_out = |shard, plan: &Option<CompactionPlan>| {
                let Some(plan) = plan else { return true };
                let compacted = tree.carry_out(shard, plan, &time);
                tree.apply(shard, ShardEdit::Compacted(compacted)).is_some()
            };
            for (shard, (beside, first)) in beside.iter().zip(&first).enumerate() {
                assert!(carry_out(shard, beside));
                // What joins a run that is being merged makes that obsolete; nothing in level 0 does.
                let joins = beside.as_ref().is_some_and(|plan| plan.level > 0);
                assert!(carry_out(shard, first) || joins);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let time = self.time();
        match step {
            Step::Flush(writes) => self.flush(writes),
            Step::CompactOnce(at) => {
                let at = at.index(self.instances.len());
                let tree = &mut self.instances[at];
                for shard in 0..tree.version.shards().len() {
                    tree.compact_once(shard, &time);
                }
            }
            Step::CompactBeside(writes) => self.compact_beside(writes),
            Step::CompactUntilIdle => {
                self.instances.iter_mut().for_each(|tree| tree.compact_until_idle(&time));
            }
            Step::CompactEverything => {
                self.instances.iter_mut().for_each(|tree| tree.compact_everything(&time));
            }
            Step::Rescale(parallelism) => self.rescale(*parallelism),
            Step::SetTtl(at, ttl) => self.set_ttl(at.index(self.instances.len()), *ttl),
            Step::Wait(millis) => self.now += millis,
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for group in 0..GROUPS {
            for state in [PLAIN, LIST, MAP, EXPIRING] {
                for key in 0..4 {
                    let key = stored_key(state, group, key);
                    let expected =
                        self.model.get(&key).cloned().and_then(|value| self.live(&key, value));
                    let owner = self
                        .instances
                        .iter()
                        .find(|tree| tree.version.shard_index(KeyGroup(group)).is_some());
                    let read = owner.unwrap().get(&key).and_then(|value| self.live(&key, value));
                    prop_assert_eq!(read, expected, "key {:?}", key);
                }
            }
        }
        Ok(())
    }

    fn check_scans(&self) -> Result<(), TestCaseError> {
        let live = |(key, value): (Vec<u8>, Vec<u8>)| Some((key.clone(), self.live(&key, value)?));
        let expected: Vec<_> = self.model.clone().into_iter().filter_map(live).collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let found = self.instances.iter().flat_map(|tree| tree.scan(direction));
            let found: Vec<_> = found.filter_map(live).collect();
            prop_assert_eq!(&found, &expected);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Flushes, compactions, clean-up, changed TTLs and rescales in any order: every read sees what
    /// ordered maps hold.
    #[test]
    fn any_history_reads_like_ordered_maps(steps in steps()) {
        let mut job = Job::new();
        for step in &steps {
            job.step(step);
            job.check()?;
        }
        job.check_scans()?;
    }
}

#[test]
fn rescaling_there_and_back_gives_the_same_runs() {
    let mut job = Job::new();
    for value in 0..6 {
        let writes =
            (0..GROUPS).map(|group| Write { group, key: 1, what: What::Put(PLAIN, value) });
        job.flush(&writes.collect::<Vec<_>>());
    }
    let tables = |job: &Job| -> Vec<(Vec<u8>, KeyGroupRange)> {
        let views = job.instances.iter().flat_map(|tree| tree.version.tables());
        views.map(|view| (view.first_key().to_vec(), view.visible())).collect()
    };
    let before = tables(&job);
    for parallelism in [3, 5, 2, 16, 1] {
        job.rescale(parallelism);
        assert!(job.instances.iter().all(|tree| tree.most_runs() == 6));
    }
    assert_eq!(tables(&job), before, "parts of a table are put together again");
}

#[test]
fn all_that_is_deleted_leaves_nothing_behind() {
    let mut job = Job::new();
    let every = |what: fn() -> What| -> Vec<Write> {
        let writes = (0..GROUPS)
            .flat_map(|group| (0..4).map(move |key| (group, key)))
            .map(|(group, key)| Write { group, key, what: what() });
        writes.collect()
    };
    job.flush(&every(|| What::Put(PLAIN, 7)));
    job.flush(&every(|| What::Put(MAP, 7)));
    job.flush(&every(|| What::Delete(PLAIN)));
    job.flush(&every(|| What::ClearMap(0)));
    let time = job.time();
    job.instances[0].compact_everything(&time);
    assert_eq!(job.instances[0].version.tables().count(), 0);
    assert_eq!(
        pick(&job.instances[0].version.shards()[0], &job.instances[0].options, &[], &time),
        None
    );
}

/// Small runs do not pile up above a long compaction.
#[test]
fn what_is_flushed_beside_a_compaction_is_merged_above_it() {
    let mut job = Job::new();
    let time = job.time();
    let wanted = 2 * job.instances[0].options.level0_runs;
    let put = |key| [Write { group: 3, key, what: What::Put(PLAIN, key) }];
    let flush = |job: &mut Job| job.flush(&put(job.instances[0].most_runs() as u8 % 4));
    (0..wanted).for_each(|_| flush(&mut job));
    let long = job.instances[0].picks(&[], &time);
    assert!(long[0].as_ref().is_some_and(|plan| plan.inputs.len() == wanted));
    (1..wanted).for_each(|_| flush(&mut job));
    assert_eq!(job.instances[0].picks(&long, &time), [None]);
    flush(&mut job);
    let beside = job.instances[0].picks(&long, &time);
    let plan = beside[0].as_ref().unwrap();
    assert_eq!((plan.level, plan.inputs.len()), (0, wanted));
    for plan in [plan, long[0].as_ref().unwrap()] {
        let compacted = job.instances[0].carry_out(0, plan, &time);
        job.instances[0].apply(0, ShardEdit::Compacted(compacted)).unwrap();
    }
    let runs = job.instances[0].version.shards()[0].runs().iter().map(Run::level);
    assert_eq!(runs.collect::<Vec<_>>(), [0, 1]);
    job.check().unwrap();
}

#[test]
fn a_table_whose_values_have_all_expired_goes_unread_unless_it_hides_older_ones() {
    let mut job = Job::new();
    job.set_ttl(0, Some(100));
    let put = |key| vec![Write { group: 3, key, what: What::Put(EXPIRING, 1) }];
    job.flush(&put(1));
    job.now += 50;
    job.flush(&put(1));
    job.flush(&put(2));
    let next = |job: &Job| {
        let tree = &job.instances[0];
        pick(&tree.version.shards()[0], &tree.options, &[], &job.time())
    };
    let ids: Vec<_> = job.instances[0].version.tables().map(TableView::id).collect();
    job.now = 1_099;
    assert!(!matches!(next(&job), Some(Pick::Drop(_))));
    job.now = 1_100;
    assert_eq!(next(&job), Some(Pick::Drop(vec![ids[2]])), "the oldest");
    job.now = 1_150;
    let mut all = ids.clone();
    all.sort_unstable();
    assert_eq!(next(&job), Some(Pick::Drop(all)));
    // Not while what lies below lives on, and not in an era that is over.
    let mut job = Job::new();
    let mut plain = put(1);
    plain.extend(put(2).into_iter().map(|write| Write { what: What::Put(PLAIN, 1), ..write }));
    job.flush(&plain);
    job.set_ttl(0, Some(100));
    job.flush(&put(1));
    job.now += 1_000;
    assert!(!matches!(next(&job), Some(Pick::Drop(_))));
    job.set_ttl(0, Some(5_000));
    assert!(!matches!(next(&job), Some(Pick::Drop(_))));
    job.check().unwrap();
}

/// Write amplification is a property of the shape: entries written by flushes and compactions, per
/// entry that was flushed.
mod write_amplification {
    use super::*;

    const MEMTABLE: usize = 1_000;

    struct Load {
        tree: MemoryTree,
        flushed: usize,
        random: u64,
        most_runs: usize,
    }

    impl Load {
        fn new() -> Self {
            let states = vec![ShardState {
                name: "s".to_string(),
                eras: StateEras::new(StateKind::Value, vec![Era::new(None, TtlTime::new(0))]),
            }];
            // A memtable of 64 MiB holds 1,000 entries.
            let entry_bytes = (64 << 20) / MEMTABLE as u64;
            let tree = MemoryTree::new(KeyGroupRange::new(0, 127), states)
                .with_options(CompactionOptions::default(), entry_bytes);
            Load { tree, flushed: 0, random: 7, most_runs: 0 }
        }

        fn random(&mut self) -> u64 {
            // SplitMix64.
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.random;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        fn write(&mut self, keys: impl Iterator<Item = (u64, EntryKind)>) {
            let mut memtable = BTreeMap::new();
            for (key, kind) in keys {
                let bytes = key.to_be_bytes();
                let of = KeyRef::with_group(&bytes, KeyGroup((key % 128) as u16)).unwrap();
                let mut stored = Vec::new();
                push_point(StateId(0), of, b"", &mut stored);
                memtable.insert(stored, (kind, Vec::new()));
            }
            self.flushed += memtable.len();
            self.tree.flush(&memtable, &[]);
            self.tree.compact_until_idle(&TtlTime::new(0));
            self.most_runs = self.most_runs.max(self.tree.most_runs());
        }

        fn amplification(&self) -> f64 {
            1.0 + self.tree.written as f64 / self.flushed as f64
        }

        #[track_caller]
        fn assert_below(&self, limit: f64, runs: usize) {
            let amplification = self.amplification();
            assert!(amplification < limit, "{amplification:.2}");
            assert!(self.most_runs <= runs, "{} runs", self.most_runs);
        }
    }

    #[test]
    fn uniform_updates() {
        let mut load = Load::new();
        for _ in 0..120 {
            let keys: Vec<_> =
                (0..MEMTABLE).map(|_| (load.random() % 40_000, EntryKind::Put)).collect();
            load.write(keys.into_iter());
        }
        load.assert_below(6.0, 13);
        assert!(load.tree.entries() < 3 * 40_000, "{} entries", load.tree.entries());
    }

    #[test]
    fn skewed_updates() {
        let mut load = Load::new();
        for _ in 0..120 {
            let keys: Vec<_> = (0..2 * MEMTABLE)
                .map(|_| {
                    let among = if load.random() % 10 < 8 { 8_000 } else { 40_000 };
                    (load.random() % among, EntryKind::Put)
                })
                .collect();
            load.write(keys.into_iter());
        }
        load.assert_below(6.0, 13);
    }

    #[test]
    fn growth() {
        let mut load = Load::new();
        for _ in 0..100 {
            let keys: Vec<_> = (0..MEMTABLE).map(|_| (load.random(), EntryKind::Put)).collect();
            load.write(keys.into_iter());
        }
        load.assert_below(6.0, 13);
    }

    /// Windows: what was written is deleted later.
    #[test]
    fn keys_that_come_and_go() {
        let mut load = Load::new();
        let count = MEMTABLE as u64 / 2;
        for round in 0..120_u64 {
            let new = (round * count..(round + 1) * count).map(|key| (key, EntryKind::Put));
            let old = round.checked_sub(20).map(|old| old * count..(old + 1) * count);
            let old = old.into_iter().flatten().map(|key| (key, EntryKind::Delete));
            let keys: Vec<_> = new.chain(old).collect();
            load.write(keys.into_iter());
        }
        load.assert_below(6.0, 13);
        let alive = 20 * count as usize;
        assert!(load.tree.entries() < 4 * alive, "{} entries for {alive}", load.tree.entries());
    }

    /// Checkpoints every few seconds flush a hundredth of a memtable each.
    #[test]
    fn small_flushes() {
        let mut load = Load::new();
        for _ in 0..600 {
            let keys: Vec<_> =
                (0..MEMTABLE / 50).map(|_| (load.random() % 10_000, EntryKind::Put)).collect();
            load.write(keys.into_iter());
        }
        load.assert_below(7.0, 15);
    }
}
