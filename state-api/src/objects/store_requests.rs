//! What an engine asks the store of checkpoints for, so that each engine asks in the same way.
//!
//! Stores lose answers, delete several objects in one request or only one by one, and some keep empty
//! folders. These functions hide that, and decide nothing: what may be deleted is the
//! [`ObjectRegistry`](super::ObjectRegistry)'s business.

use std::collections::BTreeSet;

use opendal::{Entry, Operator};

use crate::{Error, ErrorKind, Result};

/// Paths in one request, where the store deletes several at once.
const BATCH: usize = 1_000;

/// What has become of an object that was to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created<T> {
    /// It was created by this call.
    Now,
    /// It is there. What was found may be what this call wrote, when the store's answer was lost.
    Found(T),
}

/// The objects below a folder, at any depth, with their lengths as far as the store tells. Nothing where
/// there is no folder. Costs a request for each thousand.
///
/// # Errors
/// Those of the store.
pub async fn objects_under(store: &Operator, folder: &str) -> Result<Vec<(String, u64)>> {
    let entries = list(store, folder, true).await?;
    let objects = entries.into_iter().map(Entry::into_parts);
    Ok(objects
        .filter(|(path, _)| !path.ends_with('/'))
        .map(|(path, metadata)| (path, metadata.content_length()))
        .collect())
}

/// The names right below a folder; those of folders end in `/`. Costs a request for each thousand.
///
/// # Errors
/// Those of the store.
pub async fn names_in(store: &Operator, folder: &str) -> Result<Vec<String>> {
    let entries = list(store, folder, false).await?;
    let names = entries.iter().filter_map(|entry| entry.path().strip_prefix(folder));
    Ok(names.filter(|name| !name.is_empty()).map(String::from).collect())
}

async fn list(store: &Operator, folder: &str, recursive: bool) -> Result<Vec<Entry>> {
    match store.list_with(folder).recursive(recursive).await {
        Ok(entries) => Ok(entries),
        Err(error) if error.kind() == opendal::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::store("list", folder, error)),
    }
}

/// Creates an object if it is absent. Whatever error the store answers with, the write may have
/// happened: then the object is read, and `read` makes of its bytes who owns the name.
///
/// ```
/// use weir_state_api::store_requests::{Created, create_or_read};
/// use weir_state_api::{Environment, block_on};
///
/// let store = Environment::in_memory().store;
/// let claim = |name: &str| {
///     let found = |bytes: &[u8]| Ok(String::from_utf8_lossy(bytes).into_owned());
///     block_on(create_or_read(&store, "owner", name.as_bytes().to_vec(), "claim", found))
/// };
/// assert_eq!(claim("ann")?, Created::Now);
/// assert_eq!(claim("bob")?, Created::Found("ann".to_string()));
/// # Ok::<(), weir_state_api::Error>(())
/// ```
///
/// # Errors
/// [`Unavailable`](crate::ErrorKind::Unavailable) and others of the store when the object is not
/// there: nothing was written. [`Indeterminate`](crate::ErrorKind::Indeterminate) when it cannot be
/// read: whether it was written is unknown. Those of `read`. `purpose` says in them what was to be
/// done.
pub async fn create_or_read<T>(
    store: &Operator,
    path: &str,
    bytes: Vec<u8>,
    purpose: &str,
    read: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<Created<T>> {
    let written = store.write_with(path, bytes).if_not_exists(true).await;
    let Err(error) = written else { return Ok(Created::Now) };
    match store.read(path).await {
        Ok(found) => read(&found.to_bytes()).map(Created::Found),
        Err(absent) if absent.kind() == opendal::ErrorKind::NotFound => {
            Err(Error::store(purpose, path, error))
        }
        Err(_) => {
            let cause = Error::store(purpose, path, error);
            Err(Error::new(ErrorKind::Indeterminate, "whether the object was written is unknown")
                .object(path)
                .source(cause)
                .advice("look into the store again before acting on either assumption"))
        }
    }
}

/// Deletes objects, many in one request where the store can, and calls `deleted` with those that are
/// gone. What is not there counts as deleted.
///
/// # Errors
/// The first of the store's; the rest was tried.
pub async fn delete_objects(
    store: &Operator,
    objects: &[(String, u64)],
    mut deleted: impl FnMut(&[(String, u64)]),
) -> Result<()> {
    let mut result = Ok(());
    for batch in objects.chunks(BATCH) {
        let paths: Vec<_> = batch.iter().map(|(path, _)| path.clone()).collect();
        if store.delete_iter(paths).await.is_ok() {
            deleted(batch);
            continue;
        }
        // One of them, or an answer that was lost: deleting again is harmless.
        for object in batch {
            match store.delete(&object.0).await {
                Ok(()) => deleted(std::slice::from_ref(object)),
                Err(error) => result = result.and(Err(Error::store("delete", &object.0, error))),
            }
        }
    }
    result
}

/// Removes those of the folders that are empty, where the store is a file system: others have none.
/// One that is not empty stays.
pub async fn remove_empty_folders(store: &Operator, folders: BTreeSet<String>) {
    if store.info().scheme() != "fs" {
        return;
    }
    // Deepest first. A file system refuses to delete a folder that holds something, but says so in a way
    // that stores which try again do not understand: they would for seconds, so it is looked at first.
    // What is left of an empty one harms nobody.
    for folder in folders.into_iter().rev() {
        if names_in(store, &folder).await.is_ok_and(|names| names.is_empty()) {
            drop(store.delete(&folder).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Environment;

    /// Files want a runtime around them.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(future)
    }

    fn on_disk() -> (tempfile::TempDir, Operator) {
        let folder = tempfile::tempdir().unwrap();
        let files = opendal::services::Fs::default().root(&folder.path().to_string_lossy());
        (folder, Operator::new(files).unwrap())
    }

    fn fill(store: &Operator, paths: &[&str]) {
        for path in paths {
            block_on(store.write(path, path.as_bytes().to_vec())).unwrap();
        }
    }

    #[test]
    fn listings_tell_objects_at_any_depth_and_names_right_below() {
        let (_folder, on_disk) = on_disk();
        for store in [Environment::in_memory().store, on_disk] {
            fill(&store, &["a/b/c", "a/d", "ab"]);
            let mut objects = block_on(objects_under(&store, "a/")).unwrap();
            objects.sort();
            assert_eq!(objects, [("a/b/c".to_string(), 5), ("a/d".to_string(), 3)]);
            let mut names = block_on(names_in(&store, "a/")).unwrap();
            names.sort();
            assert_eq!(names, ["b/", "d"]);
            assert!(block_on(names_in(&store, "nowhere/")).unwrap().is_empty());
            assert!(block_on(objects_under(&store, "nowhere/")).unwrap().is_empty());
        }
    }

    #[test]
    fn of_two_who_create_an_object_one_does_and_the_other_reads_it() {
        let store = Environment::in_memory().store;
        let create = |name: &str| {
            let read = |bytes: &[u8]| match bytes {
                b"damaged" => Err(Error::new(ErrorKind::Corrupt, "damaged")),
                bytes => Ok(bytes.to_vec()),
            };
            block_on(create_or_read(&store, "x", name.as_bytes().to_vec(), "claim", read))
        };
        assert_eq!(create("one").unwrap(), Created::Now);
        assert_eq!(create("two").unwrap(), Created::Found(b"one".to_vec()));
        block_on(store.write("x", "damaged")).unwrap();
        assert_eq!(create("two").unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn deletion_tells_what_is_gone_and_what_was_never_there_counts() {
        let store = Environment::in_memory().store;
        fill(&store, &["a", "b"]);
        let objects = ["a", "b", "c"].map(|path| (path.to_string(), 1));
        let mut gone = Vec::new();
        block_on(delete_objects(&store, &objects, |deleted| gone.extend_from_slice(deleted)))
            .unwrap();
        assert_eq!(gone, objects);
        assert!(block_on(objects_under(&store, "")).unwrap().is_empty());
    }

    /// A store that tries again tries nothing again here: whoever removes folders does not wait.
    #[test]
    fn folders_that_hold_something_are_not_tried_at() {
        let (_folder, store) = on_disk();
        fill(&store, &["a/b/c"]);
        let again = opendal::layers::RetryLayer::new()
            .with_notify(|event: opendal::layers::RetryEvent<'_>| panic!("again: {}", event.err));
        let folders = ["a/", "a/b/"].map(String::from);
        block_on(remove_empty_folders(&store.layer(again), folders.into()));
    }

    #[test]
    fn empty_folders_go_deepest_first_and_others_stay() {
        let (folder, store) = on_disk();
        fill(&store, &["a/b/c", "a/d/e"]);
        block_on(store.delete("a/b/c")).unwrap();
        let folders = ["a/", "a/b/", "a/d/", "nowhere/"].map(String::from);
        block_on(remove_empty_folders(&store, folders.clone().into()));
        assert!(!folder.path().join("a/b").exists());
        assert_eq!(block_on(store.read("a/d/e")).unwrap().to_vec(), b"a/d/e");
        block_on(store.delete("a/d/e")).unwrap();
        block_on(remove_empty_folders(&store, folders.into()));
        assert!(!folder.path().join("a").exists());
    }
}
