//! The log of one instance, as its task sees it: the changes it collects, and the batches it needs.

use std::sync::Arc;

use weir_state_api::{Address, Change};

use crate::chunk_list::ChunkList;
use crate::format::record::{push_delete, push_put};
use crate::format::{LogId, LogPosition};
use crate::writer::{Chunk, LogStream, Persisted};

/// A batch states its length, with and without compression, in four bytes; what does not compress gets a
/// little longer.
const MAX_CHUNK: usize = u32::MAX as usize / 2;

/// A log that goes on from a position, or none: then changes are not recorded.
#[derive(Debug)]
pub(crate) struct InstanceLog {
    id: LogId,
    stream: Option<LogStream>,
    chunk_bytes: usize,
    records: bool,
    /// Changes that are not handed over yet.
    active: Vec<u8>,
    active_from: LogPosition,
    next: u64,
    /// Batches from where the log begins, without a gap.
    chunks: ChunkList,
}

/// Where the collected changes ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    length: usize,
    next: u64,
}

impl InstanceLog {
    /// A log that records nothing yet; without a stream it never will.
    pub(crate) fn new(stream: Option<LogStream>, chunk_bytes: usize) -> Self {
        InstanceLog {
            id: LogId::random(),
            stream,
            chunk_bytes: chunk_bytes.max(1),
            records: false,
            active: Vec::new(),
            active_from: LogPosition::START,
            next: 0,
            chunks: ChunkList::default(),
        }
    }

    pub(crate) fn id(&self) -> LogId {
        self.id
    }

    /// Whether changes are recorded, and none since its start is missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.records
    }

    /// Behind the last change.
    pub(crate) fn position(&self) -> LogPosition {
        LogPosition(self.next)
    }

    /// How many batches it holds.
    pub(crate) fn batches(&self) -> usize {
        self.chunks.len()
    }

    /// Whether somebody takes what is handed over.
    pub(crate) fn has_writer(&self) -> bool {
        self.stream.as_ref().is_some_and(LogStream::is_open)
    }

    /// Hands over to this one from now on. What the former one had is lost.
    pub(crate) fn write_to(&mut self, stream: LogStream) {
        self.stop();
        self.stream = Some(stream);
    }

    /// Begins to record here; what came before is forgotten.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.records = self.stream.is_some();
    }

    /// Records nothing any more, and forgets what was.
    pub(crate) fn stop(&mut self) {
        self.records = false;
        self.active.clear();
        self.active_from = self.position();
        let unneeded = std::mem::take(&mut self.chunks);
        if let Some(stream) = &self.stream {
            stream.forget(LogPosition(self.next), unneeded);
        }
    }

    /// Records a change, which `push` appends to the buffer.
    #[inline]
    pub(crate) fn record(&mut self, push: impl FnOnce(&mut Vec<u8>)) {
        if self.records {
            push(&mut self.active);
            self.next += 1;
            self.check_length();
        }
    }

    /// Records what an update has decided, as long as the backend may still refuse it.
    #[inline]
    pub(crate) fn record_update(&mut self, at: &Address<'_>, change: Change, output: &[u8]) {
        if !self.records || change == Change::Keep {
            return;
        }
        self.next += 1;
        match change {
            Change::Put => push_put(at, output, &mut self.active),
            Change::Delete | Change::Keep => push_delete(at, &mut self.active),
        }
    }

    /// To come back to, until the next change is recorded.
    #[inline]
    pub(crate) fn mark(&self) -> Mark {
        Mark { length: self.active.len(), next: self.next }
    }

    /// What was recorded since the mark has not happened.
    pub(crate) fn roll_back(&mut self, mark: Mark) {
        self.active.truncate(mark.length);
        self.next = mark.next;
    }

    /// Hands changes over when there are enough of them.
    #[inline]
    pub(crate) fn check_length(&mut self) {
        if self.active.len() >= self.chunk_bytes {
            self.hand_over();
        }
    }

    /// Hands all changes over. The log is given up when they are not taken.
    #[cold]
    pub(crate) fn hand_over(&mut self) {
        self.close_chunk();
        if let Some(stream) = &self.stream {
            stream.wake();
        }
    }

    /// Hands all changes over to a writer that may sleep on.
    fn close_chunk(&mut self) {
        if self.active_from == self.position() || !self.records {
            return;
        }
        let chunk = Arc::new(Chunk::new(self.active_from, self.position()));
        let room = self.active.capacity().min(self.chunk_bytes.saturating_mul(2));
        let changes = std::mem::replace(&mut self.active, Vec::with_capacity(room));
        let taken = changes.len() <= MAX_CHUNK
            && self.stream.as_ref().is_some_and(|stream| stream.append(self.id, &chunk, changes));
        if !taken {
            self.stop();
            return;
        }
        self.active_from = chunk.to;
        self.chunks.push(chunk);
    }

    /// Resolves when everything before [`position`](InstanceLog::position) is in the store. The work begins
    /// when it is waited for, or dropped.
    pub(crate) fn persist(&mut self) -> Option<Persisted> {
        self.close_chunk();
        let stream = self.stream.as_ref().filter(|_| self.records)?;
        let persisted = stream.persist();
        if persisted.is_none() {
            self.stop();
        }
        persisted
    }

    /// The batches that it holds.
    pub(crate) fn chunks(&self) -> &ChunkList {
        &self.chunks
    }

    /// Forgets the batches that hold nothing from `position` on.
    pub(crate) fn truncate(&mut self, position: LogPosition) {
        let unneeded = self.chunks.cut_off(position);
        if let Some(stream) = self.stream.as_ref().filter(|_| unneeded.len() > 0) {
            stream.forget(position, unneeded);
        }
    }
}
