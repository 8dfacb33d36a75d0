//! A memtable that takes no more writes, on its way into a table.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use weir_state_api::ttl::TtlTime;
use weir_state_api::{Error, Result, StateId};

use super::TableView;
use super::resident::Retired;
use crate::lsm::ShardState;
use crate::memtable::Memtable;
use crate::store::{MemtableBudget, MemtablePermit};

/// A frozen memtable. Shared by reads, the flush and snapshots.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub(crate) memtable: Arc<Memtable>,
    /// The states of its shard when it was frozen: all values are of their current eras.
    pub(crate) states: Arc<Vec<ShardState>>,
    /// The era of each of them.
    pub(crate) eras: Arc<Vec<u8>>,
    /// When it was frozen: what expires later stays in the table.
    pub(crate) time: TtlTime,
    /// The memory it takes, until it is a table. Shared with those frozen at the same time.
    permit: Mutex<Option<Arc<MemtablePermit>>>,
    flush: Mutex<Flush>,
    /// Why the last attempt to flush it failed.
    failure: Mutex<Option<Error>>,
}

/// The era of a state, by its stored number; 0 for one that has been registered since.
#[inline]
pub(super) fn era_in(eras: &[u8], state: StateId) -> u8 {
    eras.get(state.index()).copied().unwrap_or(0)
}

/// How far its flush is.
#[derive(Debug, Default)]
enum Flush {
    #[default]
    Idle,
    Running(Vec<Waker>),
    Done(Flushed),
}

/// What it has become: a table, or nothing when everything in it had expired.
pub(crate) type Flushed = Option<TableView>;

impl Frozen {
    pub(crate) fn new(
        memtable: Arc<Memtable>,
        states: Arc<Vec<ShardState>>,
        eras: Arc<Vec<u8>>,
        time: TtlTime,
        permit: Option<Arc<MemtablePermit>>,
    ) -> Self {
        let permit = Mutex::new(permit);
        Frozen {
            memtable,
            states,
            eras,
            time,
            permit,
            flush: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// The era of a state in it, by its stored number.
    #[inline]
    pub(crate) fn era(&self, state: StateId) -> u8 {
        era_in(&self.eras, state)
    }

    /// What goes on to answer reads when it has become a table. From now on its memory, `bytes`, counts as
    /// memory for reads.
    pub(super) fn retire(&self, bytes: usize, budget: &Arc<MemtableBudget>) -> Retired {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let permit = budget.resident(bytes as u64);
        Retired { eras: Arc::clone(&self.eras), permit }
    }

    /// Whether nobody flushes it and nobody has.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(&*self.lock(), Flush::Idle)
    }

    /// Why the last attempt failed, if there was one; another may be running. `message` says what that is to
    /// whoever asks.
    pub(crate) fn failure(&self, message: &str) -> Option<Error> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().map(|error| error.again(message))
    }

    /// What it has become, if the flush is done.
    pub(crate) fn flushed(&self) -> Option<Flushed> {
        match &*self.lock() {
            Flush::Done(flushed) => Some(flushed.clone()),
            Flush::Idle | Flush::Running(_) => None,
        }
    }

    /// What it becomes: flushed by `flush`, unless somebody else does it or has done it. A flush that
    /// fails is an error for whoever ran it; who waited tries it himself.
    ///
    /// # Errors
    /// Those of the flush.
    pub(crate) async fn flush_with<F>(&self, mut flush: impl FnMut() -> F) -> Result<Flushed>
    where
        F: Future<Output = Result<Flushed>>,
    {
        loop {
            let turn = std::future::poll_fn(|context| {
                let mut state = self.lock();
                match &mut *state {
                    Flush::Done(flushed) => Poll::Ready(Some(flushed.clone())),
                    Flush::Idle => {
                        *state = Flush::Running(Vec::new());
                        Poll::Ready(None)
                    }
                    Flush::Running(wakers) => {
                        wakers.push(context.waker().clone());
                        Poll::Pending
                    }
                }
            });
            if let Some(flushed) = turn.await {
                return Ok(flushed);
            }
            let running = RunningFlush(self);
            match flush().await {
                Ok(flushed) => running.done(flushed),
                Err(error) => {
                    let told = error.again("their last flush failed");
                    *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
                    return Err(error);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Flush> {
        self.flush.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, state: Flush) {
        let before = std::mem::replace(&mut *self.lock(), state);
        if let Flush::Running(wakers) = before {
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// The duty to end a flush; dropped without a result, somebody else may try.
struct RunningFlush<'f>(&'f Frozen);

impl RunningFlush<'_> {
    fn done(self, flushed: Flushed) {
        self.0.end(Flush::Done(flushed));
    }
}

impl Drop for RunningFlush<'_> {
    fn drop(&mut self) {
        if matches!(&*self.0.lock(), Flush::Running(_)) {
            self.0.end(Flush::Idle);
        }
    }
}
