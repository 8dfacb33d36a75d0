//! Why were the flights from New York late? Two streams, three keyed operators, exactly-once output.
//!
//! ```text
//! cargo run --release -p weir-runtime --example flights                  the demonstration
//! cargo run --release -p weir-runtime --example flights -- --help        everything else
//! ```
//!
//! Start reading at `job.rs`, then `aircraft.rs` and `airport.rs`: the job and its operators.
//!
//! | file | content |
//! |---|---|
//! | `job.rs` | the job: sources, operators, windows, sink |
//! | `aircraft.rs`, `airport.rs` | its two operators with state and timers |
//! | `legs.rs`, `conditions.rs`, `hourly.rs` | what it computes: pure functions, no engine |
//! | `replay.rs`, `input.rs` | the input as replayable sources |
//! | `records.rs`, `rows.rs`, `source.rs`, `timeline.rs` | reading CSV files; event time |
//! | `reference.rs` | the same results without an engine, to compare with |
//! | `demo.rs`, `sample.rs` | the demonstration: crash, restore, compare |

#[path = "../cli/mod.rs"]
mod cli;

mod aircraft;
mod airport;
mod conditions;
mod demo;
mod hourly;
mod input;
mod job;
#[cfg(test)]
mod job_tests;
mod legs;
mod records;
mod reference;
mod replay;
mod rows;
mod sample;
mod source;
mod timeline;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use weir_state_api::Result;

use cli::{CommonOptions, Run};
use input::Input;

/// Why were the flights from New York late? Counts, for each carrier and hour, the minutes of delay
/// by cause: the aircraft's previous leg, bad weather, the flight itself.
///
/// Without any option a demonstration runs: the job is started, crashes half-way, is restored at
/// another parallelism, and what it published is compared with a plain evaluation.
#[derive(Debug, Parser)]
#[command(name = "flights")]
struct Options {
    /// Flights in CSV, compressed or not, in any order; `-` is standard input, which is read to its
    /// end first and cannot be restored from. Default: January 2013
    #[arg(long, value_name = "FILE|-")]
    flights: Option<String>,

    /// Weather in CSV, compressed or not. Default: January 2013
    #[arg(long, value_name = "FILE")]
    weather: Option<PathBuf>,

    /// Replay the input so many times, its days following each other
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    #[command(flatten)]
    common: CommonOptions,
}

fn main() -> ExitCode {
    let demonstrate = std::env::args_os().len() <= 1;
    let options = Options::parse();
    cli::exit(if demonstrate { demo::run() } else { run(&options) })
}

fn run(options: &Options) -> Result<()> {
    if options.flights.as_deref() == Some("-") && options.common.restore.is_some() {
        cli::usage(
            "--restore needs the input again: save it to a file, and give that to --flights",
        )
        .exit();
    }
    let input = Input::read(options.flights.as_deref(), options.weather.as_deref())?
        .replayed(options.repeat, options.common.events);
    let run = Run::prepare(job::NAME, &options.common)?;
    let (flights, weather) = (run.source(input.flights()), run.source(input.weather()));
    let graph = job::build(flights, weather, run.output())?;
    run.execute(&graph, input.rows(), || Ok(input.expected()))
}
