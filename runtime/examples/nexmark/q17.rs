//! Query 17: statistics of the bids for each auction.
//!
//! ```sql
//! SELECT auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`,
//!        count(*), count(*) FILTER (WHERE price < 10000), ...
//!        min(price), max(price), avg(price), sum(price)
//! FROM bid
//! GROUP BY auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd')
//! ```
//!
//! The result is final: one row per auction and window of 10 s, which stands in place of the day. The
//! average is in whole cents, rounded down.
//!
//! One operator, keyed by auction, that sums up bids in windows ([`Prices`]).

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_runtime::{Stream, TumblingWindows};
use weir_state_api::{Postcard, Result};

use super::accumulate::{Accumulate, Accumulator};
use super::event::{Event, Millis};
use super::price_ranks::Counts;
use super::window::Window;

/// Length of the windows, in ms.
pub(crate) const WINDOW: Millis = 10_000;

/// The prices bid for an auction in a window, in cents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prices {
    bids: Counts,
    lowest: Option<u64>,
    highest: u64,
    sum: u64,
}

impl Accumulator<u64> for Prices {
    fn add(&mut self, price: u64) {
        self.bids.add(price);
        self.lowest = Some(self.lowest.map_or(price, |lowest| lowest.min(price)));
        self.highest = self.highest.max(price);
        self.sum += price;
    }

    fn merge(&mut self, other: Prices) {
        self.bids.merge(other.bids);
        self.lowest = self.lowest.into_iter().chain(other.lowest).min();
        self.highest = self.highest.max(other.highest);
        self.sum += other.sum;
    }
}

impl Prices {
    /// `auction,window_start,bids,min,max,avg,sum`; the bids are four counts
    fn line(&self, auction: u64, window: Window) -> String {
        let Prices { bids, lowest, highest, sum } = self;
        let average = sum / bids.all.max(1);
        let lowest = lowest.unwrap_or_default();
        format!("{auction},{},{bids},{lowest},{highest},{average},{sum}", window.start)
    }
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    let windows = TumblingWindows::of(Duration::from_millis(WINDOW.unsigned_abs()))?;
    let codec = Postcard::schema("nexmark.prices", 1);
    let prices = events
        .filter_map(|event| event.into_bid().map(|bid| (bid.auction, bid.price)))
        .key_by(|(auction, _)| *auction)
        .window_with("prices", windows, Accumulate::<_, Prices>::new(), codec)?;
    Ok(prices.map(|prices| prices.value.line(prices.key, prices.window.into())))
}

/// Takes in bids with their auction, which is the key already.
impl Accumulator<(u64, u64)> for Prices {
    fn add(&mut self, (_, price): (u64, u64)) {
        Accumulator::<u64>::add(self, price);
    }

    fn merge(&mut self, other: Prices) {
        Accumulator::<u64>::merge(self, other);
    }
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut auctions: HashMap<(u64, Window), Vec<u64>> = HashMap::new();
    for (time, event) in events {
        if let Event::Bid(bid) = event {
            let window = Window::tumbling(time, WINDOW);
            auctions.entry((bid.auction, window)).or_default().push(bid.price);
        }
    }
    let mut lines: Vec<_> = auctions
        .into_iter()
        .map(|((auction, window), prices)| {
            let mut bids = Counts::default();
            prices.iter().for_each(|price| bids.add(*price));
            let lowest = prices.iter().min().copied();
            let highest = prices.iter().max().copied().unwrap_or_default();
            Prices { bids, lowest, highest, sum: prices.iter().sum() }.line(auction, window)
        })
        .collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::super::event::Bid;
    use super::*;

    #[test]
    fn prices_are_summed_up_by_auction_and_window() {
        let bid = |auction, price| Event::Bid(Bid { auction, price, ..Bid::default() });
        let events =
            [(0, bid(1, 100)), (1, bid(1, 20_001)), (2, bid(2, 7)), (10_000, bid(1, 3_000_000))];
        assert_eq!(
            reference(events.into_iter()),
            [
                "1,0,2,1,1,0,100,20001,10050,20101",
                "1,10000,1,0,0,1,3000000,3000000,3000000,3000000",
                "2,0,1,1,0,0,7,7,7,7",
            ]
        );
    }

    #[test]
    fn parts_are_put_together() {
        let prices = |prices: &[u64]| {
            let mut all = Prices::default();
            prices.iter().for_each(|price| Accumulator::<u64>::add(&mut all, *price));
            all
        };
        let mut merged = prices(&[5, 20_000]);
        Accumulator::<u64>::merge(&mut merged, prices(&[3]));
        Accumulator::<u64>::merge(&mut merged, Prices::default());
        assert_eq!(merged, prices(&[3, 5, 20_000]));
    }
}
