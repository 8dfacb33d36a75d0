//! Blocks: built, searched and walked against a sorted map; damaged in every way.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use weir_state_api::ErrorKind;

use super::super::compression::{Compression, Compressor};
use super::super::entry::{Entry, EntryKind};
use super::super::filter::filter_hash;
use super::*;

type Model = BTreeMap<Vec<u8>, (EntryKind, Vec<u8>)>;

const KINDS: [EntryKind; 3] = [EntryKind::Put, EntryKind::Delete, EntryKind::Append];

fn built(model: &Model, group_len: usize, looked_up: bool) -> Vec<u8> {
    let mut builder = BlockBuilder::new(group_len);
    for (key, (kind, value)) in model {
        builder.add(&Entry { key, kind: *kind, value }, filter_hash(key), looked_up);
    }
    let estimated = builder.estimated_len();
    let payload = builder.finish().to_vec();
    assert_eq!(payload.len(), estimated);
    payload
}

fn stored(payload: &[u8], method: Compression) -> (Bytes, BlockPlace) {
    let mut compressor = Compressor::new(method).unwrap();
    let (compressed, code) = compressor.compress(payload).unwrap();
    let mut out = Vec::new();
    let crc32 = seal(compressed, code, payload.len() as u32, &mut out);
    let place = BlockPlace { offset: 0, length: out.len() as u32, crc32 };
    (Bytes::from(out), place)
}

/// The block with this payload, whatever it is.
fn decoded(payload: &[u8]) -> weir_state_api::Result<Block> {
    let (stored, place) = stored(payload, Compression::None);
    Block::decode(&stored, &place, "x")
}

fn sample(count: u32) -> Model {
    let entry = |n: u32| {
        let key = [&b"\0\x01\0\x02key"[..], &(n * 7).to_be_bytes()].concat();
        (key, (KINDS[n as usize % 3], vec![n as u8; n as usize % 50]))
    };
    (0..count).map(entry).collect()
}

fn walk(block: &Block) -> Model {
    let mut cursor = BlockCursor::new(block.clone());
    let mut all = Model::new();
    while let Some(entry) = cursor.entry() {
        all.insert(entry.key.to_vec(), (entry.kind, entry.value.to_vec()));
        assert_eq!(cursor.value_bytes().unwrap(), entry.value);
        cursor.next();
    }
    cursor.next();
    assert!(!cursor.is_valid(), "beyond the end it stays there");
    all
}

fn key_of(cursor: &BlockCursor) -> Option<Vec<u8>> {
    cursor.entry().map(|entry| entry.key.to_vec())
}

/// Every way to read it, against the model.
fn check(block: &Block, model: &Model, probes: &[Vec<u8>]) {
    assert_eq!(block.len(), model.len());
    assert_eq!(walk(block), *model);
    for key in model.keys().chain(probes) {
        let expected = model.get(key).map(|(kind, value)| (*kind, value.as_slice()));
        assert_eq!(block.get(key), expected, "{key:?}");
        let owned = block.get_bytes(key);
        assert_eq!(owned.as_ref().map(|(kind, value)| (*kind, &value[..])), expected);
    }
    let mut cursor = BlockCursor::new(block.clone());
    for probe in model.keys().chain(probes) {
        cursor.seek(probe);
        let mut ahead = model.range(probe.clone()..).map(|(key, _)| key.clone());
        assert_eq!(key_of(&cursor), ahead.next(), "from {probe:?}");
        cursor.next();
        assert_eq!(key_of(&cursor), ahead.next());
        cursor.seek_before(probe);
        let mut behind = model.range(..probe.clone()).rev().map(|(key, _)| key.clone());
        assert_eq!(key_of(&cursor), behind.next(), "before {probe:?}");
        cursor.prev();
        assert_eq!(key_of(&cursor), behind.next());
    }
    cursor.seek_to_last();
    for key in model.keys().rev() {
        assert_eq!(key_of(&cursor).as_ref(), Some(key));
        cursor.prev();
    }
    cursor.prev();
    assert!(!cursor.is_valid(), "beyond the start it stays there");
}

#[test]
fn a_block_reads_as_it_was_built() {
    for count in [1, 2, 15, 16, 17, 300] {
        let model = sample(count);
        for (group_len, looked_up) in
            [(1, true), (4, false), (16, true), (16, false), (1_000, true)]
        {
            for method in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
                let (stored, place) = stored(&built(&model, group_len, looked_up), method);
                let block = Block::decode(&stored, &place, "x").unwrap();
                let probes: Vec<Vec<u8>> = (0..count * 7 + 9)
                    .step_by(3)
                    .map(|n| [&b"\0\x01\0\x02key"[..], &n.to_be_bytes()].concat())
                    .chain([vec![], vec![0xff], b"\0\x01\0\x02key".to_vec()])
                    .collect();
                check(&block, &model, &probes);
            }
        }
    }
}

#[test]
fn a_builder_can_be_used_again() {
    let mut builder = BlockBuilder::new(4);
    for count in [40, 3, 17] {
        let model = sample(count);
        for (key, (kind, value)) in &model {
            builder.add(&Entry { key, kind: *kind, value }, filter_hash(key), count == 3);
        }
        assert_eq!(builder.finish(), built(&model, 4, count == 3));
        builder.clear();
        assert!(builder.is_empty());
    }
}

#[test]
fn more_groups_than_the_hash_index_can_name_do_without_it() {
    for count in [254, 255, 600] {
        let model = sample(count);
        let block = decoded(&built(&model, 1, true)).unwrap();
        check(&block, &model, &[b"\0\x01".to_vec()]);
    }
    let indexed = built(&sample(254), 1, true).len() - built(&sample(254), 1, false).len();
    assert_eq!(indexed, (254_usize * 4).div_ceil(3));
    assert_eq!(built(&sample(255), 1, true), built(&sample(255), 1, false));
}

#[test]
fn long_keys_and_values_survive() {
    let mut model = sample(3);
    model.insert(vec![7; 70_000], (EntryKind::Put, vec![1; 3 << 20]));
    model.insert(vec![7; 70_001], (EntryKind::Append, vec![2; 20_000]));
    check(&decoded(&built(&model, 16, true)).unwrap(), &model, &[vec![7; 69_999]]);
}

#[test]
fn every_truncation_and_every_changed_bit_is_found_by_name() {
    for method in [Compression::None, Compression::Lz4] {
        let (stored, place) = stored(&built(&sample(20), 16, true), method);
        let refused = |bytes: Vec<u8>, place: &BlockPlace| {
            let error = Block::decode(&Bytes::from(bytes), place, "a/table").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert_eq!(error.object_path(), Some("a/table"));
        };
        for length in 0..stored.len() {
            refused(stored[..length].to_vec(), &place);
            let cut = BlockPlace { length: length as u32, ..place };
            refused(stored[..length].to_vec(), &cut);
        }
        for position in 0..stored.len() {
            for bit in 0..8 {
                let mut damaged = stored.to_vec();
                damaged[position] ^= 1 << bit;
                refused(damaged, &place);
            }
        }
    }
}

#[test]
fn an_intact_block_from_elsewhere_is_not_taken_for_the_right_one() {
    let (one, place) = stored(&built(&sample(20), 16, true), Compression::None);
    let mut other = built(&sample(20), 16, true);
    other[3] ^= 1;
    let (other, _) = stored(&other, Compression::None);
    assert_eq!(one.len(), other.len());
    let error = Block::decode(&other, &place, "x").unwrap_err();
    assert!(error.to_string().contains("another one than the index names"), "{error}");
}

#[test]
fn a_block_that_claims_to_hold_gigabytes_is_refused_before_memory_is_taken() {
    let mut out = Vec::new();
    let crc32 = seal(&[0; 20], 1, u32::MAX, &mut out);
    let place = BlockPlace { offset: 0, length: out.len() as u32, crc32 };
    let error = Block::decode(&Bytes::from(out), &place, "x").unwrap_err();
    assert!(error.to_string().contains("claims to hold"), "{error}");
}

/// Whatever decodes can be read to its ends.
fn exercise(payload: &[u8], probe: &[u8]) {
    let Ok(block) = decoded(payload) else { return };
    block.get(probe);
    let mut cursor = BlockCursor::new(block.clone());
    let mut keys = vec![probe.to_vec()];
    while let Some(entry) = cursor.entry() {
        keys.push(entry.key.to_vec());
        cursor.next();
    }
    assert_eq!(keys.len(), block.len() + 1);
    for key in &keys {
        block.get(key);
        cursor.seek(key);
        cursor.seek_before(key);
    }
    cursor.seek_to_last();
    let mut back = 0;
    while cursor.is_valid() {
        back += 1;
        cursor.prev();
    }
    assert_eq!(back, block.len());
}

fn models() -> impl Strategy<Value = Model> {
    let byte = prop_oneof![Just(0_u8), Just(0xff), Just(7), any::<u8>()];
    let key = proptest::collection::vec(byte, 0..6);
    let value = proptest::collection::vec(any::<u8>(), 0..20);
    let kind = proptest::sample::select(KINDS.to_vec());
    proptest::collection::btree_map(key, (kind, value), 1..60)
}

proptest! {
    #[test]
    fn any_block_reads_as_it_was_built(
        model in models(), group_len in 1..20_usize, looked_up: bool,
        probes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..6), 0..20),
    ) {
        check(&decoded(&built(&model, group_len, looked_up)).unwrap(), &model, &probes);
    }

    /// With a checksum that fits: somebody meant it.
    #[test]
    fn odd_payloads_are_errors_or_blocks(
        payload in proptest::collection::vec(any::<u8>(), 0..200), probe: [u8; 3],
    ) {
        exercise(&payload, &probe);
    }

    #[test]
    fn payloads_with_some_odd_bytes_are_errors_or_blocks(
        model in models(), group_len in 1..20_usize, looked_up: bool,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut payload = built(&model, group_len, looked_up);
        for (at, byte) in changes {
            // Mostly where the numbers are.
            let numbers = payload.len().min(40);
            let at = payload.len() - 1 - at.index(if byte % 4 == 0 { payload.len() } else { numbers });
            payload[at] = byte;
        }
        exercise(&payload, b"\0\x07");
    }

    #[test]
    fn odd_stored_bytes_are_errors(
        mut bytes in proptest::collection::vec(any::<u8>(), 9..120), method in 0..4_u8, len in 0..4_000_u32,
    ) {
        let at = bytes.len() - 9;
        bytes.truncate(at);
        let mut out = Vec::new();
        let crc32 = seal(&bytes, method, len, &mut out);
        let place = BlockPlace { offset: 0, length: out.len() as u32, crc32 };
        if let Ok(block) = Block::decode(&Bytes::from(out), &place, "x") {
            walk(&block);
        }
    }
}
