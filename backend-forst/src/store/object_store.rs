//! The store as this backend uses it: whole objects in, ranges out, nothing believed unverified.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use opendal::options::{CopyOptions, ReadOptions, WriteOptions};
use opendal::{Buffer, BytesRange, Operator};
use tokio::sync::Semaphore;
use weir_state_api::{BoxFuture, Error, ErrorKind, ObjectRef, Result};

use super::names::{ObjectKind, ObjectNames};
use super::retry::{Failed, RequestLimits};
use super::traffic::{Counter, Traffic};

/// A store with the limits of the process and what went through it.
///
/// An object is written in one request, from bytes that stay at hand until the store has them: what
/// fails can be repeated as a whole, and no unfinished upload is left behind.
#[derive(Debug, Clone)]
pub(crate) struct ObjectStore {
    operator: Operator,
    limits: RequestLimits,
    /// Bounds the requests in flight of all stores that share it.
    slots: Arc<Semaphore>,
    traffic: Arc<Traffic>,
    /// What went through all stores that share it.
    total: Arc<Traffic>,
}

/// What an object is meant to be.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    length: u64,
    crc32: u32,
}

/// An object that is still to be written.
#[derive(Debug)]
pub(crate) struct NewObject {
    kind: ObjectKind,
    path: String,
    bytes: Buffer,
    wanted: Wanted,
    is_shared: bool,
}

impl NewObject {
    /// Of these parts, under a fresh name.
    pub(crate) fn new(names: &ObjectNames, kind: ObjectKind, parts: &[Bytes]) -> Self {
        let mut crc32 = crc32fast::Hasher::new();
        for part in parts {
            crc32.update(part);
        }
        // OpenDAL never gets past an empty part of a buffer.
        let parts = parts.iter().filter(|part| !part.is_empty());
        let bytes: Buffer = parts.cloned().collect::<Vec<Bytes>>().into();
        let wanted = Wanted { length: bytes.len() as u64, crc32: crc32.finalize() };
        let (path, is_shared) = (names.fresh(kind), names.are_shared());
        NewObject { kind, path, bytes, wanted, is_shared }
    }

    /// What it will be, unless a write fails in such a way that it needs another name.
    pub(crate) fn planned(&self) -> ObjectRef {
        self.wanted.named(self.path.clone(), self.is_shared)
    }
}

impl Wanted {
    fn named(self, path: String, is_shared: bool) -> ObjectRef {
        let object = ObjectRef::new(path, self.length, self.crc32);
        if is_shared { object.shared() } else { object }
    }
}

/// What is found under a name after a write of unknown outcome.
#[derive(Debug)]
enum Found {
    /// What was meant.
    Whole,
    /// Nothing, or nothing yet: the write may still arrive.
    Absent,
    /// Something else, such as the beginning of it.
    Damaged,
}

impl ObjectStore {
    /// A store behind `operator`; `slots` bounds the requests in flight, `total` counts those of all stores.
    pub(crate) fn new(
        operator: Operator,
        limits: RequestLimits,
        slots: Arc<Semaphore>,
        total: Arc<Traffic>,
    ) -> Self {
        ObjectStore { operator, limits, slots, traffic: Arc::default(), total }
    }

    fn count(&self, counter: fn(&Traffic) -> &Counter, amount: u64) {
        counter(&self.traffic).add(amount);
        counter(&self.total).add(amount);
    }

    /// What went through it, and through its clones.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Creates an object under a new name and verifies that it is there, whole.
    ///
    /// After an error the store is asked what it holds: the write may have been done (it counts), not
    /// done (it is repeated under the same name, which a late arrival cannot harm), or done in part (it
    /// is repeated under another name, as the first may be taken for ever).
    ///
    /// # Errors
    /// [`Indeterminate`](ErrorKind::Indeterminate) when the limits are reached and nobody can say
    /// whether the object is there; else the store's. The caller names the object in neither case.
    pub(crate) async fn put_new(
        &self,
        names: &ObjectNames,
        kind: ObjectKind,
        parts: &[Bytes],
    ) -> Result<ObjectRef> {
        self.put_planned(names, NewObject::new(names, kind, parts)).await
    }

    /// The same of an object whose name was made before; usually it gets that.
    ///
    /// # Errors
    /// As for [`put_new`](ObjectStore::put_new).
    pub(crate) async fn put_planned(
        &self,
        names: &ObjectNames,
        new: NewObject,
    ) -> Result<ObjectRef> {
        let NewObject { kind, path, bytes, wanted, .. } = new;
        let put = |path: String| self.put(path, bytes.clone()).boxed();
        self.create(names, (kind, path), wanted, "write", put).await
    }

    /// Makes attempts to create an object until it is there, whole, or the limits are reached.
    async fn create<'s>(
        &self,
        names: &ObjectNames,
        (kind, mut path): (ObjectKind, String),
        wanted: Wanted,
        operation: &str,
        attempt: impl Fn(String) -> BoxFuture<'s, Result<(), Failed>>,
    ) -> Result<ObjectRef> {
        let mut failed = 0;
        loop {
            let Err(failure) = attempt(path.clone()).await else { break };
            let found = self.look_up(&path, wanted).await;
            let again = match &found {
                Ok(Found::Whole) => break,
                Ok(Found::Damaged) => {
                    // The name is this attempt's alone, so no handle can need it.
                    drop(self.delete(&path).await);
                    path = names.fresh(kind);
                    true
                }
                Ok(Found::Absent) | Err(_) => failure.again,
            };
            failed += 1;
            if !again || failed >= self.limits.attempts {
                return Err(match found {
                    Err(_) => unknown(operation, &path, failure.error),
                    Ok(_) => failure.error,
                });
            }
            self.count(|traffic| &traffic.retries, 1);
            self.limits.pause(failed).await;
        }
        Ok(wanted.named(path, names.are_shared()))
    }

    /// One attempt to create an object.
    async fn put(&self, path: String, bytes: Buffer) -> Result<(), Failed> {
        let length = bytes.len() as u64;
        self.count(|traffic| &traffic.puts, 1);
        self.count(|traffic| &traffic.put_bytes, length);
        let options = WriteOptions {
            if_not_exists: self.operator.info().capability().write_with_if_not_exists,
            ..WriteOptions::default()
        };
        let written =
            self.request(length, self.operator.write_options(&path, bytes, options)).await;
        let written = written.map_err(|source| Failed::store("write", &path, source))?;
        // Some services do not tell the length when they acknowledge.
        if written.content_length() == length {
            return Ok(());
        }
        match self.length_of(&path).await? {
            Some(found) if found == length => Ok(()),
            found => Err(Failed::again(wrong_length(&path, found, length))),
        }
    }

    /// Copies an object to a new name and verifies the copy. The store does it where it can; else the
    /// bytes pass through this process.
    ///
    /// # Errors
    /// As for [`put_new`](ObjectStore::put_new); [`NotFound`](ErrorKind::NotFound) and
    /// [`Corrupt`](ErrorKind::Corrupt) name the original.
    pub(crate) async fn copy(
        &self,
        original: &ObjectRef,
        names: &ObjectNames,
        kind: ObjectKind,
    ) -> Result<ObjectRef> {
        if !self.operator.info().capability().copy {
            let bytes = self.read_object(original).await?;
            return self.put_new(names, kind, &[bytes]).await;
        }
        let wanted = Wanted { length: original.length, crc32: original.crc32 };
        let copy = |path: String| self.copy_once(original, path).boxed();
        self.create(names, (kind, names.fresh(kind)), wanted, "copy", copy).await
    }

    /// One attempt to copy an object.
    async fn copy_once(&self, original: &ObjectRef, path: String) -> Result<(), Failed> {
        self.count(|traffic| &traffic.copies, 1);
        self.count(|traffic| &traffic.copied_bytes, original.length);
        let options = CopyOptions {
            if_not_exists: self.operator.info().capability().copy_with_if_not_exists,
            ..CopyOptions::default()
        };
        let copy = self.operator.copy_options(&original.path, &path, options);
        let copied = self.request(original.length, copy).await;
        copied.map_err(|source| Failed::store("copy", &original.path, source))?;
        match self.length_of(&path).await? {
            Some(found) if found == original.length => Ok(()),
            found => Err(Failed::again(wrong_length(&original.path, found, original.length))),
        }
    }

    /// Reads a part of an object.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when the object keeps ending before the range does; else the
    /// store's.
    pub(crate) async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        self.read(path, range.clone(), range.into()).await
    }

    /// Reads the end of an object, and makes sure that nothing follows.
    ///
    /// # Errors
    /// As for [`read_range`](ObjectStore::read_range); [`Corrupt`](ErrorKind::Corrupt) also when the
    /// object is longer than the range says.
    pub(crate) async fn read_end(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.read(path, range.clone(), (range.start..).into()).await
    }

    async fn read(&self, path: &str, range: Range<u64>, asked: BytesRange) -> Result<Bytes> {
        self.limits
            .retry(|failed| {
                let range = range.clone();
                async move {
                    self.count(|traffic| &traffic.retries, u64::from(failed > 0));
                    self.read_once(path, range, asked).await
                }
            })
            .await
    }

    async fn read_once(
        &self,
        path: &str,
        range: Range<u64>,
        asked: BytesRange,
    ) -> Result<Bytes, Failed> {
        let length = range.end.saturating_sub(range.start);
        self.count(|traffic| &traffic.reads, 1);
        let options = ReadOptions { range: asked, ..ReadOptions::default() };
        let read = self.request(length, self.operator.read_options(path, options)).await;
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(source) if source.kind() == opendal::ErrorKind::RangeNotSatisfied => {
                return Err(Failed::for_good(too_short(path, &range, 0).source(source)));
            }
            Err(source) => return Err(Failed::store("read", path, source)),
        };
        self.count(|traffic| &traffic.read_bytes, bytes.len() as u64);
        match (bytes.len() as u64).cmp(&length) {
            Ordering::Equal => Ok(bytes.to_bytes()),
            Ordering::Less => Err(Failed::again(too_short(path, &range, bytes.len()))),
            Ordering::Greater => Err(Failed::for_good(too_long(path, range.end))),
        }
    }

    /// Reads a whole object and verifies it.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when it is not as it was written; else the store's.
    pub(crate) async fn read_object(&self, object: &ObjectRef) -> Result<Bytes> {
        let bytes = self.read_end(&object.path, 0..object.length).await?;
        let found = crc32fast::hash(&bytes);
        if found != object.crc32 {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("the object's checksum is {found:08x}, it was {:08x}", object.crc32),
            )
            .object(&object.path)
            .advice("restore an older checkpoint"));
        }
        Ok(bytes)
    }

    /// Deletes an object; one that is not there counts as deleted.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        self.limits
            .retry(|failed| async move {
                self.count(|traffic| &traffic.retries, u64::from(failed > 0));
                self.count(|traffic| &traffic.deletes, 1);
                match self.request(0, self.operator.delete(path)).await {
                    Err(source) if source.kind() != opendal::ErrorKind::NotFound => {
                        Err(Failed::store("delete", path, source))
                    }
                    _ => Ok(()),
                }
            })
            .await
    }

    /// Finds out what a write of unknown outcome has left.
    async fn look_up(&self, path: &str, wanted: Wanted) -> Result<Found> {
        let found = self.limits.retry(|_| self.length_of(path)).await?;
        match found {
            None => return Ok(Found::Absent),
            Some(found) if found != wanted.length => return Ok(Found::Damaged),
            Some(_) => {}
        }
        match self.read_range(path, 0..wanted.length).await {
            Ok(bytes) if crc32fast::hash(&bytes) == wanted.crc32 => Ok(Found::Whole),
            Ok(_) => Ok(Found::Damaged),
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Found::Damaged),
            Err(error) => Err(error),
        }
    }

    /// The length of an object, if it is there.
    async fn length_of(&self, path: &str) -> Result<Option<u64>, Failed> {
        self.count(|traffic| &traffic.stats, 1);
        match self.request(0, self.operator.stat(path)).await {
            Ok(metadata) => Ok(Some(metadata.content_length())),
            Err(source) if source.kind() == opendal::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Failed::store("stat", path, source)),
        }
    }

    /// Makes one request when there is a slot for it.
    async fn request<T>(
        &self,
        bytes: u64,
        request: impl Future<Output = opendal::Result<T>>,
    ) -> opendal::Result<T> {
        // Never closed; without a slot the request would only be unbounded.
        let _slot = self.slots.acquire().await.ok();
        self.limits.in_time(bytes, request).await
    }
}

#[cold]
fn unknown(operation: &str, path: &str, source: Error) -> Error {
    Error::new(
        ErrorKind::Indeterminate,
        format!("the store failed to {operation} an object and does not say whether it did"),
    )
    .object(path)
    .advice("check the store, then retry; the object is named nowhere and does no harm")
    .source(source)
}

#[cold]
fn too_long(path: &str, length: u64) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the object goes on behind its {length} bytes"))
        .object(path)
        .advice("restore an older checkpoint")
}

#[cold]
fn too_short(path: &str, range: &Range<u64>, found: usize) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("the object ends early: {found} bytes of the range {range:?}"),
    )
    .object(path)
    .advice("restore an older checkpoint")
}

#[cold]
fn wrong_length(path: &str, found: Option<u64>, wanted: u64) -> Error {
    let found = found.map_or_else(|| "nothing".to_string(), |found| format!("{found} bytes"));
    Error::new(
        ErrorKind::Corrupt,
        format!("the store acknowledged an object of {wanted} bytes and holds {found}"),
    )
    .object(path)
    .advice("check the store")
}

#[cfg(test)]
#[path = "object_store_tests.rs"]
mod tests;
