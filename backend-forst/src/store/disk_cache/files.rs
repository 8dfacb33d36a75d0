//! Files of the disk cache: their names, what a restart finds, what is kept open.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use quick_cache::sync::Cache;

use crate::store::cache_id::CacheId;

/// The end of a name while the file is written.
pub(super) const PART: &str = ".part";
const TABLE: &str = ".table";

/// How many files are kept open: what the usual limit of 1,024 leaves room for.
const OPEN_FILES: usize = 256;

/// The name of the file of a table.
pub(super) fn name_of(id: CacheId, length: u64) -> String {
    format!("{id}-{length}{TABLE}")
}

fn parse_name(name: &str) -> Option<(CacheId, u64)> {
    let (id, length) = name.strip_suffix(TABLE)?.split_once('-')?;
    let (id, length) = (id.parse().ok()?, length.parse().ok()?);
    (name_of(id, length) == name).then_some((id, length))
}

/// A table that an earlier process has left.
#[derive(Debug)]
pub(super) struct LeftOver {
    pub(super) id: CacheId,
    pub(super) length: u64,
}

/// The whole tables in a folder, oldest first. What was not finished is deleted, what is not ours left
/// alone.
pub(super) fn left_over(folder: &Path) -> io::Result<Vec<LeftOver>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let number = name.strip_suffix(PART).is_some_and(|number| number.parse::<u64>().is_ok());
        let table = parse_name(name);
        let metadata = entry.metadata()?;
        match table {
            Some((id, length)) if metadata.is_file() && metadata.len() == length => {
                let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((written, LeftOver { id, length }));
            }
            Some(_) => drop(fs::remove_file(entry.path())),
            None if number => drop(fs::remove_file(entry.path())),
            None => {}
        }
    }
    found.sort_by_key(|(written, _)| *written);
    Ok(found.into_iter().map(|(_, file)| file).collect())
}

/// Open files by table: to open one costs more than to read a block.
#[derive(Debug)]
pub(super) struct OpenFiles(Cache<CacheId, Arc<File>>);

impl Default for OpenFiles {
    fn default() -> Self {
        OpenFiles(Cache::new(OPEN_FILES))
    }
}

impl OpenFiles {
    /// The file of a table, and whether it had to be opened.
    pub(super) fn get(&self, id: CacheId, path: &Path) -> io::Result<(Arc<File>, bool)> {
        if let Some(file) = self.0.get(&id) {
            return Ok((file, false));
        }
        let file = Arc::new(File::open(path)?);
        self.0.insert(id, Arc::clone(&file));
        Ok((file, true))
    }

    pub(super) fn close(&self, id: CacheId) {
        self.0.remove(&id);
    }
}
