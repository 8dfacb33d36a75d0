//! Snapshots: what is asked for, what comes back, what a restore checks.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    BoxFuture, CodecId, Environment, Error, ErrorKind, KeyGroupRange, KeyHashVersion,
    MaxParallelism, Millis, Result, Spawner, StateDescriptor,
};

/// The number of a checkpoint or savepoint; grows within a job, gaps are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CheckpointId(pub u64);

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a snapshot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SnapshotKind {
    /// For recovery; may share objects with other checkpoints.
    Checkpoint,
    /// For the user; self-contained, in the backend's own format.
    NativeSavepoint,
}

/// Who deletes the objects of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Ownership {
    /// Weir's collector deletes them once nothing reachable names them.
    Weir,
    /// The engine counts references and deletes; Weir never does.
    Engine,
}

/// What a snapshot should be and where its objects go.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SnapshotRequest {
    /// Its number.
    pub checkpoint: CheckpointId,
    /// What it is for.
    pub kind: SnapshotKind,
    /// Who deletes its objects.
    pub ownership: Ownership,
    /// Path in the store, ending in `/`, under which objects are created that only this snapshot
    /// names. Backends give every object a name that is never used again.
    pub directory: String,
    /// Path in the store, ending in `/`, under which objects are created that later snapshots may
    /// name too ([`ObjectRef::shared`]). Engines that do not care give `directory` again.
    pub shared_directory: String,
    /// The oldest complete checkpoint whose objects the engine keeps until this snapshot is decided.
    /// The snapshot builds on none before it, whatever the backend has or has not been told. `None`:
    /// the engine does not say, notifications alone decide.
    pub reuse_from: Option<CheckpointId>,
    /// The operator's current event time; restored with the state.
    pub watermark: Option<Millis>,
}

impl SnapshotRequest {
    /// A checkpoint whose objects go to `directory` (a `/` is added when it lacks one).
    pub fn checkpoint(checkpoint: CheckpointId, directory: impl Into<String>) -> Self {
        let mut directory = directory.into();
        if !directory.is_empty() && !directory.ends_with('/') {
            directory.push('/');
        }
        SnapshotRequest {
            checkpoint,
            kind: SnapshotKind::Checkpoint,
            ownership: Ownership::Weir,
            shared_directory: directory.clone(),
            directory,
            reuse_from: None,
            watermark: None,
        }
    }

    /// Whether it may name objects of this checkpoint, as far as the request says: a checkpoint builds
    /// on checkpoints that the engine keeps, a savepoint on nothing. That the checkpoint is complete
    /// the backend must know itself ([`SnapshotBases`](crate::SnapshotBases)).
    pub fn may_build_on(&self, checkpoint: CheckpointId) -> bool {
        self.kind == SnapshotKind::Checkpoint
            && self.reuse_from.is_none_or(|oldest| oldest <= checkpoint)
    }
}

/// The asynchronous part of a snapshot.
///
/// Run it on any thread where the store's client can run: OpenDAL's services for local files and
/// HTTP need a tokio context, the one in memory needs none. Dropping it abandons the snapshot.
#[must_use = "a snapshot is only written when its task runs"]
pub struct SnapshotTask(BoxFuture<'static, Result<SnapshotHandle>>);

impl SnapshotTask {
    /// Wraps the future that writes the snapshot.
    pub fn new(future: impl Future<Output = Result<SnapshotHandle>> + Send + 'static) -> Self {
        SnapshotTask(Box::pin(future))
    }

    /// Writes the snapshot.
    ///
    /// # Errors
    /// Those of the store, naming the object. Objects written before the failure are left to the
    /// collector.
    pub async fn run(self) -> Result<SnapshotHandle> {
        self.0.await
    }

    /// Writes the snapshot from the spawner, then calls `done`: exactly once, with an error also when
    /// the work panics or the spawner drops it.
    pub fn run_on(
        self,
        spawner: &dyn Spawner,
        done: impl FnOnce(Result<SnapshotHandle>) + Send + 'static,
    ) {
        crate::spawned::spawn_with_reply(spawner, self.0, done);
    }
}

impl fmt::Debug for SnapshotTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnapshotTask")
    }
}

/// An object in the store, with all that is needed to verify it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ObjectRef {
    /// Path in the store.
    pub path: String,
    /// Length in bytes.
    pub length: u64,
    /// CRC-32 (IEEE) of the whole object.
    pub crc32: u32,
    /// Whether later snapshots may name it too.
    pub shared: bool,
}

impl ObjectRef {
    /// An object that only one snapshot names.
    pub fn new(path: impl Into<String>, length: u64, crc32: u32) -> Self {
        ObjectRef { path: path.into(), length, crc32, shared: false }
    }

    /// The same object, which later snapshots may name too.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }
}

/// A written snapshot of one instance: small, plain data, self-describing.
///
/// Serialize it with any serde format, or with [`to_bytes`](SnapshotHandle::to_bytes), which adds
/// magic, version and checksum. Several handles restore one instance, as long as each key group it
/// needs is covered by exactly one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SnapshotHandle {
    /// The backend that wrote it.
    pub backend: String,
    /// Version of that backend's snapshot format.
    pub backend_format: u32,
    /// The checkpoint it belongs to.
    pub checkpoint: CheckpointId,
    /// What it is for.
    pub kind: SnapshotKind,
    /// Who deletes its objects.
    pub ownership: Ownership,
    /// The key groups it covers; a covered group without data is empty, not missing.
    pub key_groups: KeyGroupRange,
    /// The operator's number of key groups.
    pub max_parallelism: MaxParallelism,
    /// How keys were assigned to groups.
    pub key_hash: KeyHashVersion,
    /// How keys are encoded.
    pub key_codec: CodecId,
    /// The event time when it was taken.
    pub watermark: Option<Millis>,
    /// All states in it.
    pub states: Vec<StateDescriptor>,
    /// Everything it needs in the store.
    pub objects: Vec<ObjectRef>,
    /// What else the backend needs to restore it, in its own format: a small manifest, names of
    /// files, the handle of a wrapped backend. Opaque to everybody else.
    pub metadata: Vec<u8>,
}

impl SnapshotHandle {
    /// The handle of a snapshot of the instance that was opened with `instance`, still without states
    /// and objects. `backend` and `backend_format` are what [`OpenRequest::check`] will compare.
    pub fn new(
        backend: impl Into<String>,
        backend_format: u32,
        instance: &OpenRequest,
        request: &SnapshotRequest,
    ) -> Self {
        SnapshotHandle {
            backend: backend.into(),
            backend_format,
            checkpoint: request.checkpoint,
            kind: request.kind,
            ownership: request.ownership,
            key_groups: instance.key_groups,
            max_parallelism: instance.max_parallelism,
            key_hash: instance.key_hash,
            key_codec: instance.key_codec.clone(),
            watermark: request.watermark,
            states: Vec::new(),
            objects: Vec::new(),
            metadata: Vec::new(),
        }
    }

    const FRAME: crate::frame::Frame = crate::frame::Frame { magic: *b"WEIRHNDL", version: 2 };

    /// The handle in Weir's own encoding: magic, version, length, postcard body, CRC-32
    /// (`docs/formats/frame.md`).
    pub fn to_bytes(&self) -> Vec<u8> {
        Self::FRAME.encode(self)
    }

    /// Reads what [`to_bytes`](SnapshotHandle::to_bytes) wrote; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) for anything but whole, unchanged bytes;
    /// [`Incompatible`](ErrorKind::Incompatible) for an unknown version.
    pub fn from_bytes(bytes: &[u8], origin: &str) -> Result<Self> {
        Self::FRAME.decode(bytes, origin)
    }

    /// The sum of its objects' lengths.
    pub fn total_bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.length).sum()
    }
}

/// What happens to the objects of the snapshots that an instance is restored from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RestoreMode {
    /// The new job owns them: it may build on them and its collector may delete them.
    #[default]
    Claim,
    /// They stay somebody else's: the first snapshot of the new job stands on its own.
    NoClaim,
}

/// Everything needed to open an instance of a backend.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenRequest {
    /// Clock, store and spawner.
    pub environment: Environment,
    /// Name of the operator, for errors, metrics and object names.
    pub operator: String,
    /// Path in the store, ending in `/`, under which the instance may create objects at any time,
    /// also between snapshots (continuous uploads, materializations). Only this instance writes
    /// there. While it lives, the collector deletes there only what a complete checkpoint has named
    /// and no kept one names any more; so an object that the instance has dropped must not come back
    /// into a later handle. What no handle ever named the instance may delete itself. Empty: the
    /// backend must not create objects between snapshots.
    pub directory: String,
    /// The key groups the instance will own.
    pub key_groups: KeyGroupRange,
    /// The operator's number of key groups.
    pub max_parallelism: MaxParallelism,
    /// How keys are assigned to groups.
    pub key_hash: KeyHashVersion,
    /// How keys are encoded.
    pub key_codec: CodecId,
    /// Snapshots to restore from; none opens an empty instance.
    pub restore: Vec<SnapshotHandle>,
    /// Who owns those snapshots afterwards.
    pub mode: RestoreMode,
}

impl OpenRequest {
    /// A request for an empty instance that owns all key groups and hashes its keys itself.
    pub fn new(environment: Environment, operator: impl Into<String>, key_codec: CodecId) -> Self {
        let max_parallelism = MaxParallelism::default();
        OpenRequest {
            environment,
            operator: operator.into(),
            directory: String::new(),
            key_groups: KeyGroupRange::all(max_parallelism),
            max_parallelism,
            key_hash: KeyHashVersion::default(),
            key_codec,
            restore: Vec::new(),
            mode: RestoreMode::default(),
        }
    }

    /// Restricts the instance to one subtask's share.
    ///
    /// # Errors
    /// Those of [`KeyGroupRange::of_subtask`].
    pub fn for_subtask(
        mut self,
        max_parallelism: MaxParallelism,
        parallelism: u16,
        subtask: u16,
    ) -> Result<Self> {
        self.key_groups = KeyGroupRange::of_subtask(max_parallelism, parallelism, subtask)?;
        self.max_parallelism = max_parallelism;
        Ok(self)
    }

    /// Restores from these snapshots.
    #[must_use]
    pub fn restore_from(mut self, handles: Vec<SnapshotHandle>) -> Self {
        self.restore = handles;
        self
    }

    /// The watermark of the restored instance: the smallest of the snapshots', if all have one.
    pub fn restored_watermark(&self) -> Option<Millis> {
        let mut relevant = self.relevant_handles().peekable();
        relevant.peek()?;
        relevant.map(|handle| handle.watermark).try_fold(Millis::MAX, |smallest, watermark| {
            watermark.map(|watermark| smallest.min(watermark))
        })
    }

    /// The handles that hold some of the requested key groups.
    pub fn relevant_handles(&self) -> impl Iterator<Item = &SnapshotHandle> {
        self.restore
            .iter()
            .filter(|handle| !handle.key_groups.intersection(self.key_groups).is_empty())
    }

    /// Checks all that can be checked without reading an object: every backend calls it first.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) when the folder does not end with `/` or has a `.` or `..`;
    /// [`Incompatible`](ErrorKind::Incompatible) when a handle is of another backend or format, of
    /// another max parallelism, hash or key codec, when two handles define a state differently, or
    /// cover the same requested key group (uniting them would bring deleted entries back);
    /// [`NotFound`](ErrorKind::NotFound) when the handles leave a requested key group uncovered.
    pub fn check(&self, backend: &str, formats: std::ops::RangeInclusive<u32>) -> Result<()> {
        let (folder, operator) = (&self.directory, &self.operator);
        if !folder.is_empty() && !folder.ends_with('/') {
            let what =
                format!("the folder {folder:?} of operator {operator:?} does not end with '/'");
            return Err(Error::new(ErrorKind::InvalidUsage, what).advice("append a '/'"));
        }
        if folder.split('/').any(|part| part == "." || part == "..") {
            let what = format!("the folder {folder:?} of operator {operator:?} is relative");
            return Err(
                Error::new(ErrorKind::InvalidUsage, what).advice("name it from the store's root")
            );
        }
        for handle in &self.restore {
            self.check_handle(handle, backend, &formats)?;
        }
        self.check_states_agree()?;
        if self.restore.is_empty() {
            return Ok(());
        }
        for group in self.key_groups.iter() {
            let covering = self.restore.iter().filter(|handle| handle.key_groups.contains(group));
            let (kind, what) = match covering.clone().count() {
                1 => continue,
                0 => (ErrorKind::NotFound, "no snapshot covers".to_owned()),
                _ => {
                    let name = |handle: &SnapshotHandle| {
                        format!("{} with groups {}", handle.checkpoint, handle.key_groups)
                    };
                    let several = covering.map(name).collect::<Vec<_>>().join(", ");
                    (ErrorKind::Incompatible, format!("several snapshots ({several}) cover"))
                }
            };
            return Err(Error::new(
                kind,
                format!(
                    "{what} key group {group} of operator {:?}, the instance needs {} once",
                    self.operator, self.key_groups
                ),
            )
            .advice("pass the handles of all subtasks of one checkpoint"));
        }
        Ok(())
    }

    fn check_handle(
        &self,
        handle: &SnapshotHandle,
        backend: &str,
        formats: &std::ops::RangeInclusive<u32>,
    ) -> Result<()> {
        let refuse = |what: &str, stored: &dyn fmt::Display, wanted: &dyn fmt::Display| {
            let error = Error::new(
                ErrorKind::Incompatible,
                format!(
                    "the snapshot {} of operator {:?} has {what} {stored}, this instance needs \
                     {wanted}",
                    handle.checkpoint, self.operator
                ),
            );
            match handle.objects.first() {
                Some(object) => error.object(&object.path),
                None => error,
            }
        };
        if handle.backend != backend {
            return Err(refuse("backend", &handle.backend, &backend).advice(
                "restore with the backend that wrote it; what a changelog wrote, with a changelog \
                 around the same backend or, to switch it off, with `ChangelogOff` around it",
            ));
        }
        if !formats.contains(&handle.backend_format) {
            let known = format!("{} to {}", formats.start(), formats.end());
            return Err(refuse("format version", &handle.backend_format, &known)
                .advice("restore with a version of Weir that knows this format"));
        }
        if handle.max_parallelism != self.max_parallelism {
            return Err(refuse("max parallelism", &handle.max_parallelism, &self.max_parallelism)
                .advice("restore with the max parallelism that the snapshot was taken with"));
        }
        if handle.key_hash != self.key_hash {
            let (stored, wanted) =
                (format!("{:?}", handle.key_hash), format!("{:?}", self.key_hash));
            return Err(refuse("key hash", &stored, &wanted));
        }
        if handle.key_codec != self.key_codec {
            return Err(refuse("key codec", &handle.key_codec, &self.key_codec)
                .advice("use the key type that the snapshot was taken with"));
        }
        Ok(())
    }

    fn check_states_agree(&self) -> Result<()> {
        let mut seen: std::collections::HashMap<&str, &StateDescriptor> =
            std::collections::HashMap::new();
        for descriptor in self.restore.iter().flat_map(|handle| &handle.states) {
            match seen.get(descriptor.name.as_str()) {
                Some(first) => first.check_compatible(descriptor)?,
                None => {
                    seen.insert(&descriptor.name, descriptor);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
