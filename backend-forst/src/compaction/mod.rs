//! Carrying out what [`lsm`](crate::lsm) has picked: here, or in another process.
//!
//! | file | concept |
//! |---|---|
//! | `planned.rs` | from a plan to a compaction, from its result to a change of the version |
//! | `run.rs` | reading, merging, writing |
//! | `input.rs` | the tables of a run, read in order |
//! | `output.rs` | where outputs are cut, and how they leave |
//! | `job.rs` | a compaction as bytes, and its result |
//! | `worker.rs` | the public side: who carries out jobs of others |

mod input;
mod job;
mod output;
mod planned;
mod run;
mod worker;

pub(crate) use job::{decode_result, encode as encode_job};
pub(crate) use output::OutputOptions;
pub(crate) use planned::outcome;
pub(crate) use run::{Compaction, Finished, StopSignal};
pub use worker::{CompactionService, CompactionWorker};

#[cfg(test)]
mod tests;
