//! What several test files need: an instance, descriptors, one-line accesses.
#![allow(dead_code, reason = "each test file uses a part")]

use weir_backend_heap::{HeapBackendFactory, HeapOptions};
use weir_state_api::*;

pub(crate) fn request(environment: &Environment) -> OpenRequest {
    let mut request = OpenRequest::new(environment.clone(), "op", CodecId::new("bytes", 1));
    request.max_parallelism = MaxParallelism::new(8).unwrap();
    request.key_groups = KeyGroupRange::all(request.max_parallelism);
    request
}

pub(crate) fn open(request: OpenRequest) -> Result<Box<dyn KeyedBackend>> {
    let options = HeapOptions::default().with_incremental_snapshots(true);
    block_on(HeapBackendFactory::new(options).open(request))
}

pub(crate) fn descriptor(name: &str, kind: StateKind) -> StateDescriptor {
    let bytes = CodecId::new("bytes", 1);
    let descriptor = StateDescriptor::new(name, kind, bytes.clone(), bytes.clone());
    if kind == StateKind::Map { descriptor.with_map_key(bytes) } else { descriptor }
}

pub(crate) fn key(bytes: &[u8]) -> KeyRef<'_> {
    KeyRef::new(bytes, MaxParallelism::new(8).unwrap()).unwrap()
}

pub(crate) fn at<'a>(state: StateId, key_bytes: &'a [u8], map_key: &'a [u8]) -> Address<'a> {
    Address { state, key: key(key_bytes), namespace: b"", map_key }
}

pub(crate) fn get(backend: &mut dyn KeyedBackend, at: &Address<'_>) -> Option<Vec<u8>> {
    match backend.get(at).unwrap() {
        Lookup::Absent => None,
        Lookup::Found(value) => Some(value.to_vec()),
        Lookup::Pending(_) => panic!("this backend never pends"),
    }
}

pub(crate) fn snapshot(backend: &mut dyn KeyedBackend, number: u64) -> SnapshotTask {
    backend.snapshot(SnapshotRequest::checkpoint(CheckpointId(number), "chk")).unwrap()
}
