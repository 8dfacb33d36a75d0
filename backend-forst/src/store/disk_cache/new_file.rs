//! A table on its way to local disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::{DiskCache, READ_ONLY};
use crate::store::cache_id::CacheId;
use crate::store::heat::{Density, Heat};

/// A file being written, with the space it takes. Nothing that happens to it concerns the table: on any
/// failure the file is given up.
#[derive(Debug)]
pub(crate) struct NewFile {
    cache: Arc<DiskCache>,
    file: File,
    path: PathBuf,
    density: Density,
    reserved: u64,
    written: u64,
    /// Still worth going on with.
    good: bool,
    kept: bool,
}

impl NewFile {
    pub(super) fn new(
        cache: Arc<DiskCache>,
        file: File,
        path: PathBuf,
        (reserved, density): (u64, Density),
    ) -> Self {
        NewFile { cache, file, path, density, reserved, written: 0, good: true, kept: false }
    }

    /// Appends to the file.
    pub(crate) fn write(&mut self, bytes: &Bytes) {
        if !self.good || bytes.is_empty() {
            return;
        }
        let length = bytes.len() as u64;
        let more = (self.written + length).saturating_sub(self.reserved);
        let Some(evicted) = self.cache.index().reserve(more, self.density) else {
            self.good = false;
            return;
        };
        self.reserved += more;
        self.cache.remove_evicted(&evicted);
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.written += length;
                self.cache.counters.written_bytes.add(length);
            }
            Err(error) => {
                self.good = false;
                self.cache.switch_to(READ_ONLY, "write", &self.path, &error);
            }
        }
    }

    /// Whether it still takes what is written.
    pub(crate) fn is_good(&self) -> bool {
        self.good
    }

    /// The file is whole: keeps it as that of a table. One that was
    /// never read counts as being as hot as it was begun with.
    pub(crate) fn keep(mut self, id: CacheId, heat: &Arc<Heat>) {
        if !self.good {
            return;
        }
        let target = self.cache.path_of(id, self.written);
        match fs::rename(&self.path, &target) {
            Ok(()) => {
                if heat.reads() == 0 {
                    heat.warm_to(self.density, self.written);
                }
                self.cache.open.close(id);
                let mut index = self.cache.index();
                index.release(self.reserved - self.written);
                index.keep_reserved(id, self.written, Arc::clone(heat));
                self.kept = true;
            }
            Err(error) => self.cache.switch_to(READ_ONLY, "rename", &self.path, &error),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.kept {
            self.cache.index().release(self.reserved);
            // One that stays is removed when the cache is opened again.
            drop(fs::remove_file(&self.path));
        }
    }
}
