//! The command line.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use weir_backend_forst::ForstBackendFactory;
use weir_backend_heap::HeapBackendFactory;
use weir_state_api::{BackendFactory, Result};
#[cfg(not(feature = "rocks"))]
use weir_state_api::{Error, ErrorKind};

/// Counts words on several processes.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Options {
    /// Folder of checkpoints, the same for all processes.
    #[arg(long)]
    pub(crate) checkpoints: PathBuf,
    /// Folder of the published lines.
    #[arg(long)]
    pub(crate) output: PathBuf,
    /// Processes to start.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) processes: u16,
    /// Workers in each process.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) workers: u16,
    /// Words to count.
    #[arg(long, default_value_t = 200_000)]
    pub(crate) words: u64,
    /// Different words among them.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) distinct: u64,
    /// Words a second that each of the four splits yields; 0 for as many as possible.
    #[arg(long, default_value_t = 0)]
    pub(crate) rate: u64,
    /// Milliseconds from one checkpoint to the next.
    #[arg(long, default_value_t = 200)]
    interval_ms: u64,
    /// Where state lives.
    #[arg(long, value_enum, default_value_t = Backend::Heap)]
    pub(crate) backend: Backend,
    /// Only this process of the cluster; the command starts all of them itself without it.
    #[arg(long, requires = "addresses")]
    pub(crate) process: Option<usize>,
    /// Addresses of all processes.
    #[arg(long, value_delimiter = ',')]
    pub(crate) addresses: Vec<String>,
}

impl Options {
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }
}

/// Where state lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// In memory.
    Heap,
    /// In the folder of checkpoints, with memory as a cache.
    Forst,
    /// In RocksDB on the local disk; needs the feature `rocks`.
    Rocks,
}

impl Backend {
    /// Its factory: one for all workers of a process, which share its caches and budgets.
    pub(crate) fn factory(self) -> Result<Arc<dyn BackendFactory>> {
        match self {
            Backend::Heap => Ok(Arc::new(HeapBackendFactory::default())),
            Backend::Forst => Ok(Arc::new(ForstBackendFactory::default())),
            Backend::Rocks => rocks(),
        }
    }
}

#[cfg(feature = "rocks")]
fn rocks() -> Result<Arc<dyn BackendFactory>> {
    let folder = std::env::temp_dir().join("weir-rocks");
    let options = weir_backend_rocks::RocksOptions::new(folder);
    Ok(Arc::new(weir_backend_rocks::RocksBackendFactory::new(options)))
}

#[cfg(not(feature = "rocks"))]
fn rocks() -> Result<Arc<dyn BackendFactory>> {
    let error = Error::new(ErrorKind::Unsupported, "the backend rocks is not built in");
    Err(error.advice("build with `--features rocks` (README: what it needs)"))
}
