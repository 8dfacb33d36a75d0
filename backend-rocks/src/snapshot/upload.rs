//! Writing objects: in pieces, summed on the way, verified before anything refers to them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use opendal::{Operator, Writer};
use weir_state_api::{Error, ErrorKind, ObjectRef, Result};

use crate::error;

/// How much is read and handed to the store at a time. Stores that upload in parts want 5 MiB at
/// least.
const PIECE_LEN: usize = 8 << 20;

/// An object that was written, and the CRC-32 of each file in it.
#[derive(Debug)]
pub(crate) struct Uploaded {
    pub(crate) object: ObjectRef,
    pub(crate) crc32s: Vec<u32>,
}

/// Writes local files one behind the other into one object. When it fails, the object is not there,
/// or nothing will ever name it.
pub(crate) async fn upload(store: &Operator, path: &str, files: &[PathBuf]) -> Result<Uploaded> {
    let writer = store.writer(path).await.map_err(|error| Error::store("create", path, error))?;
    let mut upload = Upload { writer, path, length: 0, crc32: crc32fast::Hasher::new() };
    match upload.write_all(files).await {
        Ok(crc32s) => {
            let (length, crc32) = (upload.length, upload.crc32.finalize());
            verify(store, path, length).await?;
            Ok(Uploaded { object: ObjectRef::new(path, length, crc32), crc32s })
        }
        Err(error) => {
            // The first error is the one to report; what the abort says adds nothing.
            drop(upload.writer.abort().await);
            Err(error)
        }
    }
}

struct Upload<'p> {
    writer: Writer,
    path: &'p str,
    length: u64,
    crc32: crc32fast::Hasher,
}

impl Upload<'_> {
    async fn write_all(&mut self, files: &[PathBuf]) -> Result<Vec<u32>> {
        let mut crc32s = Vec::with_capacity(files.len());
        for file in files {
            crc32s.push(self.write_file(file).await?);
        }
        let closed = self.writer.close().await;
        closed.map_err(|error| Error::store("complete", self.path, error))?;
        Ok(crc32s)
    }

    async fn write_file(&mut self, path: &Path) -> Result<u32> {
        let failed = |source| error::local("read", path, source);
        let mut file = File::open(path).map_err(failed)?;
        let mut crc32 = crc32fast::Hasher::new();
        loop {
            let mut piece = Vec::new();
            file.by_ref().take(PIECE_LEN as u64).read_to_end(&mut piece).map_err(failed)?;
            if piece.is_empty() {
                break;
            }
            crc32.update(&piece);
            self.length += piece.len() as u64;
            let written = self.writer.write(Bytes::from(piece)).await;
            written.map_err(|error| Error::store("write", self.path, error))?;
        }
        self.crc32.combine(&crc32);
        Ok(crc32.finalize())
    }
}

/// A store may acknowledge what it did not keep whole.
async fn verify(store: &Operator, path: &str, length: u64) -> Result<()> {
    let stored = store.stat(path).await.map_err(|error| Error::store("stat", path, error))?;
    if stored.content_length() == length {
        return Ok(());
    }
    let what = format!(
        "the store holds {} bytes of the object, {length} were written",
        stored.content_length()
    );
    Err(Error::new(ErrorKind::Corrupt, what).object(path).advice("check the store"))
}
