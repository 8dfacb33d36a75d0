//! A store whose reads take a while, over one whose do not.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use opendal::raw::{
    Layer, OpCopy, OpCreateDir, OpList, OpPresign, OpRead, OpRename, OpStat, OpWrite, RpCreateDir,
    RpPresign, RpRead, RpRename, RpStat, Service, ServiceInfo, Servicer, oio,
};
use opendal::{Buffer, BytesRange, Capability, OperationContext, Result};

/// Delays each read, and counts them.
#[derive(Debug, Clone)]
pub(crate) struct Far {
    delay: Duration,
    requests: Arc<AtomicU64>,
}

impl Far {
    pub(crate) fn new(delay: Duration) -> Self {
        Far { delay, requests: Arc::default() }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }
}

impl Layer for Far {
    fn apply_service(&self, inner: Servicer) -> Servicer {
        Arc::new(FarService { inner, far: self.clone() })
    }
}

struct FarService {
    inner: Servicer,
    far: Far,
}

impl fmt::Debug for FarService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FarService").field(&self.inner).field(&self.far).finish()
    }
}

impl Service for FarService {
    type Reader = FarReader;
    type Writer = oio::Writer;
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
        self.inner.stat(ctx, path, args).await
    }

    fn read(&self, ctx: &OperationContext, path: &str, args: OpRead) -> Result<FarReader> {
        Ok(FarReader { inner: self.inner.read(ctx, path, args)?, far: self.far.clone() })
    }

    fn write(&self, ctx: &OperationContext, path: &str, args: OpWrite) -> Result<Self::Writer> {
        self.inner.write(ctx, path, args)
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

pub(crate) struct FarReader {
    inner: oio::Reader,
    far: Far,
}

impl oio::Read for FarReader {
    async fn open(&self, range: BytesRange) -> Result<(RpRead, Box<dyn oio::ReadStreamDyn>)> {
        self.far.requests.fetch_add(1, Relaxed);
        tokio::time::sleep(self.far.delay).await;
        self.inner.open(range).await
    }

    async fn read(&self, range: BytesRange) -> Result<(RpRead, Buffer)> {
        self.far.requests.fetch_add(1, Relaxed);
        tokio::time::sleep(self.far.delay).await;
        self.inner.read(range).await
    }
}
