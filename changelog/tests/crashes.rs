//! A job of several instances that share one writer, with materializations, a failing store, lost news,
//! a collector and crashes in between: every kept checkpoint restores to what the model says.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use support::{HoldingSpawner, holding};
use weir_backend_heap::HeapBackendFactory;
use weir_changelog::{ChangelogBackendFactory, ChangelogOptions, Materialization};
use weir_state_api::opendal::{Operator, services};
use weir_state_api::*;
use weir_tests::faults::{Faults, StoreOp, When};

/// Per key: how often it was counted, what was appended, the entries of its map.
type Model = BTreeMap<String, (u64, Vec<u32>, BTreeMap<u32, u32>)>;

struct Instance {
    store: KeyedStore<String>,
    counts: ValueState<u64>,
    lists: ListState<u32>,
    maps: MapState<u32, u32>,
}

struct Kept {
    id: CheckpointId,
    handles: Vec<SnapshotHandle>,
    model: Model,
}

struct Job {
    inner: Arc<dyn BackendFactory>,
    bare: Operator,
    faults: Faults,
    spawner: Arc<HoldingSpawner>,
    factory: ChangelogBackendFactory,
    instances: Vec<Instance>,
    attempt: u64,
    next: u64,
    model: Model,
    registry: ObjectRegistry,
    kept: Vec<Kept>,
    random: u64,
}

fn options() -> ChangelogOptions {
    ChangelogOptions::default()
        .with_materialization(Materialization::OnRequest)
        .with_batch_linger(Duration::ZERO)
        .with_chunk_bytes(200)
        .with_batch_bytes(600)
        .with_retries(1, Duration::ZERO)
}

impl Job {
    /// Around the memory backend.
    fn new(random: u64) -> Self {
        Self::around(Arc::new(HeapBackendFactory::default()), random)
    }

    fn around(inner: Arc<dyn BackendFactory>, random: u64) -> Self {
        let (bare, faults) = (Operator::new(services::Memory::default()).unwrap(), Faults::new());
        let factory = ChangelogBackendFactory::around(Arc::clone(&inner), options());
        let mut job = Job {
            inner,
            bare,
            faults,
            spawner: Arc::default(),
            factory,
            instances: Vec::new(),
            attempt: 0,
            next: 1,
            model: Model::new(),
            registry: ObjectRegistry::new(CheckpointId(1)),
            kept: Vec::new(),
            random,
        };
        job.open(2, &[]).unwrap();
        job
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below
    }

    /// A new attempt: what was in memory is gone.
    fn open(&mut self, parallelism: u16, handles: &[SnapshotHandle]) -> Result<()> {
        self.instances.clear();
        self.spawner = Arc::default();
        self.factory = ChangelogBackendFactory::around(Arc::clone(&self.inner), options());
        self.attempt += 1;
        let environment = Environment::new(
            Arc::new(ManualClock::new(0)),
            self.bare.clone().layer(self.faults.layer()),
            Arc::clone(&self.spawner) as Arc<dyn Spawner>,
        );
        let request = OpenRequest::new(environment, "op", Codec::<String>::id(&Ordered));
        for subtask in 0..parallelism {
            let max = MaxParallelism::default();
            let mut request = request.clone().for_subtask(max, parallelism, subtask)?;
            request.directory = format!("live/{}/{subtask}/", self.attempt);
            let request = request.restore_from(handles.to_vec());
            let mut store = block_on(KeyedStore::open(&self.factory, request))?;
            let counts = store.value("counts")?;
            let lists = store.list("lists")?;
            let maps = store.map("maps")?;
            self.instances.push(Instance { store, counts, lists, maps });
        }
        Ok(())
    }

    fn write(&mut self) {
        let (key, what) = (format!("key {}", self.random(30)), self.random(5) as u32);
        let number = self.random(9) as u32;
        let Instance { store, counts, lists, maps } = self
            .instances
            .iter_mut()
            .find_map(|instance| instance.store.set_key(&key).is_ok().then_some(instance))
            .unwrap();
        let (count, list, map) = self.model.entry(key).or_default();
        match what {
            0 => {
                lists.add(store, &number).unwrap();
                list.push(number);
            }
            1 => {
                maps.put(store, &number, &what).unwrap();
                map.insert(number, what);
            }
            2 => {
                maps.remove(store, &number).unwrap();
                map.remove(&number);
            }
            _ => {
                counts.update(store, |old| old.unwrap_or(0) + 1).wait().unwrap();
                *count += 1;
            }
        }
    }

    /// One checkpoint; `None` when it failed.
    fn checkpoint(&mut self) -> Option<CheckpointId> {
        let id = CheckpointId(self.next);
        self.next += 1;
        let mut request = SnapshotRequest::checkpoint(id, format!("chk-{}", id.0));
        request.reuse_from = Some(self.registry.begin(id));
        let tasks: Vec<_> = holding(|| {
            self.instances.iter_mut().map(|i| i.store.snapshot(request.clone())).collect()
        });
        let model = self.model.clone();
        let write = |task: Result<SnapshotTask>| block_on(task?.run());
        let handles: Result<Vec<_>> = tasks.into_iter().map(write).collect();
        let Ok(handles) = handles else {
            self.registry.abort(id);
            self.notify(Notification::Aborted(id));
            return None;
        };
        let objects = || handles.iter().flat_map(|handle| &handle.objects);
        let attempt = self.attempt;
        self.registry.admit(id, objects(), |path| origin(path, attempt)).unwrap();
        self.registry.complete(id, objects());
        self.kept.push(Kept { id, handles, model });
        self.notify(Notification::Complete(id));
        if self.kept.len() > 2 {
            let oldest = self.kept.remove(0);
            self.registry.subsume(oldest.id);
            self.notify(Notification::Subsumed(oldest.id));
        }
        Some(id)
    }

    /// One checkpoint that does not fail.
    fn complete(&mut self) {
        self.checkpoint().expect("the store does not fail");
    }

    /// A third of the news is lost.
    fn notify(&mut self, news: Notification) {
        for index in 0..self.instances.len() {
            if self.random(3) > 0 {
                holding(|| self.instances[index].store.notify(news)).unwrap();
            }
        }
    }

    fn collect(&mut self) {
        let attempt = self.attempt;
        for id in self.registry.due_records() {
            self.registry.record_deleted(id, 0);
        }
        for (path, length) in self.registry.due_objects(|path| origin(path, attempt)) {
            block_on(self.bare.delete(&path)).unwrap();
            self.registry.objects_deleted([(path.as_str(), length)]);
        }
    }

    /// Everything that nobody needs, found by listing.
    fn sweep(&mut self) -> usize {
        let attempt = self.attempt;
        let listing: Vec<StoredObject> = self
            .listed()
            .into_iter()
            .map(|path| {
                let origin = origin(&path, attempt);
                StoredObject { path, length: 0, origin, record_of: None }
            })
            .collect();
        let gone = self.registry.unreachable(&listing);
        for object in &gone {
            block_on(self.bare.delete(&object.path)).unwrap();
        }
        listing.len() - gone.len()
    }

    fn listed(&self) -> Vec<String> {
        let entries = block_on(self.bare.list_with("").recursive(true).into_future()).unwrap();
        let files = entries.into_iter().filter(|entry| !entry.path().ends_with('/'));
        files.map(|entry| entry.path().to_string()).collect()
    }

    /// The process dies, and goes on from a kept checkpoint, perhaps at another parallelism.
    fn crash(&mut self) {
        self.faults.heal();
        let parallelism = self.random(3) as u16 + 1;
        self.registry.abort_all();
        if self.kept.is_empty() {
            self.model = Model::new();
            self.open(parallelism, &[]).unwrap();
            return;
        }
        let index = self.random(self.kept.len() as u64) as usize;
        let handles = self.kept[index].handles.clone();
        self.model = self.kept[index].model.clone();
        self.open(parallelism, &handles).unwrap();
        let model = self.model.clone();
        self.check(&model);
    }

    fn check(&mut self, model: &Model) {
        for (key, (count, list, map)) in model {
            let Instance { store, counts, lists, maps } = self
                .instances
                .iter_mut()
                .find_map(|instance| instance.store.set_key(key).is_ok().then_some(instance))
                .unwrap();
            let found = counts.get(store).wait().unwrap().unwrap_or(0);
            assert_eq!(found, *count, "the count of {key}");
            assert_eq!(lists.get(store).wait().unwrap(), *list, "the list of {key}");
            let entries = maps.entries(store).wait().unwrap();
            let entries: BTreeMap<u32, u32> = entries.map(|entry| entry.unwrap()).collect();
            assert_eq!(entries, *map, "the map of {key}");
        }
    }

    fn check_all_kept(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        for Kept { handles, model, .. } in &kept {
            self.open(2, handles).unwrap();
            self.check(model);
        }
        self.kept = kept;
    }
}

/// Who made an object.
fn origin(path: &str, attempt: u64) -> Origin {
    let number = |text: &str| text.split('/').next().and_then(|n| n.parse().ok());
    if let Some(id) = path.strip_prefix("chk-").and_then(number) {
        return Origin::Snapshot(CheckpointId(id));
    }
    match path.strip_prefix("live/").and_then(number) {
        Some(other) if other == attempt => Origin::Live,
        Some(_) => Origin::Former,
        None => Origin::Foreign,
    }
}

fn whatever_fails(seed: u64, mut job: Job) {
    for _ in 0..60 {
        match job.random(12) {
            0 => job.factory.control().materialize(),
            1 => {
                let count = job.random(4) as usize;
                job.spawner.clone().run(count);
            }
            2..=5 => {
                job.checkpoint();
                job.collect();
            }
            6 => {
                let op = [StoreOp::Write, StoreOp::Close, StoreOp::Stat][job.random(3) as usize];
                let when = if job.random(2) == 0 { When::Before } else { When::After };
                let nth = job.random(3) + 1;
                job.faults.fail(op, nth, when);
            }
            7 if job.random(3) == 0 => job.crash(),
            _ => (0..20).for_each(|_| job.write()),
        }
    }
    job.faults.heal();
    // An upload that failed before may be heard of only now: each instance's fails one checkpoint.
    let last = (0..3).find_map(|_| job.checkpoint());
    last.unwrap_or_else(|| panic!("seed {seed}: the store is whole again"));
    job.check_all_kept();
    // When the attempt is over, what no kept checkpoint names goes.
    job.instances.clear();
    job.attempt += 1;
    job.registry.abort_all();
    job.collect();
    let left = job.sweep();
    let named: BTreeSet<&str> = job
        .kept
        .iter()
        .flat_map(|kept| &kept.handles)
        .flat_map(|handle| &handle.objects)
        .map(|object| object.path.as_str())
        .collect();
    assert_eq!(left, named.len(), "seed {seed}");
}

#[test]
fn whatever_fails_every_kept_checkpoint_is_whole() {
    for seed in 0..40 {
        whatever_fails(seed, Job::new(seed));
    }
}

#[test]
fn whatever_fails_every_kept_checkpoint_around_a_forst_is_whole() {
    for seed in 0..20 {
        let forst = Arc::new(support::small_forst());
        whatever_fails(seed, Job::around(forst, seed));
    }
}

#[cfg(feature = "rocks")]
#[test]
fn whatever_fails_every_kept_checkpoint_around_rocks_is_whole() {
    for seed in 0..10 {
        whatever_fails(seed, Job::around(Arc::new(support::rocks("crashes")), seed));
    }
}

/// The process dies after each single step of a materialization.
#[test]
fn a_crash_at_any_step_of_a_materialization_loses_nothing() {
    for steps in 0..8 {
        for restart_at in [1, 2, 3] {
            let mut job = Job::new(7);
            (0..50).for_each(|_| job.write());
            job.checkpoint().unwrap();
            let first = job.kept[0].handles.clone();
            (0..50).for_each(|_| job.write());
            let script: [&dyn Fn(&mut Job); 8] = [
                &|job| job.factory.control().materialize(),
                // Begins it: in a notification, or in the second checkpoint without one.
                &|job| (0..2).for_each(|_| job.complete()),
                &|job| (0..50).for_each(|_| job.write()),
                // While it is being written.
                &|job| job.complete(),
                // One instance is done.
                &|job| job.spawner.clone().run(1),
                &|job| job.complete(),
                // All are; the log before is no longer named.
                &|job| {
                    let spawner = job.spawner.clone();
                    spawner.run(spawner.held());
                    job.checkpoint().unwrap();
                },
                // Nor kept.
                &|job| {
                    (0..3).for_each(|_| job.complete());
                    job.collect();
                },
            ];
            script.iter().take(steps + 1).for_each(|step| step(&mut job));
            let newest = job.kept.pop().unwrap();
            job.open(restart_at, &newest.handles).unwrap();
            job.check(&newest.model);
            if steps == 7 {
                let paths = |handles: &[SnapshotHandle]| -> BTreeSet<String> {
                    let objects = handles.iter().flat_map(|handle| &handle.objects);
                    objects.map(|object| object.path.clone()).collect()
                };
                assert!(paths(&first).is_disjoint(&paths(&newest.handles)), "not truncated");
            }
        }
    }
}

/// After each materialization the log begins anew, for ever.
#[test]
fn a_hundred_materializations_leave_a_bounded_log() {
    let mut job = Job::new(3);
    let mut most = 0;
    for _ in 0..100 {
        (0..20).for_each(|_| job.write());
        job.factory.control().materialize();
        (0..2).for_each(|_| job.complete());
        let spawner = job.spawner.clone();
        spawner.run(spawner.held());
        job.collect();
        most = most.max(job.listed().len());
    }
    assert!(job.factory.control().metrics().materializations_done >= 150);
    assert!(most < 60, "{most} objects are there at once");
    job.check_all_kept();
}
