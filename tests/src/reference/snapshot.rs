//! Snapshots of the reference backend: one enveloped object with everything in it, or one for each key
//! group.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_state_api::frame::Frame;
use weir_state_api::ttl::TtlTime;
use weir_state_api::{
    Error, ErrorKind, KeyGroup, ObjectRef, OpenRequest, Result, SnapshotHandle, SnapshotKind,
    SnapshotRequest, StateDescriptor,
};

use super::sharing::{Piece, Pieces, Sharing};
use super::tables::{Content, Table, Tables};
use super::{Defect, Options};

pub(super) const BACKEND: &str = "reference";
const FORMAT: u32 = 1;
const FRAME: Frame = Frame { magic: *b"WEIRREFB", version: FORMAT };

/// Distinguishes all objects written by this process.
static NEXT_OBJECT: AtomicU64 = AtomicU64::new(0);

/// Writes one snapshot.
pub(super) struct Writer<'a> {
    pub(super) request: SnapshotRequest,
    /// Which instance it is of.
    pub(super) open: OpenRequest,
    pub(super) options: Options,
    pub(super) sharing: &'a Sharing,
}

impl Writer<'_> {
    /// Writes `tables`, sharing what `base` has of them.
    pub(super) async fn write(self, tables: Tables, base: &Pieces) -> Result<SnapshotHandle> {
        let mut kept: Vec<Table> = tables.0.clone();
        kept.retain(|table| {
            table.registered || !self.options.has(Defect::UnregisteredStatesAreDropped)
        });
        for table in &mut kept {
            if !table.registered && self.options.has(Defect::UnregisteredTtlsAreDropped) {
                table.descriptor.ttl = None;
            }
            if self.options.has(Defect::TimersAreNotRestored)
                && matches!(table.content, Content::Queue(_))
            {
                table.content = Content::Queue(Default::default());
            }
        }
        let mut handle = SnapshotHandle::new(BACKEND, FORMAT, &self.open, &self.request);
        if self.options.has(Defect::EmptyGroupsAreUncovered) {
            handle.key_groups = tables.covered();
        }
        if self.options.has(Defect::WatermarksAreLost) {
            handle.watermark = None;
        }
        handle.states = kept.iter().map(|table| table.descriptor.clone()).collect();
        if self.options.incremental && self.request.kind == SnapshotKind::Checkpoint {
            let pieces = self.pieces(&kept, base).await?;
            handle.objects = pieces.values().map(|piece| piece.object.clone()).collect();
            self.sharing.written(self.request.checkpoint, pieces);
            for table in &mut kept {
                table.content = Table::new(table.descriptor.clone()).content;
            }
        }
        let body: Vec<_> = kept.iter().map(|table| (&table.descriptor, &table.content)).collect();
        let own = self.put(&self.request.directory, FRAME.encode(&body)).await?;
        handle.objects.push(own);
        Ok(handle)
    }

    async fn pieces(&self, tables: &[Table], base: &Pieces) -> Result<Pieces> {
        let mut groups: BTreeMap<KeyGroup, Vec<(&StateDescriptor, Content)>> = BTreeMap::new();
        for table in tables {
            for (group, content) in table.content.by_group() {
                groups.entry(group).or_default().push((&table.descriptor, content));
            }
        }
        let directory = if self.options.has(Defect::SharedObjectsAreMisplaced) {
            &self.request.directory
        } else {
            &self.request.shared_directory
        };
        let mut pieces = Pieces::new();
        for (group, mut body) in groups {
            body.sort_by(|a, b| a.0.name.cmp(&b.0.name));
            let bytes = FRAME.encode(&body);
            let piece = match base.get(&group) {
                Some(piece) if piece.bytes == bytes => piece.clone(),
                _ => {
                    let object = self.put(directory, bytes.clone()).await?.shared();
                    Arc::new(Piece { bytes, object })
                }
            };
            pieces.insert(group, piece);
        }
        Ok(pieces)
    }

    async fn put(&self, directory: &str, bytes: Vec<u8>) -> Result<ObjectRef> {
        let number = if self.options.has(Defect::ObjectNamesRepeat) {
            0
        } else {
            NEXT_OBJECT.fetch_add(1, Ordering::Relaxed)
        };
        let (operator, process) = (&self.open.operator, std::process::id());
        let path = format!("{directory}{operator}-{process}-{number}.reference");
        let length = bytes.len() as u64;
        let object = ObjectRef::new(&path, length, crc32fast::hash(&bytes));
        let written = self.open.environment.store.write(&path, bytes).await;
        if let (Err(error), false) = (written, self.options.has(Defect::UploadFailuresAreIgnored)) {
            return Err(Error::store("write a snapshot", &path, error));
        }
        self.sharing.uploaded(length);
        Ok(object)
    }
}

/// Reads what the request wants of its handles; also as pieces that snapshots may share.
pub(super) async fn restore(
    request: &OpenRequest,
    time: TtlTime,
    options: Options,
) -> Result<(Tables, Pieces)> {
    let mut pieces = Pieces::new();
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
            let (bytes, body) = read(request, object, options).await?;
            if object.shared
                && let Some(group) = group_of(&body)
            {
                pieces.insert(group, Arc::new(Piece { bytes, object: object.clone() }));
            }
            for (descriptor, mut content) in body {
                let ttl = descriptor.ttl;
                if options.has(Defect::RestoresRefresh) {
                    content.refresh(&descriptor, time);
                }
                let table =
                    tables.entry(descriptor.name.clone()).or_insert_with(|| Table::new(descriptor));
                // Handles differ when not all subtasks had registered the state anew.
                let (kind, wanted) = (table.descriptor.kind, table.descriptor.ttl);
                if ttl != wanted && !options.has(Defect::HandlesShareOneTtl) {
                    content.convert(kind, ttl, wanted, time, options);
                }
                table.absorb(content, |group| {
                    request.key_groups.contains(group)
                        || options.has(Defect::RestoreTakesForeignGroups)
                });
            }
        }
    }
    let mut tables: Vec<Table> = tables.into_values().collect();
    tables.sort_by(|a, b| a.descriptor.name.cmp(&b.descriptor.name));
    Ok((Tables(tables), pieces))
}

/// The key group that a piece is of.
fn group_of(body: &[(StateDescriptor, Content)]) -> Option<KeyGroup> {
    body.iter().find_map(|(_, content)| content.groups().into_iter().next())
}

async fn read(
    request: &OpenRequest,
    object: &ObjectRef,
    options: Options,
) -> Result<(Vec<u8>, Vec<(StateDescriptor, Content)>)> {
    let path = &object.path;
    let bytes = match request.environment.store.read(path).await {
        Ok(bytes) => bytes.to_vec(),
        Err(error)
            if error.kind() == opendal::ErrorKind::NotFound
                && options.has(Defect::MissingObjectsAreEmpty) =>
        {
            return Ok(Default::default());
        }
        Err(error) => return Err(Error::store("read a snapshot", path, error)),
    };
    if options.has(Defect::ChecksumsAreIgnored) {
        // As good as it gets without one: skip the envelope, decode what is there.
        return Ok((Vec::new(), FRAME.decode(&repaired(bytes), path).unwrap_or_default()));
    }
    if bytes.len() as u64 != object.length || crc32fast::hash(&bytes) != object.crc32 {
        return Err(Error::new(ErrorKind::Corrupt, "length or checksum differs from the handle's")
            .object(path)
            .advice("restore another checkpoint"));
    }
    let body = FRAME.decode(&bytes, path)?;
    Ok((bytes, body))
}

/// Overwrites the stored checksum with that of the bytes there are.
fn repaired(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len().saturating_sub(4);
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes.truncate(end);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}
