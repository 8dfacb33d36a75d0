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
//! Two operators: one keyed by auction ([`BidCounts`]) yields an [`AuctionCount`] per window with
//! bids; one keyed by window ([`HotItems`]) keeps the highest.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::event::{Event, Millis};
use super::window::Window;

/// Length of the windows, in ms.
pub(crate) const WINDOW: Millis = 10_000;

/// Time from the start of one window to the start of the next, in ms.
pub(crate) const SLIDE: Millis = 2_000;

/// How many bids an auction got, by slide. State of the operator keyed by auction.
///
/// Counting by slide instead of by window stores each bid once instead of five times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BidCounts {
    /// Bids by the start of the slide they were made in.
    slides: BTreeMap<Millis, u64>,
}

impl BidCounts {
    /// Counts a bid made at `time`. Returns the times of the timers to set; there are none if they
    /// have been set before.
    pub(crate) fn add(&mut self, time: Millis) -> impl Iterator<Item = Millis> + use<> {
        let bids = self.slides.entry(time - time.rem_euclid(SLIDE)).or_default();
        *bids += 1;
        let windows = (*bids == 1).then(|| Window::sliding(time, WINDOW, SLIDE));
        windows.into_iter().flatten().map(Window::last)
    }

    /// Handles a timer set for `time`: the number of bids in the window that ends with it. Slides
    /// that are in no later window are forgotten, so timers have to come in order of time.
    pub(crate) fn timer(&mut self, auction: u64, time: Millis) -> AuctionCount {
        let window = Window::ending_with(time, WINDOW);
        let bids = self.slides.range(window.start..window.end).map(|(_, bids)| bids).sum();
        self.slides = self.slides.split_off(&(window.start + SLIDE));
        AuctionCount { window, auction, bids }
    }

    /// Whether there is nothing left to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.slides.is_empty()
    }
}

/// How many bids an auction got in a window; a record with the time of the window's last
/// millisecond.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuctionCount {
    /// The window.
    pub(crate) window: Window,
    /// The auction.
    pub(crate) auction: u64,
    /// The bids, at least one.
    pub(crate) bids: u64,
}

/// The auctions with the most bids in one window. State of the operator keyed by window, with a
/// timer for its last millisecond.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HotItems {
    bids: u64,
    auctions: BTreeSet<u64>,
}

impl HotItems {
    /// Takes in the count of an auction for this window, once.
    pub(crate) fn offer(&mut self, auction: u64, bids: u64) {
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

/// A row of the result; unique by window and auction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    use super::super::simulation::{Arrival, Keyed, Remains, event_sets};
    use super::*;

    fn bid(auction: u64) -> Event {
        Event::Bid(Bid { auction, bidder: 1, price: 1 })
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

    #[test]
    fn counts_slide_and_are_forgotten() {
        let mut counts = BidCounts::default();
        assert!(counts.add(20_000).eq([21_999, 23_999, 25_999, 27_999, 29_999]));
        assert_eq!(counts.add(20_001).count(), 0);
        assert_eq!(counts.add(22_000).count(), 5);
        let timers = [21_999, 23_999, 25_999, 27_999, 29_999];
        assert_eq!(timers.map(|time| counts.timer(1, time).bids), [2, 3, 3, 3, 3]);
        assert_eq!(counts.timer(1, 31_999).bids, 1);
        assert!(counts.is_empty());
    }

    fn incremental(arrivals: &[Arrival]) -> Vec<String> {
        let mut auctions = Keyed::<u64, BidCounts>::new();
        let mut windows = Keyed::<Window, HotItems>::new();
        let mut lines = Vec::new();
        for Arrival { time, event, watermark } in arrivals {
            if let Event::Bid(bid) = event {
                auctions.update(&bid.auction, |counts| counts.add(*time));
            }
            auctions.advance(*watermark, |time, auction, counts| {
                let AuctionCount { window, auction, bids } = counts.timer(*auction, time);
                windows.update(&window, |items| {
                    items.offer(auction, bids);
                    [window.last()]
                });
                if counts.is_empty() { Remains::Nothing } else { Remains::Something }
            });
            windows.advance(*watermark, |_, window, items| {
                lines.extend(items.rows(*window).map(|row| row.to_line()));
                Remains::Nothing
            });
        }
        assert!(auctions.is_empty() && windows.is_empty());
        lines.sort();
        lines
    }

    #[test]
    fn every_arrival_gives_the_reference_result() {
        for set in event_sets() {
            let expected = reference(set.events.into_iter());
            assert!(expected.len() > 10);
            for arrivals in set.arrivals {
                assert_eq!(incremental(&arrivals), expected);
            }
        }
    }
}
