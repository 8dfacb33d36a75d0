//! What the examples share: options, crashing on purpose, progress, the summary.
//!
//! | file | content |
//! |---|---|
//! | `options.rs` | the command-line options common to all examples |
//! | `duration.rs`, `restore.rs` | how the values of two of them are read |
//! | `places.rs` | where checkpoints and output go; temporary folders by default |
//! | `crash.rs`, `pace.rs` | sources that end the process after so many records, or are slow |
//! | `recorder.rs`, `display.rs` | what a run has done so far, and showing it |
//! | `summary.rs`, `figures.rs`, `table.rs` | what it did in all, as JSON and as table |
//! | `verify.rs` | comparing published lines with a plain evaluation |
//! | `run.rs` | all of it together |

mod crash;
mod display;
mod duration;
mod figures;
mod options;
mod pace;
mod places;
mod recorder;
mod restore;
mod run;
mod summary;
mod table;
mod verify;

use std::process::ExitCode;

use weir_state_api::Result;

pub(crate) use options::{CommonOptions, usage};
pub(crate) use run::Run;

#[allow(unused_imports, reason = "not every example looks into a summary")]
pub(crate) use {
    crash::EXIT_CODE as CRASH_EXIT_CODE,
    figures::thousands,
    summary::Summary,
    table::{Column, table},
    verify::verify,
};

/// Ends a program: an error becomes one line on standard error and status 1.
pub(crate) fn exit(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("error: {line}");
            ExitCode::FAILURE
        }
    }
}
