//! The bytes of a snapshot object: what they are, and that no damage goes unnoticed.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use common::*;
use weir_state_api::*;

/// A state of each shape with an entry or two.
fn filled(environment: &Environment) -> Box<dyn KeyedBackend> {
    let mut backend = open(request(environment)).unwrap();
    let list = backend.register(&descriptor("l", StateKind::List)).unwrap();
    let map = backend.register(&descriptor("m", StateKind::Map)).unwrap();
    let queue = backend.register(&descriptor("t", StateKind::Timers)).unwrap();
    backend.register(&descriptor("unused", StateKind::Value)).unwrap();
    backend.put(&at(list, b"k", b""), b"value").unwrap();
    // Another key group: the order of records within one is not part of the format.
    let namespaced = Address { namespace: b"ns", ..at(list, b"n", b"") };
    backend.put(&namespaced, b"").unwrap();
    backend.put(&at(list, b"another", b""), &[0xab; 200]).unwrap();
    backend.put(&at(map, b"k", b"b"), b"2").unwrap();
    backend.put(&at(map, b"k", b""), b"1").unwrap();
    let timer = TimerRef { queue, time: -2, key: key(b"k"), namespace: b"w" };
    backend.register_timer(&timer).unwrap();
    backend
}

/// That, written.
fn written(environment: &Environment) -> SnapshotHandle {
    block_on(snapshot(filled(environment).as_mut(), 1).run()).unwrap()
}

/// The same, then changed and written once more: the second snapshot.
fn written_twice(environment: &Environment) -> SnapshotHandle {
    let mut backend = filled(environment);
    block_on(snapshot(backend.as_mut(), 1).run()).unwrap();
    backend.notify(Notification::Complete(CheckpointId(1))).unwrap();
    let (list, map, queue) = (StateId(0), StateId(1), StateId(2));
    backend.delete(&at(list, b"another", b"")).unwrap();
    backend.put(&at(list, b"k", b""), b"new").unwrap();
    backend.put(&at(map, b"k", b"c"), b"3").unwrap();
    let timer = TimerRef { queue, time: -2, key: key(b"k"), namespace: b"w" };
    backend.delete_timer(&timer).unwrap();
    block_on(snapshot(backend.as_mut(), 2).run()).unwrap()
}

fn read(environment: &Environment, path: &str) -> Vec<u8> {
    block_on(environment.store.read(path)).unwrap().to_vec()
}

fn write(environment: &Environment, path: &str, bytes: &[u8]) {
    block_on(environment.store.write(path, bytes.to_vec())).unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(golden: &str) -> Vec<u8> {
    let digits: Vec<char> = golden.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// What stands in `docs/formats/heap-snapshot.md`. Objects of this version must stay readable for
/// ever: a change here is a new version.
const GOLDEN: &str = include_str!("golden/heap-snapshot-v1.hex");
const GOLDEN_INCREMENT: &str = include_str!("golden/heap-snapshot-v1-increment.hex");
const GOLDEN_METADATA: &str = "e702 8201 02  00 00 08  01 00 08";

#[test]
fn golden_bytes() {
    let environment = Environment::in_memory();
    let handle = written_twice(&environment);
    assert_eq!(handle.objects.len(), 2);
    for (object, golden) in handle.objects.iter().zip([GOLDEN, GOLDEN_INCREMENT]) {
        let bytes = read(&environment, &object.path);
        assert_eq!(hex(&bytes), hex(&from_hex(golden)));
        assert_eq!(object.length, bytes.len() as u64);
        assert_eq!(object.crc32, crc32fast::hash(&bytes));
        assert!(object.shared);
    }
    assert_eq!(hex(&handle.metadata), hex(&from_hex(GOLDEN_METADATA)));
}

#[test]
fn golden_bytes_restore() {
    let environment = Environment::in_memory();
    let mut handle = written(&environment);
    handle.metadata = from_hex(GOLDEN_METADATA);
    handle.objects.clear();
    for (name, golden) in [("one", GOLDEN), ("two", GOLDEN_INCREMENT)] {
        let bytes = from_hex(golden);
        write(&environment, name, &bytes);
        let crc32 = crc32fast::hash(&bytes);
        handle.objects.push(ObjectRef::new(name, bytes.len() as u64, crc32).shared());
    }
    let mut backend = open(request(&environment).restore_from(vec![handle])).unwrap();
    let backend = backend.as_mut();
    let (list, map) = (StateId(0), StateId(1));
    assert_eq!(backend.states().len(), 4);
    assert_eq!(get(backend, &at(list, b"k", b"")).unwrap(), b"new");
    let namespaced = Address { namespace: b"ns", ..at(list, b"n", b"") };
    assert_eq!(get(backend, &namespaced).unwrap(), b"");
    assert_eq!(get(backend, &at(list, b"another", b"")), None);
    assert_eq!(get(backend, &at(map, b"k", b"b")).unwrap(), b"2");
    assert_eq!(get(backend, &at(map, b"k", b"c")).unwrap(), b"3");
    assert_eq!(backend.next_timer(StateId(2)).unwrap(), NextTimer::Empty);
}

#[test]
fn every_truncation_and_every_changed_byte_is_found() {
    let environment = Environment::in_memory();
    let handle = written_twice(&environment);
    every_damage_is_found(&environment, &handle, 0);
    every_damage_is_found(&environment, &handle, 1);
}

/// Of one of the objects of a snapshot.
fn every_damage_is_found(environment: &Environment, handle: &SnapshotHandle, index: usize) {
    let object = handle.objects[index].clone();
    let bytes = read(environment, &object.path);
    let restore = |handle: &SnapshotHandle| {
        open(request(environment).restore_from(vec![handle.clone()])).map(drop)
    };
    restore(handle).unwrap();
    for length in 0..bytes.len() {
        write(environment, &object.path, &bytes[..length]);
        let error = restore(handle).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "length {length}: {error}");
        assert_eq!(error.object_path(), Some(object.path.as_str()));
        // Also when the handle was damaged in the same way.
        let mut shorter = handle.clone();
        shorter.objects[index].length = length as u64;
        shorter.objects[index].crc32 = crc32fast::hash(&bytes[..length]);
        assert_eq!(restore(&shorter).unwrap_err().kind(), ErrorKind::Corrupt, "length {length}");
    }
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            write(environment, &object.path, &damaged);
            // The checksum in the handle made to fit: what is left are the object's own.
            let mut fitting = handle.clone();
            fitting.objects[index].crc32 = crc32fast::hash(&damaged);
            for handle in [handle, &fitting] {
                let error = restore(handle).unwrap_err();
                let version = (8..12).contains(&position);
                let kind = if version { ErrorKind::Incompatible } else { ErrorKind::Corrupt };
                assert_eq!(error.kind(), kind, "byte {position}, bit {bit}: {error}");
                assert_eq!(error.object_path(), Some(object.path.as_str()));
            }
        }
    }
    write(environment, &object.path, &[&bytes[..], b"x"].concat());
    assert_eq!(restore(handle).unwrap_err().kind(), ErrorKind::Corrupt);
    block_on(environment.store.delete(&object.path)).unwrap();
    let error = restore(handle).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.object_path(), Some(object.path.as_str()));
    write(environment, &object.path, &bytes);
}

#[test]
fn an_intact_object_of_somebody_else_is_found() {
    let environment = Environment::in_memory();
    let handle = written(&environment);
    let mut other = written(&environment);
    other.objects[0].crc32 ^= 1;
    // Also when none of its entries are read.
    let none = KeyGroupRange::new(7, 7);
    assert!([b"k", b"a"].iter().all(|k| !none.contains(key(&k[..]).group())));
    let mut request_none = request(&environment);
    request_none.key_groups = none;
    let error = open(request_none.restore_from(vec![other])).unwrap_err();
    assert!(error.to_string().contains("not the one that its handle describes"), "{error}");

    let mut renamed = handle.clone();
    renamed.states[0].name = "renamed".into();
    let error = open(request(&environment).restore_from(vec![renamed])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let mut another_kind = handle.clone();
    another_kind.states[0].kind = StateKind::Map;
    let error = open(request(&environment).restore_from(vec![another_kind])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    for length in 0..handle.metadata.len() {
        let mut cut_off = handle.clone();
        cut_off.metadata.truncate(length);
        let error = open(request(&environment).restore_from(vec![cut_off])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    let mut unused = handle.clone();
    unused.objects.push(ObjectRef::new("x", 1, 1));
    let error = open(request(&environment).restore_from(vec![unused])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let mut narrower = handle;
    narrower.key_groups = KeyGroupRange::new(0, 1);
    let mut request = request(&environment);
    request.key_groups = narrower.key_groups;
    let error = open(request.restore_from(vec![narrower])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_key_in_a_foreign_group_is_found() {
    let environment = Environment::in_memory();
    let mut engine = request(&environment);
    engine.key_hash = KeyHashVersion::EngineGroups;
    let mut backend = open(engine.clone()).unwrap();
    let state = backend.register(&descriptor("s", StateKind::Value)).unwrap();
    let wrong = KeyGroup((key(b"k").group().0 + 1) % 8);
    let wrong = KeyRef::with_group(b"k", wrong).unwrap();
    let address = Address { key: wrong, ..at(state, b"k", b"") };
    backend.put(&address, b"v").unwrap();
    let mut handle = block_on(snapshot(backend.as_mut(), 1).run()).unwrap();
    let mut restored = open(engine.restore_from(vec![handle.clone()])).unwrap();
    assert_eq!(get(restored.as_mut(), &address).unwrap(), b"v");
    handle.key_hash = KeyHashVersion::Xxh3V1;
    let error = open(request(&environment).restore_from(vec![handle])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn a_restore_reads_only_its_key_groups() {
    let environment = Environment::in_memory();
    let mut backend = open(request(&environment)).unwrap();
    let state = backend.register(&descriptor("s", StateKind::Value)).unwrap();
    for n in 0..6_000_u32 {
        backend.put(&at(state, &n.to_be_bytes(), b""), &[n as u8; 3_000]).unwrap();
    }
    let handle = block_on(snapshot(backend.as_mut(), 1).run()).unwrap();
    let length = handle.total_bytes();
    assert!(length > 16 << 20, "more than two pieces: {length}");
    assert_eq!(backend.statistics().bytes_uploaded, length);
    let mut found = 0;
    for subtask in 0..4 {
        let request = request(&environment)
            .for_subtask(MaxParallelism::new(8).unwrap(), 4, subtask)
            .unwrap()
            .restore_from(vec![handle.clone()]);
        let range = request.key_groups;
        let mut part = open(request).unwrap();
        let downloaded = part.statistics().bytes_downloaded;
        assert!(downloaded < length / 4 + length / 8, "{downloaded} of {length}");
        for n in 0..6_000_u32 {
            let key_bytes = n.to_be_bytes();
            if range.contains(key(&key_bytes).group()) {
                let value = get(part.as_mut(), &at(state, &key_bytes, b"")).unwrap();
                assert_eq!(value, [n as u8; 3_000]);
                found += 1;
            }
        }
    }
    assert_eq!(found, 6_000);
    let whole = open(request(&environment).restore_from(vec![handle])).unwrap();
    assert_eq!(whole.statistics().entries, 6_000);
}
