//! The queries by name.

use std::fmt;

use clap::ValueEnum;
use weir_runtime::Stream;
use weir_state_api::Result;

use super::event::{Event, Millis};
use super::{q3, q4, q5, q7, q8, q9, q11, q12, q15, q16, q17, q18, q19, q20};

/// One of the queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Query {
    /// Who in three states sells items of one category.
    Q3,
    /// Average price at which items of a category are sold.
    Q4,
    /// The auctions with the most bids in the last ten seconds.
    Q5,
    /// The highest bid of each ten seconds.
    Q7,
    /// Persons who sell within the ten seconds in which they registered.
    Q8,
    /// The winning bid of each auction.
    Q9,
    /// Bids of each user by session.
    Q11,
    /// Bids of each user in ten seconds of processing time, summed up.
    Q12,
    /// Bids, distinct bidders and distinct auctions, by price.
    Q15,
    /// The same for each channel.
    Q16,
    /// Statistics of the prices bid for each auction.
    Q17,
    /// The last bid of each user for each auction.
    Q18,
    /// The ten highest bids for each auction.
    Q19,
    /// The bids for items of one category, with their auction.
    Q20,
}

impl Query {
    /// The query as a job: from events to lines of the result.
    pub(crate) fn job(self, events: &Stream<Event>) -> Result<Stream<String>> {
        match self {
            Query::Q3 => q3::job(events),
            Query::Q4 => q4::job(events),
            Query::Q5 => q5::job(events),
            Query::Q7 => q7::job(events),
            Query::Q8 => q8::job(events),
            Query::Q9 => q9::job(events),
            Query::Q11 => q11::job(events),
            Query::Q12 => q12::job(events),
            Query::Q15 => q15::job(events),
            Query::Q16 => q16::job(events),
            Query::Q17 => q17::job(events),
            Query::Q18 => q18::job(events),
            Query::Q19 => q19::job(events),
            Query::Q20 => q20::job(events),
        }
    }

    /// The lines of the result, sorted, computed the plain way: all events at once.
    pub(crate) fn reference(self, events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
        match self {
            Query::Q3 => q3::reference(events),
            Query::Q4 => q4::reference(events),
            Query::Q5 => q5::reference(events),
            Query::Q7 => q7::reference(events),
            Query::Q8 => q8::reference(events),
            Query::Q9 => q9::reference(events),
            Query::Q11 => q11::reference(events),
            Query::Q12 => q12::reference(events),
            Query::Q15 => q15::reference(events),
            Query::Q16 => q16::reference(events),
            Query::Q17 => q17::reference(events),
            Query::Q18 => q18::reference(events),
            Query::Q19 => q19::reference(events),
            Query::Q20 => q20::reference(events),
        }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Query::Q3 => "q3",
            Query::Q4 => "q4",
            Query::Q5 => "q5",
            Query::Q7 => "q7",
            Query::Q8 => "q8",
            Query::Q9 => "q9",
            Query::Q11 => "q11",
            Query::Q12 => "q12",
            Query::Q15 => "q15",
            Query::Q16 => "q16",
            Query::Q17 => "q17",
            Query::Q18 => "q18",
            Query::Q19 => "q19",
            Query::Q20 => "q20",
        })
    }
}
