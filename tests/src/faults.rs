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
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

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
    once: BTreeMap<(StoreOp, u64), Fault>,
    always: BTreeMap<StoreOp, When>,
    /// Absolute number of the read to cut short, and what is left of it.
    short: BTreeMap<u64, usize>,
    throttle: Option<Throttle>,
    held: BTreeMap<StoreOp, Vec<Waker>>,
    log: Vec<Call>,
}

/// Of each run of requests only the first are served.
#[derive(Debug)]
struct Throttle {
    served: u64,
    run: u64,
    asked: u64,
}

impl Throttle {
    fn refuses(&mut self) -> bool {
        let place = self.asked % self.run;
        self.asked += 1;
        place >= self.served
    }
}

/// How an operation breaks.
#[derive(Debug, Clone, Copy)]
struct Fault {
    when: When,
    kind: ErrorKind,
}

impl Fault {
    fn of(when: When) -> Self {
        Fault { when, kind: ErrorKind::Unexpected }
    }
}

/// Operations of one kind wait while this lives.
#[derive(Debug)]
#[must_use = "dropping it lets the operations go on"]
pub struct Hold {
    faults: Faults,
    op: StoreOp,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let waiting = self.faults.plan().held.remove(&self.op);
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
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
        plan.once.insert((op, done + nth), Fault::of(when));
    }

    /// Refuses the `nth` operation of that kind from now on with an error of that kind, such as
    /// [`ErrorKind::RateLimited`]. It changes nothing.
    pub fn refuse(&self, op: StoreOp, nth: u64, kind: ErrorKind) {
        let mut plan = self.plan();
        let done = plan.counts.get(&op).copied().unwrap_or(0);
        plan.once.insert((op, done + nth), Fault { when: When::Before, kind });
    }

    /// Of each `run` operations of any kind from now on, serves the first `served` and refuses the others
    /// with [`ErrorKind::RateLimited`], until [`heal`](Faults::heal): a store that throttles. With `served`
    /// 0 nothing is served.
    ///
    /// # Panics
    /// If `run` is 0.
    pub fn throttle(&self, served: u64, run: u64) {
        assert!(run > 0, "a run of no operations");
        self.plan().throttle = Some(Throttle { served, run, asked: 0 });
    }

    /// Cuts the `nth` read from now on short: it succeeds with `keep` bytes at most.
    pub fn shorten(&self, nth: u64, keep: usize) {
        let mut plan = self.plan();
        let done = plan.counts.get(&StoreOp::Read).copied().unwrap_or(0);
        plan.short.insert(done + nth, keep);
    }

    /// Operations of that kind wait, before they take effect, until the result is dropped.
    pub fn hold(&self, op: StoreOp) -> Hold {
        self.plan().held.insert(op, Vec::new());
        Hold { faults: self.clone(), op }
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
        plan.short.clear();
        plan.throttle = None;
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
    fn begin(&self, op: StoreOp, path: &str) -> Option<Fault> {
        let mut plan = self.plan();
        let count = plan.counts.entry(op).or_default();
        *count += 1;
        let number = *count;
        let broken = plan.once.remove(&(op, number));
        let broken = broken.or_else(|| plan.always.get(&op).copied().map(Fault::of));
        let refused = plan.throttle.as_mut().is_some_and(Throttle::refuses);
        let refusal = Fault { when: When::Before, kind: ErrorKind::RateLimited };
        let broken = broken.or(refused.then_some(refusal));
        plan.log.push(Call { op, path: path.to_string(), broken: broken.is_some() });
        broken
    }

    async fn around<T>(
        &self,
        op: StoreOp,
        path: &str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let fault = self.begin(op, path);
        poll_fn(|context| self.poll_held(op, context)).await;
        match fault {
            None => call.await,
            Some(Fault { when: When::Before, kind }) => Err(injected(op, path, kind)),
            Some(Fault { when: When::After, kind }) => {
                call.await?;
                Err(injected(op, path, kind))
            }
        }
    }

    fn poll_held(&self, op: StoreOp, context: &Context<'_>) -> Poll<()> {
        match self.plan().held.get_mut(&op) {
            None => Poll::Ready(()),
            Some(waiting) => {
                waiting.push(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// What the next read is cut to.
    fn shortened(&self) -> Option<usize> {
        let mut plan = self.plan();
        let number = plan.counts.get(&StoreOp::Read).copied().unwrap_or(0) + 1;
        plan.short.remove(&number)
    }
}

fn injected(op: StoreOp, path: &str, kind: ErrorKind) -> Error {
    Error::new(kind, format!("injected failure of {op:?} {path:?}")).set_temporary()
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
        let short = self.faults.shortened();
        let open = self.faults.around(StoreOp::Read, &self.path, self.inner.open(range)).await;
        open.map(|(reply, inner)| match short {
            Some(left) => (reply, Box::new(ShortStream { inner, left }) as _),
            None => (reply, inner),
        })
    }

    async fn read(&self, range: BytesRange) -> Result<(RpRead, Buffer)> {
        let short = self.faults.shortened();
        let read = self.faults.around(StoreOp::Read, &self.path, self.inner.read(range)).await;
        read.map(|(reply, bytes)| match short {
            Some(keep) => (reply, bytes.slice(..keep.min(bytes.len()))),
            None => (reply, bytes),
        })
    }
}

/// A stream that ends early.
struct ShortStream {
    inner: Box<dyn oio::ReadStreamDyn>,
    left: usize,
}

impl oio::ReadStream for ShortStream {
    async fn read(&mut self) -> Result<Buffer> {
        let bytes = self.inner.read_dyn().await?;
        let bytes = bytes.slice(..self.left.min(bytes.len()));
        self.left -= bytes.len();
        Ok(bytes)
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
    fn reads_are_cut_short_refused_and_held() {
        let faults = Faults::new();
        let store = Operator::new(Memory::default()).unwrap().layer(faults.layer());
        block_on(store.write("a", "abc")).unwrap();
        let read = || block_on(store.read("a"));
        faults.shorten(2, 1);
        faults.refuse(StoreOp::Read, 3, ErrorKind::RateLimited);
        assert_eq!(read().unwrap().to_vec(), b"abc");
        assert_eq!(read().map(|bytes| bytes.to_vec()).ok(), Some(b"a".to_vec()));
        assert_eq!(read().unwrap_err().kind(), ErrorKind::RateLimited);

        let held = faults.hold(StoreOp::Read);
        let reader = {
            let store = store.clone();
            std::thread::spawn(move || block_on(store.read("a")))
        };
        while faults.count(StoreOp::Read) < 4 {
            std::thread::yield_now();
        }
        assert!(!reader.is_finished());
        drop(held);
        assert_eq!(reader.join().unwrap().unwrap().to_vec(), b"abc");
    }

    #[test]
    fn a_throttled_store_serves_some_requests_of_each_run() {
        let faults = Faults::new();
        let store = Operator::new(Memory::default()).unwrap().layer(faults.layer());
        block_on(store.write("a", "abc")).unwrap();
        faults.throttle(2, 3);
        let refused = || block_on(store.read("a")).err().map(|error| error.kind());
        let limited = Some(ErrorKind::RateLimited);
        let seen: Vec<_> = (0..6).map(|_| refused()).collect();
        assert_eq!(seen, [None, None, limited, None, None, limited]);
        faults.throttle(0, 1);
        assert_eq!(refused(), limited);
        faults.heal();
        assert_eq!(refused(), None);
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
