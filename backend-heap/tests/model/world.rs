//! The instances, what they must hold, and every step on both.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use weir_backend_heap::{HeapBackendFactory, HeapOptions};
use weir_state_api::*;

use crate::support::{as_slice, contains, drain, page_to_vec, set};

const MAX_PARALLELISM: u16 = 8;

type Place = (Vec<u8>, Vec<u8>);
type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the instances must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Model {
    points: BTreeMap<Place, Vec<u8>>,
    maps: BTreeMap<Place, Map>,
    timers: BTreeSet<(Millis, Vec<u8>, Vec<u8>)>,
}

/// What is done in one step.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Put(Place, Vec<u8>),
    Append(Place, Vec<u8>),
    Update(Place, Vec<u8>),
    Delete(Place),
    MapPut(Place, Vec<u8>, Vec<u8>),
    MapAppend(Place, Vec<u8>, Vec<u8>),
    MapUpdate(Place, Vec<u8>, Vec<u8>),
    MapFill(Place, u16, u16),
    MapDelete(Place, Vec<u8>),
    MapDeleteRange(Place, Bound<Vec<u8>>, Bound<Vec<u8>>),
    StartScan(Place, Bound<Vec<u8>>, Bound<Vec<u8>>, bool),
    StartKeyScan(bool, Option<Vec<u8>>),
    ContinueScan,
    Register(Millis, Place),
    DeleteTimer(Millis, Place),
    Poll(Millis),
    Snapshot,
    RunTask(usize),
    /// News of one of the snapshots: complete (if it is written), aborted or subsumed.
    Notify(usize, u8),
    Restore(u16),
}

/// A snapshot whose tasks have not run, or have.
pub(crate) struct Snapshot {
    pub(crate) model: Model,
    tasks: Vec<SnapshotTask>,
    pub(crate) handles: Vec<SnapshotHandle>,
}

impl Snapshot {
    pub(crate) fn run(&mut self) {
        for task in self.tasks.drain(..) {
            let handle = block_on(task.run()).unwrap();
            self.handles.push(SnapshotHandle::from_bytes(&handle.to_bytes(), "x").unwrap());
        }
    }
}

/// A scan in progress with what it must still yield.
pub(crate) struct RunningScan {
    step: ScanStep,
    got: Vec<(Vec<u8>, Vec<u8>)>,
    wanted: Vec<(Vec<u8>, Vec<u8>)>,
    ordered: bool,
}

pub(crate) struct World {
    pub(crate) environment: Environment,
    pub(crate) instances: Vec<Box<dyn KeyedBackend>>,
    pub(crate) model: Model,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) scan: Option<RunningScan>,
}

fn max_parallelism() -> MaxParallelism {
    MaxParallelism::new(MAX_PARALLELISM).unwrap()
}

pub(crate) fn open(
    environment: &Environment,
    parallelism: u16,
    handles: &[SnapshotHandle],
) -> Vec<Box<dyn KeyedBackend>> {
    let open = |subtask| {
        let request = OpenRequest::new(environment.clone(), "model", CodecId::new("bytes", 1))
            .for_subtask(max_parallelism(), parallelism, subtask)
            .unwrap()
            .restore_from(handles.to_vec());
        let options = HeapOptions::default().with_incremental_snapshots(true);
        block_on(HeapBackendFactory::new(options).open(request)).unwrap()
    };
    (0..parallelism).map(open).collect()
}

fn descriptor(name: &str, kind: StateKind) -> StateDescriptor {
    let bytes = CodecId::new("bytes", 1);
    let descriptor = StateDescriptor::new(name, kind, bytes.clone(), bytes.clone());
    if kind == StateKind::Map { descriptor.with_map_key(bytes) } else { descriptor }
}

fn id(backend: &dyn KeyedBackend, name: &str) -> StateId {
    backend.states().into_iter().find(|(_, state)| state.name == name).unwrap().0
}

impl World {
    pub(crate) fn new() -> Self {
        let environment = Environment::in_memory();
        let mut world = World {
            instances: open(&environment, 1, &[]),
            environment,
            model: Model::default(),
            snapshots: Vec::new(),
            scan: None,
        };
        world.register();
        world
    }

    fn register(&mut self) {
        for instance in &mut self.instances {
            instance.register(&descriptor("timers", StateKind::Timers)).unwrap();
            instance.register(&descriptor("map", StateKind::Map)).unwrap();
            instance.register(&descriptor("point", StateKind::List)).unwrap();
        }
    }

    /// The instance that owns a key, and the key.
    fn owner<'k>(&mut self, key: &'k [u8]) -> (&mut dyn KeyedBackend, KeyRef<'k>) {
        let key = KeyRef::new(key, max_parallelism()).unwrap();
        let parallelism = self.instances.len() as u16;
        let subtask = subtask_of_group(max_parallelism(), parallelism, key.group());
        (self.instances[usize::from(subtask)].as_mut(), key)
    }

    fn with<R>(
        &mut self,
        state: &str,
        place: &Place,
        map_key: &[u8],
        call: impl FnOnce(&mut dyn KeyedBackend, &Address<'_>) -> R,
    ) -> R {
        let (instance, key) = self.owner(&place.0);
        let state = id(instance, state);
        call(instance, &Address { state, key, namespace: &place.1, map_key })
    }

    pub(crate) fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Put(place, value) => {
                self.with("point", &place, b"", |b, at| b.put(at, &value)).unwrap();
                self.model.points.insert(place, value);
            }
            Operation::Append(place, value) => {
                self.with("point", &place, b"", |b, at| b.append(at, &value)).unwrap();
                self.model.points.entry(place).or_default().extend(value);
            }
            Operation::Delete(place) => {
                self.with("point", &place, b"", |b, at| b.delete(at)).unwrap();
                self.model.points.remove(&place);
            }
            Operation::Update(place, value) => {
                let old = self.model.points.get(&place).cloned();
                let new = self.update("point", &place, b"", old, &value);
                set(&mut self.model.points, place, new);
            }
            Operation::Register(time, place) => {
                self.with("timers", &place, b"", |b, at| {
                    let (queue, key, namespace) = (at.state, at.key, at.namespace);
                    b.register_timer(&TimerRef { queue, time, key, namespace })
                })
                .unwrap();
                self.model.timers.insert((time, place.0, place.1));
            }
            Operation::DeleteTimer(time, place) => {
                self.with("timers", &place, b"", |b, at| {
                    let (queue, key, namespace) = (at.state, at.key, at.namespace);
                    b.delete_timer(&TimerRef { queue, time, key, namespace })
                })
                .unwrap();
                self.model.timers.remove(&(time, place.0, place.1));
            }
            Operation::Poll(now) => self.poll(now),
            Operation::Snapshot => self.snapshot(),
            Operation::RunTask(index) => {
                let count = self.snapshots.len();
                if count > 0 {
                    self.snapshots[index % count].run();
                }
            }
            Operation::Notify(index, news) => self.notify(index, news),
            Operation::Restore(parallelism) => {
                let Some(snapshot) = self.snapshots.iter().rfind(|s| !s.handles.is_empty()) else {
                    return;
                };
                self.instances = open(&self.environment, parallelism, &snapshot.handles);
                self.model = snapshot.model.clone();
            }
            map_or_scan => self.apply_to_map(map_or_scan),
        }
    }

    fn apply_to_map(&mut self, operation: Operation) {
        match operation {
            Operation::MapPut(place, key, value) => {
                self.with("map", &place, &key, |b, at| b.put(at, &value)).unwrap();
                self.model.maps.entry(place).or_default().insert(key, value);
            }
            Operation::MapAppend(place, key, value) => {
                self.with("map", &place, &key, |b, at| b.append(at, &value)).unwrap();
                let map = self.model.maps.entry(place).or_default();
                map.entry(key).or_default().extend(value);
            }
            Operation::MapUpdate(place, key, value) => {
                let old = self.model.maps.get(&place).and_then(|map| map.get(&key)).cloned();
                let new = self.update("map", &place, &key, old, &value);
                set(self.model.maps.entry(place).or_default(), key, new);
            }
            Operation::MapFill(place, from, count) => {
                for key in from..from + count {
                    let key = key.to_be_bytes().to_vec();
                    self.with("map", &place, &key, |b, at| b.put(at, &key)).unwrap();
                    self.model.maps.entry(place.clone()).or_default().insert(key.clone(), key);
                }
            }
            Operation::MapDelete(place, key) => {
                self.with("map", &place, &key, |b, at| b.delete(at)).unwrap();
                self.model.maps.entry(place).or_default().remove(&key);
            }
            Operation::MapDeleteRange(place, from, to) => {
                let range = MapRange { from: as_slice(&from), to: as_slice(&to) };
                self.with("map", &place, b"", |b, at| b.delete_range(at, range)).unwrap();
                let map = self.model.maps.entry(place).or_default();
                map.retain(|key, _| !contains(range, key));
            }
            Operation::StartScan(place, from, to, descending) => {
                let range = MapRange { from: as_slice(&from), to: as_slice(&to) };
                let order = if descending { Order::Descending } else { Order::Ascending };
                let map = self.model.maps.get(&place).cloned().unwrap_or_default();
                let mut wanted: Vec<_> =
                    map.into_iter().filter(|(key, _)| contains(range, key)).collect();
                if descending {
                    wanted.reverse();
                }
                let mut page = Page::new();
                let step = self
                    .with("map", &place, b"", |b, at| b.scan(at, range, order, &mut page))
                    .unwrap();
                let got = page_to_vec(&page);
                self.scan = Some(RunningScan { step, got, wanted, ordered: true });
            }
            Operation::StartKeyScan(maps, namespace) => {
                self.start_key_scan(maps, namespace.as_deref());
            }
            Operation::ContinueScan => self.continue_scan(),
            other => unreachable!("{other:?}"),
        }
        self.model.maps.retain(|_, map| !map.is_empty());
    }

    /// One call of `update`: reads, then stores `value`, deletes or keeps, by its first byte.
    fn update(
        &mut self,
        state: &str,
        place: &Place,
        map_key: &[u8],
        old: Option<Vec<u8>>,
        value: &[u8],
    ) -> Option<Vec<u8>> {
        let change = match value.first() {
            Some(byte) if byte % 4 == 0 => Change::Delete,
            Some(byte) if byte % 4 == 1 => Change::Keep,
            _ => Change::Put,
        };
        let fails = value.first() == Some(&9);
        let result = self.with(state, place, map_key, |b, at| {
            b.update(at, &mut |found, output| {
                assert_eq!(found, old.as_deref());
                output.extend_from_slice(value);
                if fails { Err(Error::user_function("test", "no".into())) } else { Ok(change) }
            })
        });
        assert_eq!(result.is_err(), fails);
        match change {
            Change::Put => Some(value.to_vec()),
            Change::Keep => old,
            Change::Delete => None,
        }
    }

    fn start_key_scan(&mut self, maps: bool, namespace: Option<&[u8]>) {
        let parallelism = self.instances.len() as u16;
        let instance = self.instances[0].as_mut();
        let state = id(instance, if maps { "map" } else { "point" });
        let mut page = Page::new();
        let step = instance.scan_keys(state, namespace, &mut page).unwrap();
        let is_here = |place: &&Place| {
            let group = KeyRef::new(&place.0, max_parallelism()).unwrap().group();
            subtask_of_group(max_parallelism(), parallelism, group) == 0
                && namespace.is_none_or(|namespace| namespace == place.1)
        };
        let wanted = if maps {
            self.model.maps.keys().filter(is_here).cloned().collect()
        } else {
            self.model.points.keys().filter(is_here).cloned().collect()
        };
        self.scan = Some(RunningScan { step, got: page_to_vec(&page), wanted, ordered: false });
    }

    pub(crate) fn continue_scan(&mut self) {
        let Some(mut running) = self.scan.take() else { return };
        if let ScanStep::More(scan) = running.step {
            let mut page = Page::new();
            running.step = scan.next(&mut page).unwrap();
            running.got.extend(page_to_vec(&page));
            self.scan = Some(running);
            return;
        }
        if !running.ordered {
            running.got.sort();
        }
        assert_eq!(running.got, running.wanted);
    }

    fn poll(&mut self, now: Millis) {
        for instance in &mut self.instances {
            let queue = id(instance.as_ref(), "timers");
            let (mut next, mut last) = (instance.next_timer(queue).unwrap(), None);
            while let TimerPoll::Due(timer) = instance.poll_timer(queue, now).unwrap() {
                assert_eq!(next, NextTimer::At(timer.time));
                assert!(timer.time <= now);
                let key = timer.key;
                assert_eq!(key, KeyRef::new(key.bytes(), max_parallelism()).unwrap());
                let timer = (timer.time, key.bytes().to_vec(), timer.namespace.to_vec());
                assert!(last.is_none_or(|last| last < timer));
                assert!(self.model.timers.remove(&timer), "{timer:?}");
                last = Some(timer);
                next = instance.next_timer(queue).unwrap();
            }
            assert!(match next {
                NextTimer::Empty => true,
                NextTimer::At(next) => next > now,
                NextTimer::Unknown => false,
            });
        }
        assert!(self.model.timers.iter().all(|timer| timer.0 > now));
    }

    pub(crate) fn snapshot(&mut self) {
        let checkpoint = CheckpointId(self.snapshots.len() as u64);
        let take = |instance: &mut Box<dyn KeyedBackend>| {
            instance.snapshot(SnapshotRequest::checkpoint(checkpoint, "chk")).unwrap()
        };
        let tasks = self.instances.iter_mut().map(take).collect();
        self.snapshots.push(Snapshot { model: self.model.clone(), tasks, handles: Vec::new() });
    }

    fn notify(&mut self, index: usize, news: u8) {
        let count = self.snapshots.len();
        if count == 0 {
            return;
        }
        let number = index % count;
        let id = CheckpointId(number as u64);
        let news = match news {
            0 if self.snapshots[number].handles.is_empty() => return,
            0 => Notification::Complete(id),
            1 => Notification::Aborted(id),
            _ => Notification::Subsumed(id),
        };
        self.instances.iter_mut().for_each(|instance| instance.notify(news).unwrap());
    }

    /// Compares everything that the instances hold with the model; consumes the timers.
    pub(crate) fn check_all(&mut self) {
        let (mut points, mut maps) = (BTreeMap::new(), BTreeMap::new());
        let (mut point_entries, mut map_entries, mut timers) = (0, 0, 0);
        for instance in &mut self.instances {
            let ids = ["point", "map", "timers"].map(|name| id(instance.as_ref(), name));
            for state in &ids[..2] {
                let mut page = Page::new();
                let step = instance.scan_keys(*state, None, &mut page).unwrap();
                for (key, namespace) in drain(step, page) {
                    let key_ref = KeyRef::new(&key, max_parallelism()).unwrap();
                    let at = Address {
                        state: *state,
                        key: key_ref,
                        namespace: &namespace,
                        map_key: b"",
                    };
                    let place = (key.clone(), namespace.clone());
                    if *state == ids[0] {
                        let Lookup::Found(value) = instance.get(&at).unwrap() else { panic!() };
                        assert_eq!(points.insert(place, value.to_vec()), None);
                    } else {
                        let mut page = Page::new();
                        let step = instance.scan(&at, MapRange::ALL, Order::Ascending, &mut page);
                        let entries = drain(step.unwrap(), page);
                        let map: Map = entries.iter().cloned().collect();
                        assert!(map.clone().into_iter().eq(entries));
                        assert_eq!(maps.insert(place, map), None);
                    }
                }
            }
            point_entries += instance.physical_entries(ids[0]).unwrap();
            map_entries += instance.physical_entries(ids[1]).unwrap();
            timers += instance.physical_entries(ids[2]).unwrap();
        }
        assert_eq!(point_entries, points.len() as u64);
        assert_eq!(map_entries, maps.values().map(|map| map.len() as u64).sum::<u64>());
        assert_eq!(timers, self.model.timers.len() as u64);
        assert_eq!(points, self.model.points);
        assert_eq!(maps, self.model.maps);
        self.poll(Millis::MAX);
        assert!(self.model.timers.is_empty());
    }
}
