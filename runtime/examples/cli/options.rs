//! The command-line options that all examples have.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use weir_backend_forst::ForstBackendFactory;
use weir_backend_heap::HeapBackendFactory;
use weir_changelog::{
    ChangelogBackendFactory, ChangelogControl, ChangelogOff, ChangelogOptions, Materialization,
};
#[cfg(not(feature = "rocks"))]
use weir_state_api::Error;
use weir_state_api::{BackendFactory, Result};

use super::duration;
use super::restore::Restore;

/// How a job is run.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct CommonOptions {
    /// Where keyed state lives
    #[arg(long, value_enum, default_value_t = Backend::Heap)]
    pub(crate) backend: Backend,

    /// Log changes beside the backend, so that a checkpoint takes as long as its changes, whatever the
    /// size of the state. May change from run to run
    #[arg(long)]
    pub(crate) changelog: bool,

    /// With --changelog: time from one whole snapshot of the state to the next
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    #[arg(requires = "changelog")]
    pub(crate) materialization_interval: Duration,

    /// Subtasks of every operator; a restore may choose another number
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(crate) parallelism: u16,

    /// Time from one checkpoint to the next, as in 500ms or 1s
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub(crate) checkpoint_interval: Duration,

    /// Folder or URL for checkpoints; default: a folder that is removed at the end
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) checkpoints: Option<String>,

    /// Folder for results, one line each, in files part-*; default: a folder that is removed at the
    /// end
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Crash: end the process with status 137, without any clean-up, once this many records have
    /// been read in this run
    #[arg(long, value_name = "RECORDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) crash_after: Option<u64>,

    /// Start from a checkpoint: `latest`, the path of its folder (DIR/chk-00001-000000007), or its
    /// name alone. Needs the --output folder and the input that the checkpoint was taken
    /// with. When an older one than the latest is chosen, what later ones published is published
    /// again
    #[arg(long, value_name = "latest|PATH", requires = "output")]
    pub(crate) restore: Option<Restore>,

    /// Read only so many events of the input
    #[arg(long, value_name = "N")]
    pub(crate) events: Option<u64>,

    /// Read at most so many records a second from each source, to watch checkpoints and crashes
    #[arg(long, value_name = "RECORDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,

    /// Compare what was published with a plain evaluation of the whole input; a difference is an
    /// error
    #[arg(long)]
    pub(crate) verify: bool,

    /// Print the summary as one JSON object, and nothing else, on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

impl CommonOptions {
    /// The backend, with or without a changelog, of which there is something to tell then; without, it goes
    /// on from checkpoints that have one.
    pub(crate) fn factory(&self) -> Result<(Arc<dyn BackendFactory>, Option<ChangelogControl>)> {
        let backend = self.backend.factory()?;
        if !self.changelog {
            return Ok((Arc::new(ChangelogOff::around(backend)), None));
        }
        let options = ChangelogOptions::default()
            .with_materialization(Materialization::Every(self.materialization_interval));
        let logged = ChangelogBackendFactory::around(backend, options);
        let control = logged.control();
        Ok((Arc::new(logged), Some(control)))
    }

    /// The backend's name, for people.
    pub(crate) fn backend_name(&self) -> String {
        let name = self.backend.name();
        if self.changelog { format!("{name} with changelog") } else { name.to_owned() }
    }

    /// What depends on more than one option.
    pub(crate) fn check(&self) -> Result<(), clap::Error> {
        match &self.restore {
            Some(restore) if restore.store().is_none() && self.checkpoints.is_none() => {
                Err(usage("--restore needs --checkpoints <DIR|URL>, where the checkpoint is"))
            }
            _ => Ok(()),
        }
    }
}

/// An error in how the program was called; `exit` on it prints it and ends with status 2.
pub(crate) fn usage(message: &str) -> clap::Error {
    let message = format!("{message}\n\nFor more information, try '--help'.\n");
    clap::Error::raw(ErrorKind::MissingRequiredArgument, message)
}

/// The backends that can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// In memory
    Heap,
    /// RocksDB on the local disk, incremental snapshots; needs the feature `rocks`
    Rocks,
    /// In the store of the checkpoints, with memory as a cache
    Forst,
}

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Backend::Heap => "heap",
            Backend::Rocks => "rocks",
            Backend::Forst => "forst",
        }
    }

    /// Its factory; an error if it is not built in.
    pub(crate) fn factory(self) -> Result<Arc<dyn BackendFactory>> {
        match self {
            Backend::Heap => Ok(Arc::new(HeapBackendFactory::default())),
            Backend::Rocks => rocks(),
            Backend::Forst => Ok(Arc::new(ForstBackendFactory::default())),
        }
    }
}

#[cfg(feature = "rocks")]
fn rocks() -> Result<Arc<dyn BackendFactory>> {
    use weir_backend_rocks::{RocksBackendFactory, RocksOptions};
    let options = RocksOptions::new(std::env::temp_dir().join("weir-rocks"));
    Ok(Arc::new(RocksBackendFactory::new(options)))
}

#[cfg(not(feature = "rocks"))]
fn rocks() -> Result<Arc<dyn BackendFactory>> {
    Err(Error::new(weir_state_api::ErrorKind::Unsupported, "the backend rocks is not built in")
        .advice(
            "build with `--features rocks` (README: what it needs), or choose `--backend heap`",
        ))
}
