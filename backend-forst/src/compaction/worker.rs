//! Compactions in another process.

use std::fmt;
use std::sync::Arc;

use weir_state_api::{BoxFuture, Environment, Error, ErrorKind, Result, Spawned};

use super::job;
use super::run::StopSignal;
use crate::store::{ForstResources, Tables};

/// Carries out compactions for instances, wherever it is: over a socket, a queue, a pipe.
///
/// An instance sends a job as bytes and waits for the result as bytes. It loses nothing when the
/// answer never comes or is an error: then it carries the compaction out itself. A job may be carried
/// out twice; the instance takes one result.
pub trait CompactionService: Send + Sync + fmt::Debug {
    /// Carries out a job. The store is the one that the instance has; the job holds everything else.
    ///
    /// # Errors
    /// Any; the instance carries the job out itself then.
    fn compact(&self, job: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>>;
}

/// The side that does the work: reads and writes tables in the store, and needs no instance, no
/// state and no record of what it has done.
///
/// ```
/// use weir_backend_forst::{CompactionWorker, ForstResources};
/// use weir_state_api::{Environment, ErrorKind, block_on};
///
/// let worker = CompactionWorker::new(&Environment::in_memory(), &ForstResources::default());
/// let error = block_on(worker.run(b"what is not a job")).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Corrupt);
/// ```
///
/// When its process dies, what it has written is named by nobody; the collector of the job's store
/// finds it, as it lies where the instance puts its own objects.
#[derive(Debug, Clone)]
pub struct CompactionWorker {
    tables: Arc<Tables>,
    stop: StopSignal,
}

impl CompactionWorker {
    /// A worker for the store of `environment`. Its disk cache, if it has one, serves inputs and keeps
    /// outputs; without one everything is read and written once, in stripes.
    pub fn new(environment: &Environment, resources: &ForstResources) -> Self {
        let tables = Tables::new(environment, resources);
        CompactionWorker { tables, stop: StopSignal::default() }
    }

    /// Carries out a job that an instance has given to its
    /// [`CompactionService`], and returns what the instance is waiting for.
    ///
    /// Takes memory for about three tables of the output and two MiB for each input. The work is done
    /// by [`spawn_blocking`](weir_state_api::Spawner::spawn_blocking) of the environment.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) and [`Incompatible`](ErrorKind::Incompatible) for what is no
    /// job, or a job of another version; else those of the store, naming the object. Nothing is left
    /// behind, as far as the store can be reached.
    pub async fn run(&self, job: &[u8]) -> Result<Vec<u8>> {
        let (compaction, options) = job::decode(job, &self.tables)?;
        let (tables, stop) = (Arc::clone(&self.tables), self.stop.clone());
        let spawner = Arc::clone(self.tables.spawner());
        let finished = Spawned::blocking(&*spawner, move || {
            weir_state_api::block_on(compaction.run(&tables, options, &stop))
        });
        let finished = finished.await?;
        job::encode_result(job, &finished).ok_or_else(|| {
            Error::new(ErrorKind::InvalidUsage, "a table of a compaction is not in the store")
        })
    }

    /// Asks running jobs to end at their next key group, for a shutdown that wastes nothing: what they
    /// have done until then is their result, and counts. Jobs that come later end after their first
    /// key group.
    pub fn stop(&self) {
        self.stop.stop();
    }
}

/// A worker in the same process.
impl CompactionService for CompactionWorker {
    fn compact(&self, job: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>> {
        let worker = self.clone();
        Box::pin(async move { worker.run(&job).await })
    }
}
