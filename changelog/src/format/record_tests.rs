use proptest::prelude::*;

use super::*;

fn key(group: u16, bytes: &[u8]) -> KeyRef<'_> {
    KeyRef::with_group(bytes, KeyGroup(group)).unwrap()
}

fn push(record: &Record<'_>, out: &mut Vec<u8>) {
    let Record { state, group, key: bytes, namespace, change } = *record;
    let key = key(group.0, bytes);
    let at = |map_key| Address { state, key, namespace, map_key };
    let timer = |time| TimerRef { queue: state, time, key, namespace };
    match change {
        Change::Put { map_key, value } => push_put(&at(map_key), value, out),
        Change::Delete { map_key } => push_delete(&at(map_key), out),
        Change::Append { map_key, value } => push_append(&at(map_key), value, out),
        Change::DeleteRange { from, to } => {
            push_delete_range(&at(&[]), MapRange { from, to }, out);
        }
        Change::RegisterTimer { time } => push_register_timer(&timer(time), out),
        Change::DeleteTimer { time } => push_delete_timer(&timer(time), out),
    }
}

/// In users' checkpoints; may only change together with the version of the format.
#[test]
fn golden_bytes() {
    let (state, group) = (StateId(2), KeyGroup(5));
    let plain = |change| Record { state, group, key: b"k", namespace: b"", change };
    let cases: [(Record<'_>, &[u8]); 9] = [
        (plain(Change::Put { map_key: b"", value: b"v" }), b"\x40\x05\x01k\x01v"),
        (plain(Change::Delete { map_key: b"" }), b"\x41\x05\x01k"),
        (plain(Change::Append { map_key: b"", value: b"" }), b"\x42\x05\x01k\0"),
        (plain(Change::Put { map_key: b"m", value: b"v" }), b"\x43\x05\x01k\x01m\x01v"),
        (plain(Change::Delete { map_key: b"m" }), b"\x44\x05\x01k\x01m"),
        (plain(Change::Append { map_key: b"m", value: b"v" }), b"\x45\x05\x01k\x01m\x01v"),
        (
            plain(Change::DeleteRange { from: Bound::Included(b"a"), to: Bound::Excluded(b"") }),
            b"\x46\x05\x01k\x21\x01a\0",
        ),
        (
            Record {
                state: StateId(300),
                group: KeyGroup(200),
                key: b"",
                namespace: b"n",
                change: Change::RegisterTimer { time: -1 },
            },
            b"\xf7\xac\x02\xc8\x01\0\x01n\xff\xff\xff\xff\xff\xff\xff\xff",
        ),
        (plain(Change::DeleteTimer { time: 1 }), b"\x48\x05\x01k\x01\0\0\0\0\0\0\0"),
    ];
    for (record, bytes) in cases {
        let mut out = Vec::new();
        push(&record, &mut out);
        assert_eq!(out, bytes, "{record:?}");
        let mut records = Records::new(&out, "x");
        assert_eq!(records.next().unwrap(), Some(record));
        assert_eq!(records.next().unwrap(), None);
    }
}

#[test]
fn a_small_change_takes_four_bytes_beside_key_and_value() {
    let mut out = Vec::new();
    let at = Address { state: StateId(6), key: key(127, &[0; 127]), namespace: b"", map_key: b"" };
    push_put(&at, &[0; 127], &mut out);
    assert_eq!(out.len(), 4 + 127 + 127);
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..4),
        Just(vec![7; 127]),
        Just(vec![8; 128]),
        Just(vec![0; 20_000]),
    ]
}

proptest! {
    #[test]
    fn changes_round_trip(
        state in prop_oneof![0..9_u16, any::<u16>()],
        group in prop_oneof![120..132_u16, any::<u16>()],
        k in bytes(), namespace in bytes(), map_key in bytes(), value in bytes(),
        time in any::<i64>(), kind in 0..8,
    ) {
        let (map_key, value) = (&map_key[..], &value[..]);
        let change = match kind {
            0 => Change::Put { map_key, value },
            1 => Change::Delete { map_key },
            2 => Change::Append { map_key, value },
            3 => Change::DeleteRange { from: Bound::Included(map_key), to: Bound::Excluded(value) },
            4 => Change::DeleteRange { from: Bound::Unbounded, to: Bound::Included(value) },
            5 => Change::DeleteRange { from: Bound::Excluded(map_key), to: Bound::Unbounded },
            6 => Change::RegisterTimer { time },
            _ => Change::DeleteTimer { time },
        };
        let record = Record {
            state: StateId(state), group: KeyGroup(group), key: &k, namespace: &namespace, change,
        };
        let mut out = Vec::new();
        push(&record, &mut out);
        let length = out.len();
        push(&record, &mut out);
        let mut records = Records::new(&out, "x");
        prop_assert_eq!(records.next().unwrap(), Some(record));
        prop_assert_eq!(records.next().unwrap(), Some(record));
        prop_assert_eq!(records.next().unwrap(), None);
        // No part of a change is a change.
        for cut in 1..length.min(200) {
            prop_assert!(Records::new(&out[..cut], "x").next().is_err());
        }
    }

    #[test]
    fn any_bytes_are_changes_or_not_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut records = Records::new(&bytes, "x");
        while let Ok(Some(_)) = records.next() {}
    }
}
