//! Local folders of running instances: who owns one, and what a crash leaves behind.
//!
//! ```text
//! <directory>/lock                          held while an instance makes its folder
//! <directory>/instance-<uuid>/lock          held while the instance lives
//! <directory>/instance-<uuid>/database-<n>/ a database
//! <directory>/instance-<uuid>/snapshot-<n>/ hard links of a snapshot being uploaded
//! ```
//!
//! Nothing in such a folder outlives its instance: a database that was not closed in order is never
//! opened again. The lock is the operating system's, so it ends with the process, whatever happens.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use weir_state_api::Result;

use crate::error;

const PREFIX: &str = "instance-";
const LOCK: &str = "lock";

/// The folder of one instance; removed with the last user of it.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    path: PathBuf,
    next: AtomicU64,
    _lock: File,
}

impl WorkDirectory {
    /// Makes a new one, then removes the folders of instances that are gone.
    pub(crate) fn create(base: &Path) -> Result<Self> {
        fs::create_dir_all(base).map_err(|source| error::local("create", base, source))?;
        // A folder whose lock is not held yet must not be taken for an abandoned one.
        let alone = lock_base(base)?;
        let abandoned = abandoned(base)?;
        let path = base.join(format!("{PREFIX}{}", uuid::Uuid::new_v4().simple()));
        let lock = create_locked(&path)?;
        drop(alone);
        for (path, _lock) in abandoned {
            // What cannot be removed now is removed by a later instance.
            drop(fs::remove_dir_all(path));
        }
        Ok(WorkDirectory { path, next: AtomicU64::new(0), _lock: lock })
    }

    /// A path in it that was not given out before.
    pub(crate) fn fresh(&self, what: &str) -> PathBuf {
        self.path.join(format!("{what}-{}", self.next.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next instance in the same folder.
        drop(fs::remove_dir_all(&self.path));
    }
}

fn create_locked(path: &Path) -> Result<File> {
    fs::create_dir(path).map_err(|source| error::local("create", path, source))?;
    let lock = path.join(LOCK);
    let failed = |source| error::local("lock", &lock, source);
    let file = File::create_new(&lock).map_err(failed)?;
    file.try_lock().map_err(|source| failed(source.into()))?;
    Ok(file)
}

/// Waits until nobody else makes a folder.
fn lock_base(base: &Path) -> Result<File> {
    let path = base.join(LOCK);
    let failed = |source| error::local("lock", &path, source);
    let file = File::options().create(true).append(true).open(&path).map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}

/// Folders whose lock was free, with the lock. Others' files are left alone.
fn abandoned(base: &Path) -> Result<Vec<(PathBuf, File)>> {
    let failed = |source| error::local("list", base, source);
    let mut abandoned = Vec::new();
    for entry in fs::read_dir(base).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // Not there or not openable: being removed, or nothing of ours.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        match lock.try_lock() {
            Ok(()) => abandoned.push((entry.path(), lock)),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
    Ok(abandoned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner_and_leftovers_go_with_the_next() {
        let base = tempfile::tempdir().unwrap();
        let living = WorkDirectory::create(base.path()).unwrap();
        fs::write(living.fresh("database"), b"x").unwrap();
        // What a killed process leaves: the folder, a lock file that nobody holds.
        let crashed = base.path().join("instance-crashed");
        fs::create_dir(&crashed).unwrap();
        fs::write(crashed.join(LOCK), b"").unwrap();
        fs::write(crashed.join("database-0"), b"x").unwrap();
        // What is not ours.
        let foreign = base.path().join("instance-of-somebody-else");
        fs::create_dir(&foreign).unwrap();
        fs::write(base.path().join("notes"), b"x").unwrap();

        let second = WorkDirectory::create(base.path()).unwrap();
        assert!(living.path.exists() && foreign.exists() && base.path().join("notes").exists());
        assert!(!crashed.exists());
        assert_ne!(living.path, second.path);
        let (first, second_path) = (living.path.clone(), second.path.clone());
        drop((living, second));
        assert!(!first.exists() && !second_path.exists());
    }

    /// A folder that is being made is not removed by who comes at the same time.
    #[test]
    fn many_can_come_at_once() {
        let base = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        let directory = WorkDirectory::create(base.path()).unwrap();
                        fs::write(directory.fresh("database"), b"x").unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn paths_are_given_out_once() {
        let base = tempfile::tempdir().unwrap();
        let directory = WorkDirectory::create(base.path()).unwrap();
        assert_ne!(directory.fresh("snapshot"), directory.fresh("snapshot"));
    }

    #[test]
    fn a_path_that_is_a_file_is_an_error_that_names_it() {
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("file");
        fs::write(&file, b"x").unwrap();
        let error = WorkDirectory::create(&file).unwrap_err();
        assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
    }
}
