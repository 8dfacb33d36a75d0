//! Snapshots of the reference backend: one enveloped object with everything in it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_state_api::frame::Frame;
use weir_state_api::{
    Error, ErrorKind, ObjectRef, OpenRequest, Result, SnapshotHandle, SnapshotRequest,
    StateDescriptor,
};

use super::tables::{Content, Table, Tables};
use super::{Defect, Options};

pub(super) const BACKEND: &str = "reference";
const FORMAT: u32 = 1;
const FRAME: Frame = Frame { magic: *b"WEIRREFB", version: FORMAT };

/// Distinguishes all objects written by this process.
static NEXT_OBJECT: AtomicU64 = AtomicU64::new(0);

/// Writes `tables`; `open` says which instance they are of.
pub(super) async fn write(
    tables: Tables,
    request: SnapshotRequest,
    open: OpenRequest,
    options: Options,
) -> Result<SnapshotHandle> {
    let kept: Vec<&Table> = tables
        .0
        .iter()
        .filter(|table| table.registered || !options.has(Defect::UnregisteredStatesAreDropped))
        .collect();
    let states: Vec<StateDescriptor> = kept.iter().map(|table| table.descriptor.clone()).collect();
    let body: Vec<(&StateDescriptor, Content)> = kept
        .iter()
        .map(|table| {
            let lost = options.has(Defect::TimersAreNotRestored)
                && matches!(table.content, Content::Queue(_));
            let content =
                if lost { Content::Queue(Default::default()) } else { table.content.clone() };
            (&table.descriptor, content)
        })
        .collect();
    let bytes = FRAME.encode(&body);
    let number = if options.has(Defect::ObjectNamesRepeat) {
        0
    } else {
        NEXT_OBJECT.fetch_add(1, Ordering::Relaxed)
    };
    let path =
        format!("{}{}-{}-{number}.reference", request.directory, open.operator, std::process::id());
    let object = ObjectRef::new(&path, bytes.len() as u64, crc32fast::hash(&bytes));
    let written = open.environment.store.write(&path, bytes).await;
    if let (Err(error), false) = (written, options.has(Defect::UploadFailuresAreIgnored)) {
        return Err(Error::store("write a snapshot", &path, error));
    }
    let mut handle = SnapshotHandle::new(BACKEND, FORMAT, &open, &request);
    if options.has(Defect::EmptyGroupsAreUncovered) {
        handle.key_groups = tables.covered();
    }
    if options.has(Defect::WatermarksAreLost) {
        handle.watermark = None;
    }
    handle.states = states;
    handle.objects = vec![object];
    Ok(handle)
}

/// Reads what the request wants of its handles.
pub(super) async fn restore(request: &OpenRequest, options: Options) -> Result<Tables> {
    if !options.has(Defect::RestoreChecksNothing) {
        request.check(BACKEND, FORMAT..=FORMAT)?;
    }
    let mut tables: HashMap<String, Table> = HashMap::new();
    let mut handles = request.restore.len();
    if options.has(Defect::RestoreReadsOneHandle) {
        handles = handles.min(1);
    }
    for handle in &request.restore[..handles] {
        // Every handle's states exist, also where none of its key groups is wanted.
        for descriptor in &handle.states {
            tables.entry(descriptor.name.clone()).or_insert_with(|| Table::new(descriptor.clone()));
        }
        for object in &handle.objects {
            for (descriptor, content) in read(request, object, options).await? {
                let table =
                    tables.entry(descriptor.name.clone()).or_insert_with(|| Table::new(descriptor));
                table.absorb(content, |group| {
                    request.key_groups.contains(group)
                        || options.has(Defect::RestoreTakesForeignGroups)
                });
            }
        }
    }
    let mut tables: Vec<Table> = tables.into_values().collect();
    tables.sort_by(|a, b| a.descriptor.name.cmp(&b.descriptor.name));
    Ok(Tables(tables))
}

async fn read(
    request: &OpenRequest,
    object: &ObjectRef,
    options: Options,
) -> Result<Vec<(StateDescriptor, Content)>> {
    let path = &object.path;
    let bytes = match request.environment.store.read(path).await {
        Ok(bytes) => bytes.to_vec(),
        Err(error)
            if error.kind() == opendal::ErrorKind::NotFound
                && options.has(Defect::MissingObjectsAreEmpty) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(Error::store("read a snapshot", path, error)),
    };
    if options.has(Defect::ChecksumsAreIgnored) {
        // As good as it gets without one: skip the envelope, decode what is there.
        return Ok(FRAME.decode(&repaired(bytes), path).unwrap_or_default());
    }
    if bytes.len() as u64 != object.length || crc32fast::hash(&bytes) != object.crc32 {
        return Err(Error::new(ErrorKind::Corrupt, "length or checksum differs from the handle's")
            .object(path)
            .advice("restore another checkpoint"));
    }
    FRAME.decode(&bytes, path)
}

/// Overwrites the stored checksum with that of the bytes there are.
fn repaired(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len().saturating_sub(4);
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes.truncate(end);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}
