//! The synchronous part: what the databases hold now, as hard links.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rocksdb::LiveFile;
use rocksdb::checkpoint::Checkpoint;
use weir_state_api::stored_key::group_of;
use weir_state_api::{KeyGroupRange, Result};

use super::identity::is_sorted_file;
use crate::database::Database;
use crate::eras::Era;
use crate::error;
use crate::shard::{Shard, Shards};
use crate::work_directory::WorkDirectory;

/// A file of a pinned database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkedFile {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    /// RocksDB's level, the key groups from its first to its last key; unknown for what is no sorted
    /// file, and for files that a compaction has replaced in the meantime.
    pub(crate) extent: Option<(u8, KeyGroupRange)>,
}

/// One database as it was.
#[derive(Debug)]
pub(crate) struct LinkedShard {
    pub(crate) groups: KeyGroupRange,
    pub(crate) states: Vec<(String, Vec<Era>)>,
    path: PathBuf,
    extents: HashMap<String, (u8, KeyGroupRange)>,
}

/// The pinned databases of an instance. The links go when it goes.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) shards: Vec<LinkedShard>,
    pub(crate) path: PathBuf,
    _directory: Arc<WorkDirectory>,
}

impl Links {
    /// Flushes what is in memory and links all files: bounded by the write buffers, not by the state.
    pub(crate) fn create(shards: &Shards, directory: &Arc<WorkDirectory>) -> Result<Self> {
        let path = directory.fresh("snapshot");
        fs::create_dir(&path).map_err(|source| error::local("create", &path, source))?;
        let mut links = Links { shards: Vec::new(), path, _directory: Arc::clone(directory) };
        for (number, shard) in shards.iter().enumerate() {
            let linked = link(shard, links.path.join(number.to_string()))?;
            links.shards.push(linked);
        }
        Ok(links)
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // What cannot be removed now goes with the instance's folder.
        drop(fs::remove_dir_all(&self.path));
    }
}

fn link(shard: &Shard, path: PathBuf) -> Result<LinkedShard> {
    let eras = shard.database.eras().states();
    let eras = eras.iter().map(|state| state.eras().to_vec());
    let rocks = shard.database.rocks();
    Checkpoint::new(rocks)
        .and_then(|checkpoint| checkpoint.create_checkpoint(&path))
        .map_err(|source| error::rocks("pin the database for a snapshot", source))?;
    Ok(LinkedShard {
        groups: shard.groups,
        states: shard.names().iter().cloned().zip(eras).collect(),
        path,
        extents: extents(&shard.database)?,
    })
}

fn extents(database: &Database) -> Result<HashMap<String, (u8, KeyGroupRange)>> {
    let live = database.rocks().live_files();
    let live = live.map_err(|source| error::rocks("list its files", source))?;
    let extent = |file: LiveFile| {
        let first = group_of(&file.start_key?)?;
        let last = group_of(&file.end_key?)?;
        let level = u8::try_from(file.level).ok()?;
        let name = file.name.trim_start_matches('/').to_string();
        Some((name, (level, KeyGroupRange::new(first.0, last.0))))
    };
    Ok(live.into_iter().filter_map(extent).collect())
}

impl LinkedShard {
    /// The files that a restore needs. The others (options, the name of the manifest, an empty log)
    /// are made anew.
    pub(crate) fn files(&self) -> Result<Vec<LinkedFile>> {
        let failed = |source| error::local("list", &self.path, source);
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let name = name.to_string();
            if is_sorted_file(&path) || name.starts_with("MANIFEST-") {
                let extent = self.extents.get(&name).copied();
                files.push(LinkedFile { path, name, extent });
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }
}
