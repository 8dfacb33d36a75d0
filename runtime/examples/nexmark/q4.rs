//! Query 4: the average price at which items of a category are sold.
//!
//! ```sql
//! SELECT Q.category, AVG(Q.final)
//! FROM (SELECT MAX(B.price) AS final, A.category
//!       FROM auction A, bid B
//!       WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
//!       GROUP BY A.id, A.category) Q
//! GROUP BY Q.category
//! ```
//!
//! Run continuously, that statement revises its one row per category with every bid, and which
//! revisions there are depends on the order of arrival. Here the result is a set of final rows
//! that is a function of the events alone:
//!
//! * The winning price of an auction is decided when it expires, as
//!   [`winning_bids`] says. An auction that is not sold counts nowhere.
//! * The average is taken over the auctions of the category that expire within the same tumbling
//!   window of 10 s: one row per category and window in which something was sold.
//! * The average is in whole cents, rounded down.
//!
//! Two operators: one keyed by auction yields a [`Sale`] per sold auction, at the time of its
//! expiry; one keyed by category sums them up in windows ([`Sales`]).

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_runtime::{Stream, TumblingWindows};
use weir_state_api::{Postcard, Result};

use super::accumulate::{Accumulate, Accumulator};
use super::event::{Event, Millis};
use super::window::Window;
use super::winning_bids::{self, Sale};

/// Length of the windows over which prices are averaged, in ms.
pub(crate) const WINDOW: Millis = 10_000;

/// The sales of one category in one window. Accumulator of the operator keyed by category.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sales {
    /// How many auctions ended with a sale.
    auctions: u64,
    /// The sum of their winning prices, in cents.
    revenue: u64,
}

impl Accumulator<Sale> for Sales {
    fn add(&mut self, sale: Sale) {
        self.auctions += 1;
        self.revenue += sale.winner.price;
    }

    fn merge(&mut self, other: Sales) {
        self.auctions += other.auctions;
        self.revenue += other.revenue;
    }
}

impl Sales {
    /// The result for the window, once it is complete; none if nothing was sold.
    pub(crate) fn row(&self, category: u64, window: Window) -> Option<Row> {
        let average = self.revenue.checked_div(self.auctions)?;
        Some(Row { window_start: window.start, category, average, auctions: self.auctions })
    }
}

/// A row of the result; unique by window and category.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Start of the window in which the auctions expired.
    pub(crate) window_start: Millis,
    /// The category.
    pub(crate) category: u64,
    /// The average winning price, in cents, rounded down.
    pub(crate) average: u64,
    /// The number of auctions averaged over.
    pub(crate) auctions: u64,
}

impl Row {
    /// `window_start,category,average,auctions`
    pub(crate) fn to_line(&self) -> String {
        let Row { window_start, category, average, auctions } = self;
        format!("{window_start},{category},{average},{auctions}")
    }
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    let windows = TumblingWindows::of(Duration::from_millis(WINDOW.unsigned_abs()))?;
    let codec = Postcard::schema("nexmark.sales", 1);
    let averages = winning_bids::sales(events)?.key_by(|sale| sale.auction.category).window_with(
        "average",
        windows,
        Accumulate::<_, Sales>::new(),
        codec,
    )?;
    Ok(averages.filter_map(|sales| {
        let row = sales.value.row(sales.key, sales.window.into())?;
        Some(row.to_line())
    }))
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut prices: HashMap<(Window, u64), Vec<u64>> = HashMap::new();
    for Sale { auction, winner } in winning_bids::reference(events) {
        let window = Window::tumbling(auction.expires, WINDOW);
        prices.entry((window, auction.category)).or_default().push(winner.price);
    }
    let mut lines: Vec<_> = prices
        .into_iter()
        .map(|((window, category), prices)| {
            let auctions = prices.len() as u64;
            let average = prices.iter().sum::<u64>() / auctions;
            Row { window_start: window.start, category, average, auctions }.to_line()
        })
        .collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use weir_runtime::{JobConfig, JobGraph, VecSink, VecSource};

    use super::super::event::{Auction, Bid};
    use super::*;

    fn auction(id: u64, category: u64, expires: Millis) -> Event {
        Event::Auction(Auction { id, seller: 1, category, expires })
    }

    fn bid(auction: u64, price: u64) -> Event {
        Event::Bid(Bid { auction, bidder: 1, price, ..Bid::default() })
    }

    #[test]
    fn winning_prices_are_averaged_by_category_and_window() {
        let events = [
            (100, auction(1, 10, 5_000)),
            (100, auction(2, 10, 9_999)),
            (100, auction(3, 10, 10_000)),
            (100, auction(4, 11, 5_000)),
            (200, auction(5, 11, 300)), // never bid for
            (200, bid(1, 70)),
            (201, bid(1, 30)),
            (300, bid(2, 31)),
            (400, bid(3, 5)),
            (500, bid(4, 8)),
            (600, bid(6, 1_000)), // never opened
        ];
        let lines = reference(events.into_iter());
        assert_eq!(lines, ["0,10,50,2", "0,11,8,1", "10000,10,5,1"]);
    }

    #[test]
    fn bids_count_from_opening_to_expiry() {
        let bids = [(99, bid(1, 5)), (100, bid(1, 1)), (200, bid(1, 2)), (201, bid(1, 9))];
        let all = bids.clone().into_iter().chain([(100, auction(1, 10, 200))]);
        assert_eq!(reference(all), ["0,10,2,1"]);
        let outside = [bids[0].clone(), bids[3].clone(), (100, auction(1, 10, 200))];
        assert_eq!(reference(outside.into_iter()), Vec::<String>::new());
    }

    /// Runs the query on bids and auctions in splits of their own.
    fn job_of(bids: Vec<(Millis, Event)>, auctions: Vec<(Millis, Event)>) -> Vec<String> {
        let graph = JobGraph::new("test");
        let lines = VecSink::default();
        let events = graph.source("events", VecSource::with_splits([bids, auctions])).unwrap();
        job(&events).unwrap().sink("lines", lines.clone()).unwrap();
        weir_runtime::run(&graph, JobConfig::default()).unwrap();
        lines.take()
    }

    #[test]
    fn bids_that_come_before_their_auction_wait_for_it() {
        let bids = [(99, bid(1, 8)), (150, bid(1, 7)), (150, bid(1, 6)), (201, bid(1, 9))];
        // The first split is read first.
        let lines = job_of(bids.into(), vec![(100, auction(1, 10, 200))]);
        assert_eq!(lines, ["0,10,7,1"]);
    }

    #[test]
    fn bids_without_an_auction_are_forgotten() {
        let bids = vec![(150, bid(1, 7)), (160, bid(1, 7))];
        assert_eq!(job_of(bids, vec![(155, auction(2, 10, 200))]), Vec::<String>::new());
    }
}
