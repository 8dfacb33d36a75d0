//! Workload W5: the auction benchmark through the runtime, with exactly-once checkpoints each second.
//!
//! The queries are those of the runtime's example `nexmark`, with their plain evaluations: every
//! output is compared with one.

#[path = "../../../runtime/examples/nexmark/accumulate.rs"]
mod accumulate;
#[path = "../../../runtime/examples/nexmark/distinct.rs"]
mod distinct;
#[path = "../../../runtime/examples/nexmark/event.rs"]
mod event;
#[path = "../../../runtime/examples/nexmark/generator.rs"]
mod generator;
#[path = "../../../runtime/examples/nexmark/price_ranks.rs"]
mod price_ranks;
#[path = "../../../runtime/examples/nexmark/q11.rs"]
mod q11;
#[path = "../../../runtime/examples/nexmark/q12.rs"]
mod q12;
#[path = "../../../runtime/examples/nexmark/q15.rs"]
mod q15;
#[path = "../../../runtime/examples/nexmark/q16.rs"]
mod q16;
#[path = "../../../runtime/examples/nexmark/q17.rs"]
mod q17;
#[path = "../../../runtime/examples/nexmark/q18.rs"]
mod q18;
#[path = "../../../runtime/examples/nexmark/q19.rs"]
mod q19;
#[path = "../../../runtime/examples/nexmark/q20.rs"]
mod q20;
#[path = "../../../runtime/examples/nexmark/q3.rs"]
mod q3;
#[path = "../../../runtime/examples/nexmark/q4.rs"]
mod q4;
#[path = "../../../runtime/examples/nexmark/q5.rs"]
mod q5;
#[path = "../../../runtime/examples/nexmark/q7.rs"]
mod q7;
#[path = "../../../runtime/examples/nexmark/q8.rs"]
mod q8;
#[path = "../../../runtime/examples/nexmark/q9.rs"]
mod q9;
#[path = "../../../runtime/examples/nexmark/query.rs"]
mod query;
#[path = "../../../runtime/examples/nexmark/source.rs"]
mod source;
#[path = "../../../runtime/examples/nexmark/window.rs"]
mod window;
#[path = "../../../runtime/examples/nexmark/winning_bids.rs"]
mod winning_bids;

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use tempfile::TempDir;
use weir_runtime::{CheckpointConfig, JobConfig, JobGraph, JobReport, Storage, VecSink};
use weir_state_api::{Error, ErrorKind, Result};

use crate::backends::{Backend, Purpose};
use crate::clock::{Elapsed, Stopwatch};
use crate::interrupt;
use crate::measure::{Recorder, Samples, millis};
use generator::Settings;
use query::Query;
use source::AuctionSite;

const SUITE: &str = "nexmark";
/// Decides who is better.
const COST: &str = "CPU";

/// Runs all queries with so many events on each backend, in turn.
pub(crate) fn run(recorder: &mut Recorder, backends: &[Backend], events: u64) -> Result<()> {
    let queries = Query::value_variants();
    recorder.expect(queries.len() * (recorder.rounds() + 1) * backends.len());
    for &query in queries {
        let site = AuctionSite { settings: Settings::new(events), splits: 1 };
        let expected = query.reference(site.in_order()?);
        let workload = query.to_string();
        let mut entrants: Vec<_> =
            backends.iter().map(|backend| (*backend, Samples::default(), Vec::new())).collect();
        // The first round warms up.
        for round in 0..=recorder.rounds() {
            entrants.retain_mut(|(backend, samples, costs)| {
                if interrupt::requested() {
                    return round > 1;
                }
                recorder.now(&format!("{query}, {backend}"));
                let measured = measure(*backend, query, &site, &expected);
                recorder.step();
                match measured {
                    Ok(_) if round == 0 => true,
                    Ok(measured) => {
                        costs.push(measured.elapsed.process.as_secs_f64());
                        measured.add_to(samples, events);
                        true
                    }
                    Err(error) => {
                        recorder.fail(&workload, &backend.to_string(), &error);
                        false
                    }
                }
            });
        }
        let mut costs: Vec<(String, Vec<f64>)> = Vec::new();
        for (backend, samples, its) in entrants {
            samples.record(recorder, SUITE, &workload, &backend.to_string());
            costs.push((backend.to_string(), its));
        }
        let Some((first, others)) = costs.split_first() else { continue };
        for other in others.iter().filter(|other| !other.1.is_empty()) {
            let (first, other) = ((&*first.0, &*first.1), (&*other.0, &*other.1));
            recorder.compare(SUITE, &workload, COST, first, other);
        }
    }
    recorder.finished();
    Ok(())
}

/// One run of a query.
struct Measured {
    report: JobReport,
    elapsed: Elapsed,
}

impl Measured {
    fn add_to(&self, samples: &mut Samples, events: u64) {
        let Measured { report, elapsed } = self;
        samples.add(COST, "ns/event", elapsed.process.as_nanos() as f64 / events as f64);
        let per_core = events as f64 / elapsed.process.as_secs_f64().max(1e-9);
        samples.add("events per core", "k/s", per_core / 1e3);
        samples.add("events", "k/s", events as f64 / report.elapsed.as_secs_f64() / 1e3);
        samples.add("checkpoints", "", report.checkpoints.len() as f64);
        let longest = report.checkpoints.iter().map(|checkpoint| checkpoint.duration).max();
        samples.add("longest checkpoint", "ms", millis(longest.unwrap_or_default()));
        let held = report.checkpoints.iter().map(|checkpoint| checkpoint.longest_hold).max();
        samples.add("longest hold", "ms", millis(held.unwrap_or_default()));
        let largest = report.checkpoints.iter().map(|checkpoint| checkpoint.bytes).max();
        samples.add("state in the store", "MB", largest.unwrap_or(0) as f64 / 1e6);
    }
}

fn measure(
    backend: Backend,
    query: Query,
    site: &AuctionSite,
    expected: &[String],
) -> Result<Measured> {
    let folder = TempDir::with_prefix("weir-benches-").map_err(|error| {
        Error::new(ErrorKind::Unavailable, "no temporary folder for checkpoints").source(error)
    })?;
    let (factory, _local) = backend.factory(Purpose::Checkpoints)?;
    let graph = JobGraph::new(format!("nexmark-{query}"));
    let lines = VecSink::default();
    let events = graph.source("events", site.clone())?;
    query.job(&events)?.sink("results", lines.clone())?;
    let config = JobConfig {
        backend: Arc::from(factory),
        storage: Storage::open(&folder.path().join("checkpoints").to_string_lossy())?,
        checkpoints: CheckpointConfig {
            interval: Duration::from_secs(1),
            ..CheckpointConfig::default()
        },
        ..JobConfig::default()
    };
    let watch = Stopwatch::start();
    let report = weir_runtime::run(&graph, config)?;
    let elapsed = watch.stop();
    let mut lines = lines.take();
    lines.sort();
    if lines != expected {
        let message = format!(
            "the output is another one than that of the plain evaluation: {} lines in place of {}",
            lines.len(),
            expected.len()
        );
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    Ok(Measured { report, elapsed })
}
