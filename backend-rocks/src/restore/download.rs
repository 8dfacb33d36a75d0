//! Fetching the files of a database: from a local copy or from the store, several at a time, verified.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use opendal::Operator;
use weir_state_api::{Error, ObjectRef, Result, SnapshotHandle};

use crate::snapshot::{FileEntry, Traffic};
use crate::{error, local_copies};

/// How much is read at a time.
const PIECE_LEN: u64 = 8 << 20;

/// The least that is fetched of the end of a file of which only the end is needed.
const LEAST_END: u64 = 64 << 10;

/// How much of a file is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it, verified.
    Whole,
    /// Its end, which holds what RocksDB reads when it opens the file. The rest is a hole.
    End,
}

/// A database to fetch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Download<'d> {
    pub(crate) store: &'d Operator,
    pub(crate) handle: &'d SnapshotHandle,
    /// Its number in the snapshot.
    pub(crate) number: usize,
    /// Where local copies are, if they may be used.
    pub(crate) copies: Option<&'d std::path::PathBuf>,
    /// The folder it is fetched into.
    pub(crate) target: &'d Path,
    pub(crate) traffic: &'d Traffic,
}

impl Download<'_> {
    /// Fetches the files. Each is as it was written, or the whole fails.
    pub(crate) async fn run(self, files: Vec<(&FileEntry, Part)>, parallel: usize) -> Result<()> {
        let mut by_object: HashMap<u32, Vec<(&FileEntry, Part)>> = HashMap::new();
        for (file, part) in files {
            let target = self.target.join(&file.name);
            let local = self.copies.is_some_and(|base| {
                local_copies::take(base, self.handle, self.number, file, &target)
            });
            if !local {
                by_object.entry(file.object).or_default().push((file, part));
            }
        }
        // Futures do nothing until the stream polls them, `parallel` at a time.
        let transfers: Vec<_> = by_object
            .into_iter()
            .map(|(object, files)| self.fetch_object(&self.handle.objects[object as usize], files))
            .collect();
        stream::iter(transfers).buffer_unordered(parallel.max(1)).try_collect().await
    }

    async fn fetch_object(&self, object: &ObjectRef, files: Vec<(&FileEntry, Part)>) -> Result<()> {
        self.check_length(object).await?;
        for (file, part) in files {
            match part {
                Part::Whole => self.fetch_whole(object, file).await?,
                Part::End => self.fetch_end(object, file).await?,
            }
        }
        Ok(())
    }

    /// An object that is shorter or longer than it was written is not the one.
    async fn check_length(&self, object: &ObjectRef) -> Result<()> {
        let path = &object.path;
        let stored = self.store.stat(path).await;
        let stored = stored.map_err(|error| Error::store("stat", path, error))?.content_length();
        if stored == object.length {
            return Ok(());
        }
        let what = format!("the object has {stored} bytes, the handle says {}", object.length);
        Err(error::corrupt(path, what))
    }

    async fn fetch_whole(&self, object: &ObjectRef, file: &FileEntry) -> Result<()> {
        let local = self.target.join(&file.name);
        let failed = |source| error::local("write", &local, source);
        let mut target = File::create(&local).map_err(failed)?;
        let mut crc32 = crc32fast::Hasher::new();
        let end = file.offset + file.identity.length;
        let mut at = file.offset;
        while at < end {
            let bytes = self.read(object, at..end.min(at + PIECE_LEN)).await?;
            crc32.update(&bytes);
            target.write_all(&bytes).map_err(failed)?;
            at += bytes.len() as u64;
        }
        if crc32.finalize() == file.crc32 {
            return Ok(());
        }
        Err(error::corrupt(&object.path, format!("the file {} fails its checksum", file.name)))
    }

    async fn fetch_end(&self, object: &ObjectRef, file: &FileEntry) -> Result<()> {
        let local = self.target.join(&file.name);
        let failed = |source| error::local("write", &local, source);
        let length = file.identity.length;
        let skipped = length - length.min((length / 8).max(LEAST_END));
        let bytes = self.read(object, file.offset + skipped..file.offset + length).await?;
        let mut target = File::create(&local).map_err(failed)?;
        target.set_len(length).map_err(failed)?;
        target.seek(SeekFrom::Start(skipped)).map_err(failed)?;
        target.write_all(&bytes).map_err(failed)
    }

    async fn read(&self, object: &ObjectRef, range: std::ops::Range<u64>) -> Result<Bytes> {
        let wanted = range.end - range.start;
        let read = self.store.read_with(&object.path).range(range).await;
        let bytes = read.map_err(|error| Error::store("read", &object.path, error))?.to_bytes();
        if bytes.len() as u64 != wanted {
            return Err(error::corrupt(&object.path, "the object ends before it should"));
        }
        self.traffic.downloaded.fetch_add(wanted, Ordering::Relaxed);
        Ok(bytes)
    }
}
