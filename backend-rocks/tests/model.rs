//! Random programs against ordered maps: whatever is collected, kept, written or refused room, each look
//! shows what was written; also after restores at other parallelisms, where an instance has several
//! databases.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use common::{World, at, descriptor, snapshot};
use weir_backend_rocks::RocksMemory;
use weir_state_api::{
    Address, Change, KeyGroupRange, KeyedBackend, Lookup, MapRange, Order, Page, ScanStep, StateId,
    StateKind, Updated, Values,
};

const STEPS: u64 = 2_000;
const KEYS: u64 = 12;
const MAP_KEYS: u64 = 20;

type Point = BTreeMap<u64, Vec<u8>>;
type Maps = BTreeMap<u64, BTreeMap<Vec<u8>, Vec<u8>>>;

struct Program<'w> {
    world: &'w World,
    random: u64,
    /// Instances with the key groups that each owns.
    instances: Vec<(KeyGroupRange, Box<dyn KeyedBackend>)>,
    lists: Point,
    maps: Maps,
}

const LISTS: StateId = StateId(0);
const MAPS: StateId = StateId(1);

impl<'w> Program<'w> {
    fn new(world: &'w World, seed: u64) -> Self {
        let mut program = Program {
            world,
            random: seed,
            instances: Vec::new(),
            lists: Point::new(),
            maps: Maps::new(),
        };
        program.restart(1);
        program
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below
    }

    /// Empty, short, and now and then too long to be collected or kept.
    fn value(&mut self) -> Vec<u8> {
        let len = match self.random(40) {
            0 => 0,
            1 => 30_000,
            2 => 600_000,
            _ => self.random(60),
        };
        vec![self.random(256) as u8; len as usize]
    }

    fn restart(&mut self, parallelism: u16) {
        let handles = self.snapshots();
        self.instances.clear();
        for subtask in 0..parallelism {
            let request = self.world.request();
            let max = request.max_parallelism;
            let request = request.for_subtask(max, parallelism, subtask).unwrap();
            let groups = request.key_groups;
            let mut backend = self.world.open(request.restore_from(handles.clone()));
            assert_eq!(backend.register(&descriptor("l", StateKind::List)).unwrap(), LISTS);
            assert_eq!(backend.register(&descriptor("m", StateKind::Map)).unwrap(), MAPS);
            self.instances.push((groups, backend));
        }
    }

    fn snapshots(&mut self) -> Vec<weir_state_api::SnapshotHandle> {
        self.instances.iter_mut().map(|(_, backend)| snapshot(&mut **backend, 1)).collect()
    }

    fn of(&mut self, at: &Address<'_>) -> &mut dyn KeyedBackend {
        let group = at.key.group();
        let owner = self.instances.iter_mut().find(|(groups, _)| groups.contains(group));
        &mut *owner.unwrap().1
    }

    fn step(&mut self) {
        let (key, map_key, value) = (self.random(KEYS), self.random(MAP_KEYS), self.value());
        let (key_bytes, map_key) = (key.to_be_bytes(), vec![7; map_key as usize]);
        let list = at(LISTS, &key_bytes);
        let map = at(MAPS, &key_bytes);
        let entry = Address { map_key: &map_key, ..map };
        match self.random(24) {
            0..=2 => {
                self.of(&list).put(&list, &value).unwrap();
                self.lists.insert(key, value);
            }
            3..=5 => {
                self.of(&list).append(&list, &value).unwrap();
                self.lists.entry(key).or_default().extend_from_slice(&value);
            }
            6 => {
                self.of(&list).delete(&list).unwrap();
                self.lists.remove(&key);
            }
            7..=8 => {
                let known = self.lists.get(&key).cloned();
                let mut update = |stored: Option<&[u8]>, out: &mut Vec<u8>| {
                    assert!(stored == known.as_deref());
                    out.extend_from_slice(&value);
                    Ok(if value.is_empty() { Change::Delete } else { Change::Put })
                };
                let updated = self.of(&list).update(&list, &mut update).unwrap();
                assert!(matches!(updated, Updated::Done));
                self.lists.remove(&key);
                if !value.is_empty() {
                    self.lists.insert(key, value);
                }
            }
            9..=11 => {
                self.of(&entry).put(&entry, &value).unwrap();
                self.maps.entry(key).or_default().insert(map_key.clone(), value);
            }
            12 => {
                self.of(&entry).delete(&entry).unwrap();
                self.maps.entry(key).or_default().remove(&map_key);
            }
            13 => {
                let mut entries = Page::new();
                for len in 0..self.random(MAP_KEYS) as usize {
                    entries.push(&vec![7; len], &[len as u8]);
                    self.maps.entry(key).or_default().insert(vec![7; len], vec![len as u8]);
                }
                self.of(&map).put_entries(&map, &entries).unwrap();
            }
            14 => {
                let range = MapRange { from: Bound::Excluded(&map_key[..]), to: Bound::Unbounded };
                self.of(&map).delete_range(&map, range).unwrap();
                self.maps.entry(key).or_default().retain(|known, _| *known <= map_key);
            }
            15 => {
                self.of(&map).delete_range(&map, MapRange::ALL).unwrap();
                self.maps.remove(&key);
            }
            16 => self.scan(key, self.random.is_multiple_of(2)),
            17 => self.enumerate(),
            18 => drop(self.snapshots()),
            19 if self.random(10) == 0 => {
                let parallelism = 1 + self.random(3) as u16;
                self.restart(parallelism);
            }
            20 => self.look_at_many(),
            _ => {
                let expected = self.lists.get(&key).cloned();
                assert!(get(self.of(&list), &list) == expected);
                let expected = self.maps.get(&key).and_then(|map| map.get(&map_key)).cloned();
                assert!(get(self.of(&entry), &entry) == expected);
            }
        }
    }

    fn scan(&mut self, key: u64, upwards: bool) {
        let bytes = key.to_be_bytes();
        let map = at(MAPS, &bytes);
        let order = if upwards { Order::Ascending } else { Order::Descending };
        let mut page = Page::new();
        let step = self.of(&map).scan(&map, MapRange::ALL, order, &mut page).unwrap();
        let mut seen = pages(step, page);
        if !upwards {
            seen.reverse();
        }
        let known = self.maps.get(&key).cloned().unwrap_or_default();
        assert!(seen == known.into_iter().collect::<Vec<_>>());
        let is_empty = self.of(&map).has_map_keys(&map).unwrap() == Some(false);
        assert_eq!(is_empty, self.maps.get(&key).is_none_or(BTreeMap::is_empty));
    }

    fn enumerate(&mut self) {
        for state in [LISTS, MAPS] {
            let mut seen = BTreeSet::new();
            for (_, backend) in &mut self.instances {
                let mut page = Page::new();
                let step = backend.scan_keys(state, None, &mut page).unwrap();
                for (key, _) in pages(step, page) {
                    assert!(seen.insert(u64::from_be_bytes(key.try_into().unwrap())));
                }
            }
            let lists = self.lists.keys().copied();
            let maps = self.maps.iter().filter(|(_, map)| !map.is_empty()).map(|(key, _)| *key);
            let known: BTreeSet<u64> =
                if state == LISTS { lists.collect() } else { maps.collect() };
            assert_eq!(seen, known);
        }
    }

    /// All lists of an instance and entries of their maps at once, each asked for twice.
    fn look_at_many(&mut self) {
        let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
        for (groups, backend) in &mut self.instances {
            let of_instance =
                keys.iter().filter(|key| groups.contains(at(LISTS, &key[..]).key.group()));
            let addresses: Vec<Address<'_>> = of_instance
                .flat_map(|key| {
                    let entry = Address { map_key: &[7; 3], ..at(MAPS, &key[..]) };
                    [at(LISTS, &key[..]), entry, at(LISTS, &key[..]), entry]
                })
                .collect();
            let mut values = Values::new();
            backend.multi_get(&addresses, &mut values).unwrap();
            for (index, at) in addresses.iter().enumerate() {
                let key = u64::from_be_bytes(at.key.bytes().try_into().unwrap());
                let known = match at.state {
                    LISTS => self.lists.get(&key),
                    _ => self.maps.get(&key).and_then(|map| map.get(&[7; 3][..])),
                };
                assert!(values.get(index) == known.map(Vec::as_slice));
            }
        }
    }
}

fn get(backend: &mut dyn KeyedBackend, at: &Address<'_>) -> Option<Vec<u8>> {
    match backend.get(at).unwrap() {
        Lookup::Found(value) => Some(value.to_vec()),
        Lookup::Absent => None,
        Lookup::Pending(_) => panic!("reads never pend"),
    }
}

/// What all pages of a scan hold.
fn pages(mut step: ScanStep, mut page: Page) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    loop {
        entries.extend(page.iter().map(|(first, second)| (first.to_vec(), second.to_vec())));
        page.clear();
        step = match step {
            ScanStep::Last => return entries,
            ScanStep::More(rest) => rest.next(&mut page).unwrap(),
            ScanStep::Pending(_) => panic!("scans never pend"),
        };
    }
}

/// No room, little room and much, for what is collected and for what is kept.
#[test]
fn random_programs_read_what_they_wrote() {
    for (number, batch) in [0, 2_400, 1 << 20].into_iter().enumerate() {
        for (other, share) in [0.0, 2e-5, 0.125].into_iter().enumerate() {
            let memory = RocksMemory::default().with_row_share(share);
            let world = World::with_options(|options| {
                options.with_write_batch_bytes(batch).with_memory(memory)
            });
            let seed = (number * 3 + other) as u64;
            let mut program = Program::new(&world, seed);
            (0..STEPS).for_each(|_| program.step());
        }
    }
}
