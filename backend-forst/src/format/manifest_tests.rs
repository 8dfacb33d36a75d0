//! Manifests: written and read; damaged in every way.

use std::sync::Arc;

use ::bytes::Bytes;
use proptest::prelude::*;
use weir_state_api::ttl::{StateTtl, TimeDomain};
use weir_state_api::{ErrorKind, KeyGroupRange, Result, StateId};

use super::wire::Decoder;
use super::*;

fn properties() -> TableProperties {
    TableProperties {
        first_key: (*b"\0\x02\0\x01k").into(),
        end_key: (*b"\0\x07").into(),
        states: vec![StateProperties {
            state: StateId(1),
            era: 2,
            puts: 300,
            deletes: 1,
            appends: 0,
            earliest_expiry: Some(-5),
            latest_expiry: None,
        }],
        range_deletes: 3,
        raw_bytes: 70_000,
    }
}

fn sample() -> Manifest {
    let entry = |place, offset| TableEntry {
        place,
        meta: MetaPlace { offset, length: 90, crc32: 0xdead_beef },
        visible: KeyGroupRange::new(3, 5),
        properties: Arc::new(properties()),
        end_copy: (offset == 0).then_some(EndPlace { object: 701, offset: 1 << 33 }),
    };
    let eras = vec![
        Era { ttl: None, since: 7, since_event: None },
        Era {
            ttl: Some(StateTtl::new(60_000, TimeDomain::Event)),
            since: 9,
            since_event: Some((-4, -9)),
        },
        Era { ttl: Some(StateTtl::new(1, TimeDomain::Processing)), since: 10, since_event: None },
    ];
    let states = vec![
        StateManifest { name: "timers".to_string(), eras: Vec::new(), timers_from: Some(-1) },
        StateManifest { name: "größe".to_string(), eras, timers_from: None },
    ];
    let runs = vec![
        RunManifest { level: 0, tables: vec![entry(TablePlace::Inline(1), 10)] },
        RunManifest {
            level: 3,
            tables: vec![entry(TablePlace::Object(0), 1 << 40), entry(TablePlace::Object(700), 0)],
        },
    ];
    Manifest {
        shards: vec![
            ShardManifest { groups: KeyGroupRange::new(0, 5), states, runs },
            ShardManifest {
                groups: KeyGroupRange::new(6, 32_767),
                states: Vec::new(),
                runs: Vec::new(),
            },
        ],
        inline_tables: vec![Bytes::from_static(b"x"), Bytes::from(vec![7; 100])],
    }
}

#[test]
fn a_manifest_reads_as_it_was_written() {
    for manifest in [sample(), Manifest::default()] {
        let bytes = manifest.encode().unwrap();
        assert_eq!(Manifest::decode(&bytes, "x").unwrap(), manifest);
    }
    assert_eq!(sample().tables().count(), 3);
}

#[test]
fn every_truncation_and_every_changed_bit_is_found_by_name() {
    let bytes = sample().encode().unwrap();
    let refused = |bytes: &[u8]| {
        let error = Manifest::decode(bytes, "a/manifest").unwrap_err();
        assert_eq!(error.object_path(), Some("a/manifest"), "{error}");
        error.kind()
    };
    for length in 0..bytes.len() {
        assert_eq!(refused(&bytes[..length]), ErrorKind::Corrupt);
    }
    assert_eq!(refused(&[&bytes[..], &[0]].concat()), ErrorKind::Corrupt);
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            let version = (8..12).contains(&position);
            let kind = if version { ErrorKind::Incompatible } else { ErrorKind::Corrupt };
            assert_eq!(refused(&damaged), kind, "byte {position}, bit {bit}");
        }
    }
}

/// With a checksum that fits.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut bytes = Manifest::default().encode().unwrap();
    bytes.truncate(12);
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(body);
    let crc32 = crc32fast::hash(&bytes);
    bytes.extend(crc32.to_le_bytes());
    bytes
}

fn decode(body: &[u8]) -> Result<Manifest> {
    Manifest::decode(&sealed(body), "x")
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    let refused = |change: fn(&mut Manifest)| {
        let mut manifest = sample();
        change(&mut manifest);
        let error = Manifest::decode(&manifest.encode().unwrap(), "x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        error.to_string()
    };
    let lacks = refused(|manifest| drop(manifest.inline_tables.pop()));
    assert!(lacks.contains("lacks a table"), "{lacks}");
    let length = refused(|manifest| manifest.shards[0].runs[0].tables[0].meta.length += 1);
    assert!(length.contains("lacks a table"), "{length}");
    let visible = refused(|manifest| {
        manifest.shards[0].runs[0].tables[0].visible = KeyGroupRange::new(1, 2);
    });
    assert!(visible.contains("key groups"), "{visible}");
    let properties = refused(|manifest| {
        let table = &mut manifest.shards[0].runs[0].tables[0];
        Arc::make_mut(&mut table.properties).end_key = (*b"").into();
    });
    assert!(properties.contains("range of keys"), "{properties}");
}

#[test]
fn key_groups_beyond_the_last_are_refused() {
    let with_groups = |groups: &[u8]| decode(&[&[1], groups, &[0, 0, 0]].concat());
    assert!(with_groups(&[0, 5]).is_ok());
    assert!(with_groups(&[9, 0]).is_ok(), "an empty range");
    assert!(with_groups(&[0xff, 0xff, 3, 1]).is_err());
    assert!(with_groups(&[1, 0xff, 0xff, 3]).is_err());
    assert!(with_groups(&[0x80, 0x80, 4, 1]).is_err());
}

#[test]
fn table_properties_out_of_order_are_refused() {
    let coded = |properties: &TableProperties| {
        let mut bytes = Vec::new();
        properties.encode(&mut bytes);
        TableProperties::decode(&mut Decoder::new(&bytes, "x"))
    };
    assert_eq!(coded(&properties()).unwrap(), properties());
    assert_eq!(coded(&TableProperties::default()).unwrap(), TableProperties::default());
    let refused = |change: fn(&mut TableProperties)| {
        let mut properties = properties();
        change(&mut properties);
        assert_eq!(coded(&properties).unwrap_err().kind(), ErrorKind::Corrupt);
    };
    refused(|properties| properties.states.push(properties.states[0]));
    refused(|properties| properties.states[0].puts = u64::MAX);
    refused(|properties| {
        properties.states[0] = StateProperties { puts: 0, deletes: 0, ..properties.states[0] }
    });
    refused(|properties| properties.first_key = properties.end_key.clone());
}

proptest! {
    #[test]
    fn odd_bodies_are_errors_or_manifests(body in proptest::collection::vec(0..20_u8, 0..120)) {
        if let Ok(manifest) = decode(&body) {
            let again = Manifest::decode(&manifest.encode().unwrap(), "x").unwrap();
            prop_assert_eq!(again, manifest);
        }
    }

    #[test]
    fn bodies_with_some_odd_bytes_are_errors_or_manifests(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let bytes = sample().encode().unwrap();
        let mut body = bytes[16..bytes.len() - 4].to_vec();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Ok(manifest) = decode(&body) {
            let again = Manifest::decode(&manifest.encode().unwrap(), "x").unwrap();
            prop_assert_eq!(again, manifest);
        }
    }

    #[test]
    fn odd_bytes_are_errors(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        prop_assert!(Manifest::decode(&bytes, "x").is_err());
    }
}
