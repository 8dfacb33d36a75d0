//! Random operations on one or two instances against ordered maps, with snapshots whose tasks run
//! after later writes, and restores at another parallelism.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;
mod world;

use std::ops::Bound;

use proptest::prelude::*;
use weir_state_api::Millis;

use world::{Operation, World, open};

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
        4 => any::<usize>().prop_map(RunTask),
        // Mostly complete, so that later ones build on it.
        4 => (any::<usize>(), prop_oneof![6 => Just(0), 1 => 1..3_u8])
            .prop_map(|(index, news)| Notify(index, news)),
        1 => (1..=2_u16).prop_map(Restore),
    ];
    let any_operation = prop_oneof![
        5 => points, 5 => maps, 3 => scans, 4 => timers, 3 => snapshots
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
