//! Gathers reads that need I/O into `multi_get`.
//!
//! A read that the backend defers joins the batch that is open. The batch is sent when it is full,
//! when nothing else can go on, and before the record that reads writes: what it reads is the state
//! as of its call.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;

use crate::{
    Address, BoxFuture, Error, ErrorKind, Key, KeyedBackend, PendingValues, Result, StateId, Values,
};

/// The open batch, and batches that were sent and not yet taken over by the executor.
#[derive(Default)]
pub(super) struct Reads {
    open: Vec<DeferredRead>,
    /// The number of the open batch; counted from 1.
    sent: u64,
    pub(super) started: Vec<SentBatch>,
    values: Values,
}

struct DeferredRead {
    state: StateId,
    key: Key,
    namespace: Vec<u8>,
    map_key: Vec<u8>,
    answer: Arc<Answer>,
}

impl DeferredRead {
    fn address(&self) -> Address<'_> {
        Address {
            state: self.state,
            key: self.key.as_ref(),
            namespace: &self.namespace,
            map_key: &self.map_key,
        }
    }
}

impl Reads {
    /// Adds a read to the open batch. The future yields its answer once the batch was sent.
    pub(super) fn defer(&mut self, at: &Address<'_>) -> BoxFuture<'static, Result<Option<Bytes>>> {
        let answer = Arc::new(Answer::default());
        self.open.push(DeferredRead {
            state: at.state,
            key: Key::from_ref(at.key),
            namespace: at.namespace.to_vec(),
            map_key: at.map_key.to_vec(),
            answer: answer.clone(),
        });
        Box::pin(poll_fn(move |context| answer.poll(context.waker())))
    }

    /// The number of the open batch.
    pub(super) fn open_batch(&self) -> u64 {
        self.sent + 1
    }

    pub(super) fn open_len(&self) -> usize {
        self.open.len()
    }

    /// Answers everything that is not on its way yet with an error.
    pub(super) fn fail(&mut self, error: &Error) {
        let open: Vec<_> = self.open.drain(..).map(|read| read.answer).collect();
        fail_all(&open, error);
        for batch in self.started.drain(..) {
            fail_all(&batch.answers, error);
        }
    }

    /// Sends the open batch. Answers that are there at once are given; the others come by `started`.
    pub(super) fn send(&mut self, backend: &mut dyn KeyedBackend) {
        if self.open.is_empty() {
            return;
        }
        self.sent += 1;
        let reads = std::mem::take(&mut self.open);
        let addresses: Vec<_> = reads.iter().map(DeferredRead::address).collect();
        let result = backend.multi_get(&addresses, &mut self.values);
        drop(addresses);
        let answers: Vec<_> = reads.into_iter().map(|read| read.answer).collect();
        match result {
            Err(error) => fail_all(&answers, &error),
            Ok(pending) => {
                for (index, answer) in answers.iter().enumerate() {
                    match self.values.get(index) {
                        Some(value) => answer.give(Ok(Some(Bytes::copy_from_slice(value)))),
                        // Absent, unless the pending part says otherwise.
                        None if pending.is_none() => answer.give(Ok(None)),
                        None => {}
                    }
                }
                self.started.extend(pending.map(|future| SentBatch { future, answers }));
            }
        }
    }
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads")
            .field("open", &self.open.len())
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

/// A batch whose I/O is on its way.
pub(super) struct SentBatch {
    pub(super) future: PendingValues,
    answers: Vec<Arc<Answer>>,
}

impl SentBatch {
    /// Gives all answers; each wakes its reader.
    pub(super) fn finish(self, result: Result<Vec<(usize, Option<Bytes>)>>) {
        match result {
            Err(error) => fail_all(&self.answers, &error),
            Ok(values) => {
                for (index, value) in values {
                    if let Some(answer) = self.answers.get(index) {
                        answer.give(Ok(value));
                    }
                }
                for answer in &self.answers {
                    answer.give(Ok(None));
                }
            }
        }
    }
}

/// A failed batch fails each of its reads.
fn fail_all(answers: &[Arc<Answer>], error: &Error) {
    for answer in answers {
        let mut own = Error::new(error.kind(), error.to_string());
        if let Some(object) = error.object_path() {
            own = own.object(object);
        }
        answer.give(Err(own));
    }
}

/// Where the answer of one read is left for its reader.
#[derive(Default)]
struct Answer(Mutex<Stage>);

#[derive(Default)]
enum Stage {
    #[default]
    Sent,
    Awaited(Waker),
    Given(Result<Option<Bytes>>),
    Taken,
}

impl Answer {
    /// The first answer counts.
    fn give(&self, value: Result<Option<Bytes>>) {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*stage, Stage::Sent | Stage::Awaited(_))
            && let Stage::Awaited(reader) = std::mem::replace(&mut *stage, Stage::Given(value))
        {
            drop(stage);
            reader.wake();
        }
    }

    fn poll(&self, reader: &Waker) -> Poll<Result<Option<Bytes>>> {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Given(value) => Poll::Ready(value),
            Stage::Sent | Stage::Awaited(_) => {
                *stage = Stage::Awaited(reader.clone());
                Poll::Pending
            }
            Stage::Taken => Poll::Ready(Err(Error::new(
                ErrorKind::InvalidUsage,
                "the result of a state access was already taken",
            ))),
        }
    }
}
