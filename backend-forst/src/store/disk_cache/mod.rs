//! Tables on local disk: whole files, as they are in the store.
//!
//! ```text
//! <folder>/lock                       held while the cache is open
//! <folder>/<id>-<length>.table        a table; <id> says which, see `cache_id.rs`
//! <folder>/<n>.part                   one being written
//! ```
//!
//! Files are written by flush and compaction on the way to the store, and in the background for tables
//! that are read much. After a restart they are still good: name and length are checked when the cache
//! opens, and each block by its checksum when it is read, so that nothing has to be read in advance. The
//! cache is never needed: whatever is wrong with it, the store has the bytes.
//!
//! The index is our own and not that of a caching library: the limit is a hard one (space is taken
//! before it is written, and files make way for it at once), and who makes way is the table with the
//! fewest reads per byte, new ones ranked by what they were compacted from.

mod files;
mod index;
mod new_file;
mod read_at;
#[cfg(test)]
mod tests;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use weir_state_api::{Error, ErrorKind, Result};

use super::cache_id::CacheId;
use super::heat::{Density, Heat, ReadClock};
use super::traffic::Counter;
use files::OpenFiles;
use index::Index;
pub(crate) use new_file::NewFile;
use read_at::read_at;

/// Whole tables on local disk, within a limit in bytes.
#[derive(Debug)]
pub(crate) struct DiskCache {
    folder: PathBuf,
    index: Mutex<Index>,
    open: OpenFiles,
    next_part: AtomicU64,
    state: AtomicU8,
    pub(crate) counters: DiskCounters,
    _lock: File,
}

/// What happened to the cache.
#[derive(Debug, Default)]
pub(crate) struct DiskCounters {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) evicted_bytes: Counter,
    /// Files that were found damaged, cut short or gone.
    pub(crate) damaged: Counter,
    /// Errors of the disk, each of which switched the cache off, or the writing of it.
    pub(crate) failures: Counter,
}

/// Reads and writes.
const ON: u8 = 0;
/// Writing has failed: what is there is still read.
const READ_ONLY: u8 = 1;
/// Reading has failed.
const OFF: u8 = 2;

impl DiskCache {
    /// Opens the cache in a folder, which is created if it is not there, with what is left in it.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) when another process has it open or it cannot be
    /// written to.
    pub(crate) fn open(folder: &Path, limit: u64, clock: &ReadClock) -> Result<Self> {
        let failed = |source: io::Error| {
            Error::new(
                ErrorKind::InvalidUsage,
                format!("the folder {} cannot be a disk cache", folder.display()),
            )
            .advice("give each process a folder of its own that it may write to")
            .source(source)
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::create(folder.join("lock")).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::new(
                ErrorKind::InvalidUsage,
                format!("the folder {} is a disk cache in use", folder.display()),
            )
            .advice("give other processes a folder of their own; in this one, clone the `ForstResources`"),
            TryLockError::Error(error) => failed(error),
        })?;
        let mut index = Index::new(limit);
        for file in files::left_over(folder).map_err(failed)? {
            // In the order they were written in, as far as the file system tells.
            index.insert(file.id, file.length, Heat::new(clock));
        }
        let cache = DiskCache {
            folder: folder.to_path_buf(),
            index: Mutex::new(index),
            open: OpenFiles::default(),
            next_part: AtomicU64::new(0),
            state: AtomicU8::new(ON),
            counters: DiskCounters::default(),
            _lock: lock,
        };
        // The limit may be a lower one than before.
        let surplus = cache.index().make_room(0, None).unwrap_or_default();
        cache.remove_evicted(&surplus);
        Ok(cache)
    }

    /// Reads a part of a table, if it is here. What the disk fails to give is not here.
    pub(crate) fn read(&self, id: CacheId, offset: u64, length: usize) -> Option<Bytes> {
        if self.state() == OFF {
            return None;
        }
        let Some(file_length) = self.index().length_of(id) else {
            self.counters.misses.add(1);
            return None;
        };
        if offset.checked_add(length as u64).is_none_or(|end| end > file_length) {
            return None;
        }
        let path = self.path_of(id, file_length);
        let read = self.open_file(id, &path).and_then(|file| read_at(&file, offset, length));
        match read {
            Ok(bytes) => {
                self.counters.hits.add(1);
                self.counters.read_bytes.add(length as u64);
                Some(Bytes::from(bytes))
            }
            Err(error) => {
                self.counters.misses.add(1);
                self.remove_damaged(id);
                let gone = [io::ErrorKind::NotFound, io::ErrorKind::UnexpectedEof];
                if !gone.contains(&error.kind()) {
                    self.switch_to(OFF, "read", &path, &error);
                }
                None
            }
        }
    }

    fn open_file(&self, id: CacheId, path: &Path) -> io::Result<Arc<File>> {
        let (file, opened) = self.open.get(id, path)?;
        if opened && self.index().length_of(id).is_none() {
            // It made way meanwhile: kept open, it would go on taking space.
            self.open.close(id);
        }
        Ok(file)
    }

    /// Whether a whole table is here.
    pub(crate) fn contains(&self, id: CacheId) -> bool {
        self.state() != OFF && self.index().length_of(id).is_some()
    }

    /// Whether new files are taken.
    pub(crate) fn is_writable(&self) -> bool {
        self.state() == ON
    }

    /// Ties what is here of a table to how much it is read.
    pub(crate) fn attach(&self, id: CacheId, heat: &Arc<Heat>) {
        self.index().attach(id, heat);
    }

    /// Begins a file for a table as hot as `density` that will have about `expected` bytes; only colder
    /// tables make way for it. `density` `None`: as hot as the average of what is here.
    pub(crate) fn begin(
        self: &Arc<Self>,
        expected: u64,
        density: Option<Density>,
    ) -> Option<NewFile> {
        if !self.is_writable() {
            return None;
        }
        let (density, evicted) = {
            let mut index = self.index();
            let density = density.unwrap_or_else(|| index.average_density());
            (density, index.reserve(expected, density)?)
        };
        self.remove_evicted(&evicted);
        let number = self.next_part.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{number}{}", files::PART));
        match File::create(&path) {
            Ok(file) => Some(NewFile::new(Arc::clone(self), file, path, (expected, density))),
            Err(error) => {
                self.index().release(expected);
                self.switch_to(READ_ONLY, "create", &path, &error);
                None
            }
        }
    }

    /// Whether a table of this length and heat would find room.
    pub(crate) fn has_room(&self, length: u64, density: Density) -> bool {
        self.is_writable() && self.index().has_room(length, density)
    }

    /// Forgets a table: it was deleted from the store.
    pub(crate) fn remove(&self, id: CacheId) {
        let length = self.index().remove(id);
        if let Some(length) = length {
            self.delete_file(id, length);
        }
    }

    /// Forgets a table whose file is not as it was written.
    pub(crate) fn remove_damaged(&self, id: CacheId) {
        self.counters.damaged.add(1);
        self.remove(id);
    }

    /// What the files take, those being written included.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.index().used_bytes()
    }

    #[cfg(test)]
    /// How many tables are here.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.index().len()
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    /// The disk has failed: goes on with less of it.
    #[cold]
    fn switch_to(&self, state: u8, operation: &str, path: &Path, error: &io::Error) {
        self.counters.failures.add(1);
        self.state.fetch_max(state, Ordering::Relaxed);
        tracing::warn!(
            path = %path.display(),
            %error,
            "the disk cache failed to {operation} a file and is {}",
            if state == OFF { "switched off" } else { "not written to any more" },
        );
    }

    fn path_of(&self, id: CacheId, length: u64) -> PathBuf {
        self.folder.join(files::name_of(id, length))
    }

    fn remove_evicted(&self, evicted: &[(CacheId, u64)]) {
        for (id, length) in evicted {
            self.counters.evicted_bytes.add(*length);
            self.delete_file(*id, *length);
        }
    }

    /// Who reads it goes on reading: the file goes when it is closed.
    fn delete_file(&self, id: CacheId, length: u64) {
        self.open.close(id);
        // One that stays is found when the cache is opened again.
        drop(fs::remove_file(self.path_of(id, length)));
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
