//! Fetching the files of a database: from a local copy or from the store, several at a time, verified.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::future::try_join;
use futures_util::{StreamExt, TryStreamExt, stream};
use opendal::Operator;
use weir_state_api::{BoxFuture, Error, ObjectRef, Result, SnapshotHandle, Spawned, Spawner};

use crate::snapshot::{FileEntry, Traffic};
use crate::{error, local_copies};

/// How much is gathered before it is written. Two pieces are in memory for each transfer: one that is
/// being read and one that is being written.
const PIECE_LEN: u64 = 2 << 20;

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

impl Part {
    /// How much of a file is transferred.
    fn bytes_of(self, file: &FileEntry) -> u64 {
        let length = file.identity.length;
        match self {
            Part::Whole => length,
            Part::End => length.min((length / 8).max(LEAST_END)),
        }
    }
}

/// A database to fetch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Download<'d> {
    pub(crate) store: &'d Operator,
    /// Writes to the local disk.
    pub(crate) spawner: &'d dyn Spawner,
    pub(crate) handle: &'d SnapshotHandle,
    /// Its number in the snapshot.
    pub(crate) number: usize,
    /// Where local copies are, if they may be used.
    pub(crate) copies: Option<&'d PathBuf>,
    /// The folder it is fetched into.
    pub(crate) target: &'d Path,
    pub(crate) traffic: &'d Traffic,
}

/// The transfer of one object, or of the needed files in it.
pub(crate) struct Transfer<'d> {
    bytes: u64,
    run: BoxFuture<'d, Result<()>>,
}

/// Runs transfers, some at a time, the largest first: then none is left to run alone at the end.
pub(crate) async fn run(mut transfers: Vec<Transfer<'_>>, parallel: usize) -> Result<()> {
    transfers.sort_by_key(|transfer| Reverse(transfer.bytes));
    let transfers: Vec<_> = transfers.into_iter().map(|transfer| transfer.run).collect();
    stream::iter(transfers).buffer_unordered(parallel.max(1)).try_collect().await
}

impl<'d> Download<'d> {
    /// Takes what there is on the local disk, and says what is to be transferred. Each file is as it
    /// was written, or its transfer fails.
    pub(crate) fn transfers(self, files: Vec<(&'d FileEntry, Part)>) -> Vec<Transfer<'d>> {
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
        let transfer = |(object, files): (u32, Vec<(&'d FileEntry, Part)>)| {
            let object = &self.handle.objects[object as usize];
            let bytes = files.iter().map(|(file, part)| part.bytes_of(file)).sum();
            Transfer { bytes, run: Box::pin(self.fetch_object(object, files)) }
        };
        by_object.into_iter().map(transfer).collect()
    }

    async fn fetch_object(self, object: &ObjectRef, files: Vec<(&FileEntry, Part)>) -> Result<()> {
        let fetch = async {
            for (file, part) in files {
                match part {
                    Part::Whole => self.fetch_whole(object, file).await?,
                    Part::End => self.fetch_end(object, file).await?,
                }
            }
            Ok(())
        };
        // The question for the length costs a request, but no time.
        try_join(self.check_length(object), fetch).await.map(|_| ())
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

    /// Takes one request. The disk writes a piece while the store sends the next one.
    async fn fetch_whole(&self, object: &ObjectRef, file: &FileEntry) -> Result<()> {
        let failed = |error| Error::store("read", &object.path, error);
        let created = Target::create(self.target.join(&file.name));
        let mut target: BoxFuture<'static, Result<Target>> = Box::pin(std::future::ready(created));
        let (mut left, mut piece, mut piece_len) = (file.identity.length, Vec::new(), 0);
        if left > 0 {
            let reader = self.store.reader(&object.path).await.map_err(failed)?;
            let mut stream =
                reader.into_stream(file.offset..file.offset + left).await.map_err(failed)?;
            while let Some(bytes) = stream.try_next().await.map_err(failed)? {
                let length = bytes.len() as u64;
                self.traffic.downloaded.fetch_add(length, Ordering::Relaxed);
                left = left.checked_sub(length).ok_or_else(|| other_length(object))?;
                piece.extend(bytes);
                piece_len += length;
                if piece_len >= PIECE_LEN || left == 0 {
                    let (written, piece) = (target.await?, std::mem::take(&mut piece));
                    let write = Spawned::blocking(self.spawner, move || written.write(&piece));
                    (target, piece_len) = (Box::pin(write), 0);
                }
            }
        }
        if left > 0 {
            return Err(other_length(object));
        }
        if target.await?.crc32.finalize() == file.crc32 {
            return Ok(());
        }
        Err(error::corrupt(&object.path, format!("the file {} fails its checksum", file.name)))
    }

    async fn fetch_end(&self, object: &ObjectRef, file: &FileEntry) -> Result<()> {
        let local = self.target.join(&file.name);
        let failed = |source| error::local("write", &local, source);
        let length = file.identity.length;
        let skipped = length - Part::End.bytes_of(file);
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
            return Err(other_length(object));
        }
        self.traffic.downloaded.fetch_add(wanted, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// A local file being written, and the checksum of what is in it.
#[derive(Debug)]
struct Target {
    path: PathBuf,
    file: File,
    crc32: crc32fast::Hasher,
}

impl Target {
    fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).map_err(|source| error::local("create", &path, source))?;
        Ok(Target { path, file, crc32: crc32fast::Hasher::new() })
    }

    fn write(mut self, piece: &[Bytes]) -> Result<Self> {
        for bytes in piece {
            self.crc32.update(bytes);
            let written = self.file.write_all(bytes);
            written.map_err(|source| error::local("write", &self.path, source))?;
        }
        Ok(self)
    }
}

#[cold]
fn other_length(object: &ObjectRef) -> Error {
    error::corrupt(&object.path, "the store sent another number of bytes than it was asked for")
}
