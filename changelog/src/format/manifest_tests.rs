use weir_state_api::{
    CheckpointId, CodecId, Environment, ErrorKind, ObjectRef, OpenRequest, SnapshotRequest,
    StateDescriptor, StateKind, TimeDomain,
};

use super::*;

fn handle() -> (SnapshotHandle, Manifest) {
    let open = OpenRequest::new(Environment::in_memory(), "op", CodecId::new("bytes", 1));
    let request = SnapshotRequest::checkpoint(CheckpointId(7), "chk-7");
    let mut base = SnapshotHandle::new("heap", 1, &open, &request);
    base.objects.push(ObjectRef::new("live/m", 10, 9));
    let mut handle = SnapshotHandle::new("changelog", FORMAT_VERSION, &open, &request);
    let unit = || CodecId::new("unit", 1);
    handle.states.push(StateDescriptor::new("v", StateKind::Value, unit(), unit()));
    handle.objects = base.objects.clone();
    handle.objects.push(ObjectRef::new("live/log-1", 200, 9));
    let segment =
        |offset, from, to| Segment { object: 1, offset, length: 100, from: at(from), to: at(to) };
    let manifest = Manifest {
        bases: vec![base],
        logs: vec![LogRange {
            log: LogId([3; 16]),
            written_for: KeyGroupRange::new(0, 127),
            key_groups: KeyGroupRange::new(0, 63),
            from: at(12),
            to: at(30),
            states: vec![LoggedState {
                number: 0,
                name: "v".into(),
                ttl: Some(StateTtl::new(5, TimeDomain::Event)),
            }],
            segments: vec![segment(0, 10, 20), segment(100, 20, 30)],
        }],
    };
    handle.metadata = manifest.encode();
    (handle, manifest)
}

fn at(position: u64) -> LogPosition {
    LogPosition(position)
}

/// In users' checkpoints; may only change together with the version.
#[test]
fn golden_bytes() {
    let (handle, manifest) = handle();
    let hex: String = handle.metadata.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN);
    assert_eq!(Manifest::of(&handle).unwrap(), manifest);
    assert_eq!(manifest.logs[0].changes(), 18);
}

const GOLDEN: &str = "57454952434c474d010000004f0000000104686561700107000000800180010005627974657301000001066c6976652f6d0a090000010303030303030303030303030303030300800100400c1e01000176010a01020100640a14016464141e2f666caf";

/// Gaps, overlaps, orders and ends that do not fit are found before an object is read.
#[test]
fn what_does_not_fit_is_refused() {
    type Damage = fn(&mut Manifest);
    let damages: [Damage; 12] = [
        |m| m.logs[0].segments.swap(0, 1),
        |m| m.logs[0].segments.truncate(1),
        |m| m.logs[0].segments = vec![m.logs[0].segments[1]],
        |m| m.logs[0].segments[1] = m.logs[0].segments[0],
        |m| m.logs[0].segments[1].to = at(20),
        |m| m.logs[0].from = at(9),
        |m| m.logs[0].to = at(31),
        |m| m.logs[0].segments[0].object = 2,
        |m| m.logs[0].segments[0].offset = u64::MAX,
        |m| m.logs[0].segments[0].length = 201,
        |m| m.logs[0].states[0].name = "w".into(),
        |m| m.bases[0].objects[0].path = "other".into(),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let (mut handle, mut manifest) = handle();
        damage(&mut manifest);
        handle.metadata = manifest.encode();
        let error = Manifest::of(&handle).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "damage {number}: {error}");
    }
    let (mut handle, mut manifest) = handle();
    manifest.logs[0].key_groups = KeyGroupRange::new(0, 128);
    handle.metadata = manifest.encode();
    assert_eq!(Manifest::of(&handle).unwrap_err().kind(), ErrorKind::Corrupt);
    handle.metadata[8] = 2;
    assert_eq!(Manifest::of(&handle).unwrap_err().kind(), ErrorKind::Incompatible);
}
