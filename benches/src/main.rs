//! Benchmarks of Weir: every contestant in one run, every answer checked, ratios before absolutes.
//!
//! ```text
//! cargo run --release -p weir-benches -- micro       # state access against a raw hash map
//! cargo run --release -p weir-benches -- snapshot    # how long a snapshot holds the writer
//! cargo run --release -p weir-benches -- runtime     # source, key_by, count, sink
//! ```

mod measure;
mod micro;
mod resident;
mod runtime;
mod shuffle;
mod snapshot;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use measure::Recorder;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Single state accesses (workload W1), against a raw hash map.
    Micro,
    /// The synchronous part of a snapshot, and the whole of it.
    Snapshot,
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
}

/// Compares Weir with raw baselines on this machine.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// What to measure.
    #[arg(value_enum, default_value = "all")]
    suite: Suite,
    /// How much of it.
    #[arg(long, value_enum, default_value = "default")]
    size: Size,
    /// Rounds per contestant, interleaved; the median counts.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Writes the records as one JSON array.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> weir_state_api::Result<()> {
    let mut recorder = Recorder::new(options.rounds);
    let quick = options.size == Size::Quick;
    let chosen = |suite| options.suite == suite || options.suite == Suite::All;
    if chosen(Suite::Micro) {
        micro::run(&mut recorder, if quick { 5_000 } else { 500_000 })?;
    }
    if chosen(Suite::Snapshot) {
        let sizes = if quick {
            snapshot::Sizes { values: 10_000, under_load: 50_000 }
        } else {
            snapshot::Sizes { values: 1_000_000, under_load: 5_000_000 }
        };
        snapshot::run(&mut recorder, sizes)?;
    }
    if chosen(Suite::Runtime) {
        runtime::run(&mut recorder, if quick { 100_000 } else { 20_000_000 })?;
    }
    if let Some(path) = &options.json {
        recorder.write_json(path)?;
    }
    Ok(())
}
