//! Random operations on one or two instances against ordered maps, with snapshots whose tasks run
//! after later writes, and restores at another parallelism.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use proptest::prelude::*;
use weir_backend_heap::HeapBackendFactory;
use weir_state_api::*;

const MAX_PARALLELISM: u16 = 8;

type Place = (Vec<u8>, Vec<u8>);
type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the instances must hold.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    points: BTreeMap<Place, Vec<u8>>,
    maps: BTreeMap<Place, Map>,
    timers: BTreeSet<(Millis, Vec<u8>, Vec<u8>)>,
}

#[derive(Debug, Clone)]
enum Operation {
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
    Restore(u16),
}

/// A snapshot whose tasks have not run, or have.
struct Snapshot {
    model: Model,
    tasks: Vec<SnapshotTask>,
    handles: Vec<SnapshotHandle>,
}

impl Snapshot {
    fn run(&mut self) {
        for task in self.tasks.drain(..) {
            let handle = block_on(task.run()).unwrap();
            self.handles.push(SnapshotHandle::from_bytes(&handle.to_bytes(), "x").unwrap());
        }
    }
}

/// A scan in progress with what it must still yield.
struct RunningScan {
    step: ScanStep,
    got: Vec<(Vec<u8>, Vec<u8>)>,
    wanted: Vec<(Vec<u8>, Vec<u8>)>,
    ordered: bool,
}

struct World {
    environment: Environment,
    instances: Vec<Box<dyn KeyedBackend>>,
    model: Model,
    snapshots: Vec<Snapshot>,
    scan: Option<RunningScan>,
}

fn max_parallelism() -> MaxParallelism {
    MaxParallelism::new(MAX_PARALLELISM).unwrap()
}

fn open(
    environment: &Environment,
    parallelism: u16,
    handles: &[SnapshotHandle],
) -> Vec<Box<dyn KeyedBackend>> {
    let open = |subtask| {
        let request = OpenRequest::new(environment.clone(), "model", CodecId::new("bytes", 1))
            .for_subtask(max_parallelism(), parallelism, subtask)
            .unwrap()
            .restore_from(handles.to_vec());
        block_on(HeapBackendFactory::default().open(request)).unwrap()
    };
    (0..parallelism).map(open).collect()
}

fn descriptor(name: &str, kind: StateKind) -> StateDescriptor {
    let bytes = CodecId::new("bytes", 1);
    StateDescriptor {
        name: name.into(),
        kind,
        namespace: bytes.clone(),
        map_key: (kind == StateKind::Map).then(|| bytes.clone()),
        value: bytes,
    }
}

fn id(backend: &dyn KeyedBackend, name: &str) -> StateId {
    backend.states().into_iter().find(|(_, state)| state.name == name).unwrap().0
}

fn page_to_vec(page: &Page) -> Vec<(Vec<u8>, Vec<u8>)> {
    page.iter().map(|(a, b)| (a.to_vec(), b.to_vec())).collect()
}

/// Runs a scan to its end.
fn drain(mut step: ScanStep, mut page: Page) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = page_to_vec(&page);
    while let ScanStep::More(scan) = step {
        page.clear();
        step = scan.next(&mut page).unwrap();
        all.extend(page_to_vec(&page));
    }
    assert!(matches!(step, ScanStep::Last));
    all
}

impl World {
    fn new() -> Self {
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

    fn apply(&mut self, operation: Operation) {
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

    fn continue_scan(&mut self) {
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
                assert_eq!(next, Some(timer.time));
                assert!(timer.time <= now);
                let key = timer.key.as_ref();
                assert_eq!(key, KeyRef::new(key.bytes(), max_parallelism()).unwrap());
                let timer = (timer.time, key.bytes().to_vec(), timer.namespace);
                assert!(last.is_none_or(|last| last < timer));
                assert!(self.model.timers.remove(&timer), "{timer:?}");
                last = Some(timer);
                next = instance.next_timer(queue).unwrap();
            }
            assert!(next.is_none_or(|next| next > now));
        }
        assert!(self.model.timers.iter().all(|timer| timer.0 > now));
    }

    fn snapshot(&mut self) {
        let checkpoint = CheckpointId(self.snapshots.len() as u64);
        let take = |instance: &mut Box<dyn KeyedBackend>| {
            instance.snapshot(SnapshotRequest::checkpoint(checkpoint, "chk")).unwrap()
        };
        let tasks = self.instances.iter_mut().map(take).collect();
        self.snapshots.push(Snapshot { model: self.model.clone(), tasks, handles: Vec::new() });
    }

    /// Compares everything that the instances hold with the model; consumes the timers.
    fn check_all(&mut self) {
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

fn set<K: Ord>(map: &mut BTreeMap<K, Vec<u8>>, key: K, value: Option<Vec<u8>>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn contains(range: MapRange<'_>, key: &[u8]) -> bool {
    let after_start = match range.from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
    };
    let before_end = match range.to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
    };
    after_start && before_end
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    use Operation::*;
    let key = prop_oneof![
        8 => (0..12_u8).prop_map(|n| vec![n; usize::from(n % 3) + 1]),
        1 => Just(vec![]),
        1 => Just(vec![7; 40]),
    ];
    let namespace = prop_oneof![
        4 => Just(vec![]),
        2 => Just(vec![1]),
        1 => Just(vec![1, 1]),
        1 => Just(vec![2; 30]),
    ];
    let place = (key, namespace.clone());
    let value = prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..30),
        1 => any::<u8>().prop_map(|byte| vec![byte; 20_000]),
    ];
    let map_key = prop_oneof![
        4 => (0..300_u16).prop_map(|n| n.to_be_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..30),
    ];
    let bound = prop_oneof![
        2 => Just(Bound::Unbounded),
        3 => map_key.clone().prop_map(Bound::Included),
        3 => map_key.clone().prop_map(Bound::Excluded),
    ];
    let time = prop_oneof![4 => -5..5_i64, 1 => Just(Millis::MAX), 1 => Just(Millis::MIN)];
    let points = prop_oneof![
        (place.clone(), value.clone()).prop_map(|(p, v)| Put(p, v)),
        (place.clone(), value.clone()).prop_map(|(p, v)| Append(p, v)),
        (place.clone(), value.clone()).prop_map(|(p, v)| Update(p, v)),
        place.clone().prop_map(Delete),
    ];
    let map_entry = (place.clone(), map_key.clone(), value);
    let maps = prop_oneof![
        map_entry.clone().prop_map(|(p, k, v)| MapPut(p, k, v)),
        map_entry.clone().prop_map(|(p, k, v)| MapAppend(p, k, v)),
        map_entry.prop_map(|(p, k, v)| MapUpdate(p, k, v)),
        (place.clone(), 0..200_u16, 1..150_u16).prop_map(|(p, from, n)| MapFill(p, from, n)),
        (place.clone(), map_key).prop_map(|(p, k)| MapDelete(p, k)),
        (place.clone(), bound.clone(), bound.clone())
            .prop_map(|(p, from, to)| MapDeleteRange(p, from, to)),
    ];
    let scans = prop_oneof![
        2 => (place.clone(), bound.clone(), bound, any::<bool>())
            .prop_map(|(p, from, to, descending)| StartScan(p, from, to, descending)),
        1 => (any::<bool>(), prop::option::of(namespace)).prop_map(|(m, n)| StartKeyScan(m, n)),
        4 => Just(ContinueScan),
    ];
    let timers = prop_oneof![
        3 => (time.clone(), place.clone()).prop_map(|(t, p)| Register(t, p)),
        1 => (time.clone(), place).prop_map(|(t, p)| DeleteTimer(t, p)),
        1 => time.prop_map(Poll),
    ];
    let snapshots = prop_oneof![
        3 => Just(Snapshot),
        2 => any::<usize>().prop_map(RunTask),
        1 => (1..=2_u16).prop_map(Restore),
    ];
    let any_operation = prop_oneof![
        5 => points, 5 => maps, 3 => scans, 4 => timers, 2 => snapshots
    ];
    prop::collection::vec(any_operation, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_ordered_maps(operations in operations()) {
        let mut world = World::new();
        for operation in operations {
            world.apply(operation);
        }
        while world.scan.is_some() {
            world.continue_scan();
        }
        world.snapshot();
        let mut snapshots = std::mem::take(&mut world.snapshots);
        world.check_all();
        for snapshot in snapshots.iter_mut().rev() {
            snapshot.run();
            for parallelism in [1, 2, 3] {
                world.instances = open(&world.environment, parallelism, &snapshot.handles);
                world.model = snapshot.model.clone();
                world.check_all();
            }
        }
    }
}
