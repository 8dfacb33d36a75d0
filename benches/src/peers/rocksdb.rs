//! The raw `rocksdb` crate, set up as Weir's backend sets it up: what is left between the two is what
//! Weir costs.
//!
//! The options are read from the options file of a database that Weir has made, so they cannot
//! drift apart. Values and map keys are the same bytes; keys have the same fields in fixed width,
//! without the codes that let Weir's be of any length.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    Cache, DB, DBRawIterator, MergeOperands, Options, ReadOptions, SliceTransform,
    WriteBufferManager, WriteOptions,
};
use tempfile::TempDir;
use weir_state_api::{Error, ErrorKind, Result};

use crate::backends::{Backend, MEMORY};
use crate::measure::timed;
use crate::stage::value_of;

/// Length of the fields group, state and key.
const KEY_LEN: usize = 12;

/// What the database is set up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One value a key.
    Points,
    /// Entries that share a key, in order.
    Maps,
}

/// Files that a checkpoint is the first to have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NewFiles {
    pub(crate) count: usize,
    pub(crate) bytes: u64,
}

/// A database without anything around it.
pub(crate) struct RawRocksdb {
    pub(crate) db: DB,
    pub(crate) write: WriteOptions,
    pub(crate) read: ReadOptions,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    path: PathBuf,
    /// The files of the last checkpoint.
    files: HashSet<OsString>,
    _directory: TempDir,
}

impl RawRocksdb {
    /// An empty database with the options of Weir's.
    pub(crate) fn open(layout: Layout) -> Result<Self> {
        Self::open_with(&options_with(layout, |settings| settings)?)
    }

    /// An empty database.
    pub(crate) fn open_with(options: &Options) -> Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("weir-benches-raw-").tempdir().map_err(|error| {
                Error::new(ErrorKind::Unavailable, "no temporary folder for RocksDB").source(error)
            })?;
        let path = directory.path().join("database");
        let db = DB::open(options, &path).map_err(failed)?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let (key, value) = (Vec::new(), Vec::new());
        let read = ReadOptions::default();
        let files = HashSet::new();
        Ok(RawRocksdb { db, write, read, key, value, path, files, _directory: directory })
    }

    /// Writes values of 100 bytes, the same as [`Subtask::write`](crate::stage::Subtask::write).
    pub(crate) fn write_values(&mut self, keys: &[i64], round: u64) -> Result<()> {
        for key in keys {
            self.at(*key);
            value_of(*key, round, &mut self.value);
            self.value.push(0);
            self.db.put_opt(&self.key, &self.value, &self.write).map_err(failed)?;
        }
        Ok(())
    }

    /// Makes a checkpoint by hard links: how long that took, and the sorted files that the one before
    /// does not have.
    pub(crate) fn checkpoint(&mut self) -> Result<(Duration, NewFiles)> {
        let path = self.path.with_extension("checkpoint");
        let ((), time) = timed(|| {
            let checkpoint = Checkpoint::new(&self.db).map_err(failed)?;
            checkpoint.create_checkpoint(&path).map_err(failed)
        })?;
        let unreadable = |error| {
            Error::new(ErrorKind::Unavailable, "the checkpoint cannot be read").source(error)
        };
        let (mut files, mut new) = (HashSet::new(), NewFiles::default());
        for entry in fs::read_dir(&path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let is_sorted = entry.path().extension().is_some_and(|extension| extension == "sst");
            if is_sorted && !self.files.contains(&entry.file_name()) {
                new.bytes += entry.metadata().map_err(unreadable)?.len();
                new.count += 1;
            }
            files.insert(entry.file_name());
        }
        self.files = files;
        fs::remove_dir_all(&path).map_err(unreadable)?;
        Ok((time, new))
    }

    /// Writes the stored key of a value.
    #[inline(always)]
    pub(crate) fn at(&mut self, key: i64) {
        self.key.clear();
        // Two groups, as Weir's instances have here, and state 0.
        self.key.extend_from_slice(&[0, (key & 1) as u8, 0, 0]);
        self.key.extend_from_slice(&ordered(key));
    }

    /// Writes the stored key of an entry of a map.
    #[inline(always)]
    pub(crate) fn at_entry(&mut self, key: i64, map_key: i64) {
        self.at(key);
        self.key.extend_from_slice(&ordered(map_key));
    }

    /// Walks the entries with map keys in `from..to`.
    pub(crate) fn walk(&mut self, key: i64, from: i64, to: Option<i64>) -> DBRawIterator<'_> {
        self.at_entry(key, from);
        let mut end = self.key.clone();
        match to {
            Some(to) => end[KEY_LEN..].copy_from_slice(&ordered(to)),
            None => end[KEY_LEN..].fill(0xff),
        }
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        let mut walk = self.db.raw_iterator_opt(options);
        walk.seek(&self.key);
        walk
    }
}

/// Bytes that sort as the numbers do.
#[inline(always)]
fn ordered(number: i64) -> [u8; 8] {
    (number ^ i64::MIN).to_be_bytes()
}

/// The map key and the value that a walk stands at.
pub(crate) fn entry(stored: &[u8], value: &[u8]) -> (i64, f64) {
    let number = |bytes: &[u8]| bytes.try_into().unwrap_or([0; 8]);
    let map_key = i64::from_be_bytes(number(&stored[KEY_LEN..])) ^ i64::MIN;
    (map_key, f64::from_le_bytes(number(&value[..8])))
}

/// An error of the raw crate.
pub(crate) fn failed(error: rocksdb::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the raw rocksdb crate fails").source(error)
}

/// The options of Weir's database after a change of the text they are read from, and what an options
/// file cannot hold.
pub(crate) fn options_with(
    layout: Layout,
    change: impl FnOnce(String) -> String,
) -> Result<Options> {
    let instance = Backend::Rocks.open(2)?;
    let base = instance.directory.as_ref().map(|directory| directory.path().to_path_buf());
    let file = base.as_deref().and_then(find_options_file).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "Weir's database has no options file to read")
    })?;
    let text = fs::read_to_string(&file).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the options file cannot be read").source(error)
    })?;
    let family = if layout == Layout::Points { "default" } else { "maps" };
    let writes = number_of(&text, family, "write_buffer_size") * 4;
    let cache_bytes = MEMORY - writes / 2;
    let settings = change(settings(&text, family, cache_bytes));
    let mut options = Options::default().get_options_from_string(settings).map_err(failed)?;
    options.create_if_missing(true);
    let cache = Cache::new_lru_cache(cache_bytes);
    let writes = WriteBufferManager::new_write_buffer_manager_with_cache(writes, false, cache);
    options.set_write_buffer_manager(&writes);
    match layout {
        Layout::Points => options.set_merge_operator_associative("concat", concat),
        Layout::Maps => options.set_prefix_extractor(SliceTransform::create_fixed_prefix(KEY_LEN)),
    }
    Ok(options)
}

fn concat(_key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut joined = existing.unwrap_or_default().to_vec();
    operands.iter().for_each(|operand| joined.extend_from_slice(operand));
    Some(joined)
}

fn find_options_file(folder: &Path) -> Option<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter().rev().find_map(|path| {
        if path.is_dir() {
            return find_options_file(&path);
        }
        path.file_name()?.to_str()?.starts_with("OPTIONS-").then_some(path)
    })
}

/// The lines of a section of an options file.
fn section<'t>(text: &'t str, header: &str) -> impl Iterator<Item = (&'t str, &'t str)> + use<'t> {
    let after = text.split_once(&format!("[{header}]\n")).map_or("", |(_, after)| after);
    let lines = after.lines().map(str::trim).take_while(|line| !line.starts_with('['));
    lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='))
}

fn number_of(text: &str, family: &str, name: &str) -> usize {
    let mut found = section(text, &format!("CFOptions \"{family}\""));
    found.find(|(known, _)| *known == name).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// The settings of a family as RocksDB reads them from a string. What is code, it cannot.
fn settings(text: &str, family: &str, cache_bytes: usize) -> String {
    let is_data = |(name, value): &(&str, &str)| {
        !value.contains("weir.") && !value.contains("nullptr") && *name != "table_factory"
    };
    let join = |lines: &mut dyn Iterator<Item = (&str, &str)>| {
        lines
            .filter(is_data)
            .fold(String::new(), |all, (name, value)| all + name + "=" + value + ";")
    };
    let database = join(&mut section(text, "DBOptions"));
    let family_settings = join(&mut section(text, &format!("CFOptions \"{family}\"")));
    let table = join(&mut section(text, &format!("TableOptions/BlockBasedTable \"{family}\"")));
    format!(
        "{database}{family_settings}block_based_table_factory={{{table}block_cache={cache_bytes};}};"
    )
}
