//! Copies of the last checkpoints on the local disk: hard links that a restart on the same machine
//! takes in place of a download.
//!
//! ```text
//! <directory>/kept-<hash of the handle>/lock     held while the instance that wrote it lives
//! <directory>/kept-<hash of the handle>/about    operator and key groups
//! <directory>/kept-<hash of the handle>/<n>/     the files of database n
//! ```
//!
//! A copy is found by the handle it belongs to, so another job's or another attempt's is never taken
//! for it. RocksDB never changes a sorted file, and what it would change is copied, not linked: a copy
//! stays as it was whatever becomes of the databases. It is a cache: everything that goes wrong with
//! it ends in a download.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use weir_state_api::frame::Frame;
use weir_state_api::{CheckpointId, KeyGroupRange, Notification, SnapshotHandle};
use xxhash_rust::xxh3::xxh3_128;

use crate::snapshot::FileEntry;

const PREFIX: &str = "kept-";
const LOCK: &str = "lock";
const ABOUT: &str = "about";
const FRAME: Frame = Frame { magic: *b"WEIRKEPT", version: 1 };

/// The copies of one instance.
#[derive(Debug)]
pub(crate) struct LocalCopies {
    base: PathBuf,
    operator: String,
    groups: KeyGroupRange,
    kept: Mutex<BTreeMap<CheckpointId, Kept>>,
}

#[derive(Debug)]
struct Kept {
    path: PathBuf,
    _lock: File,
}

impl LocalCopies {
    pub(crate) fn new(base: PathBuf, operator: String, groups: KeyGroupRange) -> Self {
        LocalCopies { base, operator, groups, kept: Mutex::default() }
    }

    /// Keeps the folder of a snapshot's links. When that fails, there is no copy.
    pub(crate) fn keep(&self, handle: &SnapshotHandle, links: &Path) {
        let path = path_of(&self.base, handle);
        let kept = || -> std::io::Result<Kept> {
            let lock = File::create(links.join(LOCK))?;
            lock.try_lock()?;
            fs::write(links.join(ABOUT), FRAME.encode(&(&self.operator, self.groups)))?;
            fs::rename(links, &path)?;
            Ok(Kept { path: path.clone(), _lock: lock })
        };
        if let Ok(kept) = kept() {
            self.lock().insert(handle.checkpoint, kept);
        }
    }

    /// Lets go what the news makes useless.
    pub(crate) fn notify(&self, news: Notification) {
        let mut kept = self.lock();
        match news {
            Notification::Complete(id) if kept.contains_key(&id) => {
                let newer = kept.split_off(&id);
                remove(std::mem::replace(&mut *kept, newer));
                self.remove_abandoned();
            }
            Notification::Aborted(id) => remove(kept.remove(&id).map(|kept| (id, kept))),
            Notification::Subsumed(id) => {
                let newer = kept.split_off(&CheckpointId(id.0.saturating_add(1)));
                remove(std::mem::replace(&mut *kept, newer));
            }
            _ => {}
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<CheckpointId, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes copies that former instances of this operator left for the same key groups. Once a
    /// checkpoint is complete, all its instances have been restored: nobody needs them any more.
    fn remove_abandoned(&self) {
        let Ok(entries) = fs::read_dir(&self.base) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(PREFIX) && self.is_abandoned(&path) {
                drop(fs::remove_dir_all(&path));
            }
        }
    }

    fn is_abandoned(&self, path: &Path) -> bool {
        let Ok(lock) = File::open(path.join(LOCK)) else { return false };
        let Ok(about) = fs::read(path.join(ABOUT)) else { return false };
        let about = FRAME.decode::<(String, KeyGroupRange)>(&about, ABOUT);
        about.is_ok_and(|(operator, groups)| {
            operator == self.operator && !groups.intersection(self.groups).is_empty()
        }) && lock.try_lock().is_ok()
    }
}

fn remove(kept: impl IntoIterator<Item = (CheckpointId, Kept)>) {
    for (_, kept) in kept {
        // What cannot be removed now is removed by a later instance.
        drop(fs::remove_dir_all(&kept.path));
    }
}

/// Where the copy of a snapshot is, if there is one.
fn path_of(base: &Path, handle: &SnapshotHandle) -> PathBuf {
    base.join(format!("{PREFIX}{:032x}", xxh3_128(&handle.to_bytes())))
}

/// Takes a file of database `shard` out of the copy of a snapshot: linked, or copied if RocksDB may
/// change it. `false` unless it is there and exactly what the handle says.
pub(crate) fn take(
    base: &Path,
    handle: &SnapshotHandle,
    shard: usize,
    file: &FileEntry,
    target: &Path,
) -> bool {
    let source = path_of(base, handle).join(shard.to_string()).join(&file.name);
    let taken = || -> std::io::Result<bool> {
        if fs::metadata(&source)?.len() != file.identity.length {
            return Ok(false);
        }
        if crc32_of(&source)? != file.crc32 {
            return Ok(false);
        }
        if file.is_sorted_file() {
            fs::hard_link(&source, target)?;
        } else {
            fs::copy(&source, target)?;
        }
        Ok(true)
    };
    taken().unwrap_or(false)
}

fn crc32_of(path: &Path) -> std::io::Result<u32> {
    use std::io::Read;
    let mut file = File::open(path)?;
    let mut crc32 = crc32fast::Hasher::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(crc32.finalize()),
            length => crc32.update(&piece[..length]),
        }
    }
}
