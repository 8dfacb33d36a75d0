//! The promises that no model covers: refusals, isolation across states, what is carried along.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use common::*;
use weir_backend_heap::{HeapBackendFactory, HeapOptions};
use weir_state_api::*;

#[test]
fn misuse_is_refused_by_name() {
    let environment = Environment::in_memory();
    let mut half = request(&environment);
    half.key_groups = KeyGroupRange::new(0, 3);
    let mut backend = open(half).unwrap();
    let value = backend.register(&descriptor("v", StateKind::Value)).unwrap();
    let map = backend.register(&descriptor("m", StateKind::Map)).unwrap();
    let queue = backend.register(&descriptor("t", StateKind::Timers)).unwrap();
    assert_eq!(backend.register(&descriptor("m", StateKind::Map)).unwrap(), map);
    let error = backend.register(&descriptor("m", StateKind::List)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);

    let keys: Vec<[u8; 1]> = (0..40).map(|n| [n]).collect();
    let own = keys.iter().find(|k| key(&k[..]).group().0 < 4).unwrap();
    let foreign = keys.iter().find(|k| key(&k[..]).group().0 >= 4).unwrap();
    let page = &mut Page::new();
    let mut refused = |kind: ErrorKind, at: &Address<'_>| {
        assert_eq!(backend.get(at).unwrap_err().kind(), kind);
        assert_eq!(backend.put(at, b"").unwrap_err().kind(), kind);
        assert_eq!(backend.append(at, b"").unwrap_err().kind(), kind);
        assert_eq!(backend.delete(at).unwrap_err().kind(), kind);
        let update = backend.update(at, &mut |_, _| panic!("must not run"));
        assert_eq!(update.unwrap_err().kind(), kind);
        assert_eq!(backend.delete_range(at, MapRange::ALL).unwrap_err().kind(), kind);
        let scan = backend.scan(at, MapRange::ALL, Order::Ascending, page);
        assert_eq!(scan.unwrap_err().kind(), kind);
    };
    refused(ErrorKind::ForeignKey, &at(map, foreign, b""));
    refused(ErrorKind::InvalidUsage, &at(StateId(3), own, b""));
    refused(ErrorKind::InvalidUsage, &at(queue, own, b""));
    let error = backend.get(&at(queue, own, b"")).unwrap_err();
    assert_eq!(error.state_name(), Some("t"));

    for state in [value, map, StateId(9)] {
        let timer = TimerRef { queue: state, time: 1, key: key(own), namespace: b"" };
        assert_eq!(backend.register_timer(&timer).unwrap_err().kind(), ErrorKind::InvalidUsage);
        assert_eq!(backend.delete_timer(&timer).unwrap_err().kind(), ErrorKind::InvalidUsage);
        assert_eq!(backend.poll_timer(state, 1).unwrap_err().kind(), ErrorKind::InvalidUsage);
        assert_eq!(backend.next_timer(state).unwrap_err().kind(), ErrorKind::InvalidUsage);
    }
    let scan = backend.scan(&at(value, own, b""), MapRange::ALL, Order::Ascending, page);
    assert_eq!(scan.unwrap_err().kind(), ErrorKind::InvalidUsage);
    assert!(backend.scan_keys(queue, None, page).is_err());
    assert!(backend.physical_entries(StateId(7)).is_err());
    assert_eq!(backend.statistics().entries, 0);
}

#[test]
fn values_over_the_limit_are_refused_and_change_nothing() {
    let environment = Environment::in_memory();
    let factory = HeapBackendFactory::new(HeapOptions::default().with_max_value_len(30));
    assert_eq!(factory.capabilities().max_value_len, 30);
    let mut backend = block_on(factory.open(request(&environment))).unwrap();
    let value = backend.register(&descriptor("v", StateKind::Value)).unwrap();
    let map = backend.register(&descriptor("m", StateKind::Map)).unwrap();
    for at in [at(value, b"k", b""), at(map, b"k", b"mk")] {
        let refused = |result: Result<()>| {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::TooLarge);
        };
        refused(backend.put(&at, &[0; 31]));
        refused(backend.append(&at, &[0; 31]));
        backend.put(&at, &[1; 30]).unwrap();
        refused(backend.append(&at, &[2]));
        let update = backend.update(&at, &mut |_, output| {
            output.resize(31, 0);
            Ok(Change::Put)
        });
        refused(update.map(drop));
        assert_eq!(get(backend.as_mut(), &at).unwrap(), [1; 30]);
    }
}

#[test]
fn a_snapshot_lists_the_states_of_its_moment_and_two_overlap() {
    let environment = Environment::in_memory();
    let mut backend = open(request(&environment)).unwrap();
    let early = backend.register(&descriptor("early", StateKind::Value)).unwrap();
    backend.put(&at(early, b"k", b""), b"1").unwrap();
    let first = snapshot(backend.as_mut(), 1);
    let late = backend.register(&descriptor("late", StateKind::Map)).unwrap();
    backend.put(&at(early, b"k", b""), b"2").unwrap();
    backend.put(&at(late, b"k", b"mk"), b"x").unwrap();
    let second = snapshot(backend.as_mut(), 2);
    backend.delete(&at(early, b"k", b"")).unwrap();
    backend.put(&at(late, b"k", b"mk"), b"y").unwrap();

    let second = block_on(second.run()).unwrap();
    let first = block_on(first.run()).unwrap();
    assert_ne!(first.objects[0].path, second.objects[0].path);
    assert_eq!(first.states.len(), 1);
    assert_eq!(second.states.len(), 2);
    let mut restored = open(request(&environment).restore_from(vec![first])).unwrap();
    assert_eq!(get(restored.as_mut(), &at(early, b"k", b"")).unwrap(), b"1");
    let mut restored = open(request(&environment).restore_from(vec![second])).unwrap();
    assert_eq!(get(restored.as_mut(), &at(early, b"k", b"")).unwrap(), b"2");
    assert_eq!(get(restored.as_mut(), &at(late, b"k", b"mk")).unwrap(), b"x");
    assert_eq!(get(backend.as_mut(), &at(late, b"k", b"mk")).unwrap(), b"y");
}

#[test]
fn states_that_nobody_registers_are_carried_along_and_ids_are_local() {
    let environment = Environment::in_memory();
    let mut backend = open(request(&environment)).unwrap();
    backend.register(&descriptor("first", StateKind::Timers)).unwrap();
    let kept = backend.register(&descriptor("kept", StateKind::Value)).unwrap();
    backend.put(&at(kept, b"k", b""), b"v").unwrap();
    let mut handle = block_on(snapshot(backend.as_mut(), 1).run()).unwrap();
    // Another subtask may have met its states in another order.
    handle.states.reverse();
    for number in 2..4 {
        let mut next = open(request(&environment).restore_from(vec![handle.clone()])).unwrap();
        let (id, found) = next.states().into_iter().find(|(_, s)| s.name == "kept").unwrap();
        assert_eq!(found, descriptor("kept", StateKind::Value));
        let mut page = Page::new();
        assert!(matches!(next.scan_keys(id, None, &mut page).unwrap(), ScanStep::Last));
        assert_eq!(page.get(0), Some((&b"k"[..], &b""[..])));
        assert_eq!(page.group(0), Some(key(b"k").group()));
        assert_eq!(get(next.as_mut(), &at(id, b"k", b"")).unwrap(), b"v");
        handle = block_on(snapshot(next.as_mut(), number).run()).unwrap();
    }
}

#[test]
fn an_empty_instance_writes_nothing_and_restores() {
    let environment = Environment::in_memory();
    let mut backend = open(request(&environment)).unwrap();
    backend.register(&descriptor("s", StateKind::Value)).unwrap();
    let mut request_1 = SnapshotRequest::checkpoint(CheckpointId(1), "chk");
    request_1.watermark = Some(77);
    let handle = block_on(backend.snapshot(request_1).unwrap().run()).unwrap();
    assert!(handle.objects.is_empty());
    assert_eq!((handle.backend.as_str(), handle.watermark), ("heap", Some(77)));
    let restored = open(request(&environment).restore_from(vec![handle])).unwrap();
    assert_eq!(restored.states().len(), 1);
    assert_eq!(restored.statistics().bytes_downloaded, 0);
}

#[test]
fn a_dropped_instance_lets_its_snapshots_finish_and_memory_is_accounted() {
    let environment = Environment::in_memory();
    let mut backend = open(request(&environment)).unwrap();
    let state = backend.register(&descriptor("s", StateKind::List)).unwrap();
    let empty = backend.statistics().memory_bytes;
    for n in 0..1_000_u32 {
        backend.append(&at(state, &n.to_be_bytes(), b""), &[1; 100]).unwrap();
    }
    let full = backend.statistics();
    assert_eq!(full.entries, 1_000);
    assert!(full.memory_bytes > empty + 100_000, "{full:?}");
    let task = snapshot(backend.as_mut(), 1);
    for n in 0..1_000_u32 {
        backend.delete(&at(state, &n.to_be_bytes(), b"")).unwrap();
    }
    let held = backend.statistics().memory_bytes;
    assert!(held > empty + 100_000, "the snapshot still needs them: {held}");
    drop(backend);
    let handle = std::thread::spawn(|| block_on(task.run())).join().unwrap().unwrap();
    let mut restored = open(request(&environment).restore_from(vec![handle])).unwrap();
    assert_eq!(restored.statistics().entries, 1_000);

    block_on(snapshot(restored.as_mut(), 2).run()).unwrap();
    for n in 0..1_000_u32 {
        restored.delete(&at(StateId(0), &n.to_be_bytes(), b"")).unwrap();
    }
    let left = restored.statistics().memory_bytes;
    assert!(left < empty + 100_000, "nobody needs them any more: {left}");
}
