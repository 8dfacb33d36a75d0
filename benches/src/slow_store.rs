//! A store that answers late and streams slowly, over one that does neither: what an object store
//! looks like from a machine.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opendal::raw::{
    Layer, OpCopy, OpCreateDir, OpList, OpPresign, OpRead, OpRename, OpStat, OpWrite, RpCreateDir,
    RpPresign, RpRead, RpRename, RpStat, Service, ServiceInfo, Servicer, oio,
};
use opendal::{Buffer, BytesRange, Capability, Metadata, OperationContext, Result};
use tokio::time::{Instant, sleep, sleep_until};

/// Bytes wait for a reader that is busy for so long: the buffers of the network.
const BUFFERED: Duration = Duration::from_millis(20);

/// How slow a store is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slowness {
    /// Until the first byte, or the answer, of each request.
    pub(crate) first_byte: Duration,
    /// Of each stream.
    pub(crate) bytes_per_second: u64,
}

impl Slowness {
    /// Not slow at all.
    pub(crate) const NONE: Slowness =
        Slowness { first_byte: Duration::ZERO, bytes_per_second: u64::MAX };

    /// Roughly an object store of a cloud.
    pub(crate) const OBJECT_STORE: Slowness =
        Slowness { first_byte: Duration::from_millis(20), bytes_per_second: 100_000_000 };

    fn time_of(self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64)
    }
}

/// What was asked of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    /// Reads of objects or ranges of them, and questions for their length.
    pub(crate) reads: u64,
    /// Objects written.
    pub(crate) writes: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
}

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// Slows a store down and counts what is asked of it.
#[derive(Debug, Clone)]
pub(crate) struct SlowStore {
    slowness: Arc<Mutex<Slowness>>,
    counters: Arc<Counters>,
}

impl SlowStore {
    pub(crate) fn new(slowness: Slowness) -> Self {
        SlowStore { slowness: Arc::new(Mutex::new(slowness)), counters: Arc::default() }
    }

    /// As slow as this from now on.
    pub(crate) fn change(&self, slowness: Slowness) {
        *self.slowness.lock().unwrap_or_else(PoisonError::into_inner) = slowness;
    }

    fn slowness(&self) -> Slowness {
        *self.slowness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that was asked so far.
    pub(crate) fn requests(&self) -> Requests {
        let Counters { reads, writes, bytes_read, bytes_written } = &*self.counters;
        let [reads, writes, bytes_read, bytes_written] =
            [reads, writes, bytes_read, bytes_written].map(|counter| counter.load(Relaxed));
        Requests { reads, writes, bytes_read, bytes_written }
    }

    /// A request that reads is counted and waits for its answer.
    async fn answer_to_read(&self) {
        self.counters.reads.fetch_add(1, Relaxed);
        self.wait_for_answer().await;
    }

    async fn wait_for_answer(&self) {
        // Even a sleep of no time waits for the next tick of the timer.
        let first_byte = self.slowness().first_byte;
        if !first_byte.is_zero() {
            sleep(first_byte).await;
        }
    }

    fn has_read(&self, bytes: &Buffer) {
        self.counters.bytes_read.fetch_add(bytes.len() as u64, Relaxed);
    }
}

impl Layer for SlowStore {
    fn apply_service(&self, inner: Servicer) -> Servicer {
        Arc::new(SlowService { inner, slow: self.clone() })
    }
}

struct SlowService {
    inner: Servicer,
    slow: SlowStore,
}

impl fmt::Debug for SlowService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlowService").field(&self.inner).field(&self.slow).finish()
    }
}

impl SlowService {
    fn wrap<T>(&self, inner: T) -> Slow<T> {
        Slow { inner, slow: self.slow.clone(), due: None }
    }
}

impl Service for SlowService {
    type Reader = Slow<oio::Reader>;
    type Writer = Slow<oio::Writer>;
    type Lister = oio::Lister;
    type Deleter = oio::Deleter;
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
        self.slow.answer_to_read().await;
        self.inner.stat(ctx, path, args).await
    }

    fn read(&self, ctx: &OperationContext, path: &str, args: OpRead) -> Result<Self::Reader> {
        Ok(self.wrap(self.inner.read(ctx, path, args)?))
    }

    fn write(&self, ctx: &OperationContext, path: &str, args: OpWrite) -> Result<Self::Writer> {
        Ok(self.wrap(self.inner.write(ctx, path, args)?))
    }

    fn delete(&self, ctx: &OperationContext) -> Result<Self::Deleter> {
        self.inner.delete(ctx)
    }

    fn list(&self, ctx: &OperationContext, path: &str, args: OpList) -> Result<Self::Lister> {
        self.inner.list(ctx, path, args)
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

/// A reader, writer or stream that takes its time.
struct Slow<T> {
    inner: T,
    slow: SlowStore,
    /// When the next byte comes.
    due: Option<Instant>,
}

impl<T> Slow<T> {
    /// Waits until so many more bytes have passed.
    async fn pass(&mut self, bytes: usize) {
        let slowness = self.slow.slowness();
        if slowness.bytes_per_second == u64::MAX {
            return;
        }
        let now = Instant::now();
        let from = self.due.unwrap_or(now).max(now.checked_sub(BUFFERED).unwrap_or(now));
        let due = from + slowness.time_of(bytes);
        self.due = Some(due);
        sleep_until(due).await;
    }
}

impl<T: oio::Read> oio::Read for Slow<T> {
    async fn open(&self, range: BytesRange) -> Result<(RpRead, Box<dyn oio::ReadStreamDyn>)> {
        self.slow.answer_to_read().await;
        let (reply, inner) = self.inner.open(range).await?;
        Ok((reply, Box::new(Slow { inner, slow: self.slow.clone(), due: None })))
    }

    async fn read(&self, range: BytesRange) -> Result<(RpRead, Buffer)> {
        self.slow.answer_to_read().await;
        let (reply, bytes) = self.inner.read(range).await?;
        self.slow.has_read(&bytes);
        let time = self.slow.slowness().time_of(bytes.len());
        if time > Duration::from_micros(1) {
            sleep(time).await;
        }
        Ok((reply, bytes))
    }
}

impl oio::ReadStream for Slow<Box<dyn oio::ReadStreamDyn>> {
    async fn read(&mut self) -> Result<Buffer> {
        let bytes = self.inner.read().await?;
        self.slow.has_read(&bytes);
        self.pass(bytes.len()).await;
        Ok(bytes)
    }
}

impl<T: oio::Write> oio::Write for Slow<T> {
    async fn write(&mut self, bytes: Buffer) -> Result<()> {
        self.slow.counters.bytes_written.fetch_add(bytes.len() as u64, Relaxed);
        self.pass(bytes.len()).await;
        self.inner.write(bytes).await
    }

    async fn close(&mut self) -> Result<Metadata> {
        self.slow.counters.writes.fetch_add(1, Relaxed);
        self.slow.wait_for_answer().await;
        self.inner.close().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
