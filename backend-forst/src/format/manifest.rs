//! Manifests: which tables a snapshot consists of.
#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use bytes::Bytes;
use weir_state_api::{Error, ErrorKind, KeyGroupRange, Millis, Result};

use super::era::Era;
use super::properties::TableProperties;
use super::table_meta::MetaPlace;
use super::wire::{Decoder, corrupt, put_bytes, put_varint, unknown_version, zigzag};

/// The version of manifests that is written.
pub(crate) const MANIFEST_VERSION: u32 = 2;

/// The oldest version that is read. It knows no copies of ends.
pub(crate) const OLDEST_MANIFEST_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"WEIRFMAN";

/// Magic, version, length of the body.
const HEADER_LEN: usize = 16;

/// Everything that a restore needs to know before it reads tables. Objects are named by their place
/// in the list of the snapshot's handle, so a manifest stays right when objects are copied elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Manifest {
    /// What the instance consists of, by key groups.
    pub(crate) shards: Vec<ShardManifest>,
    /// Whole tables that are too small to be objects.
    pub(crate) inline_tables: Vec<Bytes>,
}

/// A range of key groups whose tables number the states alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardManifest {
    /// The key groups it is for. What tables hold of others is not looked at.
    pub(crate) groups: KeyGroupRange,
    /// The states; the place in the list is the number in stored keys.
    pub(crate) states: Vec<StateManifest>,
    /// Newest first.
    pub(crate) runs: Vec<RunManifest>,
}

/// A state of a shard. The snapshot's handle describes it under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateManifest {
    pub(crate) name: String,
    /// Oldest first.
    pub(crate) eras: Vec<Era>,
    /// For timers, if known: no timer of the shard is earlier.
    pub(crate) timers_from: Option<Millis>,
}

/// A run of disjoint tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunManifest {
    pub(crate) level: u8,
    /// In the order of their keys.
    pub(crate) tables: Vec<TableEntry>,
}

/// A table of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableEntry {
    pub(crate) place: TablePlace,
    /// Where its end is in the file; says how long the file is, too.
    pub(crate) meta: MetaPlace,
    /// The key groups that count: what it holds of others is not looked at.
    pub(crate) visible: KeyGroupRange,
    /// What is in the whole table.
    pub(crate) properties: Arc<TableProperties>,
    /// Where a copy of its end stands beside those of other tables, if there is one.
    pub(crate) end_copy: Option<EndPlace>,
}

/// Where a copy of a table's end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndPlace {
    /// Its object's place in the handle's list.
    pub(crate) object: u32,
    /// Its first byte there.
    pub(crate) offset: u64,
}

/// Where a table's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TablePlace {
    /// In an object: its place in the handle's list.
    Object(u32),
    /// In the manifest: its place among the inline tables.
    Inline(u32),
}

impl Manifest {
    /// All tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableEntry> {
        self.shards.iter().flat_map(|shard| &shard.runs).flat_map(|run| &run.tables)
    }

    /// The manifest as it is stored.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) from 4 GiB on.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&MANIFEST_VERSION.to_le_bytes());
        let mut body = Vec::with_capacity(1024);
        put_varint(&mut body, self.shards.len() as u64);
        for shard in &self.shards {
            shard.encode(&mut body);
        }
        put_varint(&mut body, self.inline_tables.len() as u64);
        for table in &self.inline_tables {
            put_bytes(&mut body, table);
        }
        let length = u32::try_from(body.len())
            .map_err(|_| Error::new(ErrorKind::TooLarge, "a manifest is longer than 4 GiB"))?;
        out.extend_from_slice(&length.to_le_bytes());
        out.append(&mut body);
        let crc32 = crc32fast::hash(&out);
        out.extend_from_slice(&crc32.to_le_bytes());
        Ok(out)
    }

    /// Reads a manifest; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when it is damaged or something else;
    /// [`Incompatible`](ErrorKind::Incompatible) when a later version has written it.
    pub(crate) fn decode(bytes: &[u8], origin: &str) -> Result<Self> {
        let (version, body) = Self::open(bytes, origin)?;
        let mut decoder = Decoder::new(body, origin);
        let mut manifest = Manifest::default();
        for _ in 0..decoder.count(4)? {
            manifest.shards.push(ShardManifest::decode(&mut decoder, version)?);
        }
        for _ in 0..decoder.count(1)? {
            manifest.inline_tables.push(Bytes::copy_from_slice(decoder.bytes()?));
        }
        decoder.finish("manifest")?;
        for table in manifest.tables() {
            if let TablePlace::Inline(at) = table.place {
                let inline = manifest.inline_tables.get(at as usize);
                if inline.is_none_or(|bytes| bytes.len() as u64 != table.meta.file_len()) {
                    return Err(corrupt(origin, "the manifest lacks a table that it names"));
                }
            }
        }
        Ok(manifest)
    }

    /// Checks the envelope; the version and the body in it.
    fn open<'a>(bytes: &'a [u8], origin: &'a str) -> Result<(u32, &'a [u8])> {
        let mut decoder = Decoder::new(bytes, origin);
        if decoder.array()? != MAGIC {
            return Err(corrupt(origin, "the object does not begin as a manifest does"));
        }
        // Before the checksum: a newer version may checksum differently.
        let version = decoder.u32()?;
        if !(OLDEST_MANIFEST_VERSION..=MANIFEST_VERSION).contains(&version) {
            return Err(unknown_version(origin, "manifest", version, MANIFEST_VERSION));
        }
        let length = decoder.u32()?;
        let body = decoder.take(length.into())?;
        let crc32 = decoder.u32()?;
        decoder.finish("manifest")?;
        let checksummed = bytes.get(..HEADER_LEN + body.len()).unwrap_or_default();
        if crc32fast::hash(checksummed) != crc32 {
            return Err(corrupt(origin, "the manifest fails its checksum"));
        }
        Ok((version, body))
    }
}

impl ShardManifest {
    fn encode(&self, out: &mut Vec<u8>) {
        put_groups(out, self.groups);
        put_varint(out, self.states.len() as u64);
        for state in &self.states {
            put_bytes(out, state.name.as_bytes());
            put_varint(out, state.eras.len() as u64);
            for era in &state.eras {
                era.encode(out);
            }
            out.push(u8::from(state.timers_from.is_some()));
            if let Some(from) = state.timers_from {
                put_varint(out, zigzag(from));
            }
        }
        put_varint(out, self.runs.len() as u64);
        for run in &self.runs {
            out.push(run.level);
            put_varint(out, run.tables.len() as u64);
            for table in &run.tables {
                table.encode(out);
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>, version: u32) -> Result<Self> {
        let groups = take_groups(decoder)?;
        let mut states = Vec::new();
        for _ in 0..decoder.count(3)? {
            states.push(StateManifest::decode(decoder)?);
        }
        let mut runs = Vec::new();
        for _ in 0..decoder.count(2)? {
            let [level] = decoder.array()?;
            let mut tables = Vec::new();
            for _ in 0..decoder.count(TableEntry::SMALLEST)? {
                tables.push(TableEntry::decode(decoder, version)?);
            }
            runs.push(RunManifest { level, tables });
        }
        Ok(ShardManifest { groups, states, runs })
    }
}

impl StateManifest {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self> {
        let name = String::from_utf8(decoder.bytes()?.to_vec())
            .map_err(|_| decoder.corrupt("the name of a state is not UTF-8"))?;
        let mut eras = Vec::new();
        for _ in 0..decoder.count(3)? {
            eras.push(Era::decode(decoder)?);
        }
        let timers_from = if decoder.flag()? { Some(decoder.signed()?) } else { None };
        Ok(StateManifest { name, eras, timers_from })
    }
}

impl TableEntry {
    /// The fewest bytes that one can take.
    const SMALLEST: usize = 16;

    fn encode(&self, out: &mut Vec<u8>) {
        let (code, at) = match self.place {
            TablePlace::Object(at) => (0, at),
            TablePlace::Inline(at) => (1, at),
        };
        out.push(code);
        put_varint(out, at.into());
        put_varint(out, self.meta.offset);
        put_varint(out, self.meta.length.into());
        out.extend_from_slice(&self.meta.crc32.to_le_bytes());
        put_groups(out, self.visible);
        self.properties.encode(out);
        out.push(u8::from(self.end_copy.is_some()));
        if let Some(copy) = &self.end_copy {
            put_varint(out, copy.object.into());
            put_varint(out, copy.offset);
        }
    }

    fn decode(decoder: &mut Decoder<'_>, version: u32) -> Result<Self> {
        let place = match (decoder.array()?, decoder.number()?) {
            ([0], at) => TablePlace::Object(at),
            ([1], at) => TablePlace::Inline(at),
            ([code], _) => return Err(decoder.corrupt(format!("{code} is no place of a table"))),
        };
        let meta = MetaPlace {
            offset: decoder.varint()?,
            length: decoder.number()?,
            crc32: decoder.u32()?,
        };
        if meta.offset.checked_add(meta.length.into()).is_none() {
            return Err(decoder.corrupt("a table is longer than it can be"));
        }
        let visible = take_groups(decoder)?;
        let properties = Arc::new(TableProperties::decode(decoder)?);
        if visible.intersection(properties.groups()) != visible {
            return Err(decoder.corrupt("key groups that a table does not hold count"));
        }
        let end_copy = if version > 1 && decoder.flag()? {
            Some(EndPlace { object: decoder.number()?, offset: decoder.varint()? })
        } else {
            None
        };
        if end_copy.is_some_and(|copy| copy.offset.checked_add(meta.length.into()).is_none()) {
            return Err(decoder.corrupt("a copy of a table's end is where nothing can be"));
        }
        Ok(TableEntry { place, meta, visible, properties, end_copy })
    }
}

/// The first group, and how many there are.
fn put_groups(out: &mut Vec<u8>, groups: KeyGroupRange) {
    put_varint(out, groups.first().0.into());
    put_varint(out, groups.len() as u64);
}

fn take_groups(decoder: &mut Decoder<'_>) -> Result<KeyGroupRange> {
    let (first, len): (u16, u16) = (decoder.number()?, decoder.number()?);
    let Some(behind_first) = len.checked_sub(1) else { return Ok(KeyGroupRange::EMPTY) };
    match first.checked_add(behind_first) {
        Some(last) if last < u16::MAX => Ok(KeyGroupRange::new(first, last)),
        _ => Err(decoder.corrupt("a range of key groups goes beyond the last")),
    }
}
