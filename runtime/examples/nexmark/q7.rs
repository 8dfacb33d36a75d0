//! Query 7: the highest bid of each ten seconds.
//!
//! ```sql
//! SELECT B.auction, B.price, B.bidder, B.dateTime
//! FROM bid B
//! JOIN (SELECT MAX(price) AS maxprice, window_end
//!       FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
//!       GROUP BY window_start, window_end) B1
//! ON B.price = B1.maxprice
//! WHERE B.dateTime BETWEEN B1.window_end - INTERVAL '10' SECOND AND B1.window_end
//! ```
//!
//! The result is final: all bids of the highest price in the window, so that ties give several
//! rows. Bids that agree in everything (auction, bidder, price and time) are one row, which leaves
//! no two rows equal. Unlike `BETWEEN`, which includes both ends, a bid counts in its own window
//! only, and not at the very end of the one before.
//!
//! Every bid competes with every other, so the work is divided in two: an operator keyed by auction
//! keeps the highest bids of each auction and window, one keyed by window the highest of those. Both
//! accumulate [`HighestBids`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_runtime::{Stream, TumblingWindows, WindowResult};
use weir_state_api::{Postcard, Result};

use super::accumulate::{Accumulate, Accumulator};
use super::event::{Bid, Event, Millis};
use super::window::Window;

/// Length of the windows, in ms.
pub(crate) const WINDOW: Millis = 10_000;

/// The window in which a bid made at `time` competes.
pub(crate) fn window(time: Millis) -> Window {
    Window::tumbling(time, WINDOW)
}

/// The highest bids of one window, of one auction or of all. Accumulator of both operators,
/// and what the first sends to the second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HighestBids {
    /// The highest price, in cents.
    price: u64,
    /// The bids of that price.
    bids: BTreeSet<Offer>,
}

/// A bid without its price.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Offer {
    auction: u64,
    bidder: u64,
    time: Millis,
}

/// Takes in bids, each with its time.
impl Accumulator<(Millis, Bid)> for HighestBids {
    fn add(&mut self, (time, bid): (Millis, Bid)) {
        if self.reaches(bid.price) {
            self.bids.insert(Offer { auction: bid.auction, bidder: bid.bidder, time });
        }
    }

    fn merge(&mut self, other: HighestBids) {
        self.take_in(other);
    }
}

/// Takes in the highest bids of each auction.
impl Accumulator<WindowResult<u64, HighestBids>> for HighestBids {
    fn add(&mut self, auction: WindowResult<u64, HighestBids>) {
        self.take_in(auction.value);
    }

    fn merge(&mut self, other: HighestBids) {
        self.take_in(other);
    }
}

impl HighestBids {
    /// Takes in the highest bids of another part of the same window.
    fn take_in(&mut self, part: HighestBids) {
        if self.reaches(part.price) {
            self.bids.extend(part.bids);
        }
    }

    /// Whether bids of this price are among the highest; drops those that are not beside it.
    fn reaches(&mut self, price: u64) -> bool {
        if price > self.price {
            self.price = price;
            self.bids.clear();
        }
        price == self.price
    }

    /// The result for the window, once it is complete.
    pub(crate) fn rows(&self, window: Window) -> impl Iterator<Item = Row> {
        self.bids.iter().map(move |bid| Row {
            window_start: window.start,
            price: self.price,
            auction: bid.auction,
            bidder: bid.bidder,
            time: bid.time,
        })
    }
}

/// A row of the result; no two are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    /// Start of the window.
    pub(crate) window_start: Millis,
    /// The highest price, in cents.
    pub(crate) price: u64,
    /// The auction bid for.
    pub(crate) auction: u64,
    /// Who bid.
    pub(crate) bidder: u64,
    /// When the bid was made.
    pub(crate) time: Millis,
}

impl Row {
    /// `window_start,price,auction,bidder,time`
    pub(crate) fn to_line(&self) -> String {
        let Row { window_start, price, auction, bidder, time } = self;
        format!("{window_start},{price},{auction},{bidder},{time}")
    }
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    let windows = TumblingWindows::of(Duration::from_millis(WINDOW.unsigned_abs()))?;
    let codec = Postcard::schema("nexmark.highest-bids", 1);
    let highest = events
        .with_time()
        .filter_map(|(time, event)| Some((time, event.into_bid()?)))
        .key_by(|(_, bid)| bid.auction)
        .window_with(
            "highest-of-auction",
            windows,
            Accumulate::<_, HighestBids>::new(),
            codec.clone(),
        )?
        .key_by(|highest| highest.window)
        .window_with("highest", windows, Accumulate::<_, HighestBids>::new(), codec)?;
    Ok(highest.flat_map(|bids| {
        bids.value.rows(bids.window.into()).map(|row| row.to_line()).collect::<Vec<_>>()
    }))
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut windows: BTreeMap<Millis, Vec<Row>> = BTreeMap::new();
    for (time, event) in events {
        if let Event::Bid(Bid { auction, bidder, price, .. }) = event {
            let window_start = window(time).start;
            let row = Row { window_start, price, auction, bidder, time };
            windows.entry(window_start).or_default().push(row);
        }
    }
    let mut lines = BTreeSet::new();
    for rows in windows.values() {
        let highest = rows.iter().map(|row| row.price).max();
        let winners = rows.iter().filter(|row| Some(row.price) == highest);
        lines.extend(winners.map(Row::to_line));
    }
    lines.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bid(auction: u64, bidder: u64, price: u64) -> Event {
        Event::Bid(Bid { auction, bidder, price, ..Bid::default() })
    }

    #[test]
    fn the_highest_bids_of_each_window_win() {
        let events = [
            (10_000, bid(1, 1, 50)),
            (10_001, bid(2, 2, 70)),
            (10_002, bid(1, 3, 70)),
            (10_002, bid(1, 3, 70)), // the same again
            (19_999, bid(1, 4, 60)),
            (20_000, bid(9, 5, 70)), // not in the window that ends here
            (25_000, bid(1, 6, 10)),
        ];
        assert_eq!(
            reference(events.into_iter()),
            ["10000,70,1,3,10002", "10000,70,2,2,10001", "20000,70,9,5,20000"]
        );
    }

    #[test]
    fn parts_merge_in_any_order() {
        let part = |bids: &[(u64, u64)]| {
            let mut part = HighestBids::default();
            for (auction, price) in bids {
                part.add((
                    1,
                    Bid { auction: *auction, bidder: 1, price: *price, ..Bid::default() },
                ));
            }
            part
        };
        let parts = [part(&[(1, 5), (1, 4)]), part(&[(2, 7), (3, 7)]), part(&[(4, 7)])];
        let expected = part(&[(2, 7), (3, 7), (4, 7)]);
        for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0]] {
            let mut all = HighestBids::default();
            for index in order {
                all.take_in(parts[index].clone());
            }
            assert_eq!(all, expected);
        }
    }
}
