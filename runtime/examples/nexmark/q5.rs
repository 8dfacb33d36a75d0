//! Query 5: hot items, the auctions with the most bids in the last ten seconds.
//!
//! ```sql
//! SELECT AuctionBids.auction, AuctionBids.num
//! FROM (SELECT auction, count(*) AS num, window_start, window_end
//!       FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime),
//!                      INTERVAL '2' SECOND, INTERVAL '10' SECOND))
//!       GROUP BY auction, window_start, window_end) AS AuctionBids
//! JOIN (SELECT max(num) AS maxn, window_start, window_end
//!       FROM (... the same counts ...)
//!       GROUP BY window_start, window_end) AS MaxBids
//! ON AuctionBids.window_start = MaxBids.window_start
//!    AND AuctionBids.window_end = MaxBids.window_end
//!    AND AuctionBids.num >= MaxBids.maxn
//! ```
//!
//! Windows of 10 s start at every even second. The result is final: one row for each auction that
//! has the highest count of a window, so that ties give several rows. Windows without bids give
//! none; the first and the last windows, which reach beyond the events, do.
//!
//! Two operators: one keyed by auction counts bids in sliding windows; one keyed by window keeps the
//! highest counts ([`HotItems`]).

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_runtime::{SlidingWindows, Stream, TumblingWindows, WindowResult};
use weir_state_api::{Postcard, Result};

use super::accumulate::{Accumulate, Accumulator};
use super::event::{Event, Millis};
use super::window::Window;

/// Length of the windows, in ms.
pub(crate) const WINDOW: Millis = 10_000;

/// Time from the start of one window to the start of the next, in ms.
pub(crate) const SLIDE: Millis = 2_000;

/// The auctions with the most bids in one window. Accumulator of the operator keyed by window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HotItems {
    bids: u64,
    auctions: BTreeSet<u64>,
}

impl HotItems {
    /// Takes in the count of an auction for this window, once.
    fn offer(&mut self, auction: u64, bids: u64) {
        if bids > self.bids {
            self.bids = bids;
            self.auctions.clear();
        }
        if bids == self.bids {
            self.auctions.insert(auction);
        }
    }

    /// The result for the window, once it is complete.
    pub(crate) fn rows(&self, window: Window) -> impl Iterator<Item = Row> {
        self.auctions.iter().map(move |auction| Row {
            window_start: window.start,
            auction: *auction,
            bids: self.bids,
        })
    }
}

/// Takes in auctions with their counts for the window.
impl Accumulator<WindowResult<u64, u64>> for HotItems {
    fn add(&mut self, auction: WindowResult<u64, u64>) {
        self.offer(auction.key, auction.value);
    }

    fn merge(&mut self, other: HotItems) {
        for auction in other.auctions {
            self.offer(auction, other.bids);
        }
    }
}

/// A row of the result; unique by window and auction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Start of the window.
    pub(crate) window_start: Millis,
    /// One of the auctions with the most bids.
    pub(crate) auction: u64,
    /// How many bids that is.
    pub(crate) bids: u64,
}

impl Row {
    /// `window_start,auction,bids`
    pub(crate) fn to_line(&self) -> String {
        let Row { window_start, auction, bids } = self;
        format!("{window_start},{auction},{bids}")
    }
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    let size = Duration::from_millis(WINDOW.unsigned_abs());
    let slide = Duration::from_millis(SLIDE.unsigned_abs());
    let hottest = events
        .filter_map(|event| Some(event.into_bid()?.auction))
        .key_by(|auction| *auction)
        .window("count", SlidingWindows::of(size, slide)?, Accumulate::<_, u64>::new())?
        // Counts come with the last time of their window: those of one window fall into one slide.
        .key_by(|count| count.window)
        .window_with(
            "hottest",
            TumblingWindows::of(slide)?,
            Accumulate::<_, HotItems>::new(),
            Postcard::schema("nexmark.hot-items", 1),
        )?;
    Ok(hottest.flat_map(|items| {
        items.value.rows(items.key.into()).map(|row| row.to_line()).collect::<Vec<_>>()
    }))
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut counts: HashMap<Window, HashMap<u64, u64>> = HashMap::new();
    for (time, event) in events {
        if let Event::Bid(bid) = event {
            for window in Window::sliding(time, WINDOW, SLIDE) {
                *counts.entry(window).or_default().entry(bid.auction).or_default() += 1;
            }
        }
    }
    let mut lines = Vec::new();
    for (window, auctions) in counts {
        let most = auctions.values().copied().max();
        for (auction, bids) in auctions {
            if Some(bids) == most {
                lines.push(Row { window_start: window.start, auction, bids }.to_line());
            }
        }
    }
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::super::event::Bid;
    use super::*;

    fn bid(auction: u64) -> Event {
        Event::Bid(Bid { auction, bidder: 1, price: 1, ..Bid::default() })
    }

    #[test]
    fn the_most_bids_of_each_window_win_and_ties_all_do() {
        let events = [(20_000, bid(1)), (21_999, bid(1)), (22_000, bid(2)), (30_000, bid(2))];
        assert_eq!(
            reference(events.into_iter()),
            [
                "12000,1,2", // until 22 s: auction 2 has none yet
                "14000,1,2",
                "16000,1,2",
                "18000,1,2",
                "20000,1,2", // until 30 s: the second bid for 2 is not in it
                "22000,2,2",
                "24000,2,1",
                "26000,2,1",
                "28000,2,1",
                "30000,2,1",
            ]
        );
        let tie = [(20_000, bid(8)), (20_000, bid(7))];
        let lines = reference(tie.into_iter());
        assert_eq!(lines.len(), 10);
        assert_eq!(lines[..2], ["12000,7,1", "12000,8,1"]);
    }
}
