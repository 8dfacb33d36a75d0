//! The writer: one thread per process that packs the batches of all instances into objects.
//!
//! | file | concept |
//! |---|---|
//! | `schedule.rs` | what is uploaded when, tried again, given up: no I/O, no clock |
//! | `thread.rs` | the thread: compresses, and does what the schedule says |
//! | `mailbox.rs` | what the thread is told |
//! | `upload.rs` | one attempt |
//! | `chunk.rs`, `object.rs` | a batch and where it is; an object and who needs it |
//! | `pressure.rs` | what may be in flight |

mod chunk;
mod mailbox;
mod object;
mod pressure;
mod schedule;
mod thread;
mod upload;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_channel::oneshot;
use weir_state_api::{Environment, Error, ErrorKind, Result};

pub(crate) use chunk::Chunk;
use mailbox::Mailbox;
pub(crate) use object::LogObject;
use pressure::{Held, InFlight};
use schedule::{PersistReply, StreamId};
use upload::Report;

use crate::chunk_list::ChunkList;
use crate::format::{LogId, LogPosition};
use crate::local_copies::LocalCopies;
use crate::metrics::{ChangelogMetrics, Counters, count};
use crate::options::ChangelogOptions;

/// A store, as the writer knows it.
pub(crate) type StoreId = usize;

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Message {
    Open { stream: StreamId, environment: Environment, directory: String },
    Append { stream: StreamId, log: LogId, chunk: Arc<Chunk>, changes: Vec<u8>, held: Held },
    Persist { stream: StreamId, reply: PersistReply },
    Press,
    Forget { stream: StreamId, to: LogPosition, unneeded: ChunkList },
    Close { stream: StreamId },
    Attempted(Report),
    Unused { store: StoreId, path: String, named: bool },
    ShutDown,
}

/// Keeps the thread: it ends when the last one is gone and nothing is left to upload.
#[derive(Debug)]
struct Alive(Arc<Mailbox>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.post(Message::ShutDown);
    }
}

/// The process's writer. Its thread starts with the first instance, and ends with the last user.
#[derive(Debug)]
pub(crate) struct LogWriter {
    options: Arc<ChangelogOptions>,
    counters: Arc<Counters>,
    copies: Option<LocalCopies>,
    in_flight: Arc<InFlight>,
    next_stream: AtomicU64,
    alive: Mutex<Option<Arc<Alive>>>,
}

impl LogWriter {
    pub(crate) fn new(options: Arc<ChangelogOptions>) -> Self {
        let in_flight = InFlight::new(options.max_in_flight_bytes);
        let copies = options.local_copies.clone();
        let copies = copies.map(|store| LocalCopies::new(store, &options));
        LogWriter {
            options,
            counters: Arc::default(),
            copies,
            in_flight,
            next_stream: AtomicU64::new(0),
            alive: Mutex::new(None),
        }
    }

    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    pub(crate) fn copies(&self) -> Option<&LocalCopies> {
        self.copies.as_ref()
    }

    pub(crate) fn metrics(&self) -> ChangelogMetrics {
        self.counters.read(self.in_flight.bytes())
    }

    /// An instance begins to log. Its objects, and those of others that share them, lie in `directory`.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when the system has no thread to give.
    pub(crate) fn open(&self, environment: Environment, directory: String) -> Result<LogStream> {
        let mut slot = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        let mut alive = match &*slot {
            Some(alive) => Arc::clone(alive),
            None => Arc::clone(slot.insert(Arc::new(Alive(self.start()?)))),
        };
        let stream = self.next_stream.fetch_add(1, Ordering::Relaxed);
        if !alive.0.is_open() {
            // Its thread has panicked, which must not be the end of all later instances.
            alive = Arc::clone(slot.insert(Arc::new(Alive(self.start()?))));
        }
        drop(slot);
        let to = Arc::clone(&alive.0);
        if !to.post(Message::Open { stream, environment, directory }) {
            return Err(ended());
        }
        Ok(LogStream {
            stream,
            to,
            _alive: alive,
            options: Arc::clone(&self.options),
            counters: Arc::clone(&self.counters),
            in_flight: Arc::clone(&self.in_flight),
        })
    }

    fn start(&self) -> Result<Arc<Mailbox>> {
        let (mailbox, reader) = Mailbox::new();
        let writer = thread::WriterThread::new(
            Arc::clone(&self.options),
            Arc::clone(&self.counters),
            self.copies.clone(),
            Arc::clone(&mailbox),
        );
        std::thread::Builder::new()
            .name("weir-changelog".into())
            .spawn(move || writer.run(reader))
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "no thread for the changelog's writer")
                    .source(error)
            })?;
        Ok(mailbox)
    }
}

/// An instance's way to the writer.
#[derive(Debug)]
pub(crate) struct LogStream {
    stream: StreamId,
    to: Arc<Mailbox>,
    _alive: Arc<Alive>,
    options: Arc<ChangelogOptions>,
    counters: Arc<Counters>,
    in_flight: Arc<InFlight>,
}

impl LogStream {
    /// Hands changes over to the writer, which reads them when it is [woken](LogStream::wake) at the latest.
    /// Waits while too much is in flight; `false` when that took too long and they were not taken.
    pub(crate) fn append(&self, log: LogId, chunk: &Arc<Chunk>, changes: Vec<u8>) -> bool {
        let bytes = changes.len() as u64;
        let (stream, timeout) = (self.stream, self.options.stall_timeout);
        let press = || self.press();
        let Some(held) = self.in_flight.hold(bytes, timeout, &self.counters, press) else {
            count(&self.counters.abandoned_logs, 1);
            return false;
        };
        count(&self.counters.changes, chunk.to.0 - chunk.from.0);
        count(&self.counters.change_bytes, bytes);
        let chunk = Arc::clone(chunk);
        let left = self.to.leave(Message::Append { stream, log, chunk, changes, held });
        if self.in_flight.is_awaited() {
            // Whoever waits for this room has pressed before these bytes could be read.
            self.press();
        }
        left
    }

    /// Lets the writer upload all that is there: somebody waits for room.
    fn press(&self) {
        self.to.post(Message::Press);
    }

    /// Lets the writer begin with what was handed over.
    pub(crate) fn wake(&self) {
        self.to.wake();
    }

    /// Whether the thread it goes to is there: it may have panicked.
    pub(crate) fn is_open(&self) -> bool {
        self.to.is_open()
    }

    /// Resolves when all that was handed over so far is in the store, or cannot be brought there for
    /// now. The writer is not woken before somebody waits for that, or gives it up. `None` when it is gone;
    /// one that goes later drops the reply, which is an answer.
    pub(crate) fn persist(&self) -> Option<Persisted> {
        let (reply, receiver) = oneshot::channel();
        let asked = self.to.leave(Message::Persist { stream: self.stream, reply });
        asked.then(|| Persisted { reply: receiver, to: Arc::clone(&self.to) })
    }

    /// What was handed over before `to`, and no checkpoint waits for, is not needed. Letting go of each
    /// batch is the writer's work.
    pub(crate) fn forget(&self, to: LogPosition, unneeded: ChunkList) {
        self.to.post(Message::Forget { stream: self.stream, to, unneeded });
    }
}

impl Drop for LogStream {
    fn drop(&mut self) {
        self.to.post(Message::Close { stream: self.stream });
    }
}

/// The answer to [`LogStream::persist`].
#[derive(Debug)]
pub(crate) struct Persisted {
    reply: oneshot::Receiver<Result<()>>,
    to: Arc<Mailbox>,
}

impl Persisted {
    pub(crate) async fn wait(mut self) -> Result<()> {
        self.to.wake();
        (&mut self.reply).await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Drop for Persisted {
    /// Nobody waits any more; what was handed over is not held back any longer.
    fn drop(&mut self) {
        self.to.wake();
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Closed, "the changelog's writer has ended")
        .advice("restore the last checkpoint in a new instance")
}
