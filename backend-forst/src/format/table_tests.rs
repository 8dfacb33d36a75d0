//! Whole tables: written, opened and read against a sorted map; damaged in every way.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use weir_state_api::stored_key::{push_map, push_map_prefix, push_point, push_timer};
use weir_state_api::{ErrorKind, KeyGroup, KeyGroupRange, KeyRef, Result, StateId};

use super::*;

/// A written table, opened.
struct Written {
    bytes: Bytes,
    finished: FinishedTable,
    meta: TableMeta,
}

impl Written {
    fn of(writer: TableWriter, mut pieces: Vec<Bytes>) -> Self {
        let finished = writer.finish().unwrap();
        pieces.extend(finished.ready.iter().cloned());
        let bytes = Bytes::from(pieces.concat());
        assert_eq!(finished.length, bytes.len() as u64);
        assert_eq!(finished.length, finished.meta.file_len());
        assert_eq!(finished.crc32, crc32fast::hash(&bytes));
        let tail = &bytes[finished.meta.offset as usize..];
        let meta = TableMeta::decode(tail, &finished.meta, "x").unwrap();
        assert_eq!(*meta.properties(), finished.properties);
        Written { bytes, finished, meta }
    }

    fn block(&self, index: usize) -> Block {
        let place = self.meta.block_place(index).unwrap();
        let start = place.offset as usize;
        let stored = self.bytes.slice(start..start + place.length as usize);
        Block::decode(&stored, &place, "x").unwrap()
    }

    fn get(&self, key: &[u8]) -> Option<(EntryKind, Vec<u8>)> {
        let block = self.block(self.meta.block_of(key)?);
        block.get(key).map(|(kind, value)| (kind, value.to_vec()))
    }

    /// Keys from `from` on, found as a scan finds them.
    fn keys_from(&self, from: &[u8]) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let first = self.meta.first_block_from(from);
        for index in first..self.meta.block_count() {
            let mut cursor = BlockCursor::new(self.block(index));
            if index == first {
                cursor.seek(from);
            }
            while let Some(entry) = cursor.entry() {
                keys.push(entry.key.to_vec());
                cursor.next();
            }
        }
        keys
    }

    /// Keys before `to`, backwards.
    fn keys_before(&self, to: &[u8]) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let Some(last) = self.meta.last_block_before(to) else { return keys };
        for index in (0..=last).rev() {
            let mut cursor = BlockCursor::new(self.block(index));
            cursor.seek_before(to);
            while let Some(entry) = cursor.entry() {
                keys.push(entry.key.to_vec());
                cursor.prev();
            }
        }
        keys
    }
}

fn options(block_len: usize, compression: Compression) -> TableOptions {
    TableOptions { block_len, compression, restart_interval: 4, ..TableOptions::default() }
}

fn key(group: u16, bytes: &[u8]) -> KeyRef<'_> {
    KeyRef::with_group(bytes, KeyGroup(group)).unwrap()
}

fn point(group: u16, state: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    push_point(StateId(state), key(group, bytes), b"", &mut stored);
    stored
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Entry<'a> {
    Entry { key, kind: EntryKind::Put, value }
}

/// Points, maps and timers in three key groups, and a range delete.
fn sample(compression: Compression) -> Written {
    sample_with(options(300, compression))
}

fn sample_with(options: TableOptions) -> Written {
    let mut entries: BTreeMap<Vec<u8>, EntryTraits> = BTreeMap::new();
    for group in 1..4 {
        for n in 0..40_u32 {
            entries.insert(point(group, 2, &n.to_be_bytes()), EntryTraits::POINT);
            let (mut map, mut prefix) = (Vec::new(), Vec::new());
            push_map(StateId(3), key(group, b"m"), b"", &n.to_be_bytes(), &mut map);
            push_map_prefix(StateId(3), key(group, b"m"), b"", &mut prefix);
            entries.insert(map, EntryTraits::map(prefix.len()).expiring(Some(i64::from(n))));
            let mut timer = Vec::new();
            push_timer(StateId(4), i64::from(n) - 20, key(group, b"t"), b"", &mut timer);
            entries.insert(timer, EntryTraits::TIMER);
        }
    }
    let mut writer = TableWriter::new(options).unwrap();
    for (at, (key, traits)) in entries.iter().enumerate() {
        writer.add(put(key, &[at as u8; 9]), *traits).unwrap();
    }
    writer.add_range_delete(&point(2, 3, b"m"), &point(2, 3, b"n"));
    writer.set_eras(vec![(StateId(3), 5), (StateId(9), 1)]);
    Written::of(writer, Vec::new())
}

#[test]
fn properties_say_what_is_in_a_table() {
    let written = sample(Compression::Lz4);
    let properties = written.meta.properties();
    assert_eq!(properties.entries(), 360);
    assert_eq!(properties.groups(), KeyGroupRange::new(1, 3));
    assert_eq!(&*properties.first_key, point(1, 2, &[0; 4]).as_slice());
    assert_eq!(properties.range_deletes, 1);
    let states: Vec<_> = properties.states.iter().map(|of| (of.state.0, of.era, of.puts)).collect();
    assert_eq!(states, [(2, 0, 120), (3, 5, 120), (4, 0, 120)]);
    let map = properties.of_state(StateId(3)).unwrap();
    assert_eq!((map.earliest_expiry, map.latest_expiry), (Some(0), Some(39)));
    let point = properties.of_state(StateId(2)).unwrap();
    assert_eq!((point.earliest_expiry, point.latest_expiry), (None, None));
    assert_eq!(properties.of_state(StateId(9)), None);
    assert_eq!(written.meta.era_of(StateId(3)), Some(5));
}

#[test]
fn expiry_is_known_only_when_everything_expires() {
    let bounds = |expiries: &[Option<i64>]| {
        let mut writer = TableWriter::new(TableOptions::default()).unwrap();
        for (n, expiry) in expiries.iter().enumerate() {
            let key = point(1, 1, &[n as u8]);
            writer.add(put(&key, b""), EntryTraits::POINT.expiring(*expiry)).unwrap();
        }
        let gone = point(1, 1, &[99]);
        let delete = Entry { key: &gone, kind: EntryKind::Delete, value: b"" };
        writer.add(delete, EntryTraits::POINT).unwrap();
        let of = writer.finish().unwrap().properties.states[0];
        (of.earliest_expiry, of.latest_expiry)
    };
    assert_eq!(bounds(&[Some(5), Some(-3)]), (Some(-3), Some(5)));
    assert_eq!(bounds(&[None, Some(5)]), (Some(5), None));
    assert_eq!(bounds(&[Some(5), None]), (Some(5), None));
    assert_eq!(bounds(&[Some(5), None, Some(7)]), (Some(5), None));
    assert_eq!(bounds(&[]), (None, None));
}

#[test]
fn the_filter_knows_keys_and_maps() {
    for filter in [FilterKind::BinaryFuse8, FilterKind::BlockedBloom] {
        let written = sample_with(TableOptions { filter, ..options(300, Compression::Lz4) });
        let may_contain = |stored: &[u8]| written.meta.may_contain(filter_hash(stored));
        assert!((0..40_u32).all(|n| may_contain(&point(1, 2, &n.to_be_bytes()))));
        let prefix = |bytes: &[u8]| {
            let mut prefix = Vec::new();
            push_map_prefix(StateId(3), key(2, bytes), b"", &mut prefix);
            prefix
        };
        assert!(may_contain(&prefix(b"m")));
        let absent = (0..1_000_u32).filter(|n| may_contain(&prefix(&n.to_be_bytes()))).count();
        assert!(absent < 30, "{absent}");
    }
    let mut writer =
        TableWriter::new(TableOptions { filter: FilterKind::None, ..TableOptions::default() })
            .unwrap();
    writer.add(put(&point(1, 1, b"k"), b"v"), EntryTraits::POINT).unwrap();
    assert!(Written::of(writer, Vec::new()).meta.may_contain(1));
}

#[test]
fn keys_out_of_order_are_refused_and_change_nothing() {
    let mut writer = TableWriter::new(TableOptions::default()).unwrap();
    let (a, b) = (point(1, 1, b"a"), point(1, 1, b"b"));
    writer.add(put(&b, b"1"), EntryTraits::POINT).unwrap();
    for wrong in [&a, &b, &b"\0\0\0".to_vec()] {
        let error = writer.add(put(wrong, b"2"), EntryTraits::POINT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
    }
    let written = Written::of(writer, Vec::new());
    assert_eq!(written.meta.properties().entries(), 1);
    assert_eq!(written.get(&b), Some((EntryKind::Put, b"1".to_vec())));
}

#[test]
fn a_table_may_hold_nothing_or_range_deletes_alone() {
    let written = Written::of(TableWriter::new(TableOptions::default()).unwrap(), Vec::new());
    assert!(written.meta.properties().is_empty());
    assert_eq!(written.meta.properties().groups(), KeyGroupRange::EMPTY);
    assert_eq!(written.get(&point(1, 1, b"a")), None);
    assert_eq!(written.meta.last_block_before(&[0xff]), None);
    assert!(written.keys_from(b"").is_empty());

    let mut writer = TableWriter::new(TableOptions::default()).unwrap();
    writer.add_range_delete(b"\0\x03\0\x01", b"\0\x04");
    writer.add_range_delete(b"\0\x02\0\x01a", b"\0\x02\0\x01c");
    writer.add_range_delete(b"\0\x09", b"\0\x08");
    let written = Written::of(writer, Vec::new());
    let properties = written.meta.properties();
    assert_eq!((properties.range_deletes, properties.is_empty()), (2, false));
    assert_eq!(properties.groups(), KeyGroupRange::new(2, 3));
    assert!(written.meta.range_deletes().covers(b"\0\x02\0\x01b"));
    assert_eq!(written.meta.block_count(), 0);
}

/// The bounds that a table is looked for by include its range deletes, and the end of one is not in
/// it.
#[test]
fn bounds_include_range_deletes() {
    let mut writer = TableWriter::new(TableOptions::default()).unwrap();
    let entry = point(5, 1, b"m");
    writer.add(put(&entry, b""), EntryTraits::POINT).unwrap();
    let bounds = |writer: TableWriter| {
        let properties = writer.finish().unwrap().properties;
        (properties.first_key.to_vec(), properties.end_key.to_vec())
    };
    let (from, to) = (point(5, 1, b"a"), point(5, 1, b"z"));
    writer.add_range_delete(&from, &to);
    assert_eq!(bounds(writer), (from, to));
    let mut writer = TableWriter::new(TableOptions::default()).unwrap();
    writer.add(put(&entry, b""), EntryTraits::POINT).unwrap();
    assert_eq!(bounds(writer), (entry.clone(), [&entry[..], &[0]].concat()));
}

#[test]
fn finished_parts_can_be_taken_early() {
    let mut writer = TableWriter::new(options(20_000, Compression::None)).unwrap();
    let mut pieces = Vec::new();
    for n in 0..1_000_u32 {
        writer.add(put(&point(1, 1, &n.to_be_bytes()), &[0; 5_000]), EntryTraits::POINT).unwrap();
        pieces.extend(writer.take_ready());
        assert!(writer.estimated_len() >= pieces.iter().map(Bytes::len).sum::<usize>() as u64);
    }
    assert_eq!(pieces.len(), 4);
    assert!(pieces.iter().all(|piece| piece.len() >= 1 << 20));
    let written = Written::of(writer, pieces);
    assert_eq!(written.keys_from(b"").len(), 1_000);
    for index in 0..written.meta.block_count() {
        assert!(written.meta.block_place(index).unwrap().length < 20_000 + 20);
    }
    assert_eq!(written.meta.block_place(written.meta.block_count()), None);
}

#[test]
fn every_truncation_and_every_changed_bit_of_the_end_is_found_by_name() {
    every_damage_is_found(&sample(Compression::None));
    let filter = FilterKind::BlockedBloom;
    every_damage_is_found(&sample_with(TableOptions { filter, ..options(300, Compression::None) }));
}

fn every_damage_is_found(written: &Written) {
    let place = written.finished.meta;
    let tail = &written.bytes[place.offset as usize..];
    let refused = |tail: &[u8], place: &MetaPlace| {
        let error = TableMeta::decode(tail, place, "a/table").unwrap_err();
        assert_eq!(error.object_path(), Some("a/table"), "{error}");
        error.kind()
    };
    for length in 0..tail.len() {
        assert_eq!(refused(&tail[..length], &place), ErrorKind::Corrupt);
        let cut = MetaPlace { length: length as u32, ..place };
        assert_eq!(refused(&tail[..length], &cut), ErrorKind::Corrupt);
        assert_eq!(refused(&tail[tail.len() - length..], &cut), ErrorKind::Corrupt);
    }
    let version = tail.len() - 16..tail.len() - 12;
    for position in 0..tail.len() {
        for bit in 0..8 {
            let mut damaged = tail.to_vec();
            damaged[position] ^= 1 << bit;
            let expected = if version.contains(&position) {
                ErrorKind::Incompatible
            } else {
                ErrorKind::Corrupt
            };
            assert_eq!(refused(&damaged, &place), expected, "byte {position}, bit {bit}");
        }
    }
}

#[test]
fn the_end_of_another_table_is_not_taken_for_the_right_one() {
    let written = sample(Compression::None);
    let tail = &written.bytes[written.finished.meta.offset as usize..];
    let mut place = written.finished.meta;
    place.crc32 ^= 1;
    let error = TableMeta::decode(tail, &place, "x").unwrap_err();
    assert!(error.to_string().contains("that of another table"), "{error}");
    let mut place = written.finished.meta;
    place.offset += 1;
    assert_eq!(TableMeta::decode(tail, &place, "x").unwrap_err().kind(), ErrorKind::Corrupt);
}

type Model = BTreeMap<Vec<u8>, (EntryKind, Vec<u8>)>;

fn models() -> impl Strategy<Value = Model> {
    let byte = prop_oneof![Just(0_u8), Just(0xff), Just(1), any::<u8>()];
    let key = (0..3_u8, 0..2_u8, proptest::collection::vec(byte, 0..12))
        .prop_map(|(group, state, rest)| [&[0, group, 0, state], &rest[..]].concat());
    let kinds = vec![EntryKind::Put, EntryKind::Delete, EntryKind::Append];
    let value = proptest::collection::vec(any::<u8>(), 0..40);
    proptest::collection::btree_map(key, (proptest::sample::select(kinds), value), 0..80)
}

/// The end of a table with bytes changed, and the checksum made to fit: somebody meant it.
fn forged(changes: &[(prop::sample::Index, u8)]) -> Result<TableMeta> {
    let written = sample(Compression::None);
    let mut place = written.finished.meta;
    let mut tail = written.bytes[place.offset as usize..].to_vec();
    let checksum = tail.len() - 12;
    for (at, byte) in changes {
        let at = at.index(checksum);
        tail[at] = *byte;
    }
    place.crc32 = crc32fast::hash(&tail[..checksum]);
    tail[checksum..checksum + 4].copy_from_slice(&place.crc32.to_le_bytes());
    TableMeta::decode(&tail, &place, "a/table")
}

proptest! {
    #[test]
    fn forged_ends_are_errors_or_tables(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        probe in proptest::collection::vec(0..5_u8, 0..9),
    ) {
        match forged(&changes) {
            Err(error) => prop_assert_eq!(error.object_path(), Some("a/table")),
            Ok(meta) => {
                meta.may_contain(filter_hash(&probe));
                meta.range_deletes().covers(&probe);
                meta.last_block_before(&probe);
                let block = meta.block_of(&probe);
                prop_assert!(block.is_none_or(|block| meta.block_place(block).is_some()));
                prop_assert!(meta.properties().entries() > 0);
            }
        }
    }

    #[test]
    fn odd_ends_are_errors(tail in proptest::collection::vec(any::<u8>(), 0..120), offset in 0..9_u64) {
        let place = MetaPlace { offset, length: tail.len() as u32, crc32: 0 };
        prop_assert!(TableMeta::decode(&tail, &place, "x").is_err());
    }

    #[test]
    fn any_table_reads_as_it_was_written(
        model in models(),
        probes in proptest::collection::vec(
            (0..3_u8, proptest::collection::vec(0..3_u8, 0..5)), 0..20),
        block_len in 50..400_usize,
        compressed: bool, hash_index: bool, queue: bool, bloom: bool,
    ) {
        let compression = if compressed { Compression::Zstd(1) } else { Compression::None };
        let filter = if bloom { FilterKind::BlockedBloom } else { FilterKind::BinaryFuse8 };
        let options = TableOptions { hash_index, filter, ..options(block_len, compression) };
        let mut writer = TableWriter::new(options).unwrap();
        for (key, (kind, value)) in &model {
            // Timers among the rest: they are not in the filter, but in the blocks.
            let timer = queue && key[3] == 1;
            let traits = if timer { EntryTraits::TIMER } else { EntryTraits::map(4) };
            writer.add(Entry { key, kind: *kind, value }, traits).unwrap();
        }
        let written = Written::of(writer, Vec::new());
        let probes = probes.into_iter().map(|(first, rest)| [&[0, first], &rest[..]].concat());
        let probes: Vec<Vec<u8>> = probes.chain([vec![], vec![0xff; 9]]).collect();
        for probe in model.keys().chain(&probes) {
            prop_assert_eq!(written.get(probe), model.get(probe).cloned());
            let ahead: Vec<_> = model.range(probe.clone()..).map(|(key, _)| key.clone()).collect();
            prop_assert_eq!(written.keys_from(probe), ahead);
            let behind: Vec<_> =
                model.range(..probe.clone()).rev().map(|(key, _)| key.clone()).collect();
            prop_assert_eq!(written.keys_before(probe), behind);
        }
        for key in model.keys().filter(|key| !queue || key[3] == 0) {
            prop_assert!(written.meta.may_contain(filter_hash(key)));
            prop_assert!(written.meta.may_contain(filter_hash(&key[..4])));
        }
        let properties = &written.finished.properties;
        prop_assert_eq!(properties.entries(), model.len() as u64);
        if let (Some(first), Some(last)) = (model.keys().next(), model.keys().next_back()) {
            prop_assert_eq!(&*properties.first_key, first.as_slice());
            prop_assert!(*last.as_slice() < *properties.end_key);
            let groups = KeyGroupRange::new(first[1].into(), last[1].into());
            prop_assert_eq!(properties.groups(), groups);
        }
    }
}
