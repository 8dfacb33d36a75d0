//! Gathers reads that need I/O.
//!
//! A read that the backend defers joins the batch that is open: the backend notes what to read, here
//! is kept who waits for it. The batch is sent when it is full, or when nothing else can go on.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;

use crate::{BoxFuture, DeferredValues, Error, ErrorKind, KeyedBackend, Result};

/// The open batch.
#[derive(Default)]
pub(super) struct Reads {
    answers: Arc<Answers>,
    open: usize,
    /// What the function of an update writes.
    pub(super) output: Vec<u8>,
}

impl Reads {
    /// Adds the read that the backend has just deferred to the open batch. The future yields its answer
    /// once the batch was sent.
    pub(super) fn add_deferred(&mut self) -> BoxFuture<'static, Result<Option<Bytes>>> {
        let (answers, number) = (self.answers.clone(), self.answers.add());
        self.open += 1;
        Box::pin(poll_fn(move |context| answers.poll(number, context.waker())))
    }

    pub(super) fn open_len(&self) -> usize {
        self.open
    }

    /// Answers everything that is not on its way yet with an error.
    pub(super) fn fail(&mut self, error: &Error) {
        self.take_open().give(Err(error.again("a batch of reads failed")));
    }

    /// Sends the open batch, unless it is empty.
    pub(super) fn send(&mut self, backend: &mut dyn KeyedBackend) -> Option<SentBatch> {
        if self.open == 0 {
            return None;
        }
        let answers = self.take_open();
        match backend.send_deferred() {
            Some(future) => Some(SentBatch { future, answers }),
            None => {
                answers.give(Err(not_noted()));
                None
            }
        }
    }

    fn take_open(&mut self) -> Arc<Answers> {
        let next = Arc::new(Answers::with_capacity(self.open));
        self.open = 0;
        std::mem::replace(&mut self.answers, next)
    }
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").field("open", &self.open).finish_non_exhaustive()
    }
}

/// A batch whose I/O is on its way.
pub(super) struct SentBatch {
    pub(super) future: DeferredValues,
    answers: Arc<Answers>,
}

impl SentBatch {
    /// Gives all answers; each wakes its reader.
    pub(super) fn finish(self, result: Result<Vec<Option<Bytes>>>) {
        self.answers.give(result);
    }
}

/// Where the answers of one batch are left for their readers: one allocation for all.
#[derive(Default)]
struct Answers(Mutex<Vec<Stage>>);

enum Stage {
    Sent,
    Awaited(Waker),
    Given(Result<Option<Bytes>>),
    Taken,
}

impl Answers {
    fn with_capacity(reads: usize) -> Self {
        Answers(Mutex::new(Vec::with_capacity(reads)))
    }

    /// No code of others runs under the lock, so a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, Vec<Stage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more answer, by its number.
    fn add(&self) -> usize {
        let mut stages = self.lock();
        stages.push(Stage::Sent);
        stages.len() - 1
    }

    /// Answers each reader with its value, or all with the error.
    fn give(&self, result: Result<Vec<Option<Bytes>>>) {
        let mut stages = self.lock();
        let mut readers = Vec::with_capacity(stages.len());
        let mut give = |stage: &mut Stage, answer| {
            if let Stage::Awaited(reader) = std::mem::replace(stage, Stage::Given(answer)) {
                readers.push(reader);
            }
        };
        match result {
            Ok(values) if values.len() == stages.len() => {
                for (stage, value) in stages.iter_mut().zip(values) {
                    give(stage, Ok(value));
                }
            }
            Ok(_) => stages.iter_mut().for_each(|stage| give(stage, Err(not_noted()))),
            Err(error) => {
                stages
                    .iter_mut()
                    .for_each(|stage| give(stage, Err(error.again("a batch of reads failed"))));
            }
        }
        drop(stages);
        readers.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, number: usize, reader: &Waker) -> Poll<Result<Option<Bytes>>> {
        let mut stages = self.lock();
        let Some(stage) = stages.get_mut(number) else { return Poll::Ready(Err(not_noted())) };
        match std::mem::replace(stage, Stage::Taken) {
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

#[cold]
fn not_noted() -> Error {
    Error::new(ErrorKind::Unsupported, "the backend defers reads and does not send them all")
        .advice("report it to the maintainers of the backend")
}

#[cfg(test)]
mod tests {
    use std::task::Context;

    use super::*;

    #[test]
    fn each_reader_gets_its_own_answer_once_and_an_odd_number_of_them_is_an_error() {
        let context = &mut Context::from_waker(Waker::noop());
        let mut reads = Reads::default();
        let mut futures: Vec<_> = (0..3).map(|_| reads.add_deferred()).collect();
        assert!(futures[1].as_mut().poll(context).is_pending());
        let values = vec![Some(Bytes::from_static(b"a")), None, Some(Bytes::from_static(b"c"))];
        reads.take_open().give(Ok(values.clone()));
        for (future, value) in futures.iter_mut().zip(values) {
            let Poll::Ready(Ok(answer)) = future.as_mut().poll(context) else { panic!("pending") };
            assert_eq!(answer, value);
            let Poll::Ready(Err(error)) = future.as_mut().poll(context) else { panic!("twice") };
            assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        }

        // The batch before is of no matter to the next.
        let mut next = reads.add_deferred();
        assert_eq!(reads.open_len(), 1);
        reads.take_open().give(Ok(Vec::new()));
        let Poll::Ready(Err(error)) = next.as_mut().poll(context) else { panic!("an answer") };
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
