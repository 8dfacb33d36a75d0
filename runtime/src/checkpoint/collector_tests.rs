//! The collector with a real store that fails, an incremental backend, lost news, crashes, and runs
//! that were overtaken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use opendal::Operator;
use weir_state_api::{
    Codec, Environment, ErrorKind, InlineSpawner, KeyedStore, ManualClock, MaxParallelism,
    Notification, OpenRequest, OperatorState, Ordered, SnapshotHandle, SnapshotRequest,
    SnapshotTask, ValueState, block_on,
};
use weir_tests::faults::{Faults, StoreOp, When};
use weir_tests::reference::ReferenceBackendFactory;

use super::*;
use crate::checkpoint::TaskSnapshot;
use crate::history::History;

const KEYS: u64 = 30;
const RETAINED: usize = 2;

type State = BTreeMap<String, u64>;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// One instance of the job's only operator.
struct Instance {
    store: KeyedStore<String>,
    value: ValueState<u64>,
    news: Vec<Notification>,
}

/// One run of the job: what dies with its process.
struct Run {
    history: History,
    start: Option<Arc<JobCheckpoint>>,
    attempt: u64,
    instances: Vec<Instance>,
    state: State,
    /// Snapshots of checkpoints that were given up, whose uploads are still on their way.
    late: Vec<(CheckpointId, SnapshotTask)>,
}

struct World {
    random: Random,
    bare: Operator,
    faults: Faults,
    operator: Operator,
    /// What each checkpoint that was ever begun holds.
    expected: BTreeMap<CheckpointId, State>,
    /// Whether some uploads take longer than their checkpoint waits.
    slow: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let bare = Operator::new(opendal::services::Memory::default()).unwrap();
        let faults = Faults::new();
        let operator = bare.clone().layer(faults.layer());
        let random = Random(seed);
        World { random, bare, faults, operator, expected: BTreeMap::new(), slow: true }
    }

    fn open(
        store: &Operator,
        handles: &[SnapshotHandle],
        parallelism: u16,
        directory: &str,
    ) -> Vec<Instance> {
        let backend = ReferenceBackendFactory::default().incremental();
        let open = |subtask| {
            let codec = Codec::<String>::id(&Ordered);
            let mut request = OpenRequest::new(environment(store), "count", codec)
                .for_subtask(MaxParallelism::default(), parallelism, subtask)
                .unwrap()
                .restore_from(handles.to_vec());
            request.directory = format!("{directory}count-{subtask}/");
            let mut store = block_on(KeyedStore::open(&backend, request)).unwrap();
            let value = store.value("v").unwrap();
            Instance { store, value, news: Vec::new() }
        };
        (0..parallelism).map(open).collect()
    }

    /// A new process takes over and starts from the latest checkpoint, at some parallelism.
    fn start(&mut self) -> Run {
        self.faults.heal();
        let store = CheckpointStore::new(self.operator.clone());
        let owner = self.random.below(u64::MAX).to_string();
        let epoch = block_on(store.claim_epoch(&owner)).unwrap();
        let complete = block_on(store.complete()).unwrap();
        let history = block_on(History::load(store, epoch, &complete)).unwrap();
        assert!(history.unreadable.is_empty());
        let start = complete.last().map(|&id| Arc::new(block_on(history.store.read(id)).unwrap()));
        let (instances, state, late) = (Vec::new(), State::new(), Vec::new());
        let mut run = Run { history, start, attempt: 0, instances, state, late };
        self.start_attempt(&mut run, complete.last().copied());
        run
    }

    fn start_attempt(&mut self, run: &mut Run, from: Option<CheckpointId>) {
        run.attempt += 1;
        let name: Arc<str> = format!("attempt{}", run.attempt).into();
        let live = layout::live_folder(run.history.epoch, &name);
        run.history.collector.attempt_starts(name);
        let handles = from.map_or_else(Vec::new, |id| {
            block_on(run.history.store.read(id)).unwrap().handles("count")
        });
        let parallelism = 1 + self.random.below(3) as u16;
        run.instances = Self::open(&self.operator, &handles, parallelism, &live);
        run.state = from.map_or_else(State::new, |id| self.expected[&id].clone());
        // What an instance uploads on its own, and never gets round to naming.
        block_on(self.bare.write(&format!("{live}count-0/never-named"), "x")).unwrap();
    }

    /// The attempt fails; the run goes on where only the store knows.
    fn recover(&mut self, run: &mut Run) -> Result<()> {
        self.faults.heal();
        let from = block_on(run.history.recovery_point(run.start.as_ref()))?;
        self.start_attempt(run, from.map(|checkpoint| checkpoint.id));
        Ok(())
    }

    fn write(&mut self, run: &mut Run) {
        for _ in 0..self.random.below(6) {
            let key = format!("key {}", self.random.below(KEYS));
            let number = self.random.below(1_000_000);
            for Instance { store, value, .. } in &mut run.instances {
                if store.set_key(&key).is_ok() {
                    value.set(store, &number).unwrap();
                }
            }
            run.state.insert(key, number);
        }
    }

    fn break_something(&mut self) {
        if self.random.one_in(2) {
            let ops =
                [StoreOp::Close, StoreOp::Read, StoreOp::Stat, StoreOp::List, StoreOp::Delete];
            let op = ops[self.random.below(5) as usize];
            let when = if self.random.one_in(2) { When::Before } else { When::After };
            self.faults.fail(op, 1 + self.random.below(12), when);
        }
    }

    /// A checkpoint as the coordinator takes it. An error means that the attempt is over.
    fn checkpoint(&mut self, run: &mut Run) -> Result<()> {
        let id = run.history.next_id;
        run.history.next_id = CheckpointId(id.0 + 1);
        let reuse_from = run.history.collector.begin(id);
        self.expected.insert(id, run.state.clone());
        let mut request = SnapshotRequest::checkpoint(id, layout::checkpoint_folder(id));
        request.shared_directory = layout::shared_folder(id);
        request.reuse_from = Some(reuse_from);
        let mut handles = Vec::new();
        for instance in &mut run.instances {
            let task = instance.store.snapshot(request.clone()).unwrap();
            if self.slow && self.random.one_in(12) {
                // It takes too long.
                run.late.push((id, task));
                continue;
            }
            if let Ok(handle) = block_on(task.run()) {
                handles.push(handle);
            }
        }
        if handles.len() < run.instances.len() {
            run.history.collector.given_up(id);
            tell(run, Notification::Aborted(id));
            return Ok(());
        }
        let checkpoint = JobCheckpoint {
            job: "job".into(),
            id,
            attempt: format!("{:?} {}", run.history.epoch, run.attempt),
            parallelism: 1,
            finished: false,
            tasks: (0..)
                .zip(handles)
                .map(|(subtask, handle)| TaskSnapshot {
                    operator: "count".into(),
                    subtask,
                    keyed: Some(handle),
                    state: OperatorState::new(),
                })
                .collect(),
        };
        run.history.collector.admit(&checkpoint).unwrap();
        if let Err(error) = block_on(run.history.store.commit(&checkpoint, run.history.epoch)) {
            run.history.collector.given_up(id);
            tell(run, Notification::Aborted(id));
            let ends = matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Indeterminate);
            return if ends { Err(error) } else { Ok(()) };
        }
        run.history.collector.completed(&checkpoint);
        run.history.retained.push_back(id);
        tell(run, Notification::Complete(id));
        while run.history.retained.len() > RETAINED {
            let oldest = run.history.retained.pop_front().unwrap();
            tell(run, Notification::Subsumed(oldest));
            run.history.collector.subsume(oldest);
        }
        // A failure is a warning; what is left is due again.
        drop(block_on(run.history.collector.collect()));
        Ok(())
    }

    /// News arrives late, twice, out of order, or never.
    fn deliver(&mut self, run: &mut Run) {
        for instance in &mut run.instances {
            for _ in 0..instance.news.len() {
                let index = self.random.below(instance.news.len() as u64) as usize;
                match self.random.below(5) {
                    0 => drop(instance.news.remove(index)),
                    1 => instance.store.notify(instance.news[index]).unwrap(),
                    2 | 3 => instance.store.notify(instance.news.remove(index)).unwrap(),
                    _ => {}
                }
            }
        }
    }

    fn finish_late_uploads(run: &mut Run) {
        for (id, task) in run.late.drain(..) {
            drop(block_on(task.run()));
            run.history.collector.given_up(id);
        }
    }

    fn paths(&self) -> BTreeSet<String> {
        let entries = block_on(async { self.bare.list_with("").recursive(true).await }).unwrap();
        let paths = entries.iter().map(opendal::Entry::path);
        paths.filter(|path| !path.ends_with('/')).map(String::from).collect()
    }

    /// Whatever looks complete has all its objects.
    fn check_nothing_is_missing(&self) {
        let paths = self.paths();
        let store = CheckpointStore::new(self.bare.clone());
        for id in block_on(store.complete()).unwrap() {
            for object in block_on(store.read(id)).unwrap().objects() {
                assert!(paths.contains(&object.path), "checkpoint {id} lacks {}", object.path);
            }
        }
    }

    /// Every complete checkpoint restores to what it held.
    fn check_restores(&self) {
        let store = CheckpointStore::new(self.bare.clone());
        for id in block_on(store.complete()).unwrap() {
            let handles = block_on(store.read(id)).unwrap().handles("count");
            let mut restored = Self::open(&self.bare, &handles, 1, "unused/");
            let Instance { store, value, .. } = &mut restored[0];
            let mut found = State::new();
            for key in (0..KEYS).map(|number| format!("key {number}")) {
                store.set_key(&key).unwrap();
                if let Some(number) = value.get(store).wait().unwrap() {
                    found.insert(key, number);
                }
            }
            assert_eq!(found, self.expected[&id], "checkpoint {id}");
        }
    }

    /// Nothing but the claim, the kept checkpoints and what the attempt has made itself is there.
    fn check_nothing_is_left_over(&self, run: &Run) {
        let store = CheckpointStore::new(self.bare.clone());
        let live = layout::live_folder(run.history.epoch, &format!("attempt{}", run.attempt));
        let mut expected = BTreeSet::from([format!("{live}count-0/never-named")]);
        let complete = block_on(store.complete()).unwrap();
        assert_eq!(complete, run.history.retained.iter().copied().collect::<Vec<_>>());
        for id in complete {
            let checkpoint = block_on(store.read(id)).unwrap();
            expected.extend(checkpoint.objects().map(|object| object.path.clone()));
            expected.insert(layout::metadata_path(id));
        }
        let found: BTreeSet<_> =
            self.paths().into_iter().filter(|path| !path.starts_with("epochs/")).collect();
        assert_eq!(found, expected);
    }
}

fn environment(store: &Operator) -> Environment {
    Environment::new(Arc::new(ManualClock::new(0)), store.clone(), Arc::new(InlineSpawner))
}

fn tell(run: &mut Run, news: Notification) {
    run.instances.iter_mut().for_each(|instance| instance.news.push(news));
}

#[test]
fn whatever_fails_nothing_needed_is_deleted_and_nothing_else_stays() {
    for seed in 0..150 {
        let mut world = World::new(seed);
        let mut run = world.start();
        for _ in 0..25 {
            world.write(&mut run);
            world.break_something();
            let over = world.checkpoint(&mut run).is_err();
            world.deliver(&mut run);
            if world.random.one_in(4) {
                World::finish_late_uploads(&mut run);
            }
            if world.random.one_in(10) {
                let mut overtaken = std::mem::replace(&mut run, world.start());
                // It has not noticed yet, and goes on.
                World::finish_late_uploads(&mut overtaken);
                world.write(&mut overtaken);
                let error = world.checkpoint(&mut overtaken);
                assert!(error.is_err() || !overtaken.late.is_empty(), "it may publish nothing");
            } else if over || world.random.one_in(10) {
                world.recover(&mut run).unwrap();
            }
            world.check_nothing_is_missing();
        }
        world.check_restores();
        // A last run cleans up behind all others.
        run = world.start();
        world.checkpoint(&mut run).unwrap();
        World::finish_late_uploads(&mut run);
        world.slow = false;
        for _ in 0..RETAINED {
            world.checkpoint(&mut run).unwrap();
        }
        world.check_nothing_is_left_over(&run);
        world.check_restores();
    }
}

#[test]
fn a_dry_run_names_what_the_next_run_deletes_and_deletes_nothing() {
    for seed in 0..8 {
        let mut world = World::new(seed);
        let mut run = world.start();
        for _ in 0..6 {
            world.write(&mut run);
            // One that is given up leaves objects behind.
            drop(world.checkpoint(&mut run));
        }
        World::finish_late_uploads(&mut run);
        drop(run);
        let of_checkpoints = |world: &World| -> BTreeSet<String> {
            world.paths().into_iter().filter(|path| !path.starts_with("epochs/")).collect()
        };
        let (store, before) = (CheckpointStore::new(world.bare.clone()), world.paths());
        let doomed = block_on(store.unreachable()).unwrap();
        let doomed: BTreeSet<_> = doomed.into_iter().map(|object| object.path).collect();
        assert!(doomed.iter().any(|path| path.ends_with("never-named")), "{doomed:?}");
        assert_eq!(world.paths(), before, "nothing is deleted, and no run claimed");
        let kept: BTreeSet<_> = of_checkpoints(&world).difference(&doomed).cloned().collect();
        let epoch = block_on(store.claim_epoch("next")).unwrap();
        let complete = block_on(store.complete()).unwrap();
        let mut history = block_on(History::load(store, epoch, &complete)).unwrap();
        block_on(history.collector.collect()).unwrap();
        assert_eq!(of_checkpoints(&world), kept);
    }
}

#[test]
fn without_failures_nothing_is_listed_after_the_first_checkpoint() {
    let mut world = World::new(1);
    world.slow = false;
    let mut run = world.start();
    let mut listed = Vec::new();
    for _ in 0..6 {
        world.write(&mut run);
        world.faults.clear_log();
        world.checkpoint(&mut run).unwrap();
        let lists = world.faults.log();
        let lists = lists.iter().filter(|call| call.op == StoreOp::List);
        listed.push(lists.filter(|call| !call.path.starts_with("epochs/")).count());
    }
    assert!(listed[0] > 0, "the first one looks for leftovers");
    assert_eq!(listed[1..], [0; 5]);
}

#[test]
fn counts_tell_what_is_reachable_and_what_was_deleted() {
    let mut world = World::new(2);
    world.slow = false;
    let mut run = world.start();
    for _ in 0..10 {
        world.write(&mut run);
        world.checkpoint(&mut run).unwrap();
        world.deliver(&mut run);
    }
    let counts = run.history.collector.counts();
    let named: BTreeMap<_, _> = run
        .history
        .retained
        .iter()
        .flat_map(|&id| {
            let checkpoint = block_on(run.history.store.read(id)).unwrap();
            checkpoint.objects().map(|o| (o.path.clone(), o.length)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(counts.reachable_objects, named.len() as u64);
    assert_eq!(counts.reachable_bytes, named.values().sum::<u64>());
    assert!(counts.deleted_objects > 8 && counts.deleted_bytes > 0, "{counts:?}");
}
