//! The auction benchmark: the stateful queries over persons, auctions and bids.
//!
//! ```text
//! cargo run --release --example nexmark -- --events 2000000
//! cargo run --release --example nexmark -- --query q5 --checkpoints c --output o --crash-after 500000
//! cargo run --release --example nexmark -- --query q5 --checkpoints c --output o --restore latest
//! ```
//!
//! | file | content |
//! |---|---|
//! | `event.rs` | persons, auctions, bids |
//! | `generator.rs`, `source.rs` | the events, a function of their number, as a source |
//! | `q3.rs` … `q20.rs` | each query: statement, state, job, and a plain evaluation to compare with |
//! | `winning_bids.rs`, `distinct.rs`, `price_ranks.rs` | what some queries have in common |
//! | `query.rs` | the queries by name |
//! | `window.rs`, `accumulate.rs` | windows, for all queries |
//!
//! A result is a function of the events: the order in which they arrive, the parallelism, crashes
//! and restores make no difference to it. So the output of every run is compared with an evaluation
//! that sorts and groups all events in one thread.

mod accumulate;
#[path = "../cli/mod.rs"]
mod cli;
mod distinct;
mod event;
mod generator;
#[cfg(test)]
mod jobs_tests;
mod options;
mod price_ranks;
mod q11;
mod q12;
mod q15;
mod q16;
mod q17;
mod q18;
mod q19;
mod q20;
mod q3;
mod q4;
mod q5;
mod q7;
mod q8;
mod q9;
mod query;
mod source;
mod window;
mod winning_bids;

use std::process::ExitCode;

use clap::Parser;
use weir_runtime::{FileSink, JobGraph};
use weir_state_api::Result;

use cli::Run;
use options::Options;
use query::Query;

fn main() -> ExitCode {
    let options = Options::parse();
    cli::exit(run_all(&options))
}

fn run_all(options: &Options) -> Result<()> {
    let queries = options.queries().unwrap_or_else(|error| error.exit());
    let unasked = options.verifies() && !options.common.verify;
    if unasked && options.common.crash_after.is_none() {
        eprintln!(
            "note: the output is compared with a plain evaluation of all events; --no-verify leaves \
             that out"
        );
    }
    queries.iter().try_for_each(|query| run(*query, options))
}

fn run(query: Query, options: &Options) -> Result<()> {
    let job = format!("nexmark-{query}");
    let run = Run::prepare(&job, &options.common_for(query))?;
    let site = options.site();
    let graph = JobGraph::new(job);
    let events = graph.source("events", run.source(site.clone()))?;
    let lines = FileSink::new(run.output(), |line: &String, out| {
        out.extend_from_slice(line.as_bytes());
    });
    query.job(&events)?.sink("results", lines)?;
    run.execute(&graph, site.settings.events, || Ok(query.reference(site.in_order()?)))
}
