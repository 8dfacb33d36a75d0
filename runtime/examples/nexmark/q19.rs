//! Query 19: the ten highest bids for each auction.
//!
//! ```sql
//! SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number
//!                FROM bid)
//! WHERE rank_number <= 10
//! ```
//!
//! Run continuously, that statement revises its rows with every bid. Here the result is final: up to
//! ten rows per auction and window of 10 s. Of equal prices the earlier bid is before the later, and of
//! the same time the smaller bidder before the larger; bids that agree in all of it are one.
//!
//! One operator, keyed by auction, with a map in the order of the ranks for each window ([`TopBids`]).

use std::collections::{BTreeSet, HashMap};

use weir_runtime::{Context, KeyedOperator, Stream};
use weir_state_api::{KeyedStore, MapState, Order, Result};

use super::event::{Bid, Event, Millis};
use super::window::Window;

/// Length of the windows, in ms.
pub(crate) const WINDOW: Millis = 10_000;

/// How many bids of an auction have a rank.
pub(crate) const RANKS: usize = 10;

/// A bid within an auction: window, price, time before its window ends, bidder from above. The
/// highest-ranked is the greatest.
type Offer = (Millis, u64, Millis, u64);

fn offer(time: Millis, bid: &Bid) -> Offer {
    let Window { start, end } = Window::tumbling(time, WINDOW);
    (start, bid.price, end - time, u64::MAX - bid.bidder)
}

/// `window_start,auction,rank,price,time,bidder`
fn line(auction: u64, rank: usize, (start, price, left, bidder): Offer) -> String {
    let (time, bidder) = (start + WINDOW - left, u64::MAX - bidder);
    format!("{start},{auction},{rank},{price},{time},{bidder}")
}

/// Keeps the highest bids of each auction.
struct TopBids {
    offers: MapState<Offer, ()>,
}

impl TopBids {
    fn open(store: &mut KeyedStore<u64>) -> Result<Self> {
        Ok(TopBids { offers: store.map("offers")? })
    }

    /// The offers of a window, lowest first.
    fn of_window(&self, start: Millis, context: &mut Context<'_, Self>) -> Result<Vec<Offer>> {
        let range = (start, 0, 0, 0)..(start + 1, 0, 0, 0);
        let offers = self.offers.range(context, range, Order::Ascending).wait()?;
        offers.map(|entry| Ok(entry?.0)).collect()
    }
}

impl KeyedOperator for TopBids {
    type Key = u64;
    type In = (Millis, Bid);
    type Out = String;
    type Timer = ();

    fn process(&mut self, (time, bid): Self::In, context: &mut Context<'_, Self>) -> Result<()> {
        let window = Window::tumbling(time, WINDOW);
        if context.is_late(window.end - 1) {
            context.count_late();
            return Ok(());
        }
        let (new, known) = (offer(time, &bid), self.of_window(window.start, context)?);
        match known.first() {
            None => context.register_timer(window.end - 1, &())?,
            Some(lowest) if known.len() >= RANKS => {
                if new <= *lowest || known.contains(&new) {
                    return Ok(());
                }
                self.offers.remove(context, lowest)?;
            }
            Some(_) => {}
        }
        self.offers.put(context, &new, &())
    }

    fn on_timer(&mut self, time: Millis, (): (), context: &mut Context<'_, Self>) -> Result<()> {
        let (auction, window) = (context.key()?, Window::tumbling(time, WINDOW));
        let offers = self.of_window(window.start, context)?;
        for (rank, offer) in offers.into_iter().rev().enumerate() {
            self.offers.remove(context, &offer)?;
            context.emit(line(auction, rank + 1, offer))?;
        }
        Ok(())
    }
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    events
        .with_time()
        .filter_map(|(time, event)| Some((time, event.into_bid()?)))
        .key_by(|(_, bid)| bid.auction)
        .process("top-bids", TopBids::open)
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut auctions: HashMap<(u64, Window), BTreeSet<Offer>> = HashMap::new();
    for (time, event) in events {
        if let Event::Bid(bid) = event {
            let window = Window::tumbling(time, WINDOW);
            auctions.entry((bid.auction, window)).or_default().insert(offer(time, &bid));
        }
    }
    let mut lines = Vec::new();
    for ((auction, _), offers) in auctions {
        let best = offers.into_iter().rev().take(RANKS).enumerate();
        lines.extend(best.map(|(rank, offer)| line(auction, rank + 1, offer)));
    }
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bid(bidder: u64, price: u64) -> Event {
        Event::Bid(Bid { auction: 1, bidder, price, ..Bid::default() })
    }

    #[test]
    fn equal_prices_are_ranked_by_time_and_bidder() {
        let events = [(5, bid(3, 70)), (4, bid(9, 70)), (4, bid(8, 70)), (9, bid(1, 71))];
        assert_eq!(
            reference(events.into_iter()),
            ["0,1,1,71,9,1", "0,1,2,70,4,8", "0,1,3,70,4,9", "0,1,4,70,5,3"]
        );
    }

    #[test]
    fn ten_of_a_window_have_a_rank() {
        let events = (0..30).map(|time| (time * 400, bid(1, time as u64)));
        let lines = reference(events);
        // The first 25 are in the window.
        assert_eq!(lines.len(), 10 + 5);
        assert!(lines.contains(&"0,1,1,24,9600,1".to_string()));
        assert!(lines.contains(&"0,1,10,15,6000,1".to_string()));
    }
}
