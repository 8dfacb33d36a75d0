//! Restores an instance: reads the sections of its key groups, and no others.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use opendal::{Operator, Reader};
use weir_state_api::{
    Error, ErrorKind, KeyGroup, KeyHashVersion, KeyedBackend, MAX_KEY_LEN, ObjectRef, Result,
    SnapshotHandle, key_hash,
};

use super::bytes::{Decoder, corrupt};
use super::chain::{Chain, Part};
use super::footer::{Footer, HEADER_LEN, Section, SectionExtent, TRAILER_LEN, check_header};
use super::section::{decode_maps, decode_points, decode_removals, decode_timers};
use crate::backend::{HeapBackend, RESTORED_EPOCH, Traffic};
use crate::keyed_table::Locator;
use crate::map_table::MapTable;
use crate::point_table::PointTable;
use crate::store::{State, Tables};

/// How much of an object is read at once; a single section may be longer.
const READ_LEN: u64 = 8 << 20;

/// How much of the end of a longer object is read at first: most footers are shorter.
const TAIL_LEN: u64 = 64 << 10;

/// Fills an empty instance from the snapshots of its request.
///
/// All states of all handles are defined, whether they have entries here or not.
pub(crate) async fn restore(backend: &mut HeapBackend) -> Result<()> {
    let handles = std::mem::take(&mut backend.request.restore);
    for descriptor in handles.iter().flat_map(|handle| &handle.states) {
        backend.register(descriptor)?;
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
    for run in runs(&wanted) {
        let bytes = source.read(span(run)).await?;
        for section in run {
            let start = (section.offset - run.first().map_or(0, |first| first.offset)) as usize;
            let body = bytes.get(start..start + section.length as usize).unwrap_or_default();
            if crc32fast::hash(body) != section.crc32 {
                let what =
                    format!("the entries of key group {} fail their checksum", section.group);
                return Err(corrupt(&object.path, what));
            }
            let state = states.get(usize::from(section.state)).copied().unwrap_or_default();
            insert_section(backend, state, section, body, &object.path)?;
        }
    }
    Ok(())
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

fn insert_section<'a>(
    backend: &mut HeapBackend,
    state: usize,
    section: &Section,
    body: &'a [u8],
    object: &'a str,
) -> Result<()> {
    let request = &backend.request;
    let (Some(group), Some(state)) =
        (request.key_groups.index_of(section.group), backend.states.get_mut(state))
    else {
        return Ok(());
    };
    let max_parallelism = request.max_parallelism;
    let derived = request.key_hash == KeyHashVersion::Xxh3V1;
    let locate = |key: &'a [u8], namespace: &'a [u8]| {
        if key.len() > MAX_KEY_LEN {
            return Err(corrupt(object, "a key is longer than keys may be"));
        }
        let hash = key_hash(key);
        if derived && max_parallelism.group_of_hash(hash) != section.group {
            return Err(misplaced(section.group, object));
        }
        Ok(Locator::with_key_hash(key, hash, namespace))
    };
    let mut decoder = Decoder::new(body, object);
    let whole = section.extent == SectionExtent::Whole;
    let State { tables, .. } = state;
    match tables {
        Tables::Point(tables) => {
            let Some(table) = tables.get_mut(group) else { return Ok(()) };
            if whole {
                *table = PointTable::new(RESTORED_EPOCH);
            }
            decode_removals(&mut decoder, section.removals, |key, namespace| {
                table.remove(locate(key, namespace)?);
                Ok(())
            })?;
            decode_points(decoder, section.records, |(key, namespace, value)| {
                table.put(locate(key, namespace)?, value)
            })
        }
        Tables::Map(tables) => {
            let Some(table) = tables.get_mut(group) else { return Ok(()) };
            if whole {
                *table = MapTable::new(RESTORED_EPOCH);
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
            })
        }
        Tables::Timers(queue) => {
            queue.clear(group);
            decode_timers(decoder, section.records, |time, key, namespace| {
                locate(key, namespace)?;
                queue.register(group, time, key, namespace);
                Ok(())
            })
        }
    }
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
