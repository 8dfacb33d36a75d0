//! The queries through the runtime, from orderly to unruly arrival.

use std::time::Duration;

use clap::ValueEnum;
use weir_runtime::{CheckpointConfig, JobConfig, JobGraph, VecSink};

use super::generator::Settings;
use super::query::Query;
use super::source::AuctionSite;

fn run(query: Query, site: &AuctionSite, parallelism: u16) -> Vec<String> {
    let graph = JobGraph::new("test");
    let lines = VecSink::default();
    let events = graph.source("events", site.clone()).unwrap();
    query.job(&events).unwrap().sink("results", lines.clone()).unwrap();
    let config = JobConfig {
        parallelism,
        // Small batches and many barriers: more interleavings.
        batch_size: 37,
        checkpoints: CheckpointConfig {
            interval: Duration::from_millis(20),
            ..CheckpointConfig::default()
        },
        ..JobConfig::default()
    };
    let report = weir_runtime::run(&graph, config).unwrap();
    assert_eq!(report.records_read, site.settings.events);
    assert_eq!(report.records_late, 0);
    let mut lines = lines.take();
    lines.sort();
    lines
}

/// Long sessions and auctions, and many events per window; in order and not.
#[test]
fn every_query_gives_the_reference_result_however_events_arrive() {
    for &query in Query::value_variants() {
        for events_per_second in [500, 2_000] {
            let settings = Settings { events_per_second, ..Settings::new(30_000) };
            let site = AuctionSite { settings: settings.clone(), splits: 1 };
            let expected = query.reference(site.in_order().unwrap());
            assert!(expected.len() >= 2, "{query}");
            for (disorder, splits, parallelism) in [(1, 1, 1), (1, 3, 2), (5_000, 4, 3)] {
                let settings = Settings { disorder, ..settings.clone() };
                let site = AuctionSite { settings, splits };
                assert_eq!(run(query, &site, parallelism), expected, "{query}, {site:?}");
            }
        }
    }
}
