//! Restores an instance: reads the sections of its key groups, and no others.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use opendal::{Operator, Reader};
use weir_state_api::wire::{Decoder, corrupt};
use weir_state_api::{
    Error, ErrorKind, KeyGroup, KeyHashVersion, MAX_KEY_LEN, MaxParallelism, ObjectRef,
    OpenRequest, Result, SnapshotHandle, Spawned, key_hash,
};

use super::chain::{Chain, Part};
use super::footer::{Footer, HEADER_LEN, Section, SectionExtent, TRAILER_LEN, check_header};
use super::section::{decode_maps, decode_points, decode_removals, decode_timers};
use crate::backend::{HeapBackend, RESTORED_EPOCH, Traffic};
use crate::keyed_table::Locator;
use crate::map_table::MapTable;
use crate::point_table::PointTable;
use crate::sorted_chunks::SortedChunks;
use crate::store::GroupTable;
use crate::stored_timer::StoredTimer;

/// How much of an object is read at once; a single section may be longer.
const READ_LEN: u64 = 8 << 20;

/// In how many portions a run of sections is decoded, each by a thread if the spawner has so many.
const PORTIONS: u64 = 4;

/// How much of the end of a longer object is read at first: most footers are shorter.
const TAIL_LEN: u64 = 64 << 10;

/// Fills an empty instance from the snapshots of its request.
///
/// All states of all handles are defined, whether they have entries here or not.
pub(crate) async fn restore(backend: &mut HeapBackend) -> Result<()> {
    let handles = std::mem::take(&mut backend.request.restore);
    for descriptor in handles.iter().flat_map(|handle| &handle.states) {
        backend.define(descriptor)?;
    }
    let owned = backend.request.key_groups;
    for handle in &handles {
        for part in Chain::of(handle)?.clipped(handle.key_groups.intersection(owned)).parts {
            restore_part(backend, handle, &part).await?;
        }
    }
    backend.begin(&handles)
}

async fn restore_part(
    backend: &mut HeapBackend,
    handle: &SnapshotHandle,
    part: &Part,
) -> Result<()> {
    let object = &part.object;
    let store = backend.request.environment.store.clone();
    let traffic = std::sync::Arc::clone(&backend.traffic);
    let source = Source::open(&store, object, &traffic).await?;
    source.check_header().await?;
    let footer = source.footer().await?;
    let states = local_states(backend, handle, &footer, &object.path)?;
    let sections = footer.sections.iter();
    let wanted: Vec<Section> =
        sections.filter(|section| part.key_groups.contains(section.group)).copied().collect();
    let mut decoding = Vec::new();
    for run in runs(&wanted) {
        // The next bytes arrive while the last ones are decoded.
        let bytes = source.read(span(run)).await?;
        collect(backend, std::mem::take(&mut decoding)).await?;
        decoding = start_decoding(backend, run, &bytes, &states, &object.path)?;
    }
    collect(backend, decoding).await
}

/// Sections that are being decoded, into tables that are taken out of the instance meanwhile.
type Decoding = Spawned<Vec<Decoded>>;

/// A decoded section.
struct Decoded {
    state: usize,
    group: usize,
    table: GroupTable,
}

/// Starts to decode a run of sections, in several portions of about the same length.
fn start_decoding(
    backend: &mut HeapBackend,
    run: &[Section],
    bytes: &Bytes,
    states: &[usize],
    object: &str,
) -> Result<Vec<Decoding>> {
    let start = run.first().map_or(0, |first| first.offset);
    let rules = KeyRules::of(&backend.request);
    let mut portions = Vec::new();
    let mut portion = Portion { sections: Vec::new(), rules, object: object.into() };
    let mut portion_len = 0;
    for section in run {
        let from = (section.offset - start) as usize;
        let body = from..from + section.length as usize;
        let state = states.get(usize::from(section.state)).copied().unwrap_or_default();
        let Some(group) = backend.request.key_groups.index_of(section.group) else { continue };
        let Some(owner) = backend.states.get_mut(state) else { continue };
        let target = Decoded { state, group, table: owner.take_group(group) };
        portion.sections.push((*section, bytes.slice(body), target));
        portion_len += section.length;
        if portion_len >= READ_LEN / PORTIONS {
            let full = std::mem::take(&mut portion.sections);
            portions.push(Portion { sections: full, rules, object: object.into() });
            portion_len = 0;
        }
    }
    portions.push(portion);
    let spawner = &*backend.request.environment.spawner;
    Ok(portions.into_iter().map(|p| Spawned::blocking(spawner, move || p.decode())).collect())
}

/// Puts decoded tables back.
async fn collect(backend: &mut HeapBackend, decoding: Vec<Decoding>) -> Result<()> {
    for portion in decoding {
        for Decoded { state, group, table } in portion.await? {
            if let Some(owner) = backend.states.get_mut(state) {
                owner.put_group(group, table);
            }
        }
    }
    Ok(())
}

/// Some sections of an object, with the tables that they go to.
struct Portion {
    sections: Vec<(Section, Bytes, Decoded)>,
    rules: KeyRules,
    object: String,
}

impl Portion {
    fn decode(self) -> Result<Vec<Decoded>> {
        let Portion { sections, rules, object } = self;
        let mut decoded = Vec::with_capacity(sections.len());
        for (section, body, Decoded { state, group, table }) in sections {
            if crc32fast::hash(&body) != section.crc32 {
                let what =
                    format!("the entries of key group {} fail their checksum", section.group);
                return Err(corrupt(&object, what));
            }
            let table = apply_section(table, &section, &body, rules, &object)?;
            decoded.push(Decoded { state, group, table });
        }
        Ok(decoded)
    }
}

/// The index of each of the object's states in the instance.
fn local_states(
    backend: &HeapBackend,
    handle: &SnapshotHandle,
    footer: &Footer,
    object: &str,
) -> Result<Vec<usize>> {
    let find = |stored: &super::footer::StoredState| {
        let in_handle = handle
            .states
            .iter()
            .any(|state| state.name == stored.name && state.kind.shape() == stored.shape);
        let index = backend.states.iter().position(|state| state.descriptor.name == stored.name);
        index.filter(|_| in_handle).ok_or_else(|| {
            let what =
                format!("the object holds a state {:?} that its handle does not", stored.name);
            corrupt(object, what)
        })
    };
    footer.states.iter().map(find).collect()
}

/// Cuts sections into runs that are read at once: neighbours, up to [`READ_LEN`] bytes.
fn runs(sections: &[Section]) -> impl Iterator<Item = &[Section]> {
    let mut rest = sections;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let mut end = first.offset;
        let together = rest.iter().take_while(|section| {
            let joins = section.offset == end
                && (section.offset == first.offset || section.end() - first.offset <= READ_LEN);
            end = section.end();
            joins
        });
        let (run, others) = rest.split_at(together.count().max(1));
        rest = others;
        Some(run)
    })
}

fn span(run: &[Section]) -> Range<u64> {
    run.first().map_or(0, |first| first.offset)..run.last().map_or(0, Section::end)
}

/// What keys must be like.
#[derive(Debug, Clone, Copy)]
struct KeyRules {
    /// `None`: the engine assigns key groups.
    max_parallelism: Option<MaxParallelism>,
}

impl KeyRules {
    fn of(request: &OpenRequest) -> Self {
        let derived = request.key_hash == KeyHashVersion::Xxh3V1;
        KeyRules { max_parallelism: derived.then_some(request.max_parallelism) }
    }

    fn locate<'k>(
        self,
        key: &'k [u8],
        namespace: &'k [u8],
        group: KeyGroup,
        object: &str,
    ) -> Result<Locator<'k>> {
        if key.len() > MAX_KEY_LEN || namespace.len() > MAX_KEY_LEN {
            return Err(corrupt(object, "a key or namespace is longer than they may be"));
        }
        let hash = key_hash(key);
        if self.max_parallelism.is_some_and(|max| max.group_of_hash(hash) != group) {
            return Err(misplaced(group, object));
        }
        Ok(Locator::with_key_hash(key, hash, namespace))
    }
}

/// Replaces or changes what a key group holds of a state.
fn apply_section(
    table: GroupTable,
    section: &Section,
    body: &[u8],
    rules: KeyRules,
    object: &str,
) -> Result<GroupTable> {
    let mut decoder = Decoder::new(body, object);
    let whole = section.extent == SectionExtent::Whole;
    // Never more than there can be in the bytes, whatever a damaged footer says.
    let room = usize::try_from(section.records).unwrap_or(usize::MAX).min(body.len() / 3);
    let locate = |key, namespace| rules.locate(key, namespace, section.group, object);
    Ok(match table {
        GroupTable::Point(mut table) => {
            if whole {
                table = PointTable::with_room(RESTORED_EPOCH, room);
            }
            decode_removals(&mut decoder, section.removals, |key, namespace| {
                table.remove(locate(key, namespace)?);
                Ok(())
            })?;
            decode_points(decoder, section.records, |(key, namespace, value)| {
                table.put(locate(key, namespace)?, value)
            })?;
            GroupTable::Point(table)
        }
        GroupTable::Map(mut table) => {
            if whole {
                table = MapTable::with_room(RESTORED_EPOCH, room);
            }
            decode_removals(&mut decoder, section.removals, |key, namespace| {
                table.remove(locate(key, namespace)?);
                Ok(())
            })?;
            decode_maps(decoder, section.records, |key, namespace, entries| {
                let at = locate(key, namespace)?;
                if !whole {
                    table.remove(at);
                }
                table.put_entries(at, entries)
            })?;
            GroupTable::Map(table)
        }
        GroupTable::Timers(_) => {
            let mut timers = SortedChunks::Empty;
            decode_timers(decoder, section.records, |time, key, namespace| {
                locate(key, namespace)?;
                timers.push(StoredTimer::new(time, key, namespace));
                Ok(())
            })?;
            GroupTable::Timers(timers)
        }
    })
}

#[cold]
fn misplaced(group: KeyGroup, object: &str) -> Error {
    corrupt(object, format!("a key in key group {group} belongs to another one"))
}

/// An object to read from, whose length is known to be right.
struct Source<'a> {
    reader: Reader,
    object: &'a ObjectRef,
    traffic: &'a Traffic,
    /// The last bytes of the object; all of them when it is small.
    tail: Bytes,
}

impl<'a> Source<'a> {
    async fn open(store: &Operator, object: &'a ObjectRef, traffic: &'a Traffic) -> Result<Self> {
        let (path, length) = (&object.path, object.length);
        let stored = store.stat(path).await.map_err(|error| Error::store("stat", path, error))?;
        if stored.content_length() != length {
            let stored = stored.content_length();
            let what = format!("the object has {stored} bytes, its handle says {length}");
            return Err(corrupt(path, what));
        }
        if length < HEADER_LEN + TRAILER_LEN {
            return Err(corrupt(path, "the object is too short for a heap snapshot"));
        }
        let reader = store.reader(path).await.map_err(|error| Error::store("open", path, error))?;
        let mut source = Source { reader, object, traffic, tail: Bytes::new() };
        let start = if length <= READ_LEN { 0 } else { length - TAIL_LEN };
        source.tail = source.read(start..length).await?;
        Ok(source)
    }

    /// Reads exactly this range; less is an error.
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let path = &self.object.path;
        let length = range.end.saturating_sub(range.start);
        if let Some(bytes) = self.in_tail(&range) {
            return Ok(bytes);
        }
        let read = self.reader.read(range).await;
        let bytes = read.map_err(|error| Error::store("read", path, error))?.to_bytes();
        if bytes.len() as u64 != length {
            let what = format!("the store returned {} of {length} bytes", bytes.len());
            return Err(Error::new(ErrorKind::Unavailable, what)
                .object(path)
                .advice("retry; if it persists, restore another checkpoint"));
        }
        self.traffic.downloaded.fetch_add(length, Ordering::Relaxed);
        Ok(bytes)
    }

    fn in_tail(&self, range: &Range<u64>) -> Option<Bytes> {
        let tail_start = self.object.length - self.tail.len() as u64;
        let start = usize::try_from(range.start.checked_sub(tail_start)?).ok()?;
        let end = usize::try_from(range.end.checked_sub(tail_start)?).ok()?;
        (start <= end && end <= self.tail.len()).then(|| self.tail.slice(start..end))
    }

    async fn check_header(&self) -> Result<()> {
        check_header(&self.read(0..HEADER_LEN).await?, &self.object.path)
    }

    /// The footer, which vouches for every byte of the object, as the handle does for the footer.
    async fn footer(&self) -> Result<Footer> {
        let (length, path) = (self.object.length, &self.object.path);
        let trailer = self.read(length - TRAILER_LEN..length).await?;
        let located = Footer::locate(&trailer, length, path)?;
        let tail = self.read(located.offset..length).await?;
        let bytes = tail.get(..located.length as usize).unwrap_or_default();
        let footer = located.decode(bytes, path)?;
        if footer.object_crc32(&tail) != self.object.crc32 {
            return Err(corrupt(path, "the object is not the one that its handle describes"));
        }
        Ok(footer)
    }
}
