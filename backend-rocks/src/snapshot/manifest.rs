//! What a handle says beyond its objects.

use serde::{Deserialize, Serialize};
use weir_state_api::frame::Frame;
use weir_state_api::{KeyGroupRange, Millis, Result, SnapshotHandle};

use super::Identity;
use crate::eras::Era;
use crate::error;

const FRAME: Frame = Frame { magic: *b"WEIRROCK", version: super::FORMAT_VERSION };

/// The databases of a snapshot, file by file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) shards: Vec<ShardManifest>,
    /// The timer queues; no timer of a queue is before its time, which is unknown when it is absent.
    pub(crate) queues: Vec<(String, Option<Millis>)>,
}

/// One database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardManifest {
    /// The key groups whose state it holds; whatever else is in it is not to be looked at.
    pub(crate) groups: KeyGroupRange,
    /// The states, by the numbers in its keys: names, and the eras of their values.
    pub(crate) states: Vec<(String, Vec<Era>)>,
    pub(crate) files: Vec<FileEntry>,
}

/// One file of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    /// Its name in the database's folder.
    pub(crate) name: String,
    pub(crate) identity: Identity,
    /// CRC-32 (IEEE) of its content.
    pub(crate) crc32: u32,
    /// Which of the handle's objects holds it.
    pub(crate) object: u32,
    /// Where it begins in that object.
    pub(crate) offset: u64,
    /// RocksDB's level and the key groups that its keys span, if known.
    pub(crate) extent: Option<(u8, KeyGroupRange)>,
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        FRAME.encode(self)
    }

    /// Reads and checks the manifest of a handle.
    ///
    /// # Errors
    /// [`Corrupt`](weir_state_api::ErrorKind::Corrupt) when it does not decode or does not fit the
    /// handle; [`Incompatible`](weir_state_api::ErrorKind::Incompatible) for another version.
    pub(crate) fn of(handle: &SnapshotHandle) -> Result<Self> {
        let origin = format!("metadata of checkpoint {}", handle.checkpoint);
        let manifest: Manifest = FRAME.decode(&handle.metadata, &origin)?;
        for shard in &manifest.shards {
            if shard.groups.intersection(handle.key_groups) != shard.groups {
                let what = format!("a database covers {}, its handle less", shard.groups);
                return Err(error::corrupt(&origin, what));
            }
            for (name, _) in &shard.states {
                if !handle.states.iter().any(|state| state.name == *name) {
                    let what = format!("a database has a state {name:?} that its handle has not");
                    return Err(error::corrupt(&origin, what));
                }
            }
            if shard.manifest_files().count() != 1 {
                return Err(error::corrupt(&origin, "a database has not one MANIFEST file"));
            }
            for file in &shard.files {
                file.check(handle, &origin)?;
            }
        }
        Ok(manifest)
    }

    /// The handle of this manifest for some of its key groups: what is needed of its databases, and of
    /// its objects.
    pub(crate) fn clipped(
        mut self,
        handle: &SnapshotHandle,
        groups: KeyGroupRange,
    ) -> SnapshotHandle {
        let mut clipped = handle.clone();
        clipped.key_groups = handle.key_groups.intersection(groups);
        self.shards.retain_mut(|shard| {
            shard.groups = shard.groups.intersection(clipped.key_groups);
            !shard.groups.is_empty()
        });
        let files = self.shards.iter_mut().flat_map(|shard| &mut shard.files);
        let mut needed: Vec<u32> = Vec::new();
        for file in files {
            let place = needed.iter().position(|&object| object == file.object);
            file.object = place.unwrap_or_else(|| {
                needed.push(file.object);
                needed.len() - 1
            }) as u32;
        }
        // The manifest was checked: they are there.
        let objects = needed.iter().filter_map(|&object| handle.objects.get(object as usize));
        clipped.objects = objects.cloned().collect();
        clipped.metadata = self.encode();
        clipped
    }
}

impl ShardManifest {
    /// RocksDB's own list of files: exactly one in a manifest that has been checked.
    pub(crate) fn manifest_files(&self) -> impl Iterator<Item = &FileEntry> {
        self.files.iter().filter(|file| file.name.starts_with("MANIFEST-"))
    }
}

impl FileEntry {
    /// Whether RocksDB never changes it.
    pub(crate) fn is_sorted_file(&self) -> bool {
        self.name.ends_with(".sst")
    }

    /// Whether it is known to hold nothing of these key groups, and can be dropped whole: RocksDB does
    /// not drop files of its first level.
    pub(crate) fn is_foreign_to(&self, groups: KeyGroupRange) -> bool {
        self.extent
            .is_some_and(|(level, extent)| level > 0 && extent.intersection(groups).is_empty())
    }

    fn check(&self, handle: &SnapshotHandle, origin: &str) -> Result<()> {
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // It becomes a local path.
        let known_name = self.name.strip_suffix(".sst").is_some_and(is_number)
            || self.name.strip_prefix("MANIFEST-").is_some_and(is_number);
        if !known_name {
            let what = format!("{:?} is no name of a file in a database", self.name);
            return Err(error::corrupt(origin, what));
        }
        let object = handle.objects.get(self.object as usize);
        let end = self.offset.checked_add(self.identity.length);
        match (object, end) {
            (Some(object), Some(end)) if end <= object.length => Ok(()),
            _ => Err(error::corrupt(
                origin,
                format!("the file {} lies in no object of the handle", self.name),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_state_api::{
        CheckpointId, CodecId, Environment, ErrorKind, ObjectRef, OpenRequest, SnapshotRequest,
        StateDescriptor, StateKind,
    };

    fn handle() -> SnapshotHandle {
        let open = OpenRequest::new(Environment::in_memory(), "op", CodecId::new("bytes", 1));
        let request = SnapshotRequest::checkpoint(CheckpointId(7), "chk-7");
        let mut handle = crate::snapshot::new_handle(&open, &request);
        let unit = || CodecId::new("unit", 1);
        handle.states.push(StateDescriptor::new("v", StateKind::Value, unit(), unit()));
        handle.objects.push(ObjectRef::new("chk-7/a", 1_000, 9));
        let file = |name: &str, offset, extent| FileEntry {
            name: name.into(),
            identity: Identity { length: 500, hash: 0xab },
            crc32: 0xcd,
            object: 0,
            offset,
            extent,
        };
        let manifest = Manifest {
            shards: vec![ShardManifest {
                groups: KeyGroupRange::new(0, 127),
                states: vec![("v".into(), Vec::new())],
                files: vec![
                    file("000012.sst", 0, Some((6, KeyGroupRange::new(3, 4)))),
                    file("MANIFEST-000005", 500, None),
                ],
            }],
            queues: vec![("t".into(), Some(-1))],
        };
        handle.metadata = manifest.encode();
        handle
    }

    /// In users' checkpoints; may only change together with the version.
    #[test]
    fn golden_bytes() {
        let handle = handle();
        let hex: String = handle.metadata.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        let manifest = Manifest::of(&handle).unwrap();
        assert_eq!(manifest.encode(), handle.metadata);
    }

    const GOLDEN: &str = "57454952524f434b010000003f0000000100800101017600020a3030303031322e737374f403ab01cd010000010603050f4d414e49464553542d303030303035f403ab01cd0100f403000101740101e6c80dc6";

    #[test]
    fn what_does_not_fit_its_handle_is_refused() {
        type Damage = fn(&mut Manifest);
        let damages: [Damage; 8] = [
            |manifest| manifest.shards[0].groups = KeyGroupRange::new(0, 128),
            |manifest| manifest.shards[0].states[0].0 = "w".into(),
            |manifest| manifest.shards[0].files.truncate(1),
            |manifest| manifest.shards[0].files[0].name = "../000012.sst".into(),
            |manifest| manifest.shards[0].files[0].name = ".sst".into(),
            |manifest| manifest.shards[0].files[0].object = 1,
            |manifest| manifest.shards[0].files[0].offset = 501,
            |manifest| manifest.shards[0].files[0].offset = u64::MAX,
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            let mut handle = handle();
            let mut manifest = Manifest::of(&handle).unwrap();
            damage(&mut manifest);
            handle.metadata = manifest.encode();
            let error = Manifest::of(&handle).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "damage {number}: {error}");
        }
        let mut newer = handle();
        newer.metadata[8] = 2;
        assert_eq!(Manifest::of(&newer).unwrap_err().kind(), ErrorKind::Incompatible);
    }
}
