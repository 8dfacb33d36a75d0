//! Writes a snapshot: one object, in pieces, verified before anything refers to it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bytes::Bytes;
use opendal::{Operator, Writer};
use weir_state_api::{Error, KeyGroup, ObjectRef, Result, SnapshotHandle, StateDescriptor};

use super::bytes::corrupt;
use super::footer::{Footer, Section, StoredState, header};
use super::section::{encode_map_entry, encode_map_head, encode_point, encode_timer};
use crate::backend::Traffic;
use crate::keyed_table::Slot;
use crate::store::FrozenTable;

/// How much is encoded before it is handed to the store. Stores that upload in parts want 5 MiB at
/// least.
const PIECE_LEN: usize = 8 << 20;

/// An instance as it was when a snapshot began.
#[derive(Debug)]
pub(crate) struct FrozenInstance {
    /// The handle, complete but for the object.
    pub(crate) handle: SnapshotHandle,
    /// What is there, by key group, then state.
    pub(crate) sections: Vec<FrozenSection>,
}

/// One state in one key group.
#[derive(Debug)]
pub(crate) struct FrozenSection {
    pub(crate) group: KeyGroup,
    /// Index into the instance's states.
    pub(crate) state: usize,
    pub(crate) table: FrozenTable,
}

/// The asynchronous part of a snapshot.
///
/// Encoding is work for the CPU: it is done between two writes to the store, one piece at a time,
/// and gives way to other tasks after each. When it fails the writer is aborted; when it is dropped
/// in the middle, the store may be left with an unfinished upload, never with a named object.
pub(crate) async fn write_snapshot(
    frozen: FrozenInstance,
    directory: String,
    store: Operator,
    traffic: Arc<Traffic>,
) -> Result<SnapshotHandle> {
    let FrozenInstance { mut handle, sections } = frozen;
    if !sections.is_empty() {
        let path = format!("{directory}heap-{}.state", uuid::Uuid::new_v4().simple());
        handle.objects.push(write_object(&handle.states, sections, path, &store, &traffic).await?);
    }
    Ok(handle)
}

async fn write_object(
    states: &[StateDescriptor],
    sections: Vec<FrozenSection>,
    path: String,
    store: &Operator,
    traffic: &Traffic,
) -> Result<ObjectRef> {
    let writer = store.writer(&path).await.map_err(|error| Error::store("create", &path, error))?;
    let mut upload = Upload {
        writer,
        path,
        buffer: header(),
        flushed: 0,
        crc32: crc32fast::Hasher::new(),
        section_start: 0,
        section_crc32: crc32fast::Hasher::new(),
    };
    if let Err(error) = upload.write_all(states, sections).await {
        // The first error is the one to report; what the abort says adds nothing.
        drop(upload.writer.abort().await);
        return Err(error);
    }
    let Upload { path, flushed: length, crc32, .. } = upload;
    traffic.uploaded.fetch_add(length, Ordering::Relaxed);

    let stored = store.stat(&path).await.map_err(|error| Error::store("stat", &path, error))?;
    if stored.content_length() != length {
        let what = format!(
            "the store holds {} bytes of the snapshot, {length} were written",
            stored.content_length()
        );
        return Err(corrupt(&path, what));
    }
    Ok(ObjectRef::new(path, length, crc32.finalize()))
}

/// An object being written.
struct Upload {
    writer: Writer,
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
    async fn write_all(
        &mut self,
        states: &[StateDescriptor],
        sections: Vec<FrozenSection>,
    ) -> Result<()> {
        let states = states
            .iter()
            .map(|state| StoredState { name: state.name.clone(), shape: state.kind.shape() });
        let mut footer = Footer { states: states.collect(), sections: Vec::new() };
        // By value: each table is let go as soon as it is written, so that the owner need not copy
        // it any more.
        for section in sections {
            footer.sections.push(self.write_section(section).await?);
        }
        let offset = self.flushed + self.buffer.len() as u64;
        self.buffer.extend_from_slice(&footer.encode(offset));
        self.flush().await?;
        let closed = self.writer.close().await;
        closed.map_err(|error| Error::store("complete", &self.path, error))?;
        Ok(())
    }

    async fn write_section(&mut self, section: FrozenSection) -> Result<Section> {
        let offset = self.flushed + self.buffer.len() as u64;
        self.section_start = self.buffer.len();
        let records = match section.table {
            FrozenTable::Point(segments) => {
                let mut records = 0;
                for segment in segments {
                    records += segment.len();
                    for slot in segment.iter() {
                        encode_point(&mut self.buffer, slot);
                        self.flush_if_full().await?;
                    }
                }
                records
            }
            FrozenTable::Map(segments) => {
                let mut records = 0;
                for segment in segments {
                    records += segment.len();
                    for slot in segment.iter() {
                        let (key, namespace) = slot.key_and_namespace();
                        let entries = slot.entries();
                        encode_map_head(&mut self.buffer, key, namespace, entries.len());
                        for entry in entries.iter() {
                            encode_map_entry(&mut self.buffer, entry);
                            self.flush_if_full().await?;
                        }
                    }
                }
                records
            }
            FrozenTable::Timers(timers) => {
                for timer in timers.iter() {
                    encode_timer(&mut self.buffer, timer);
                    self.flush_if_full().await?;
                }
                timers.len()
            }
        };
        self.section_crc32.update(&self.buffer[self.section_start..]);
        Ok(Section {
            group: section.group,
            state: section.state as u16, // an instance has at most 65,536 states
            records: records as u64,
            offset,
            length: self.flushed + self.buffer.len() as u64 - offset,
            crc32: std::mem::take(&mut self.section_crc32).finalize(),
        })
    }

    async fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() < PIECE_LEN {
            return Ok(());
        }
        self.section_crc32.update(&self.buffer[self.section_start..]);
        self.section_start = 0;
        self.flush().await?;
        self.buffer.reserve(PIECE_LEN);
        give_way().await;
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        let piece = Bytes::from(std::mem::take(&mut self.buffer));
        self.crc32.update(&piece);
        let length = piece.len() as u64;
        let written = self.writer.write(piece).await;
        written.map_err(|error| Error::store("write", &self.path, error))?;
        self.flushed += length;
        Ok(())
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
