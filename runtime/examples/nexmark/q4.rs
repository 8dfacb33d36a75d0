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
//! * The winning price of an auction is decided when it expires: the highest bid made from the
//!   auction's opening to its expiry, both included. A bid made at the same millisecond as the
//!   auction opens counts. An auction without such a bid is not sold and counts nowhere.
//! * The average is taken over the auctions of the category that expire within the same tumbling
//!   window of 10 s: one row per category and window in which something was sold.
//! * The average is in whole cents, rounded down.
//!
//! Two operators: one keyed by auction ([`AuctionState`]) yields a [`Sale`] per sold auction, at
//! the time of its expiry; one keyed by category and window ([`Sales`]) sums them up.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::event::{Auction, Bid, Event, Millis};
use super::window::Window;

/// Length of the windows over which prices are averaged, in ms.
pub(crate) const WINDOW: Millis = 10_000;

/// What is known of one auction until it expires. State of the operator keyed by auction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuctionState {
    open: Option<OpenAuction>,
    /// The highest price per time of bid, for bids that came before their auction did.
    early: BTreeMap<Millis, u64>,
}

/// An auction that has been seen and has not expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OpenAuction {
    opened: Millis,
    expires: Millis,
    category: u64,
    /// The highest price so far, in cents.
    highest: Option<u64>,
}

impl OpenAuction {
    fn offer(&mut self, time: Millis, price: u64) {
        if self.opened <= time && time <= self.expires {
            self.highest = self.highest.max(Some(price));
        }
    }
}

impl AuctionState {
    /// Takes in a bid made at `time` for `price` cents. Returns the time of a timer to set, if one
    /// is needed.
    pub(crate) fn bid(&mut self, time: Millis, price: u64) -> Option<Millis> {
        if let Some(auction) = &mut self.open {
            auction.offer(time, price);
            return None;
        }
        let highest = self.early.entry(time).or_default();
        *highest = price.max(*highest);
        // An auction that comes after the watermark has passed the bid opens too late for it.
        Some(time)
    }

    /// Takes in the auction itself, once, with the time at which it opens. Returns the time of the
    /// timer to set.
    pub(crate) fn open(&mut self, opened: Millis, auction: &Auction) -> Millis {
        let mut open = OpenAuction {
            opened,
            expires: auction.expires,
            category: auction.category,
            highest: None,
        };
        for (time, price) in std::mem::take(&mut self.early) {
            open.offer(time, price);
        }
        self.open = Some(open);
        auction.expires
    }

    /// Handles a timer set for `time`: forgets bids for which no auction can come any more, or ends
    /// the auction. Returns the sale if there was one.
    pub(crate) fn timer(&mut self, time: Millis) -> Option<Sale> {
        self.early = self.early.split_off(&(time + 1));
        let auction = self.open.take_if(|auction| auction.expires <= time)?;
        let price = auction.highest?;
        Some(Sale { category: auction.category, time: auction.expires, price })
    }

    /// Whether there is nothing left to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_none() && self.early.is_empty()
    }
}

/// An auction that has ended with a winning bid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sale {
    /// The auction's category.
    pub(crate) category: u64,
    /// When the auction expired; the time of this record.
    pub(crate) time: Millis,
    /// The winning price, in cents.
    pub(crate) price: u64,
}

impl Sale {
    /// The window in which it counts, whose last millisecond is the time of the timer to set.
    pub(crate) fn window(&self) -> Window {
        Window::tumbling(self.time, WINDOW)
    }
}

/// The sales of one category in one window. State of the operator keyed by both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sales {
    /// How many auctions ended with a sale.
    auctions: u64,
    /// The sum of their winning prices, in cents.
    revenue: u64,
}

impl Sales {
    /// Counts a sale for `price` cents.
    pub(crate) fn add(&mut self, price: u64) {
        self.auctions += 1;
        self.revenue += price;
    }

    /// The result for the window, once it is complete; none if nothing was sold.
    pub(crate) fn row(&self, category: u64, window: Window) -> Option<Row> {
        let average = self.revenue.checked_div(self.auctions)?;
        Some(Row { window_start: window.start, category, average, auctions: self.auctions })
    }
}

/// A row of the result; unique by window and category.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut auctions = HashMap::new();
    let mut bids: HashMap<u64, Vec<(Millis, u64)>> = HashMap::new();
    for (time, event) in events {
        match event {
            Event::Auction(auction) => {
                auctions.insert(auction.id, (time, auction));
            }
            Event::Bid(Bid { auction, price, .. }) => {
                bids.entry(auction).or_default().push((time, price));
            }
            Event::Person(_) => {}
        }
    }
    let mut prices: HashMap<(Window, u64), Vec<u64>> = HashMap::new();
    for (id, (opened, auction)) in auctions {
        let counting = bids.get(&id).into_iter().flatten();
        let counting = counting.filter(|(time, _)| (opened..=auction.expires).contains(time));
        if let Some(highest) = counting.map(|(_, price)| *price).max() {
            let window = Window::tumbling(auction.expires, WINDOW);
            prices.entry((window, auction.category)).or_default().push(highest);
        }
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
    use super::super::simulation::{Arrival, Keyed, Remains, event_sets};
    use super::*;

    fn auction(id: u64, category: u64, expires: Millis) -> Event {
        Event::Auction(Auction { id, seller: 1, category, expires })
    }

    fn bid(auction: u64, price: u64) -> Event {
        Event::Bid(Bid { auction, bidder: 1, price })
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

    #[test]
    fn bids_that_come_before_their_auction_wait_for_it() {
        let mut state = AuctionState::default();
        assert_eq!(state.bid(150, 7), Some(150));
        assert_eq!(state.bid(99, 8), Some(99));
        let open = Auction { id: 1, seller: 1, category: 10, expires: 200 };
        assert_eq!(state.open(100, &open), 200);
        assert_eq!(state.timer(99), None);
        assert_eq!(state.timer(150), None);
        assert_eq!(state.timer(200), Some(Sale { category: 10, time: 200, price: 7 }));
        assert!(state.is_empty());
    }

    #[test]
    fn bids_without_an_auction_are_forgotten() {
        let mut state = AuctionState::default();
        state.bid(150, 7);
        state.bid(160, 7);
        assert_eq!(state.timer(150), None);
        assert!(!state.is_empty());
        assert_eq!(state.timer(160), None);
        assert!(state.is_empty());
    }

    fn incremental(arrivals: &[Arrival]) -> Vec<String> {
        let mut auctions = Keyed::<u64, AuctionState>::new();
        let mut sales = Keyed::<(u64, Window), Sales>::new();
        let mut lines = Vec::new();
        for Arrival { time, event, watermark } in arrivals {
            match event {
                Event::Auction(auction) => {
                    auctions.update(&auction.id, |state| [state.open(*time, auction)]);
                }
                Event::Bid(bid) => {
                    auctions.update(&bid.auction, |state| state.bid(*time, bid.price));
                }
                Event::Person(_) => {}
            }
            auctions.advance(*watermark, |time, _, state| {
                if let Some(sale) = state.timer(time) {
                    sales.update(&(sale.category, sale.window()), |sales| {
                        sales.add(sale.price);
                        [sale.window().last()]
                    });
                }
                if state.is_empty() { Remains::Nothing } else { Remains::Something }
            });
            sales.advance(*watermark, |_, (category, window), sales| {
                lines.extend(sales.row(*category, *window).map(|row| row.to_line()));
                Remains::Nothing
            });
        }
        assert!(auctions.is_empty() && sales.is_empty());
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
