//! A store that fails in the middle: typed errors, an instance that goes on, nothing half-written.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use common::*;
use opendal::raw::*;
use opendal::{Buffer, Metadata};
use weir_state_api::*;

/// What the store does wrong.
#[derive(Debug, Default)]
struct Faults {
    /// This write to an object fails, counted from 0 and including the final one.
    failing_write: AtomicI64,
    /// Writes are acknowledged and lost.
    drops_writes: AtomicBool,
    aborted: AtomicBool,
}

#[derive(Debug, Clone)]
struct FailingLayer(Arc<Faults>);

impl Layer for FailingLayer {
    fn apply_service(&self, inner: Servicer) -> Servicer {
        Arc::new(FailingService { inner, faults: Arc::clone(&self.0) })
    }
}

#[derive(Debug)]
struct FailingService {
    inner: Servicer,
    faults: Arc<Faults>,
}

impl Service for FailingService {
    type Reader = oio::Reader;
    type Writer = FailingWriter;
    type Lister = oio::Lister;
    type Deleter = oio::Deleter;
    type Copier = oio::Copier;
    type Composer = oio::Composer;

    fn info(&self) -> ServiceInfo {
        self.inner.info()
    }

    fn capability(&self) -> opendal::Capability {
        self.inner.capability()
    }

    async fn create_dir(
        &self,
        context: &opendal::OperationContext,
        path: &str,
        args: OpCreateDir,
    ) -> opendal::Result<RpCreateDir> {
        self.inner.create_dir(context, path, args).await
    }

    async fn stat(
        &self,
        context: &opendal::OperationContext,
        path: &str,
        args: OpStat,
    ) -> opendal::Result<RpStat> {
        self.inner.stat(context, path, args).await
    }

    fn read(
        &self,
        context: &opendal::OperationContext,
        path: &str,
        args: OpRead,
    ) -> opendal::Result<Self::Reader> {
        self.inner.read(context, path, args)
    }

    fn write(
        &self,
        context: &opendal::OperationContext,
        path: &str,
        args: OpWrite,
    ) -> opendal::Result<Self::Writer> {
        let inner = self.inner.write(context, path, args)?;
        Ok(FailingWriter { inner, faults: Arc::clone(&self.faults) })
    }

    fn delete(&self, context: &opendal::OperationContext) -> opendal::Result<Self::Deleter> {
        self.inner.delete(context)
    }

    fn list(
        &self,
        context: &opendal::OperationContext,
        path: &str,
        args: OpList,
    ) -> opendal::Result<Self::Lister> {
        self.inner.list(context, path, args)
    }

    fn copy(
        &self,
        context: &opendal::OperationContext,
        from: &str,
        to: &str,
        args: OpCopy,
    ) -> opendal::Result<Self::Copier> {
        self.inner.copy(context, from, to, args)
    }

    async fn rename(
        &self,
        context: &opendal::OperationContext,
        from: &str,
        to: &str,
        args: OpRename,
    ) -> opendal::Result<RpRename> {
        self.inner.rename(context, from, to, args).await
    }

    async fn presign(
        &self,
        context: &opendal::OperationContext,
        path: &str,
        args: OpPresign,
    ) -> opendal::Result<RpPresign> {
        self.inner.presign(context, path, args).await
    }
}

struct FailingWriter {
    inner: oio::Writer,
    faults: Arc<Faults>,
}

impl FailingWriter {
    fn step(&self) -> opendal::Result<()> {
        if self.faults.failing_write.fetch_sub(1, Ordering::SeqCst) == 0 {
            return Err(opendal::Error::new(opendal::ErrorKind::Unexpected, "the disk is full"));
        }
        Ok(())
    }
}

impl oio::Write for FailingWriter {
    async fn write(&mut self, bytes: Buffer) -> opendal::Result<()> {
        self.step()?;
        if self.faults.drops_writes.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.inner.write(bytes).await
    }

    async fn close(&mut self) -> opendal::Result<Metadata> {
        self.step()?;
        self.inner.close().await
    }

    async fn abort(&mut self) -> opendal::Result<()> {
        self.faults.aborted.store(true, Ordering::SeqCst);
        self.inner.abort().await
    }
}

fn failing_environment() -> (Environment, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    faults.failing_write.store(-1, Ordering::SeqCst);
    let mut environment = Environment::in_memory();
    environment.store = environment.store.layer(FailingLayer(Arc::clone(&faults)));
    (environment, faults)
}

#[test]
fn a_failed_upload_is_an_error_and_the_instance_goes_on() {
    let (environment, faults) = failing_environment();
    let mut backend = open(request(&environment)).unwrap();
    let state = backend.register(&descriptor("s", StateKind::Value)).unwrap();
    for n in 0..4_000_u32 {
        backend.put(&at(state, &n.to_be_bytes(), b""), &[n as u8; 5_000]).unwrap();
    }
    // 20 MB are three pieces; the fourth write completes the object.
    for failing in 0..4 {
        faults.failing_write.store(failing, Ordering::SeqCst);
        faults.aborted.store(false, Ordering::SeqCst);
        let error = block_on(snapshot(backend.as_mut(), 1).run()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("the disk is full"), "{error}");
        let path = error.object_path().unwrap();
        assert!(path.starts_with("chk/heap-") && path.ends_with(".state"), "{path}");
        assert!(faults.aborted.load(Ordering::SeqCst));
        assert!(!block_on(environment.store.exists(path)).unwrap());
        backend.put(&at(state, b"after", b""), &[failing as u8]).unwrap();
        assert_eq!(get(backend.as_mut(), &at(state, b"after", b"")).unwrap(), [failing as u8]);
    }
    let handle = block_on(snapshot(backend.as_mut(), 2).run()).unwrap();
    let restored = open(request(&environment).restore_from(vec![handle])).unwrap();
    assert_eq!(restored.statistics().entries, 4_001);
}

#[test]
fn a_store_that_loses_bytes_is_found_out_before_the_handle_is_given() {
    let (environment, faults) = failing_environment();
    let mut backend = open(request(&environment)).unwrap();
    let state = backend.register(&descriptor("s", StateKind::Value)).unwrap();
    backend.put(&at(state, b"k", b""), b"v").unwrap();
    faults.drops_writes.store(true, Ordering::SeqCst);
    let error = block_on(snapshot(backend.as_mut(), 1).run()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}
