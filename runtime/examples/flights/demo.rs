//! The demonstration: the job crashes half-way, is restored at another parallelism, and what it
//! published in all is compared with a plain evaluation of the input.
//!
//! The job runs in processes of its own, so that the crash is one: no destructor runs, and nothing
//! but the two folders survives.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use weir_runtime::FileSink;
use weir_state_api::{Error, ErrorKind, Result};

use super::cli::{self, Column, Summary, thousands};
use super::input::Input;
use super::sample;

/// How often January is replayed: enough for some seconds and many checkpoints.
const REPEAT: u32 = 50;

const CHECKPOINT_INTERVAL: &str = "200ms";

/// Subtasks before and after the crash.
const PARALLELISM: [&str; 2] = ["2", "3"];

pub(crate) fn run() -> Result<()> {
    let input = Input::read(None, None)?.replayed(REPEAT, None);
    let folder = tempfile::TempDir::with_prefix("weir-flights-").map_err(|error| {
        Error::new(ErrorKind::Unavailable, "no temporary folder can be created").source(error)
    })?;
    let folder = folder.path();
    let (rows, half) = (input.rows(), input.rows() / 2);
    println!(
        "Departures and weather of January 2013 at New York's airports, replayed {REPEAT} times: \
         {} records.\n",
        thousands(rows)
    );

    println!("1. Run at parallelism {}, made to crash half-way.", PARALLELISM[0]);
    let first = job(folder, PARALLELISM[0], &["--crash-after", &half.to_string()])?;
    if first.status.code() != Some(cli::CRASH_EXIT_CODE) {
        return Err(unexpected("the first run did not crash", &first));
    }
    println!("   The process ended with status {}.\n", cli::CRASH_EXIT_CODE);
    let first = summary(&first)?;

    println!("2. Restore the latest checkpoint at parallelism {}.", PARALLELISM[1]);
    let second = job(folder, PARALLELISM[1], &["--restore", "latest"])?;
    if !second.status.success() {
        return Err(unexpected("the restored run failed", &second));
    }
    println!("   The process ended with status 0.\n");
    let second = summary(&second)?;

    let columns = [
        Column { title: "until the crash", summary: &first },
        Column { title: "restored", summary: &second },
    ];
    println!("{}", cli::table(&columns));

    let output = folder.join("output");
    let lines = FileSink::<String>::published(&output)?;
    println!(
        "Of the published rows, those of January 2013 with the most minutes of delay, by cause:\n"
    );
    let january = lines.iter().filter(|line| line.starts_with("2013-01-"));
    println!("{}", sample::worst_hours(january, 5));

    println!("3. Compare with a plain evaluation: one thread, no engine.");
    let count = cli::verify(&output, input.expected())?;
    println!(
        "   Exactly once: the {} published rows are equal to it. None is missing, none is there twice.",
        thousands(count as u64)
    );
    Ok(())
}

/// Runs the job in a process of its own; its progress goes to our standard error.
fn job(folder: &Path, parallelism: &str, more: &[&str]) -> Result<Output> {
    let failed = |error| {
        Error::new(ErrorKind::Unavailable, "the job's process cannot be started").source(error)
    };
    let program = std::env::current_exe().map_err(failed)?;
    Command::new(program)
        .args(["--json", "--repeat", &REPEAT.to_string(), "--parallelism", parallelism])
        .args(["--checkpoint-interval", CHECKPOINT_INTERVAL])
        .arg("--checkpoints")
        .arg(folder.join("checkpoints"))
        .arg("--output")
        .arg(folder.join("output"))
        .args(more)
        .stderr(Stdio::inherit())
        .output()
        .map_err(failed)
}

fn summary(output: &Output) -> Result<Summary> {
    serde_json::from_slice(&output.stdout)
        .map_err(|error| unexpected("the summary of a run cannot be read", output).source(error))
}

fn unexpected(what: &str, output: &Output) -> Error {
    Error::new(ErrorKind::UserFunction, format!("{what}: it ended with {}", output.status))
        .advice("what it printed above says why")
}
