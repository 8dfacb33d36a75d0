//! The queries by name.

use std::fmt;

use clap::ValueEnum;
use weir_runtime::Stream;
use weir_state_api::Result;

use super::event::{Event, Millis};
use super::{q4, q5, q7, q8, q11};

/// One of the queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Query {
    /// Average price at which items of a category are sold.
    Q4,
    /// The auctions with the most bids in the last ten seconds.
    Q5,
    /// The highest bid of each ten seconds.
    Q7,
    /// Persons who sell within the ten seconds in which they registered.
    Q8,
    /// Bids of each user by session.
    Q11,
}

impl Query {
    /// The query as a job: from events to lines of the result.
    pub(crate) fn job(self, events: &Stream<Event>) -> Result<Stream<String>> {
        match self {
            Query::Q4 => q4::job(events),
            Query::Q5 => q5::job(events),
            Query::Q7 => q7::job(events),
            Query::Q8 => q8::job(events),
            Query::Q11 => q11::job(events),
        }
    }

    /// The lines of the result, sorted, computed the plain way: all events at once.
    pub(crate) fn reference(self, events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
        match self {
            Query::Q4 => q4::reference(events),
            Query::Q5 => q5::reference(events),
            Query::Q7 => q7::reference(events),
            Query::Q8 => q8::reference(events),
            Query::Q11 => q11::reference(events),
        }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Query::Q4 => "q4",
            Query::Q5 => "q5",
            Query::Q7 => "q7",
            Query::Q8 => "q8",
            Query::Q11 => "q11",
        })
    }
}
