//! One database of a snapshot: fetched, opened, and rid of what other instances own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use weir_state_api::stored_key::push_group;
use weir_state_api::ttl::TtlClock;
use weir_state_api::{KeyGroup, KeyGroupRange, OpenRequest, Result, SnapshotHandle};

use super::download::{self, Download, Part, Transfer};
use crate::column_families::SHAPES;
use crate::database::Database;
use crate::eras::Eras;
use crate::error;
use crate::options::RocksOptions;
use crate::shard::Shard;
use crate::snapshot::{FileEntry, ShardManifest, Traffic};
use crate::work_directory::WorkDirectory;

/// Larger than every stored key: key groups end at 32,767.
const BEHIND_ALL: [u8; 2] = [0xff, 0xff];

/// What all databases of an instance are restored with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardSource<'r> {
    pub(crate) request: &'r OpenRequest,
    pub(crate) options: &'r RocksOptions,
    pub(crate) directory: &'r Arc<WorkDirectory>,
    pub(crate) clock: &'r Arc<Mutex<TtlClock>>,
    pub(crate) traffic: &'r Traffic,
}

/// A database of a snapshot that is to be restored for some key groups.
#[derive(Debug)]
pub(crate) struct Wanted<'r> {
    handle: &'r SnapshotHandle,
    /// Its number in the snapshot.
    number: usize,
    shard: &'r ShardManifest,
    groups: KeyGroupRange,
    path: PathBuf,
}

impl<'r> Wanted<'r> {
    /// Whether a file can be dropped whole.
    fn is_foreign(&self, file: &FileEntry) -> bool {
        file.is_foreign_to(self.groups)
    }

    /// Whether less of the database is needed than there is: it is restored for fewer key groups, or its
    /// snapshot was clipped.
    fn shrinks(&self) -> bool {
        self.shard.groups != self.groups
            || self.shard.files.iter().any(|file| self.is_foreign(file))
    }

    /// Files that hold nothing of the key groups are fetched only so far that RocksDB can open them.
    fn in_part(&self, file: &FileEntry) -> Part {
        if self.is_foreign(file) { Part::End } else { Part::Whole }
    }
}

impl<'r> ShardSource<'r> {
    /// Makes room for database `number` of a snapshot.
    pub(crate) fn wanted(
        &self,
        handle: &'r SnapshotHandle,
        number: usize,
        shard: &'r ShardManifest,
        groups: KeyGroupRange,
    ) -> Result<Wanted<'r>> {
        let path = self.directory.fresh("database");
        fs::create_dir_all(&path).map_err(|source| error::local("create", &path, source))?;
        name_manifest(shard, &path)?;
        Ok(Wanted { handle, number, shard, groups, path })
    }

    /// What is to be transferred.
    pub(crate) fn transfers<'w>(&'w self, wanted: &'w Wanted<'r>) -> Vec<Transfer<'w>> {
        self.transfers_of(wanted, |file| wanted.in_part(file))
    }

    fn transfers_of<'w>(
        &'w self,
        wanted: &'w Wanted<'r>,
        part: impl Fn(&FileEntry) -> Part,
    ) -> Vec<Transfer<'w>> {
        let download = Download {
            store: &self.request.environment.store,
            spawner: &*self.request.environment.spawner,
            handle: wanted.handle,
            number: wanted.number,
            copies: self.options.local_recovery.then_some(&self.options.directory),
            target: &wanted.path,
            traffic: self.traffic,
        };
        download.transfers(wanted.shard.files.iter().map(|file| (file, part(file))).collect())
    }

    /// Opens a database whose files have been transferred, and drops the foreign ones. Should RocksDB
    /// not accept them in part, everything is fetched.
    pub(crate) async fn open(&self, wanted: Wanted<'r>) -> Result<Shard> {
        let files = || wanted.shard.files.iter();
        let dropped: Vec<&str> =
            files().filter(|file| wanted.is_foreign(file)).map(|file| file.name.as_str()).collect();
        let opened = self.open_files(&wanted);
        if dropped.is_empty() {
            return opened;
        }
        if let Ok(restored) = opened
            && !has_any(&restored.database, &dropped)?
        {
            return Ok(restored);
        }
        // Whatever is left there goes with the instance's folder.
        drop(fs::remove_dir_all(&wanted.path));
        let Wanted { handle, number, shard, groups, .. } = wanted;
        let whole = self.wanted(handle, number, shard, groups)?;
        let transfers = self.transfers_of(&whole, |_| Part::Whole);
        download::run(transfers, self.options.parallel_transfers).await?;
        self.open_files(&whole)
    }

    fn open_files(&self, wanted: &Wanted<'_>) -> Result<Shard> {
        let &Wanted { handle, shard, groups, .. } = wanted;
        let eras = Arc::new(Eras::new(Arc::clone(self.clock)));
        let mut names = Vec::new();
        for (name, of_state) in &shard.states {
            let known = handle.states.iter().find(|state| state.name == *name);
            // Checked with the manifest.
            let Some(state) = known else { continue };
            eras.add(state.kind, of_state.clone());
            names.push(name.clone());
        }
        let directory = Arc::clone(self.directory);
        let path = wanted.path.clone();
        let shrinks = wanted.shrinks();
        let database = Database::open(path, self.options, groups, eras, !shrinks, directory)?;
        if shrinks {
            drop_foreign_files(&database, groups)?;
            database.start_compactions()?;
        }
        Ok(Shard::new(Arc::new(database), groups, names, self.options))
    }
}

/// Drops whole files outside of the key groups. What shares a file with them stays until a compaction
/// leaves it out, and is never looked at.
fn drop_foreign_files(database: &Database, groups: KeyGroupRange) -> Result<()> {
    let (mut start, mut end) = (Vec::new(), Vec::new());
    push_group(groups.first(), &mut start);
    let last = groups.iter().next_back().unwrap_or(groups.first());
    push_group(KeyGroup(last.0.saturating_add(1)), &mut end);
    for shape in SHAPES {
        database.drop_files(shape, &[], &start)?;
        database.drop_files(shape, &end, &BEHIND_ALL)?;
    }
    Ok(())
}

/// Whether the database still has one of these files.
fn has_any(database: &Database, names: &[&str]) -> Result<bool> {
    let live = database.rocks().live_files();
    let live = live.map_err(|source| error::rocks("list its files", source))?;
    Ok(live.iter().any(|file| names.contains(&file.name.trim_start_matches('/'))))
}

/// Writes the file by which RocksDB finds its list of files.
fn name_manifest(shard: &ShardManifest, path: &Path) -> Result<()> {
    let Some(manifest) = shard.manifest_files().next() else { return Ok(()) };
    let current = path.join("CURRENT");
    fs::write(&current, format!("{}\n", manifest.name))
        .map_err(|source| error::local("write", &current, source))
}
