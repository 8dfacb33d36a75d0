//! The command line.

use std::num::NonZeroU32;

use clap::{Parser, ValueEnum};

use super::cli::{CommonOptions, usage};
use super::generator::Settings;
use super::query::Query;
use super::source::AuctionSite;

/// Events when `--events` does not say how many.
const DEFAULT_EVENTS: u64 = 1_000_000;

/// Up to so many events, the plain evaluation takes seconds.
const VERIFIED_UNASKED: u64 = 5_000_000;

/// The auction benchmark: queries over persons, auctions and bids, with the plain evaluation of the
/// same events beside them.
#[derive(Debug, Parser)]
#[command(name = "nexmark")]
pub(crate) struct Options {
    /// The query to run; `all` runs one after the other, with folders of their own in those for
    /// checkpoints and output
    #[arg(long, value_enum, default_value_t = Choice::All)]
    query: Choice,

    /// Splits of the source, at most so many of its subtasks have something to do; a restore needs
    /// the same number
    #[arg(long, value_name = "N", default_value = "4")]
    splits: NonZeroU32,

    /// Events in a second of event time. At 10000, windows have ten times the events and a user's
    /// bids are one session
    #[arg(long, value_name = "N", default_value = "1000")]
    events_per_second: NonZeroU32,

    /// Events are out of order within groups of this size; the number of events should be a multiple
    /// of it
    #[arg(long, value_name = "N", default_value = "1")]
    disorder: NonZeroU32,

    /// Do not compare the output with the plain evaluation, as is done for up to 5 million events
    /// without being asked
    #[arg(long, conflicts_with = "verify")]
    no_verify: bool,

    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// What follows `--query`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    All,
    One(Query),
}

impl ValueEnum for Choice {
    fn value_variants<'a>() -> &'a [Self] {
        const CHOICES: &[Choice] = &[
            Choice::One(Query::Q3),
            Choice::One(Query::Q4),
            Choice::One(Query::Q5),
            Choice::One(Query::Q7),
            Choice::One(Query::Q8),
            Choice::One(Query::Q9),
            Choice::One(Query::Q11),
            Choice::One(Query::Q12),
            Choice::One(Query::Q15),
            Choice::One(Query::Q16),
            Choice::One(Query::Q17),
            Choice::One(Query::Q18),
            Choice::One(Query::Q19),
            Choice::One(Query::Q20),
            Choice::All,
        ];
        CHOICES
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        match self {
            Choice::All => Some(clap::builder::PossibleValue::new("all").help("All of them")),
            Choice::One(query) => query.to_possible_value(),
        }
    }
}

impl Options {
    /// The queries to run.
    pub(crate) fn queries(&self) -> Result<Vec<Query>, clap::Error> {
        let about_one = self.common.crash_after.is_some() || self.common.restore.is_some();
        match self.query {
            Choice::One(query) => Ok(vec![query]),
            Choice::All if about_one => Err(usage(
                "--crash-after and --restore are about a single query: choose one with --query",
            )),
            Choice::All => Ok(Query::value_variants().to_vec()),
        }
    }

    /// The options for the run of one of the queries.
    pub(crate) fn common_for(&self, query: Query) -> CommonOptions {
        let mut common = self.common.clone();
        common.verify = self.verifies();
        if self.query == Choice::All {
            common.checkpoints =
                common.checkpoints.map(|place| format!("{}/{query}", place.trim_end_matches('/')));
            common.output = common.output.map(|folder| folder.join(query.to_string()));
        }
        common
    }

    /// Whether the output is compared with the plain evaluation.
    pub(crate) fn verifies(&self) -> bool {
        self.common.verify || (!self.no_verify && self.events() <= VERIFIED_UNASKED)
    }

    /// The source of the events.
    pub(crate) fn site(&self) -> AuctionSite {
        let settings = Settings {
            events_per_second: self.events_per_second.get(),
            disorder: self.disorder.get(),
            ..Settings::new(self.events())
        };
        AuctionSite { settings, splits: self.splits.get() }
    }

    fn events(&self) -> u64 {
        self.common.events.unwrap_or(DEFAULT_EVENTS)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn parse(line: &str) -> Options {
        Options::try_parse_from(std::iter::once("nexmark").chain(line.split_whitespace())).unwrap()
    }

    #[test]
    fn all_queries_have_places_of_their_own_and_one_has_those_given() {
        let all = parse("--checkpoints s3://bucket/c/ --output o");
        assert_eq!(all.queries().unwrap(), Query::value_variants());
        let common = all.common_for(Query::Q7);
        assert_eq!(common.checkpoints.as_deref(), Some("s3://bucket/c/q7"));
        assert_eq!(common.output, Some(PathBuf::from("o/q7")));
        let one = parse("--checkpoints c --output o --query q7");
        assert_eq!(one.queries().unwrap(), [Query::Q7]);
        assert_eq!(one.common_for(Query::Q7).checkpoints.as_deref(), Some("c"));
    }

    #[test]
    fn small_runs_are_verified_unasked() {
        assert!(parse("").verifies());
        assert!(!parse("--no-verify").verifies());
        assert!(!parse("--events 100000000").verifies());
        assert!(parse("--events 100000000 --verify").verifies());
    }

    #[test]
    fn a_crash_is_about_one_query() {
        assert!(parse("--crash-after 5").queries().is_err());
        assert!(parse("--crash-after 5 --query q4").queries().is_ok());
    }
}
