//! Files of released versions, which must stay readable for ever. A change here is a new version,
//! never new bytes under an old one. `docs/formats` explains them byte by byte.

use std::sync::Arc;

use ::bytes::Bytes;
use weir_state_api::stored_key::{push_map, push_map_prefix, push_point, push_timer};
use weir_state_api::ttl::{StateTtl, TimeDomain};
use weir_state_api::{KeyGroup, KeyGroupRange, KeyRef, StateId};

use super::*;

const TABLE: &str = include_str!("../../tests/golden/forst-table-v1.hex");
const TABLE_V2: &str = include_str!("../../tests/golden/forst-table-v2.hex");
const TABLE_LZ4: &str = include_str!("../../tests/golden/forst-table-v1-lz4.hex");
const TABLE_ZSTD: &str = include_str!("../../tests/golden/forst-table-v1-zstd.hex");
const MANIFEST_V1: &str = include_str!("../../tests/golden/forst-manifest-v1.hex");
const MANIFEST: &str = include_str!("../../tests/golden/forst-manifest-v2.hex");

fn hex(bytes: &[u8]) -> String {
    let lines =
        bytes.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect());
    lines.collect::<Vec<String>>().join("\n")
}

fn from_hex(golden: &str) -> Vec<u8> {
    let digits: Vec<char> = golden.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn key(group: u16, bytes: &[u8]) -> KeyRef<'_> {
    KeyRef::with_group(bytes, KeyGroup(group)).unwrap()
}

type OwnedEntry = (Vec<u8>, EntryKind, Vec<u8>, EntryTraits);

/// An entry of each kind and of each shape, in two key groups.
fn entries() -> Vec<OwnedEntry> {
    let point = |bytes: &[u8]| {
        let mut stored = Vec::new();
        push_point(StateId(0), key(1, bytes), b"", &mut stored);
        stored
    };
    let (mut map, mut prefix, mut timer) = (Vec::new(), Vec::new(), Vec::new());
    push_map(StateId(1), key(1, b"a"), b"", b"x", &mut map);
    push_map_prefix(StateId(1), key(1, b"a"), b"", &mut prefix);
    push_timer(StateId(2), 5, key(2, b"t"), b"", &mut timer);
    let map_traits = EntryTraits::map(prefix.len()).expiring(Some(1_000));
    vec![
        (point(b"a"), EntryKind::Put, b"one".to_vec(), EntryTraits::POINT),
        (point(b"ab"), EntryKind::Append, b"2".to_vec(), EntryTraits::POINT),
        (point(b"b"), EntryKind::Delete, Vec::new(), EntryTraits::POINT),
        (map, EntryKind::Put, b"v".to_vec(), map_traits),
        (timer, EntryKind::Put, Vec::new(), EntryTraits::TIMER),
    ]
}

/// Enough alike to be compressed.
fn many_entries() -> Vec<OwnedEntry> {
    let entry = |n: u32| {
        let mut stored = Vec::new();
        push_point(StateId(0), key(1, &n.to_be_bytes()), b"", &mut stored);
        (stored, EntryKind::Put, b"the same for all of them".to_vec(), EntryTraits::POINT)
    };
    (0..40).map(entry).collect()
}

fn written(entries: &[OwnedEntry], options: TableOptions) -> (Vec<u8>, FinishedTable) {
    let mut writer = TableWriter::new(options).unwrap();
    for (key, kind, value, traits) in entries {
        writer.add(Entry { key, kind: *kind, value }, *traits).unwrap();
    }
    let (mut from, mut to) = (Vec::new(), Vec::new());
    push_map_prefix(StateId(1), key(1, b"c"), b"", &mut from);
    push_map_prefix(StateId(1), key(1, b"d"), b"", &mut to);
    writer.add_range_delete(&from, &to);
    writer.set_eras(vec![(StateId(1), 3)]);
    let finished = writer.finish().unwrap();
    (finished.ready.concat(), finished)
}

fn options() -> TableOptions {
    let compression = Compression::None;
    TableOptions { block_len: 90, restart_interval: 2, compression, ..TableOptions::default() }
}

/// A table of which only the bytes are known, as a tool would open it.
fn end_of(bytes: &[u8]) -> (MetaPlace, TableMeta) {
    let footer = bytes.len() - 40;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let offset = u64::from_le_bytes(bytes[footer..footer + 8].try_into().unwrap());
    let length = bytes.len() as u64 - offset;
    let place = MetaPlace { offset, length: length as u32, crc32: u32_at(footer + 28) };
    let meta = TableMeta::decode(&bytes[offset as usize..], &place, "golden").unwrap();
    (place, meta)
}

/// The same with its entries.
fn opened(bytes: &[u8]) -> (TableMeta, Vec<OwnedEntry>) {
    let (_, meta) = end_of(bytes);
    let mut entries = Vec::new();
    let file = Bytes::copy_from_slice(bytes);
    for index in 0..meta.block_count() {
        let place = meta.block_place(index).unwrap();
        let start = place.offset as usize;
        let stored = file.slice(start..start + place.length as usize);
        let mut cursor = BlockCursor::new(Block::decode(&stored, &place, "golden").unwrap());
        while let Some(entry) = cursor.entry() {
            let traits = EntryTraits::POINT;
            entries.push((entry.key.to_vec(), entry.kind, entry.value.to_vec(), traits));
            cursor.next();
        }
    }
    (meta, entries)
}

/// What a reader gets back: it does not learn the traits.
fn as_read(mut entries: Vec<OwnedEntry>) -> Vec<OwnedEntry> {
    for (_, _, _, traits) in &mut entries {
        *traits = EntryTraits::POINT;
    }
    entries
}

/// With the filter that came with version 2.
fn options_v2() -> TableOptions {
    TableOptions { filter: FilterKind::BlockedBloom, ..options() }
}

#[test]
fn a_table_is_written_as_ever() {
    for (golden, options) in [(TABLE, options()), (TABLE_V2, options_v2())] {
        let (bytes, finished) = written(&entries(), options);
        assert_eq!(hex(&bytes), hex(&from_hex(golden)));
        assert_eq!(finished.meta.file_len(), bytes.len() as u64);
    }
}

#[test]
fn a_table_of_old_is_read() {
    for (version, golden) in [(1, TABLE), (2, TABLE_V2)] {
        is_read(version, &from_hex(golden));
    }
}

fn is_read(version: u8, table: &[u8]) {
    assert_eq!(table[table.len() - 16], version);
    let (meta, read) = opened(table);
    assert_eq!(read, as_read(entries()));
    assert_eq!(meta.block_count(), 2);
    let properties = meta.properties();
    assert_eq!(properties.groups(), KeyGroupRange::new(1, 2));
    assert_eq!(properties.raw_bytes, 52);
    let counts: Vec<_> = properties
        .states
        .iter()
        .map(|of| (of.state.0, of.era, of.puts, of.deletes, of.appends, of.latest_expiry))
        .collect();
    assert_eq!(
        counts,
        [(0, 0, 1, 1, 1, None), (1, 3, 1, 0, 0, Some(1_000)), (2, 0, 1, 0, 0, None)]
    );
    let (from, to) = meta.range_deletes().iter().next().unwrap();
    assert_eq!((from, to), (&b"\0\x01\0\x01c\0\0\0\0"[..], &b"\0\x01\0\x01d\0\0\0\0"[..]));
    for (key, _, _, traits) in entries() {
        let timer = traits == EntryTraits::TIMER;
        assert!(timer || meta.may_contain(filter_hash(&key)), "{key:?}");
    }
    assert!(meta.may_contain(filter_hash(b"\0\x01\0\x01a\0\0\0\0")), "the map's prefix");
    let absent = (0..100_u8).filter(|n| meta.may_contain(filter_hash(&[*n]))).count();
    assert!(absent < 10, "the hash is the one that the filter was made with: {absent}");
}

/// Later versions of the compressors may write other bytes, but must read these.
#[test]
fn compressed_tables_of_old_are_read() {
    let goldens = [(TABLE_LZ4, Compression::Lz4, 1), (TABLE_ZSTD, Compression::Zstd(1), 2)];
    for (golden, compression, method) in goldens {
        let options = TableOptions { compression, ..TableOptions::default() };
        let golden = from_hex(golden);
        let (written, _) = written(&many_entries(), options);
        let (meta, read) = opened(&golden);
        let first = meta.block_place(0).unwrap().length as usize;
        assert_eq!(golden[first - 5], method);
        assert_eq!(read, many_entries());
        assert_eq!(opened(&written).1, read);
    }
}

/// The copy of an end is of the table in an object.
fn manifest(end_copy: Option<EndPlace>) -> Manifest {
    let (bytes, finished) = written(&entries()[..1], options());
    let table = |place, visible, end_copy| TableEntry {
        place,
        meta: finished.meta,
        visible,
        properties: Arc::new(finished.properties.clone()),
        end_copy,
    };
    let event = StateTtl::new(60_000, TimeDomain::Event);
    let eras = vec![
        Era { ttl: None, since: 7, since_event: None },
        Era { ttl: Some(event), since: 9, since_event: Some((3, -1)) },
    ];
    let states = vec![
        StateManifest { name: "v".to_string(), eras, timers_from: None },
        StateManifest { name: "t".to_string(), eras: Vec::new(), timers_from: Some(5) },
    ];
    let groups = KeyGroupRange::new(1, 1);
    let runs = vec![
        RunManifest { level: 0, tables: vec![table(TablePlace::Inline(0), groups, None)] },
        RunManifest { level: 2, tables: vec![table(TablePlace::Object(4), groups, end_copy)] },
    ];
    let shards = vec![ShardManifest { groups: KeyGroupRange::new(0, 63), states, runs }];
    Manifest { shards, inline_tables: vec![Bytes::from(bytes)] }
}

#[test]
fn a_manifest_is_written_and_read_as_ever() {
    let manifest = manifest(Some(EndPlace { object: 5, offset: 1_000 }));
    let bytes = manifest.encode().unwrap();
    assert_eq!(hex(&bytes), hex(&from_hex(MANIFEST)));
    assert_eq!(Manifest::decode(&from_hex(MANIFEST), "golden").unwrap(), manifest);
}

#[test]
fn a_manifest_of_version_1_is_read() {
    assert_eq!(Manifest::decode(&from_hex(MANIFEST_V1), "golden").unwrap(), manifest(None));
}

/// What is made anew of an opened table is what stands in its file.
#[test]
fn the_end_of_a_table_is_encoded_as_it_was_written() {
    for golden in [TABLE, TABLE_V2, TABLE_LZ4, TABLE_ZSTD] {
        let bytes = from_hex(golden);
        let (place, meta) = end_of(&bytes);
        let end = &bytes[place.offset as usize..];
        assert_eq!(meta.encode(&place).as_deref(), Some(end));
        assert_eq!(meta.encode(&MetaPlace { crc32: place.crc32 ^ 1, ..place }), None);
    }
}
