//! Fetching the files of a database: several ranges at a time, verified.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;

use futures_util::{StreamExt, TryStreamExt, stream};
use opendal::Operator;
use weir_state_api::{Error, ObjectRef, Result, SnapshotHandle};

use crate::error;
use crate::snapshot::{FileEntry, ShardManifest, Traffic};

/// How much is read at a time.
const PIECE_LEN: u64 = 8 << 20;

/// Fetches all files of a database into a new folder. Each is complete and as it was written, or the
/// whole fails.
pub(crate) async fn download(
    store: &Operator,
    handle: &SnapshotHandle,
    shard: &ShardManifest,
    path: &Path,
    parallel: usize,
    traffic: &Traffic,
) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|source| error::local("create", path, source))?;
    let mut by_object: HashMap<u32, Vec<&FileEntry>> = HashMap::new();
    for file in &shard.files {
        by_object.entry(file.object).or_default().push(file);
    }
    // Futures do nothing until the stream polls them, `parallel` at a time.
    let transfers: Vec<_> = by_object
        .into_iter()
        .map(|(object, files)| {
            fetch_object(store, &handle.objects[object as usize], files, path, traffic)
        })
        .collect();
    stream::iter(transfers).buffer_unordered(parallel.max(1)).try_collect().await
}

async fn fetch_object(
    store: &Operator,
    object: &ObjectRef,
    files: Vec<&FileEntry>,
    directory: &Path,
    traffic: &Traffic,
) -> Result<()> {
    check_length(store, object).await?;
    for file in files {
        fetch(store, object, file, directory, traffic).await?;
    }
    Ok(())
}

/// An object that is shorter or longer than it was written is not the one.
async fn check_length(store: &Operator, object: &ObjectRef) -> Result<()> {
    let path = &object.path;
    let stored = store.stat(path).await.map_err(|error| Error::store("stat", path, error))?;
    if stored.content_length() == object.length {
        return Ok(());
    }
    let what = format!(
        "the object has {} bytes, the handle says {}",
        stored.content_length(),
        object.length
    );
    Err(error::corrupt(path, what))
}

async fn fetch(
    store: &Operator,
    object: &ObjectRef,
    file: &FileEntry,
    directory: &Path,
    traffic: &Traffic,
) -> Result<()> {
    let local = directory.join(&file.name);
    let failed = |source| error::local("write", &local, source);
    let mut target = File::create(&local).map_err(failed)?;
    let mut crc32 = crc32fast::Hasher::new();
    let end = file.offset + file.identity.length;
    let mut at = file.offset;
    while at < end {
        let piece = at..end.min(at + PIECE_LEN);
        let wanted = piece.end - piece.start;
        let read = store.read_with(&object.path).range(piece).await;
        let bytes = read.map_err(|error| Error::store("read", &object.path, error))?.to_bytes();
        if bytes.len() as u64 != wanted {
            return Err(error::corrupt(&object.path, "the object ends before it should"));
        }
        traffic.downloaded.fetch_add(wanted, Ordering::Relaxed);
        crc32.update(&bytes);
        target.write_all(&bytes).map_err(failed)?;
        at += wanted;
    }
    if crc32.finalize() == file.crc32 {
        return Ok(());
    }
    Err(error::corrupt(&object.path, format!("the file {} fails its checksum", file.name)))
}
