//! A store that fails on demand: an `OpenDAL` layer that counts, logs and breaks operations.
//!
//! ```
//! use opendal::{Operator, services::Memory};
//! use weir_state_api::block_on;
//! use weir_tests::faults::{Faults, StoreOp, When};
//!
//! let faults = Faults::new();
//! let store = Operator::new(Memory::default())?.layer(faults.layer());
//! faults.fail(StoreOp::Close, 2, When::After);
//! block_on(store.write("a", "1"))?;
//! // The second object is stored, but the writer is told otherwise: a lost acknowledgement.
//! assert!(block_on(store.write("b", "2")).is_err());
//! assert_eq!(block_on(store.read("b"))?.to_vec(), b"2");
//! assert_eq!(faults.count(StoreOp::Close), 2);
//! # Ok::<(), opendal::Error>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opendal::raw::{
    Layer, OpCopy, OpCreateDir, OpDelete, OpList, OpPresign, OpRead, OpRename, OpStat, OpWrite,
    RpCreateDir, RpPresign, RpRead, RpRename, RpStat, Service, ServiceInfo, Servicer, oio,
};
use opendal::{
    Buffer, BytesRange, Capability, Error, ErrorKind, Metadata, OperationContext, Result,
};

/// The operations that can be counted and broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreOp {
    /// Hands a part of an object to the store; nothing is visible yet.
    Write,
    /// Publishes the object.
    Close,
    /// Reads an object or a range of it.
    Read,
    /// Asks for an object's metadata.
    Stat,
    /// Fetches the next entry of a listing.
    List,
    /// Deletes an object.
    Delete,
}

/// Whether a broken operation takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It fails and changes nothing.
    Before,
    /// It is applied, then reported as failed: the acknowledgement is lost.
    After,
}

/// One logged operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What was called.
    pub op: StoreOp,
    /// The path it was for; empty for a batch of deletes.
    pub path: String,
    /// Whether it was made to fail.
    pub broken: bool,
}

#[derive(Debug, Default)]
struct Plan {
    counts: BTreeMap<StoreOp, u64>,
    /// Absolute number of the operation to break.
    once: BTreeMap<(StoreOp, u64), When>,
    always: BTreeMap<StoreOp, When>,
    log: Vec<Call>,
}

/// What the store breaks; shared by all clones and by the layers made from it.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

impl Faults {
    /// Nothing is broken yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The layer to put over a store.
    pub fn layer(&self) -> FaultLayer {
        FaultLayer(self.clone())
    }

    /// Breaks the `nth` operation of that kind from now on, 1 being the next one.
    pub fn fail(&self, op: StoreOp, nth: u64, when: When) {
        let mut plan = self.plan();
        let done = plan.counts.get(&op).copied().unwrap_or(0);
        plan.once.insert((op, done + nth), when);
    }

    /// Breaks every operation of that kind until [`heal`](Faults::heal).
    pub fn fail_always(&self, op: StoreOp, when: When) {
        self.plan().always.insert(op, when);
    }

    /// Breaks nothing any more.
    pub fn heal(&self) {
        let mut plan = self.plan();
        plan.once.clear();
        plan.always.clear();
    }

    /// How often an operation was called.
    pub fn count(&self, op: StoreOp) -> u64 {
        self.plan().counts.get(&op).copied().unwrap_or(0)
    }

    /// All calls since the last [`clear_log`](Faults::clear_log), oldest first.
    pub fn log(&self) -> Vec<Call> {
        self.plan().log.clone()
    }

    /// Forgets the log; the counts stay.
    pub fn clear_log(&self) {
        self.plan().log.clear();
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts and logs a call; says whether and how it breaks.
    fn begin(&self, op: StoreOp, path: &str) -> Option<When> {
        let mut plan = self.plan();
        let count = plan.counts.entry(op).or_default();
        *count += 1;
        let number = *count;
        let broken = plan.once.remove(&(op, number)).or_else(|| plan.always.get(&op).copied());
        plan.log.push(Call { op, path: path.to_string(), broken: broken.is_some() });
        broken
    }

    async fn around<T>(
        &self,
        op: StoreOp,
        path: &str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match self.begin(op, path) {
            None => call.await,
            Some(When::Before) => Err(injected(op, path)),
            Some(When::After) => {
                call.await?;
                Err(injected(op, path))
            }
        }
    }
}

fn injected(op: StoreOp, path: &str) -> Error {
    Error::new(ErrorKind::Unexpected, format!("injected failure of {op:?} {path:?}"))
        .set_temporary()
}

/// Puts [`Faults`] over a store.
#[derive(Debug)]
pub struct FaultLayer(Faults);

impl Layer for FaultLayer {
    fn apply_service(&self, inner: Servicer) -> Servicer {
        Arc::new(FaultyService { inner, faults: self.0.clone() })
    }
}

struct FaultyService {
    inner: Servicer,
    faults: Faults,
}

impl fmt::Debug for FaultyService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FaultyService").field(&self.inner).finish()
    }
}

impl FaultyService {
    fn wrap<T>(&self, path: &str, inner: T) -> Faulty<T> {
        Faulty { inner, path: path.to_string(), faults: self.faults.clone() }
    }
}

impl Service for FaultyService {
    type Reader = Faulty<oio::Reader>;
    type Writer = Faulty<oio::Writer>;
    type Lister = Faulty<oio::Lister>;
    type Deleter = Faulty<oio::Deleter>;
    type Copier = oio::Copier;
    type Composer = oio::Composer;

    fn info(&self) -> ServiceInfo {
        self.inner.info()
    }

    fn capability(&self) -> Capability {
        self.inner.capability()
    }

    async fn create_dir(
        &self,
        ctx: &OperationContext,
        path: &str,
        args: OpCreateDir,
    ) -> Result<RpCreateDir> {
        self.inner.create_dir(ctx, path, args).await
    }

    async fn stat(&self, ctx: &OperationContext, path: &str, args: OpStat) -> Result<RpStat> {
        self.faults.around(StoreOp::Stat, path, self.inner.stat(ctx, path, args)).await
    }

    fn read(&self, ctx: &OperationContext, path: &str, args: OpRead) -> Result<Self::Reader> {
        Ok(self.wrap(path, self.inner.read(ctx, path, args)?))
    }

    fn write(&self, ctx: &OperationContext, path: &str, args: OpWrite) -> Result<Self::Writer> {
        Ok(self.wrap(path, self.inner.write(ctx, path, args)?))
    }

    fn delete(&self, ctx: &OperationContext) -> Result<Self::Deleter> {
        Ok(self.wrap("", self.inner.delete(ctx)?))
    }

    fn list(&self, ctx: &OperationContext, path: &str, args: OpList) -> Result<Self::Lister> {
        Ok(self.wrap(path, self.inner.list(ctx, path, args)?))
    }

    fn copy(
        &self,
        ctx: &OperationContext,
        from: &str,
        to: &str,
        args: OpCopy,
    ) -> Result<Self::Copier> {
        self.inner.copy(ctx, from, to, args)
    }

    async fn rename(
        &self,
        ctx: &OperationContext,
        from: &str,
        to: &str,
        args: OpRename,
    ) -> Result<RpRename> {
        self.inner.rename(ctx, from, to, args).await
    }

    async fn presign(
        &self,
        ctx: &OperationContext,
        path: &str,
        args: OpPresign,
    ) -> Result<RpPresign> {
        self.inner.presign(ctx, path, args).await
    }
}

/// A reader, writer, lister or deleter with faults around it.
struct Faulty<T> {
    inner: T,
    path: String,
    faults: Faults,
}

impl<T: oio::Read> oio::Read for Faulty<T> {
    async fn open(&self, range: BytesRange) -> Result<(RpRead, Box<dyn oio::ReadStreamDyn>)> {
        self.faults.around(StoreOp::Read, &self.path, self.inner.open(range)).await
    }

    async fn read(&self, range: BytesRange) -> Result<(RpRead, Buffer)> {
        self.faults.around(StoreOp::Read, &self.path, self.inner.read(range)).await
    }
}

impl<T: oio::Write> oio::Write for Faulty<T> {
    async fn write(&mut self, bytes: Buffer) -> Result<()> {
        self.faults.around(StoreOp::Write, &self.path, self.inner.write(bytes)).await
    }

    async fn close(&mut self) -> Result<Metadata> {
        self.faults.around(StoreOp::Close, &self.path, self.inner.close()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

impl<T: oio::List> oio::List for Faulty<T> {
    async fn next(&mut self) -> Result<Option<oio::Entry>> {
        self.faults.around(StoreOp::List, &self.path, self.inner.next()).await
    }
}

impl<T: oio::Delete> oio::Delete for Faulty<T> {
    async fn delete<'a>(&'a mut self, path: &'a str, args: OpDelete) -> Result<()> {
        self.faults.around(StoreOp::Delete, path, self.inner.delete(path, args)).await
    }

    async fn close(&mut self) -> Result<()> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opendal::{Operator, services::Memory};
    use weir_state_api::block_on;

    #[test]
    fn each_operation_breaks_once_and_is_logged() {
        let faults = Faults::new();
        let store = Operator::new(Memory::default()).unwrap().layer(faults.layer());
        faults.fail(StoreOp::Write, 1, When::Before);
        assert!(block_on(store.write("a", "1")).is_err());
        assert!(!block_on(store.exists("a")).unwrap());
        block_on(store.write("a", "1")).unwrap();
        for op in [StoreOp::Read, StoreOp::Stat, StoreOp::List, StoreOp::Delete] {
            faults.fail(op, 1, When::Before);
            let call = || match op {
                StoreOp::Read => block_on(store.read("a")).is_ok(),
                StoreOp::Stat => block_on(store.stat("a")).is_ok(),
                StoreOp::List => block_on(store.list("")).is_ok(),
                _ => block_on(store.delete("a")).is_ok(),
            };
            assert_eq!((call(), call()), (false, true), "{op:?}");
        }
        assert_eq!(faults.log().iter().filter(|call| call.broken).count(), 5);
    }

    #[test]
    fn always_lasts_until_healed() {
        let faults = Faults::new();
        let store = Operator::new(Memory::default()).unwrap().layer(faults.layer());
        faults.fail_always(StoreOp::Close, When::Before);
        assert!(block_on(store.write("a", "1")).is_err());
        assert!(block_on(store.write("a", "1")).is_err());
        faults.heal();
        block_on(store.write("a", "1")).unwrap();
        faults.clear_log();
        assert!(faults.log().is_empty());
    }
}
