//! Opening the store of checkpoints by folder or URL.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;

use opendal::layers::RetryLayer;
use opendal::{Operator, services};
use weir_state_api::{CheckpointId, Error, ErrorKind, Result};

use crate::checkpoint::CheckpointStore;

/// A store for checkpoints, held by one run at a time where the store allows it.
#[derive(Debug, Clone)]
pub struct Storage {
    pub(crate) operator: Operator,
    /// Released when the last clone is dropped, also by a crash of the process.
    _lock: Option<Arc<File>>,
}

impl Storage {
    /// Opens a store.
    ///
    /// - a path or `file:///path`: a local folder, created if absent. A lock file keeps a second run
    ///   out; objects appear whole or not at all.
    /// - `memory://`: the memory of this process.
    /// - `s3://bucket/prefix` (feature `s3`): an S3 bucket; endpoint, region and credentials come
    ///   from the usual `AWS_*` environment variables.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) for an unknown scheme or a bad folder,
    /// [`Conflict`](ErrorKind::Conflict) when another run holds the folder.
    pub fn open(location: &str) -> Result<Self> {
        match location.split_once("://") {
            None => Self::open_folder(Path::new(location)),
            Some(("file", path)) => Self::open_folder(Path::new(path)),
            Some(("memory", _)) => Ok(Self::in_memory()),
            #[cfg(feature = "s3")]
            Some(("s3", rest)) => Self::open_s3(rest),
            Some((scheme, _)) => Err(Error::new(
                ErrorKind::InvalidUsage,
                format!("no store for the scheme {scheme:?} is built in"),
            )
            .object(location)
            .advice(
                "give a folder, file://, memory:// or (with the cargo feature `s3`) s3://bucket/prefix",
            )),
        }
    }

    /// A store in the memory of this process.
    pub fn in_memory() -> Self {
        let operator = Operator::new(services::Memory::default())
            .expect("the memory service has no configuration that could fail");
        Storage { operator, _lock: None }
    }

    /// A store of your own; its objects must appear whole or not at all.
    pub fn custom(operator: Operator) -> Self {
        Storage { operator, _lock: None }
    }

    /// The complete checkpoints in the store, oldest first: what a run could restore from.
    ///
    /// # Errors
    /// Those of listing the store.
    pub fn complete_checkpoints(&self) -> Result<Vec<CheckpointId>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(
            |error| {
                Error::new(ErrorKind::Unavailable, "the store's client cannot start").source(error)
            },
        )?;
        runtime.block_on(CheckpointStore::new(self.operator.clone()).complete())
    }

    fn open_folder(folder: &Path) -> Result<Self> {
        let unusable = |what: &str, error: std::io::Error| {
            Error::new(ErrorKind::InvalidUsage, format!("the checkpoint folder {what}"))
                .object(folder.display().to_string())
                .source(error)
                .advice("give a folder that can be written")
        };
        std::fs::create_dir_all(folder).map_err(|error| unusable("cannot be created", error))?;
        let lock = File::create(folder.join(".lock"))
            .map_err(|error| unusable("cannot be written", error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    "another run holds the checkpoint folder",
                )
                .object(folder.display().to_string())
                .advice("wait for it to end, or give this run a folder of its own"));
            }
            Err(TryLockError::Error(error)) => return Err(unusable("cannot be locked", error)),
        }
        let root = folder.to_string_lossy();
        let staging = folder.join(".staging");
        // What runs that were killed had begun to write; the lock says that none is at it now.
        match std::fs::remove_dir_all(&staging) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(unusable("cannot be cleaned", error));
            }
            _ => {}
        }
        let service =
            services::Fs::default().root(&root).atomic_write_dir(&staging.to_string_lossy());
        let operator = Operator::new(service)
            .map_err(|error| Error::store("open the checkpoint folder", &root, error))?
            .layer(RetryLayer::new().with_max_times(2));
        Ok(Storage { operator, _lock: Some(Arc::new(lock)) })
    }

    #[cfg(feature = "s3")]
    fn open_s3(rest: &str) -> Result<Self> {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let mut service = services::S3::default().bucket(bucket).root(prefix);
        if let Ok(endpoint) =
            std::env::var("AWS_ENDPOINT_URL_S3").or_else(|_| std::env::var("AWS_ENDPOINT_URL"))
        {
            service = service.endpoint(&endpoint);
        }
        let region = std::env::var("AWS_REGION").or_else(|_| std::env::var("AWS_DEFAULT_REGION"));
        service = service.region(region.as_deref().unwrap_or("us-east-1"));
        let operator = Operator::new(service)
            .map_err(|error| Error::store("open the bucket", rest, error))?
            .layer(RetryLayer::new().with_jitter());
        Ok(Storage { operator, _lock: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_by_one_run_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoints");
        let location = path.to_str().unwrap();
        let first = Storage::open(location).unwrap();
        let error = Storage::open(location).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        drop(first);
        Storage::open(&format!("file://{location}")).unwrap();
    }

    #[test]
    fn unusable_locations_are_typed_errors() {
        assert_eq!(Storage::open("ftp://x").unwrap_err().kind(), ErrorKind::InvalidUsage);
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Storage::open(file.path().to_str().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
    }
}
