//! Writes a snapshot: at most one object, in pieces, verified before anything refers to it.

use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use opendal::Writer;
use weir_state_api::ttl::Verdict;
use weir_state_api::wire::corrupt;
use weir_state_api::{
    Environment, Error, KeyGroup, ObjectRef, Result, SnapshotHandle, StateDescriptor,
};

use super::chain::Chain;
use super::footer::{Footer, Section, SectionExtent, StoredState, header};
use super::section::{
    encode_map_entry, encode_map_head, encode_point, encode_removal, encode_timer,
};
use crate::backend::Traffic;
use crate::clean_up::Sieve;
use crate::entry_chunk::Entry;
use crate::keyed_table::{Extent, Slot};
use crate::map_slot::MapSlot;
use crate::point_slot::PointSlot;
use crate::store::PinnedTable;

/// How much is encoded before it is handed to the store. Stores that upload in parts want 5 MiB at
/// least.
const PIECE_LEN: usize = 8 << 20;

/// An instance as it was when a snapshot began.
#[derive(Debug)]
pub(crate) struct PinnedInstance {
    /// The handle, complete but for the objects.
    pub(crate) handle: SnapshotHandle,
    /// What is to be written, by key group, then state.
    pub(crate) sections: Vec<PinnedSection>,
    /// What the snapshot builds on.
    pub(crate) base: Option<Chain>,
    /// Where its object goes.
    pub(crate) directory: String,
    /// Whether later snapshots may build on it.
    pub(crate) shared: bool,
}

/// One state in one key group.
#[derive(Debug)]
pub(crate) struct PinnedSection {
    pub(crate) group: KeyGroup,
    /// Index into the instance's states.
    pub(crate) state: usize,
    pub(crate) table: PinnedTable,
    /// What is left out of a whole table: all that had expired when the snapshot began. A change
    /// leaves nothing out, or it would uncover what it replaces.
    pub(crate) sieve: Option<Sieve>,
}

/// A snapshot that is in the store.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) handle: SnapshotHandle,
    pub(crate) chain: Chain,
}

/// The asynchronous part of a snapshot.
///
/// Encoding is work for the CPU: it is done between two writes to the store, one piece at a time,
/// and gives way to other tasks after each. When it fails the writer is aborted; when it is dropped
/// in the middle, the store may be left with an unfinished upload, never with a named object.
pub(crate) async fn write_snapshot(
    pinned: PinnedInstance,
    environment: Environment,
    traffic: Arc<Traffic>,
) -> Result<Written> {
    let PinnedInstance { mut handle, sections, base, directory, shared } = pinned;
    let path = format!("{directory}heap-{}.state", uuid::Uuid::new_v4().simple());
    let mut object = write_object(&handle.states, sections, path, &environment, &traffic).await?;
    if shared {
        object = object.map(ObjectRef::shared);
    }
    let chain = match base {
        None => Chain::whole(object, handle.key_groups),
        Some(base) => {
            let reused: u64 = base.objects().iter().map(|object| object.length).sum();
            traffic.reused.fetch_add(reused, Ordering::Relaxed);
            base.with_increment(object, handle.key_groups)
        }
    };
    handle.objects = chain.objects();
    handle.metadata = chain.to_metadata();
    Ok(Written { handle, chain })
}

/// Writes the sections, if there is anything in them.
async fn write_object(
    states: &[StateDescriptor],
    sections: Vec<PinnedSection>,
    path: String,
    environment: &Environment,
    traffic: &Traffic,
) -> Result<Option<ObjectRef>> {
    if sections.is_empty() {
        return Ok(None);
    }
    let mut upload = Upload {
        target: Target::Unopened,
        environment: environment.clone(),
        path,
        buffer: header(),
        flushed: 0,
        crc32: crc32fast::Hasher::new(),
        section_start: 0,
        section_crc32: crc32fast::Hasher::new(),
    };
    match upload.write_all(states, sections).await {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(error) => {
            // The first error is the one to report; what the abort says adds nothing.
            if let Target::Writing(mut writer) = upload.target {
                drop(writer.abort().await);
            }
            return Err(error);
        }
    }
    let Upload { path, flushed: length, crc32, .. } = upload;
    traffic.uploaded.fetch_add(length, Ordering::Relaxed);

    let store = &environment.store;
    let stored = store.stat(&path).await.map_err(|error| Error::store("stat", &path, error))?;
    if stored.content_length() != length {
        let what = format!(
            "the store holds {} bytes of the snapshot, {length} were written",
            stored.content_length()
        );
        return Err(corrupt(&path, what));
    }
    Ok(Some(ObjectRef::new(path, length, crc32.finalize())))
}

/// Where the pieces go.
enum Target {
    /// Not opened before the first piece: an increment may turn out to be empty.
    Unopened,
    /// Open.
    Writing(Writer),
    /// Closed or failed.
    Done,
}

/// What a section holds.
#[derive(Debug, Default)]
struct Counts {
    removals: u64,
    records: u64,
}

/// An object being written.
struct Upload {
    target: Target,
    environment: Environment,
    path: String,
    /// Encoded and not yet handed over.
    buffer: Vec<u8>,
    /// Bytes handed over.
    flushed: u64,
    crc32: crc32fast::Hasher,
    /// Where the running section begins in the buffer.
    section_start: usize,
    section_crc32: crc32fast::Hasher,
}

impl Upload {
    /// Writes header, sections and footer; nothing, and says so, if no section holds anything.
    async fn write_all(
        &mut self,
        states: &[StateDescriptor],
        sections: Vec<PinnedSection>,
    ) -> Result<bool> {
        let states = states
            .iter()
            .map(|state| StoredState { name: state.name.clone(), shape: state.kind.shape() });
        let mut footer = Footer { states: states.collect(), sections: Vec::new() };
        // By value: each table is let go as soon as it is written, so that the owner need not save
        // what changes in it any more.
        for section in sections {
            let section = self.write_section(section).await?;
            let empty = section.removals == 0 && section.records == 0;
            if section.extent == SectionExtent::Whole || !empty {
                footer.sections.push(section);
            }
        }
        if footer.sections.is_empty() {
            return Ok(false);
        }
        let offset = self.flushed + self.buffer.len() as u64;
        self.buffer.extend_from_slice(&footer.encode(offset));
        self.flush().await?;
        if let Target::Writing(mut writer) = std::mem::replace(&mut self.target, Target::Done)
            && let Err(error) = writer.close().await
        {
            drop(writer.abort().await);
            return Err(Error::store("complete", &self.path, error));
        }
        Ok(true)
    }

    async fn write_section(&mut self, section: PinnedSection) -> Result<Section> {
        let offset = self.flushed + self.buffer.len() as u64;
        self.section_start = self.buffer.len();
        let mut counts = Counts::default();
        let sieve = section.sieve.filter(|_| section.table.is_whole());
        let extent = match section.table {
            PinnedTable::Point(table) => {
                let extent = self.write_removals(&table.extent, &mut counts).await?;
                let base = table.extent.base();
                for segment in table.segments {
                    let long =
                        segment.take(base, |slot| self.write_point(slot, sieve, &mut counts));
                    self.flush_if_full().await?;
                    for slot in long {
                        self.write_point(&slot, sieve, &mut counts);
                        self.flush_if_full().await?;
                    }
                }
                extent
            }
            PinnedTable::Map(table) => {
                let extent = self.write_removals(&table.extent, &mut counts).await?;
                let base = table.extent.base();
                for segment in table.segments {
                    let long = segment.take(base, |map| {
                        let kept = self.begin_map(map, sieve, &mut counts);
                        kept.for_each(|entry| self.write_entry(entry, sieve));
                    });
                    self.flush_if_full().await?;
                    for map in long {
                        for entry in self.begin_map(&map, sieve, &mut counts) {
                            self.write_entry(entry, sieve);
                            self.flush_if_full().await?;
                        }
                    }
                }
                extent
            }
            PinnedTable::Timers(timers) => {
                for timer in timers.into_sorted().iter() {
                    encode_timer(&mut self.buffer, timer);
                    counts.records += 1;
                    self.flush_if_full().await?;
                }
                SectionExtent::Whole
            }
        };
        self.section_crc32.update(&self.buffer[self.section_start..]);
        Ok(Section {
            group: section.group,
            state: section.state as u16, // an instance has at most 65,536 states
            extent,
            removals: counts.removals,
            records: counts.records,
            offset,
            length: self.flushed + self.buffer.len() as u64 - offset,
            crc32: std::mem::take(&mut self.section_crc32).finalize(),
        })
    }

    async fn write_removals(
        &mut self,
        extent: &Extent,
        counts: &mut Counts,
    ) -> Result<SectionExtent> {
        let Extent::Since(_, removed) = extent else { return Ok(SectionExtent::Whole) };
        for key in removed.iter().flat_map(|keys| keys.iter()) {
            encode_removal(&mut self.buffer, key);
            counts.removals += 1;
            self.flush_if_full().await?;
        }
        Ok(SectionExtent::Change)
    }

    /// Writes a value, if it is kept.
    #[inline]
    fn write_point(&mut self, slot: &PointSlot, sieve: Option<Sieve>, counts: &mut Counts) {
        let Some(value) = kept(sieve, slot.value()) else { return };
        let (key, namespace) = slot.key_and_namespace();
        encode_point(&mut self.buffer, (key, namespace, &value));
        counts.records += 1;
    }

    /// Writes the head of a map, if anything of it is kept; returns the entries that are to follow.
    fn begin_map<'m>(
        &mut self,
        map: &'m MapSlot,
        sieve: Option<Sieve>,
        counts: &mut Counts,
    ) -> impl Iterator<Item = Entry<'m>> + use<'m> {
        let (key, namespace) = map.key_and_namespace();
        let is_kept = move |(_, value): &Entry<'m>| sieve.is_none_or(|sieve| sieve.is_live(value));
        let count = match sieve {
            None => map.entries().len(),
            Some(_) => map.entries().iter().filter(is_kept).count(),
        };
        if count > 0 {
            encode_map_head(&mut self.buffer, key, namespace, count);
            counts.records += 1;
        }
        map.entries().iter().filter(is_kept)
    }

    #[inline]
    fn write_entry(&mut self, (map_key, value): Entry<'_>, sieve: Option<Sieve>) {
        if let Some(value) = kept(sieve, value) {
            encode_map_entry(&mut self.buffer, map_key, &value);
        }
    }

    async fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() < PIECE_LEN {
            return Ok(());
        }
        self.section_crc32.update(&self.buffer[self.section_start..]);
        self.section_start = 0;
        self.flush().await?;
        give_way().await;
        Ok(())
    }

    /// Writes the piece. Not while the next one is encoded: a snapshot would take a second core from
    /// the stream, and be done no sooner where the disk is the limit.
    async fn flush(&mut self) -> Result<()> {
        let piece = Bytes::from(std::mem::take(&mut self.buffer));
        let written = piece.clone();
        self.crc32.update(&piece);
        self.flushed += piece.len() as u64;
        let path = self.path.clone();
        let mut writer = match std::mem::replace(&mut self.target, Target::Done) {
            Target::Writing(writer) => writer,
            Target::Unopened | Target::Done => {
                let opened = self.environment.store.writer(&path).await;
                opened.map_err(|error| Error::store("create", &path, error))?
            }
        };
        if let Err(error) = writer.write(piece).await {
            drop(writer.abort().await);
            return Err(Error::store("write", &path, error));
        }
        self.target = Target::Writing(writer);
        // Memory that was never used before costs more than what is encoded into it.
        self.buffer = written.try_into_mut().map_or_else(|_| Vec::new(), cleared);
        Ok(())
    }
}

fn cleared(mut buffer: BytesMut) -> Vec<u8> {
    buffer.clear();
    buffer.into()
}

/// What of a stored value goes into the snapshot.
#[inline]
fn kept(sieve: Option<Sieve>, stored: &[u8]) -> Option<Cow<'_, [u8]>> {
    match sieve.map_or(Verdict::Keep, |sieve| sieve.sweep(stored)) {
        Verdict::Keep => Some(Cow::Borrowed(stored)),
        Verdict::Replace(value) => Some(Cow::Owned(value)),
        Verdict::Drop => None,
    }
}

/// Lets the executor run other tasks once.
async fn give_way() {
    let mut gave_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
