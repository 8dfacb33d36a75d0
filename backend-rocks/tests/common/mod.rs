//! A store, a clock and a local folder to work in.
#![allow(dead_code, reason = "each test uses what it needs")]

use std::path::PathBuf;
use std::sync::Arc;

use weir_backend_rocks::{RocksBackendFactory, RocksOptions};
use weir_state_api::ttl::Stamp;
use weir_state_api::{
    Address, BackendFactory, CheckpointId, CodecId, Environment, InlineSpawner, KeyRef,
    KeyedBackend, ManualClock, MaxParallelism, OpenRequest, Result, SnapshotHandle,
    SnapshotRequest, StateDescriptor, StateId, StateKind, block_on,
};
use weir_tests::faults::Faults;

/// Where databases go: in memory if possible, since RocksDB syncs each of its files.
pub(crate) fn local_base() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// What the instances of one test share.
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) faults: Faults,
    /// The store without faults.
    pub(crate) store: opendal::Operator,
    pub(crate) environment: Environment,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) factory: RocksBackendFactory,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_options(|options| options)
    }

    pub(crate) fn with_options(change: impl FnOnce(RocksOptions) -> RocksOptions) -> Self {
        let directory = tempfile::tempdir_in(local_base()).expect("a folder can be made");
        let clock = Arc::new(ManualClock::new(1_000));
        let faults = Faults::new();
        let store = opendal::Operator::new(opendal::services::Memory::default())
            .expect("the memory service has no configuration");
        let faulty = store.clone().layer(faults.layer());
        let environment = Environment::new(clock.clone(), faulty, Arc::new(InlineSpawner));
        let factory = RocksBackendFactory::new(change(RocksOptions::new(directory.path())));
        World { clock, faults, store, environment, directory, factory }
    }

    /// The same store with instances under other options.
    pub(crate) fn reopened_with(self, change: impl FnOnce(RocksOptions) -> RocksOptions) -> Self {
        let options = change(RocksOptions::new(self.directory.path()));
        let factory = RocksBackendFactory::new(options);
        World { factory, ..self }
    }

    pub(crate) fn request(&self) -> OpenRequest {
        OpenRequest::new(self.environment.clone(), "op", CodecId::new("bytes", 1))
    }

    pub(crate) fn try_open(&self, request: OpenRequest) -> Result<Box<dyn KeyedBackend>> {
        block_on(self.factory.open(request))
    }

    pub(crate) fn open(&self, request: OpenRequest) -> Box<dyn KeyedBackend> {
        self.try_open(request).expect("the instance opens")
    }
}

pub(crate) fn snapshot(backend: &mut dyn KeyedBackend, number: u64) -> SnapshotHandle {
    try_snapshot(backend, number).expect("the snapshot is written")
}

pub(crate) fn try_snapshot(backend: &mut dyn KeyedBackend, number: u64) -> Result<SnapshotHandle> {
    let request = SnapshotRequest::checkpoint(CheckpointId(number), format!("chk-{number}"));
    block_on(backend.snapshot(request)?.run())
}

pub(crate) fn descriptor(name: &str, kind: StateKind) -> StateDescriptor {
    let plain =
        StateDescriptor::new(name, kind, CodecId::new("bytes", 1), CodecId::new("bytes", 1));
    if kind == StateKind::Map { plain.with_map_key(CodecId::new("bytes", 1)) } else { plain }
}

pub(crate) fn at(state: StateId, key: &[u8]) -> Address<'_> {
    let key = KeyRef::new(key, MaxParallelism::default()).expect("the key is short");
    Address { state, key, namespace: b"", map_key: b"" }
}

/// A value written at a time, framed as a list's element or not.
pub(crate) fn envelope(framed: bool, written: i64) -> Vec<u8> {
    let mut bytes = if framed { vec![9] } else { Vec::new() };
    bytes.extend_from_slice(&Stamp::Written(written).to_bytes());
    bytes.push(b'v');
    bytes
}
