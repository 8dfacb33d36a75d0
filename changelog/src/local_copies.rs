//! Second copies of the log's objects in a local store, from which a restore reads first.
//!
//! A copy is needed as long as an instance of this process names its object. It outlives the instance:
//! the next attempt reads it. What nobody needs, also of former processes, is swept after each
//! materialization. That a copy is missing costs a slower restore, nothing else, so nothing here fails.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_timer::Delay;
use futures_util::future::{Either, select};
use opendal::Operator;
use weir_state_api::{ObjectRef, Spawner};

use crate::metrics::{Counters, count};
use crate::options::ChangelogOptions;

/// The store of copies, and which of them are needed; shared by all instances of a process.
#[derive(Debug, Clone)]
pub(crate) struct LocalCopies {
    store: Operator,
    /// After how long a restore reads the store instead.
    read_patience: Duration,
    /// After how long any other request is given up.
    patience: Duration,
    /// How many bytes may be on their way to the disk. Beyond, an object goes without a copy.
    room: u64,
    under_way: Arc<AtomicU64>,
    needed: Arc<Needed>,
}

/// How many need a copy, by its name.
#[derive(Debug, Default)]
struct Needed(Mutex<HashMap<String, usize>>);

/// Keeps a copy from being swept, for as long as it lives.
#[derive(Debug)]
pub(crate) struct CopyUse {
    name: String,
    needed: Arc<Needed>,
}

impl Needed {
    /// The account is whole after each call, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalCopies {
    pub(crate) fn new(store: Operator, options: &ChangelogOptions) -> Self {
        LocalCopies {
            store,
            read_patience: options.hedge_after,
            patience: options.attempt_timeout,
            room: options.max_in_flight_bytes,
            under_way: Arc::default(),
            needed: Arc::default(),
        }
    }

    /// The result of a request, if there is one in time: a disk that does not answer must not hold up what the
    /// store can do, nor keep what was to be written to it.
    async fn in_time<T, R>(&self, patience: Duration, request: R) -> Option<T>
    where
        R: IntoFuture<Output = opendal::Result<T>>,
    {
        match select(pin!(request.into_future()), Delay::new(patience)).await {
            Either::Left((result, _)) => result.ok(),
            Either::Right(_) => None,
        }
    }

    /// Somebody may restore from a copy of this object.
    pub(crate) fn need(&self, path: &str) -> CopyUse {
        let name = name_of(path).to_owned();
        *self.needed.lock().entry(name.clone()).or_default() += 1;
        CopyUse { name, needed: Arc::clone(&self.needed) }
    }

    /// Writes a copy.
    pub(crate) fn write(
        &self,
        spawner: &dyn Spawner,
        path: &str,
        bytes: Bytes,
        counters: &Arc<Counters>,
    ) {
        let length = bytes.len() as u64;
        let before = self.under_way.fetch_add(length, Ordering::Relaxed);
        if before > 0 && before + length > self.room {
            self.under_way.fetch_sub(length, Ordering::Relaxed);
            count(&counters.failed_local_copies, 1);
            return;
        }
        let (copies, name) = (self.clone(), name_of(path).to_owned());
        let counters = Arc::clone(counters);
        spawner.spawn(Box::pin(async move {
            let written = copies.in_time(copies.patience, copies.store.write(&name, bytes)).await;
            copies.under_way.fetch_sub(length, Ordering::Relaxed);
            if written.is_none() {
                count(&counters.failed_local_copies, 1);
            }
        }));
    }

    /// The copy of an object, if there is a whole one: a copy of half an object, or of another one, is
    /// none.
    pub(crate) async fn read(&self, object: &ObjectRef) -> Option<Bytes> {
        let bytes = self
            .in_time(self.read_patience, self.store.read(name_of(&object.path)))
            .await?
            .to_bytes();
        let whole = bytes.len() as u64 == object.length && crc32fast::hash(&bytes) == object.crc32;
        whole.then_some(bytes)
    }

    /// Deletes the copy of an object.
    pub(crate) async fn delete(&self, path: &str) {
        self.in_time(self.patience, self.store.delete(name_of(path))).await;
    }

    /// Deletes all copies that nobody needs.
    pub(crate) fn sweep(&self, spawner: &dyn Spawner, counters: &Arc<Counters>) {
        let (copies, counters) = (self.clone(), Arc::clone(counters));
        spawner.spawn(Box::pin(async move {
            let listed = copies.in_time(copies.patience, copies.store.list("")).await;
            let Some(entries) = listed else { return };
            for entry in entries {
                let name = entry.path();
                // Nothing but copies: the folder may hold what is not ours.
                let unneeded = name.starts_with("log-") && !copies.needed.lock().contains_key(name);
                if !unneeded {
                    continue;
                }
                if copies.in_time(copies.patience, copies.store.delete(name)).await.is_none() {
                    return;
                }
                count(&counters.swept_local_copies, 1);
            }
        }));
    }
}

impl Drop for CopyUse {
    fn drop(&mut self) {
        let mut needed = self.needed.lock();
        if let Some(count) = needed.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                needed.remove(&self.name);
            }
        }
    }
}

/// The name of an object's copy: names of log objects are unique without their folders.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
