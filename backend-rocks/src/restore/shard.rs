//! One database of a snapshot: fetched, opened, and rid of what other instances own.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use weir_state_api::stored_key::push_group;
use weir_state_api::ttl::TtlClock;
use weir_state_api::{KeyGroup, KeyGroupRange, OpenRequest, Result, SnapshotHandle};

use super::download::{Download, Part};
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

impl ShardSource<'_> {
    /// Restores database `number` of a snapshot for `groups`.
    ///
    /// Files that hold nothing of them are fetched only so far that RocksDB can open them, and dropped
    /// at once. Should it not accept that, everything is fetched.
    pub(crate) async fn restore(
        &self,
        handle: &SnapshotHandle,
        number: usize,
        shard: &ShardManifest,
        groups: KeyGroupRange,
    ) -> Result<Shard> {
        let foreign = |file: &&FileEntry| file.is_foreign_to(groups);
        if shard.groups != groups && shard.files.iter().any(|file| foreign(&file)) {
            let in_part = |file: &FileEntry| if foreign(&file) { Part::End } else { Part::Whole };
            let path = self.fetch(handle, number, shard, in_part).await?;
            let dropped: Vec<&str> =
                shard.files.iter().filter(foreign).map(|file| file.name.as_str()).collect();
            let opened = self.open(handle, shard, groups, &path);
            if let Ok(restored) = opened
                && !has_any(&restored.database, &dropped)?
            {
                return Ok(restored);
            }
            // Whatever is left there goes with the instance's folder.
            drop(fs::remove_dir_all(&path));
        }
        let path = self.fetch(handle, number, shard, |_| Part::Whole).await?;
        self.open(handle, shard, groups, &path)
    }

    async fn fetch(
        &self,
        handle: &SnapshotHandle,
        number: usize,
        shard: &ShardManifest,
        part: impl Fn(&FileEntry) -> Part,
    ) -> Result<std::path::PathBuf> {
        let path = self.directory.fresh("database");
        fs::create_dir_all(&path).map_err(|source| error::local("create", &path, source))?;
        let download = Download {
            store: &self.request.environment.store,
            spawner: &*self.request.environment.spawner,
            handle,
            number,
            copies: self.options.local_recovery.then_some(&self.options.directory),
            target: &path,
            traffic: self.traffic,
        };
        let files = shard.files.iter().map(|file| (file, part(file)));
        download.run(files.collect(), self.options.parallel_transfers).await?;
        name_manifest(shard, &path)?;
        Ok(path)
    }

    fn open(
        &self,
        handle: &SnapshotHandle,
        shard: &ShardManifest,
        groups: KeyGroupRange,
        path: &Path,
    ) -> Result<Shard> {
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
        let path = path.to_path_buf();
        let shrinks = shard.groups != groups;
        let database = Database::open(path, self.options, groups, eras, !shrinks, directory)?;
        if shrinks {
            drop_foreign_files(&database, groups)?;
            database.start_compactions()?;
        }
        Ok(Shard::new(Arc::new(database), groups, names))
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
