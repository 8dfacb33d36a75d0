//! Where large states live: a store, threads, instances of one backend, and 100-byte
//! values that do not compress.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use weir_state_api::{
    BackendFactory, CheckpointId, Codec, Environment, Error, ErrorKind, KeyedStore, MaxParallelism,
    Notification, OpenRequest, Ordered, Result, SnapshotHandle, SnapshotRequest, TokioSpawner,
    ValueState,
};

use crate::backends::{Backend, Purpose, runtime};
use crate::measure::timed;
use crate::shuffle::Random;
use crate::slow_store::{Requests, SlowStore};
use crate::store::Store;
use crate::store_model::StoreModel;

/// Bytes of each value.
pub(crate) const VALUE_LEN: usize = 100;

/// The value of a key in a round: bytes that do not compress.
pub(crate) fn value_of(key: i64, round: u64, value: &mut Vec<u8>) {
    value_of_len(key, round, VALUE_LEN, value);
}

/// The same, of another length.
pub(crate) fn value_of_len(key: i64, round: u64, len: usize, value: &mut Vec<u8>) {
    let mut random = Random((key as u64) ^ (round << 40));
    value.clear();
    while value.len() < len {
        value.extend_from_slice(&random.next().to_le_bytes());
    }
    value.truncate(len);
}

/// A store, threads, and a backend.
pub(crate) struct Stage {
    pub(crate) tokio: tokio::runtime::Runtime,
    backend: Backend,
    environment: Environment,
    model: StoreModel,
    /// Counts what is asked of the store.
    counter: SlowStore,
    /// Of instances that stay on their machine.
    here: (Box<dyn BackendFactory>, Option<TempDir>),
    _folder: Option<TempDir>,
}

/// A subtask with its state.
pub(crate) struct Subtask {
    pub(crate) store: KeyedStore<i64>,
    pub(crate) value: ValueState<Vec<u8>>,
    bytes: Vec<u8>,
    /// The folder of a machine that the instance has moved to.
    _elsewhere: Option<TempDir>,
}

/// What a checkpoint took.
#[derive(Debug)]
pub(crate) struct Taken {
    /// How long the synchronous part held the task.
    pub(crate) pinned: Duration,
    pub(crate) written: Duration,
    pub(crate) handle: SnapshotHandle,
    pub(crate) uploaded_bytes: u64,
}

impl Stage {
    /// With an empty part of the store.
    pub(crate) fn new(backend: Backend, store: &Store) -> Result<Self> {
        let (tokio, model) = (runtime()?, store.model);
        let (store, folder) = store.empty()?;
        let mut environment = Environment::in_memory();
        let counter = SlowStore::new(model.slowness());
        environment.store = store.layer(counter.clone());
        environment.spawner = Arc::new(TokioSpawner::new(tokio.handle().clone()));
        let here = backend.factory(Purpose::CheckpointsHere)?;
        Ok(Stage { tokio, backend, environment, model, counter, here, _folder: folder })
    }

    /// The store.
    pub(crate) fn store(&self) -> &opendal::Operator {
        &self.environment.store
    }

    /// What was asked of the store so far.
    pub(crate) fn requests(&self) -> Requests {
        self.counter.requests()
    }

    /// What was asked of the store since then costs, in millionths of a US dollar; nothing if the
    /// store is free.
    pub(crate) fn cost_since(&self, before: Requests) -> Option<f64> {
        let prices = self.model.prices()?;
        Some((prices.cost(self.requests()) - prices.cost(before)) * 1e6)
    }

    /// The request for one subtask.
    pub(crate) fn request(&self, parallelism: u16, subtask: u16) -> Result<OpenRequest> {
        let mut request =
            OpenRequest::new(self.environment.clone(), "bench", Codec::<i64>::id(&Ordered));
        request.directory = format!("live/{parallelism}-{subtask}/");
        request.for_subtask(MaxParallelism::default(), parallelism, subtask)
    }

    /// Opens an instance on this machine; it may use what former ones have left here.
    pub(crate) fn open(&self, request: OpenRequest) -> Result<Subtask> {
        let opened = self.tokio.block_on(KeyedStore::open(&*self.here.0, request));
        Subtask::new(opened?, None)
    }

    /// Opens an instance on a machine that has nothing.
    pub(crate) fn open_elsewhere(&self, request: OpenRequest) -> Result<Subtask> {
        let (factory, folder) = self.backend.factory(Purpose::Checkpoints)?;
        let opened = self.tokio.block_on(KeyedStore::open(&*factory, request));
        Subtask::new(opened?, folder)
    }

    /// Takes a checkpoint and says that it is complete.
    pub(crate) fn checkpoint(&self, task: &mut Subtask, number: u64) -> Result<Taken> {
        let id = CheckpointId(number);
        let mut request = SnapshotRequest::checkpoint(id, format!("chk-{number}"));
        request.shared_directory = format!("shared/{number}/");
        let before = task.store.statistics().bytes_uploaded;
        let (snapshot, pinned) = timed(|| task.store.snapshot(request))?;
        let (handle, written) = timed(|| self.tokio.block_on(snapshot.run()))?;
        let uploaded_bytes = task.store.statistics().bytes_uploaded - before;
        task.complete(number)?;
        Ok(Taken { pinned, written, handle, uploaded_bytes })
    }
}

impl Subtask {
    fn new(mut store: KeyedStore<i64>, elsewhere: Option<TempDir>) -> Result<Self> {
        let value = store.value("value")?;
        Ok(Subtask { store, value, bytes: Vec::new(), _elsewhere: elsewhere })
    }

    /// Says that a checkpoint is complete and the one before subsumed.
    pub(crate) fn complete(&mut self, number: u64) -> Result<()> {
        self.store.notify(Notification::Complete(CheckpointId(number)))?;
        self.store.notify(Notification::Subsumed(CheckpointId(number - 1)))
    }

    /// Writes the keys that are this subtask's.
    pub(crate) fn write(&mut self, keys: &[i64], round: u64) -> Result<()> {
        for key in keys {
            if self.owns(key)? {
                value_of(*key, round, &mut self.bytes);
                self.value.set(&mut self.store, &self.bytes)?;
            }
        }
        Ok(())
    }

    /// The keys that are this subtask's.
    pub(crate) fn own(&mut self, keys: &[i64]) -> Result<Vec<i64>> {
        let mut own = Vec::new();
        for key in keys {
            if self.owns(key)? {
                own.push(*key);
            }
        }
        Ok(own)
    }

    /// Reads keys of this subtask, all at a time, and checks what it reads.
    pub(crate) fn check_many(&mut self, keys: &[i64], round: u64) -> Result<()> {
        let found = self.store.get_many(&self.value, keys).wait()?;
        for (key, found) in keys.iter().zip(found) {
            value_of(*key, round, &mut self.bytes);
            if found.as_ref() != Some(&self.bytes) {
                return Err(differs());
            }
        }
        Ok(())
    }

    /// Makes a key the current one, if it is this subtask's.
    fn owns(&mut self, key: &i64) -> Result<bool> {
        match self.store.set_key(key) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::ForeignKey => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads keys of this subtask and checks what it reads against the rounds in which they were
    /// written.
    pub(crate) fn check(&mut self, keys: impl Iterator<Item = (i64, u64)>) -> Result<()> {
        for (key, round) in keys {
            self.first_read(&[key], round)?;
        }
        Ok(())
    }

    /// Reads the first of the keys that is this subtask's, and checks what it reads.
    pub(crate) fn first_read(&mut self, keys: &[i64], round: u64) -> Result<()> {
        for key in keys {
            if self.owns(key)? {
                value_of(*key, round, &mut self.bytes);
                let found = self.value.get(&mut self.store).wait()?;
                if found.as_ref() == Some(&self.bytes) {
                    return Ok(());
                }
                return Err(differs());
            }
        }
        Ok(())
    }
}

fn differs() -> Error {
    Error::new(ErrorKind::Corrupt, "the restored state is another one")
}
