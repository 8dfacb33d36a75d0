//! Query 18: the last bid of each user for each auction.
//!
//! ```sql
//! SELECT auction, bidder, price, dateTime
//! FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS rank
//!       FROM bid)
//! WHERE rank <= 1
//! ```
//!
//! Run continuously, that statement revises its row with every bid. Here the result is final: one row
//! per bidder, auction and window of 10 s. Of two bids at the same millisecond the higher is the last.
//!
//! One operator, keyed by bidder and auction, that keeps one bid in windows ([`LastBid`]).

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_runtime::{Stream, TumblingWindows};
use weir_state_api::{Postcard, Result};

use super::accumulate::{Accumulate, Accumulator};
use super::event::{Bid, Event, Millis};
use super::window::Window;

/// Length of the windows, in ms.
pub(crate) const WINDOW: Millis = 10_000;

/// The last bid so far: its time and its price in cents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastBid(Option<(Millis, u64)>);

/// Takes in bids, each with its time.
impl Accumulator<(Millis, Bid)> for LastBid {
    fn add(&mut self, (time, bid): (Millis, Bid)) {
        self.0 = self.0.max(Some((time, bid.price)));
    }

    fn merge(&mut self, other: LastBid) {
        self.0 = self.0.max(other.0);
    }
}

/// `auction,bidder,price,time`
fn line((auction, bidder): (u64, u64), (time, price): (Millis, u64)) -> String {
    format!("{auction},{bidder},{price},{time}")
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    let windows = TumblingWindows::of(Duration::from_millis(WINDOW.unsigned_abs()))?;
    let codec = Postcard::schema("nexmark.last-bid", 1);
    let last = events
        .with_time()
        .filter_map(|(time, event)| Some((time, event.into_bid()?)))
        .key_by(|(_, bid)| (bid.auction, bid.bidder))
        .window_with("last-bid", windows, Accumulate::<_, LastBid>::new(), codec)?;
    Ok(last.filter_map(|last| Some(line(last.key, last.value.0?))))
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut bids: HashMap<(u64, u64, Window), Vec<(Millis, u64)>> = HashMap::new();
    for (time, event) in events {
        if let Event::Bid(bid) = event {
            let window = Window::tumbling(time, WINDOW);
            bids.entry((bid.auction, bid.bidder, window)).or_default().push((time, bid.price));
        }
    }
    let last = bids.into_iter().filter_map(|((auction, bidder, _), bids)| {
        Some(line((auction, bidder), bids.into_iter().max()?))
    });
    let mut lines: Vec<_> = last.collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bid_of_each_pair_and_window_stands() {
        let bid =
            |auction, bidder, price| Event::Bid(Bid { auction, bidder, price, ..Bid::default() });
        let events = [
            (1, bid(1, 5, 90)),
            (8, bid(1, 5, 70)),
            (8, bid(1, 5, 80)),
            (8, bid(2, 5, 10)),
            (7, bid(1, 6, 20)),
            (10_000, bid(1, 5, 60)),
        ];
        assert_eq!(
            reference(events.into_iter()),
            ["1,5,60,10000", "1,5,80,8", "1,6,20,7", "2,5,10,8"]
        );
    }
}
