//! Two hundred checkpoints with everything that goes wrong: no object is left over, none is missing.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{World, at, descriptor};
use weir_state_api::{
    CheckpointId, KeyGroupRange, KeyedBackend, Lookup, Notification, ObjectRegistry, Origin,
    Result, SnapshotHandle, SnapshotRequest, StateKind, StoredObject, block_on,
};
use weir_tests::faults::{StoreOp, When};

const CHECKPOINTS: u64 = 200;
const KEYS: u64 = 300;

/// Key to the number it was written with; absent when it was removed.
type Model = BTreeMap<u64, u64>;

struct Job<'w> {
    world: &'w World,
    random: u64,
    instances: Vec<(KeyGroupRange, Box<dyn KeyedBackend>)>,
    model: Model,
    registry: ObjectRegistry,
    kept: Vec<(CheckpointId, Vec<SnapshotHandle>, Model)>,
    news: Vec<Notification>,
    failures: u32,
    restarts: u32,
}

impl Job<'_> {
    fn random(&mut self, below: u64) -> u64 {
        // Constants of a linear congruential generator; the high bits are good enough here.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below
    }

    fn start(&mut self, handles: &[SnapshotHandle], model: Model) {
        let parallelism = 1 + self.random(3) as u16;
        self.instances.clear();
        for subtask in 0..parallelism {
            let request = self.world.request();
            let max = request.max_parallelism;
            let request = request.for_subtask(max, parallelism, subtask).unwrap();
            let groups = request.key_groups;
            let mut backend = self.world.open(request.restore_from(handles.to_vec()));
            backend.register(&descriptor("v", StateKind::Value)).unwrap();
            self.instances.push((groups, backend));
        }
        self.model = model;
        self.news.clear();
    }

    fn write(&mut self) {
        for _ in 0..self.random(120) {
            let (key, number) = (self.random(KEYS), self.random(1 << 30));
            let bytes = key.to_be_bytes();
            let state = weir_state_api::StateId(0);
            let at = at(state, &bytes);
            let owner =
                self.instances.iter_mut().find(|(groups, _)| groups.contains(at.key.group()));
            let (_, backend) = owner.unwrap();
            if number % 5 == 0 {
                backend.delete(&at).unwrap();
                self.model.remove(&key);
            } else {
                backend.put(&at, &number.to_be_bytes().repeat(20)).unwrap();
                self.model.insert(key, number);
            }
        }
    }

    /// The tasks of one checkpoint, run in turn; the store may fail in any of them.
    fn checkpoint(&mut self, id: CheckpointId) {
        let mut request = SnapshotRequest::checkpoint(id, format!("chk-{}", id.0));
        request.shared_directory = format!("shared-{}/", id.0);
        request.reuse_from = Some(self.registry.begin(id));
        let begun: Vec<_> = self
            .instances
            .iter_mut()
            .map(|(_, backend)| backend.snapshot(request.clone()).unwrap())
            .collect();
        let model = self.model.clone();
        // The task goes on while its snapshot is written.
        self.write();
        if self.random(5) == 0 {
            let op = [StoreOp::Write, StoreOp::Close, StoreOp::Stat][self.random(3) as usize];
            let when = [When::Before, When::After][self.random(2) as usize];
            self.world.faults.fail(op, 1 + self.random(3), when);
        }
        // Dropped tasks are abandoned snapshots.
        let abandoned = self.random(20) == 0;
        let written: Result<Vec<SnapshotHandle>> =
            begun.into_iter().take_while(|_| !abandoned).map(|task| block_on(task.run())).collect();
        self.world.faults.heal();
        let declined = abandoned || self.random(6) == 0;
        let Some(handles) = written.ok().filter(|_| !declined) else {
            self.failures += 1;
            self.registry.abort(id);
            self.news.push(Notification::Aborted(id));
            return;
        };
        let objects = || handles.iter().flat_map(|handle| &handle.objects);
        self.registry.admit(id, objects(), origin).unwrap();
        self.registry.complete(id, objects());
        self.kept.push((id, handles, model));
        self.news.push(Notification::Complete(id));
        if self.kept.len() > 2 {
            let (oldest, ..) = self.kept.remove(0);
            self.registry.subsume(oldest);
            self.news.push(Notification::Subsumed(oldest));
        }
    }

    /// Some of the news arrives, in any order; some never does.
    fn deliver(&mut self) {
        for _ in 0..self.news.len() {
            let index = self.random(self.news.len() as u64) as usize;
            let news = self.news[index];
            if self.random(4) > 0 {
                self.instances.iter_mut().for_each(|(_, backend)| backend.notify(news).unwrap());
            }
            if self.random(3) > 0 {
                self.news.remove(index);
            }
        }
    }

    fn collect(&mut self) {
        for id in self.registry.due_records() {
            self.registry.record_deleted(id, 0);
        }
        for (path, length) in self.registry.due_objects(origin) {
            block_on(self.world.store.delete(&path)).unwrap();
            self.registry.objects_deleted([(path.as_str(), length)]);
        }
    }

    /// All objects that the store holds.
    fn listing(&self) -> Vec<StoredObject> {
        let options = opendal::options::ListOptions { recursive: true, ..Default::default() };
        let entries = block_on(self.world.store.list_options("", options)).unwrap();
        let files = entries.into_iter().filter(|entry| entry.metadata().is_file());
        files
            .map(|entry| StoredObject {
                path: entry.path().to_string(),
                length: entry.metadata().content_length(),
                origin: origin(entry.path()),
                record_of: None,
            })
            .collect()
    }

    /// Every kept checkpoint has all its objects and its content, at another parallelism too.
    fn check_kept(&mut self) {
        for (_, handles, model) in self.kept.clone() {
            self.start(&handles, model);
            let state = weir_state_api::StateId(0);
            for key in 0..KEYS {
                let bytes = key.to_be_bytes();
                let at = at(state, &bytes);
                let owner =
                    self.instances.iter_mut().find(|(groups, _)| groups.contains(at.key.group()));
                let found = match owner.unwrap().1.get(&at).unwrap() {
                    Lookup::Found(value) => Some(value.to_vec()),
                    _ => None,
                };
                let expected = self.model.get(&key).map(|number| number.to_be_bytes().repeat(20));
                assert_eq!(found, expected, "key {key}");
            }
        }
    }
}

/// Who made an object.
fn origin(path: &str) -> Origin {
    let number = |prefix| path.strip_prefix(prefix)?.split_once('/')?.0.parse().ok();
    let own = number("chk-").map(|number| Origin::Snapshot(CheckpointId(number)));
    let shared = number("shared-").map(|number| Origin::Shared(CheckpointId(number)));
    own.or(shared).unwrap_or(Origin::Foreign)
}

fn endure(seed: u64, local_recovery: bool) {
    let world = World::with_options(|options| options.with_local_recovery(local_recovery));
    let mut job = Job {
        world: &world,
        random: seed,
        instances: Vec::new(),
        model: Model::new(),
        registry: ObjectRegistry::new(CheckpointId(1)),
        kept: Vec::new(),
        news: Vec::new(),
        failures: 0,
        restarts: 0,
    };
    job.start(&[], Model::new());
    for number in 1..=CHECKPOINTS {
        job.write();
        job.checkpoint(CheckpointId(number));
        job.collect();
        job.deliver();
        if job.random(12) == 0 {
            job.restarts += 1;
            // The newest complete checkpoint, as after a crash of all instances.
            let (handles, model) = match job.kept.last() {
                Some((_, handles, model)) => (handles.clone(), model.clone()),
                None => (Vec::new(), Model::new()),
            };
            job.start(&handles, model);
        }
    }
    assert!(job.failures > 20 && job.restarts > 5, "{} {}", job.failures, job.restarts);
    // What failed and aborted snapshots have left is found by a listing; then nothing is left over.
    let listing = job.listing();
    for object in job.registry.unreachable(&listing) {
        block_on(world.store.delete(&object.path)).unwrap();
    }
    let stored: BTreeSet<String> = job.listing().into_iter().map(|object| object.path).collect();
    let named: BTreeSet<String> = job
        .kept
        .iter()
        .flat_map(|(_, handles, _)| handles)
        .flat_map(|handle| &handle.objects)
        .map(|object| object.path.clone())
        .collect();
    assert_eq!(stored, named);
    job.check_kept();
}

#[test]
fn two_hundred_checkpoints_leave_nothing_over_and_lack_nothing() {
    endure(1, false);
    endure(2, false);
}

#[test]
fn so_do_they_with_local_copies() {
    endure(3, true);
}
