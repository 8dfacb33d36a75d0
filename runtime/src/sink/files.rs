//! A two-phase-commit sink into files.
//!
//! ```text
//! <folder>/.pending/<attempt>-<subtask>-<n>     being written, or prepared
//! <folder>/part-<checkpoint>-<subtask>-<attempt>-<n>   published, one record a line
//! <folder>/.lock                               held while a sink writes
//! ```
//!
//! The barrier closes and syncs the current file; its name, length and checksum go into the
//! checkpoint. Once the checkpoint is complete the file is renamed into place. A restore renames
//! what the checkpoint holds (again) and deletes every other pending file, of whatever subtask wrote
//! it. Names hold the attempt, so a rename never meets a file of another run.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io::{BufWriter, ErrorKind as IoErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use weir_state_api::{
    CheckpointId, Error, ErrorKind, NativeType, OperatorState, Redistribution, Result,
};

use super::{Sink, SinkOpening, SinkWriter};
use crate::checkpoint::CheckpointStore;
use crate::record::{Data, Record};

const PREPARED: &str = "prepared";
const PENDING_FOLDER: &str = ".pending";

type FormatFn<T> = dyn Fn(&T, &mut Vec<u8>) + Send + Sync;

/// Publishes records as part files, one record a line, exactly once.
///
/// Readers may take every file whose name begins with `part-`: it is complete and never changes.
/// Publication lags by up to a checkpoint interval.
pub struct FileSink<T> {
    folder: PathBuf,
    format: Arc<FormatFn<T>>,
    /// Held by the writers: one sink at a time writes into a folder.
    lock: Mutex<Weak<File>>,
}

impl<T: Data> FileSink<T> {
    /// A sink into `folder` (created if absent); `format` appends a record's line without its line
    /// break.
    pub fn new(
        folder: impl Into<PathBuf>,
        format: impl Fn(&T, &mut Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        FileSink { folder: folder.into(), format: Arc::new(format), lock: Mutex::default() }
    }

    /// Takes the folder, or a share of it if a writer of this sink holds it already.
    fn take_folder(&self) -> Result<Arc<File>> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = held.upgrade() {
            return Ok(lock);
        }
        let path = self.folder.join(".lock");
        let lock = File::create(&path).map_err(|error| io("create", &path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    "another sink writes into the output folder",
                )
                .object(self.folder.display().to_string())
                .advice("give every sink, and every job, an output folder of its own"));
            }
            Err(TryLockError::Error(error)) => return Err(io("lock", &path, error)),
        }
        let lock = Arc::new(lock);
        *held = Arc::downgrade(&lock);
        Ok(lock)
    }

    /// The lines published in `folder`, sorted.
    ///
    /// # Errors
    /// When the folder or a file in it cannot be read.
    pub fn published(folder: &Path) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for name in names(folder)? {
            if name.starts_with("part-") {
                let path = folder.join(name);
                let text = fs::read_to_string(&path).map_err(|error| io("read", &path, error))?;
                lines.extend(text.lines().map(String::from));
            }
        }
        lines.sort();
        Ok(lines)
    }
}

impl<T> std::fmt::Debug for FileSink<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSink").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl<T: Data> Sink<T> for FileSink<T> {
    fn open(&self, opening: &SinkOpening) -> Result<Box<dyn SinkWriter<T>>> {
        let pending = self.folder.join(PENDING_FOLDER);
        fs::create_dir_all(&pending).map_err(|error| io("create", &pending, error))?;
        let lock = self.take_folder()?;
        let prepared: Vec<Prepared> = opening.state.get(PREPARED)?;
        // Every subtask gets all prepared files; the first one finishes what former ones left.
        if opening.subtask == 0 {
            match opening.restored {
                Some(_) => recover(&self.folder, &prepared, &opening.attempt)?,
                None => start_fresh(&self.folder, &opening.attempt)?,
            }
        }
        Ok(Box::new(Writer {
            folder: self.folder.clone(),
            format: self.format.clone(),
            prefix: format!("{}-{}", opening.attempt, opening.subtask),
            attempt: opening.attempt.clone(),
            subtask: opening.subtask,
            opened: 0,
            current: None,
            prepared: Vec::new(),
            line: Vec::new(),
            _lock: lock,
        }))
    }
}

/// A file that waits for its checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Prepared {
    checkpoint: CheckpointId,
    pending: String,
    published: String,
    length: u64,
    crc32: u32,
}

impl NativeType for Prepared {
    fn type_name() -> String {
        "weir.prepared-file".into()
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.checkpoint.0.write(out);
        self.pending.write(out);
        self.published.write(out);
        self.length.write(out);
        self.crc32.write(out);
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        Some(Prepared {
            checkpoint: CheckpointId(u64::read(input)?),
            pending: String::read(input)?,
            published: String::read(input)?,
            length: u64::read(input)?,
            crc32: u32::read(input)?,
        })
    }
}

impl Prepared {
    /// Renames the file into place; done already is fine.
    fn publish(&self, folder: &Path) -> Result<()> {
        let from = folder.join(PENDING_FOLDER).join(&self.pending);
        let to = folder.join(&self.published);
        match fs::rename(&from, &to) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == IoErrorKind::NotFound => self.check_published(&to),
            Err(error) => Err(io("publish", &to, error)),
        }
    }

    fn check_published(&self, path: &Path) -> Result<()> {
        match fs::metadata(path) {
            Ok(found) if found.len() == self.length => Ok(()),
            Ok(found) => Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "a published file has {} bytes, {} were prepared",
                    found.len(),
                    self.length
                ),
            )
            .object(path.display().to_string())
            .advice("published output was changed from outside; restore it from a copy")),
            Err(error) => Err(Error::new(
                ErrorKind::NotFound,
                "output prepared by the restored checkpoint is neither pending nor published",
            )
            .object(path.display().to_string())
            .source(error)
            .advice("the output folder was changed from outside; restore into the folder it was")),
        }
    }

    /// Before a restore relies on a pending file: it is whole.
    fn verify_pending(&self, folder: &Path) -> Result<()> {
        let path = folder.join(PENDING_FOLDER).join(&self.pending);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(io("read", &path, error)),
        };
        if bytes.len() as u64 == self.length && crc32fast::hash(&bytes) == self.crc32 {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, "prepared output fails its checksum")
            .object(path.display().to_string())
            .advice("restore an older checkpoint into an empty output folder"))
    }
}

fn recover(folder: &Path, prepared: &[Prepared], attempt: &str) -> Result<()> {
    for file in prepared {
        file.verify_pending(folder)?;
    }
    for file in prepared {
        file.publish(folder)?;
    }
    sweep(folder, attempt)?;
    sync(folder)
}

fn start_fresh(folder: &Path, attempt: &str) -> Result<()> {
    if let Some(name) = names(folder)?.into_iter().find(|name| name.starts_with("part-")) {
        return Err(Error::new(
            ErrorKind::InvalidUsage,
            "the output folder holds published files of another run",
        )
        .object(folder.join(name).display().to_string())
        .advice("restore that run's checkpoint, or give an empty output folder"));
    }
    sweep(folder, attempt)
}

/// The epoch and number of a checkpoint as its folder has them: names sort by them.
fn checkpoint_part(checkpoint: CheckpointId) -> String {
    let folder = CheckpointStore::directory(checkpoint);
    folder.trim_start_matches("chk-").trim_end_matches('/').to_string()
}

/// Deletes pending files of other attempts.
fn sweep(folder: &Path, attempt: &str) -> Result<()> {
    let pending = folder.join(PENDING_FOLDER);
    for name in names(&pending)? {
        if !name.starts_with(attempt) {
            let path = pending.join(name);
            fs::remove_file(&path).map_err(|error| io("delete", &path, error))?;
        }
    }
    Ok(())
}

fn names(folder: &Path) -> Result<HashSet<String>> {
    let entries = fs::read_dir(folder).map_err(|error| io("list", folder, error))?;
    entries
        .map(|entry| {
            let entry = entry.map_err(|error| io("list", folder, error))?;
            Ok(entry.file_name().to_string_lossy().into_owned())
        })
        .collect()
}

/// Makes renames and new names in a folder durable.
fn sync(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| io("sync", folder, error))
}

#[cold]
fn line_break(line: &[u8]) -> Error {
    let begin = String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned();
    Error::new(ErrorKind::InvalidUsage, format!("a record's line contains a line break: {begin:?}"))
        .advice("escape line breaks in the format function: the sink writes one record a line")
}

fn io(action: &str, path: &Path, source: std::io::Error) -> Error {
    let kind = match source.kind() {
        IoErrorKind::NotFound => ErrorKind::NotFound,
        IoErrorKind::PermissionDenied | IoErrorKind::NotADirectory => ErrorKind::InvalidUsage,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("the sink cannot {action} output"))
        .object(path.display().to_string())
        .source(source)
        .advice("check space and permissions of the output folder")
}

struct Writer<T> {
    folder: PathBuf,
    format: Arc<FormatFn<T>>,
    prefix: String,
    attempt: Arc<str>,
    subtask: u16,
    opened: u64,
    current: Option<Current>,
    prepared: Vec<Prepared>,
    line: Vec<u8>,
    _lock: Arc<File>,
}

struct Current {
    name: String,
    file: BufWriter<File>,
    length: u64,
    checksum: crc32fast::Hasher,
}

impl<T: Data> Writer<T> {
    fn current(&mut self) -> Result<&mut Current> {
        if self.current.is_none() {
            let name = format!("{}-{}", self.prefix, self.opened);
            self.opened += 1;
            let path = self.folder.join(PENDING_FOLDER).join(&name);
            let file = File::create_new(&path).map_err(|error| io("create", &path, error))?;
            self.current = Some(Current {
                name,
                file: BufWriter::with_capacity(256 * 1024, file),
                length: 0,
                checksum: crc32fast::Hasher::new(),
            });
        }
        self.current
            .as_mut()
            .ok_or_else(|| Error::new(ErrorKind::Closed, "the file that was just opened is gone"))
    }
}

impl<T: Data> SinkWriter<T> for Writer<T> {
    fn write(&mut self, batch: Vec<Record<T>>) -> Result<()> {
        let mut lines = std::mem::take(&mut self.line);
        lines.clear();
        for record in &batch {
            let start = lines.len();
            (self.format)(&record.value, &mut lines);
            if lines[start..].contains(&b'\n') {
                return Err(line_break(&lines[start..]));
            }
            lines.push(b'\n');
        }
        let folder = self.folder.clone();
        let current = self.current()?;
        current.file.write_all(&lines).map_err(|error| {
            io("write", &folder.join(PENDING_FOLDER).join(&current.name), error)
        })?;
        current.length += lines.len() as u64;
        current.checksum.update(&lines);
        self.line = lines;
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<OperatorState> {
        if let Some(Current { name, mut file, length, checksum }) = self.current.take() {
            let pending = self.folder.join(PENDING_FOLDER);
            let path = pending.join(&name);
            file.flush()
                .and_then(|()| file.get_ref().sync_all())
                .map_err(|error| io("write", &path, error))?;
            sync(&pending)?;
            self.prepared.push(Prepared {
                checkpoint,
                published: format!(
                    "part-{}-{}-{}-{}",
                    checkpoint_part(checkpoint),
                    self.subtask,
                    self.attempt,
                    self.opened - 1
                ),
                pending: name,
                length,
                crc32: checksum.finalize(),
            });
        }
        let mut state = OperatorState::new();
        state.set(PREPARED, Redistribution::Union, &self.prepared);
        Ok(state)
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let (due, later): (Vec<_>, Vec<_>) =
            self.prepared.drain(..).partition(|file| file.checkpoint <= checkpoint);
        self.prepared = later;
        let mut due = due.into_iter();
        while let Some(file) = due.next() {
            if let Err(error) = file.publish(&self.folder) {
                // Still to be done: the next checkpoint or a restore tries again.
                self.prepared.push(file);
                self.prepared.extend(due);
                return Err(error);
            }
        }
        sync(&self.folder)
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
