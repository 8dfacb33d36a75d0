//! Benchmarks of Weir: every contestant in one run, every answer checked, ratios before absolutes.
//!
//! ```text
//! cargo run --release -p weir-benches -- micro       # state access against raw collections
//! cargo run --release -p weir-benches -- micro --peers raw,flink    # and against Apache Flink
//! cargo run --release -p weir-benches -- in-flight   # records in flight against one after the other
//! cargo run --release -p weir-benches -- snapshot    # how long a snapshot holds the writer
//! cargo run --release -p weir-benches -- checkpoint  # checkpoints of a large state
//! cargo run --release -p weir-benches -- restore     # restore and rescale it
//! cargo run --release -p weir-benches --features rocks -- compaction   # level against universal
//! cargo run --release -p weir-benches -- runtime     # source, key_by, count, sink
//! ```

mod backends;
mod checkpoint;
mod clock;
#[cfg(feature = "rocks")]
mod compaction;
mod in_flight;
mod interrupt;
mod machine;
mod measure;
mod micro;
mod peers;
mod report;
mod resident;
mod restore;
mod runtime;
mod shuffle;
mod slow_store;
mod snapshot;
mod stage;
mod statistics;
#[cfg(feature = "rocks")]
mod zipf;

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use clap::{Parser, ValueEnum};
use weir_state_api::Result;

use backends::Backend;
use machine::Machine;
use measure::Recorder;
use micro::{Peer, Settings};
use peers::flink::{FlinkBackend, FlinkInstall};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Single state accesses (workload W1), against raw collections and peers.
    Micro,
    /// Many records in flight, against one after the other.
    InFlight,
    /// The synchronous part of a snapshot, and the whole of it.
    Snapshot,
    /// Checkpoints of a large state: full, after one percent of updates, beside a writer (W3).
    Checkpoint,
    /// From checkpoints to the first read, at the same and at another parallelism (W4).
    Restore,
    /// What level and universal compaction of RocksDB write (W2).
    #[cfg(feature = "rocks")]
    Compaction,
    /// Records through the runtime.
    Runtime,
    /// All of them.
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Size {
    /// A smoke test: seconds, figures of no value.
    Quick,
    /// The published sizes.
    Default,
    /// Four times as many keys.
    Large,
}

/// Compares Weir's backends with each other, with raw limits and with peers, on this machine.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// What to measure.
    #[arg(value_enum, default_value = "all")]
    suite: Suite,
    /// Weir's backends that take part in `micro`, `checkpoint` and `restore`; in `micro` the others are
    /// compared with the first.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "heap")]
    backends: Vec<Backend>,
    /// What else takes part in `micro`. Flink needs a JDK 17 and fetches 330 MB with pip once.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "raw")]
    peers: Vec<Peer>,
    /// Which of Flink's state backends take part, if Flink does.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "heap")]
    flink_backends: Vec<FlinkBackend>,
    /// Where Flink's jar is kept [default: weir-benches/flink in the user's cache folder].
    #[arg(long)]
    flink_folder: Option<PathBuf>,
    /// How much of it.
    #[arg(long, value_enum, default_value = "default")]
    size: Size,
    /// Megabytes of values in `checkpoint` and `restore`, in place of 10, 1,000 or 10,000 by size; a
    /// tenth of them in `compaction`.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    state_mb: Option<u64>,
    /// Rounds per contestant, interleaved; the median counts.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only operations of `micro` whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Writes header and records as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Writes the figures of `micro` as Markdown.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Measures the memory of one contestant; how `micro` calls itself.
    #[arg(long, hide = true)]
    memory_probe: Option<String>,
    #[arg(long, hide = true, default_value_t = 1)]
    memory_entries: usize,
}

impl Options {
    /// How large the states of `checkpoint` and `restore` are.
    fn state_bytes(&self) -> u64 {
        let by_size = match self.size {
            Size::Quick => 10,
            Size::Default => 1_000,
            Size::Large => 10_000,
        };
        self.state_mb.unwrap_or(by_size) * 1_000_000
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything could be measured.
fn run(options: &Options) -> Result<bool> {
    if let Some(name) = &options.memory_probe {
        return micro::memory::run_probe(name, options.memory_entries).map(|()| true);
    }
    interrupt::listen()?;
    let machine = Machine::inspect();
    println!("{}", machine.line());
    if !machine.optimized {
        eprintln!("a build without --release: the figures are of no value");
    }
    let mut recorder = Recorder::new(options.rounds, machine);
    let quick = options.size == Size::Quick;
    let chosen =
        |suite| !interrupt::requested() && (options.suite == suite || options.suite == Suite::All);
    if chosen(Suite::Micro) {
        let settings = micro_settings(options, &mut recorder);
        micro::run(&mut recorder, &settings)?;
    }
    if chosen(Suite::InFlight) {
        let (keys, slow_reads) = if quick { (5_000, 50) } else { (500_000, 1_000) };
        in_flight::run(&mut recorder, keys, slow_reads)?;
    }
    if chosen(Suite::Snapshot) {
        let sizes = if quick {
            snapshot::Sizes { values: 10_000, under_load: 50_000 }
        } else {
            snapshot::Sizes { values: 1_000_000, under_load: 5_000_000 }
        };
        snapshot::run(&mut recorder, sizes)?;
    }
    if chosen(Suite::Checkpoint) {
        checkpoint::run(&mut recorder, &options.backends, options.state_bytes())?;
    }
    if chosen(Suite::Restore) {
        restore::run(&mut recorder, &options.backends, options.state_bytes())?;
    }
    #[cfg(feature = "rocks")]
    if chosen(Suite::Compaction) {
        compaction::run(&mut recorder, options.state_bytes() / 10)?;
    }
    if chosen(Suite::Runtime) {
        runtime::run(&mut recorder, if quick { 100_000 } else { 20_000_000 })?;
    }
    for summary in report::summaries(recorder.comparisons.iter()) {
        println!("{}", summary.line());
    }
    if let Some(path) = &options.json {
        recorder.write_json(path)?;
    }
    if let Some(path) = &options.markdown {
        report::write_markdown(&recorder, path)?;
    }
    Ok(recorder.failures.is_empty() && !interrupt::requested())
}

fn micro_settings(options: &Options, recorder: &mut Recorder) -> Settings {
    let mut flink = None;
    if options.peers.contains(&Peer::Flink) {
        let folder = options.flink_folder.clone().unwrap_or_else(FlinkInstall::default_folder);
        match FlinkInstall::prepare(&folder) {
            Ok(install) => flink = Some(Rc::new(install)),
            Err(error) => recorder.fail("all of them", "flink", &error),
        }
    }
    let (keys, memory_entries, warm_up) = match options.size {
        Size::Quick => (5_000, 1_000_000, 1),
        Size::Default => (500_000, 5_000_000, 3),
        Size::Large => (2_000_000, 20_000_000, 3),
    };
    Settings {
        backends: options.backends.clone(),
        peers: options.peers.clone(),
        flink,
        flink_backends: options.flink_backends.clone(),
        keys,
        memory_entries,
        warm_up,
        only: options.only.clone(),
    }
}
