//! A sink of files: written aside, published by renaming.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use weir_engine_timely::TransactionalSink;
use weir_state_api::{BoxFuture, CheckpointId, Error, ErrorKind, Result};

/// Publishes lines as files `part-<checkpoint>-<worker>`, each whole or not at all.
pub(crate) struct FileSink {
    folder: PathBuf,
    pending: PathBuf,
    worker: usize,
    lines: Vec<String>,
}

impl FileSink {
    pub(crate) fn new(folder: &Path, worker: usize) -> Result<Self> {
        let pending = folder.join("pending");
        fs::create_dir_all(&pending).map_err(|error| failed("create", &pending, error))?;
        Ok(FileSink { folder: folder.to_path_buf(), pending, worker, lines: Vec::new() })
    }
}

impl TransactionalSink for FileSink {
    type Record = String;

    fn recover(&mut self, prepared: Vec<Vec<u8>>) -> BoxFuture<'static, Result<()>> {
        let (folder, pending) = (self.folder.clone(), self.pending.clone());
        Box::pin(async move {
            for name in prepared {
                let name = file_name(&name)?;
                publish(&folder, &pending, &name)?;
            }
            // What else is pending belongs to checkpoints that will never be complete.
            let entries =
                fs::read_dir(&pending).map_err(|error| failed("list", &pending, error))?;
            for entry in entries {
                let path = entry.map_err(|error| failed("list", &pending, error))?.path();
                fs::remove_file(&path).map_err(|error| failed("remove", &path, error))?;
            }
            Ok(())
        })
    }

    fn write(&mut self, records: Vec<String>) -> Result<()> {
        self.lines.extend(records);
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        let lines = std::mem::take(&mut self.lines);
        let name = format!("{checkpoint}-{}", self.worker);
        let path = self.pending.join(&name);
        Box::pin(async move {
            if lines.is_empty() {
                return Ok(None);
            }
            let mut text = lines.join("\n");
            text.push('\n');
            let written = File::create(&path).and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            });
            written.map_err(|error| failed("write", &path, error))?;
            Ok(Some(name.into_bytes()))
        })
    }

    fn commit(&mut self, prepared: Vec<u8>) -> BoxFuture<'static, Result<()>> {
        let (folder, pending) = (self.folder.clone(), self.pending.clone());
        Box::pin(async move { publish(&folder, &pending, &file_name(&prepared)?) })
    }
}

fn file_name(prepared: &[u8]) -> Result<String> {
    let plain = |name: &&str| !name.contains(['/', '\\']);
    std::str::from_utf8(prepared).ok().filter(plain).map(String::from).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "a prepared transaction is not the name of a file")
    })
}

/// Renames a pending file; one that is published already stays.
fn publish(folder: &Path, pending: &Path, name: &str) -> Result<()> {
    let (from, to) = (pending.join(name), folder.join(format!("part-{name}")));
    match fs::rename(&from, &to) {
        Ok(()) => Ok(()),
        Err(_) if to.exists() => Ok(()),
        Err(error) => Err(failed("publish", &from, error)),
    }
}

fn failed(what: &str, path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what} an output file"))
        .object(path.display().to_string())
        .source(error)
}
