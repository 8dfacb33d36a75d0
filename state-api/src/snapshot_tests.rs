use super::*;
use crate::{StateTtl, TimeDomain};

fn request() -> OpenRequest {
    OpenRequest::new(Environment::in_memory(), "op", CodecId::new("ordered:i64", 1))
}

fn handle(first: u16, last: u16) -> SnapshotHandle {
    let mut instance = request();
    instance.key_groups = KeyGroupRange::new(first, last);
    let snapshot = SnapshotRequest::checkpoint(CheckpointId(7), "chk-7");
    let mut handle = SnapshotHandle::new("heap", 1, &instance, &snapshot);
    handle.objects.push(ObjectRef::new("chk-7/a", 3, 9));
    handle
}

fn refusal(handles: Vec<SnapshotHandle>) -> (ErrorKind, String) {
    let error = request().restore_from(handles).check("heap", 1..=1).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn whole_disjoint_coverage_is_accepted_in_any_order() {
    request().check("heap", 1..=1).unwrap();
    request().restore_from(vec![handle(0, 127)]).check("heap", 1..=1).unwrap();
    request().restore_from(vec![handle(64, 127), handle(0, 63)]).check("heap", 1..=1).unwrap();
}

#[test]
fn gaps_and_overlaps_are_refused() {
    let (kind, text) = refusal(vec![handle(0, 62), handle(64, 127)]);
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(text.contains("key group 63"), "{text}");
    let (kind, text) = refusal(vec![handle(0, 64), handle(64, 127)]);
    assert_eq!(kind, ErrorKind::Incompatible);
    let several =
        "several snapshots (7 with groups 0..=64, 7 with groups 64..=127) cover key group 64";
    assert!(text.contains(several), "{text}");
}

#[test]
fn every_difference_is_named() {
    type Change = fn(&mut SnapshotHandle);
    let changes: [(&str, Change); 5] = [
        ("backend rocks", |handle| handle.backend = "rocks".into()),
        ("format version 2", |handle| handle.backend_format = 2),
        ("max parallelism 64", |handle| {
            handle.max_parallelism = MaxParallelism::new(64).unwrap();
        }),
        ("key hash EngineGroups", |handle| handle.key_hash = KeyHashVersion::EngineGroups),
        ("key codec ordered:string v1", |handle| {
            handle.key_codec = CodecId::new("ordered:string", 1);
        }),
    ];
    for (expected, change) in changes {
        let mut handle = handle(0, 127);
        change(&mut handle);
        let (kind, text) = refusal(vec![handle]);
        assert_eq!(kind, ErrorKind::Incompatible);
        assert!(text.contains(expected) && text.contains("chk-7/a"), "{text}");
    }
}

#[test]
fn handles_must_agree_about_states() {
    let state =
        |kind| StateDescriptor::new("s", kind, CodecId::new("unit", 1), CodecId::new("i64", 1));
    let (mut low, mut high) = (handle(0, 63), handle(64, 127));
    low.states.push(state(crate::StateKind::Value));
    high.states.push(state(crate::StateKind::List));
    let (kind, text) = refusal(vec![low, high]);
    assert_eq!(kind, ErrorKind::Incompatible);
    assert!(text.contains("kind value, but kind list"), "{text}");
}

#[test]
fn the_restored_watermark_is_the_smallest_and_unknown_if_one_is() {
    let with = |first, last, watermark| SnapshotHandle { watermark, ..handle(first, last) };
    let restored = |handles| request().restore_from(handles).restored_watermark();
    assert_eq!(restored(vec![]), None);
    assert_eq!(restored(vec![with(0, 63, Some(5)), with(64, 127, Some(3))]), Some(3));
    assert_eq!(restored(vec![with(0, 63, Some(5)), with(64, 127, None)]), None);
}

/// The bytes that are in users' checkpoints. They may only change together with the version.
#[test]
fn golden_bytes() {
    let mut handle = handle(0, 127);
    handle.watermark = Some(-1);
    handle.metadata = vec![0xab];
    let unit = CodecId::new("unit", 1);
    let state = StateDescriptor::new("n", crate::StateKind::List, unit.clone(), unit);
    handle.states.push(state.with_ttl(StateTtl::new(300_000, TimeDomain::Event)));
    let bytes = handle.to_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN);
    assert_eq!(SnapshotHandle::from_bytes(&bytes, "x").unwrap(), handle);
    let json = serde_json::to_string(&handle).unwrap();
    assert_eq!(serde_json::from_str::<SnapshotHandle>(&json).unwrap(), handle);
}

const GOLDEN: &str = "57454952484e444c02000000420000000468656170010700000080018001000b6f7264657265643a69363401010101016e0104756e6974010004756e69740101c0cf2401010763686b2d372f6103090001ab8fde0fbc";
