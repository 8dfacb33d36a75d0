//! Query 20: the bids for items of one category, with their auction.
//!
//! ```sql
//! SELECT auction, bidder, price, B.dateTime, seller, category, A.expires
//! FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id
//! WHERE A.category = 10
//! ```
//!
//! A join without windows: bids and auctions meet however far apart they are, so auctions are kept for
//! ever, and bids until their auction comes.
//!
//! One operator, keyed by auction ([`ExpandedBids`]).

use std::collections::HashMap;

use weir_runtime::{Context, KeyedOperator, Stream};
use weir_state_api::{KeyedStore, ListState, Postcard, Result, ValueState};

use super::event::{Auction, Bid, Event, Millis};

/// The category of the items.
pub(crate) const CATEGORY: u64 = 10;

/// A bid without its auction: bidder, price, time.
type Offer = (u64, u64, Millis);

/// `auction,bidder,price,time,seller,category,expires`; none for another category
fn line(auction: &Auction, (bidder, price, time): Offer) -> Option<String> {
    let Auction { id, seller, category, expires } = auction;
    (*category == CATEGORY)
        .then(|| format!("{id},{bidder},{price},{time},{seller},{category},{expires}"))
}

/// Joins an auction with its bids.
struct ExpandedBids {
    auction: ValueState<Auction, Postcard>,
    /// Bids that came before their auction did.
    early: ListState<Offer, Postcard>,
}

impl ExpandedBids {
    fn open(store: &mut KeyedStore<u64>) -> Result<Self> {
        Ok(ExpandedBids {
            auction: store.value_with("auction", Postcard::schema("nexmark.item", 1))?,
            early: store.list_with("early", Postcard::schema("nexmark.early-bid", 1))?,
        })
    }
}

impl KeyedOperator for ExpandedBids {
    type Key = u64;
    type In = (Millis, Event);
    type Out = String;
    type Timer = ();

    fn process(&mut self, (time, event): Self::In, context: &mut Context<'_, Self>) -> Result<()> {
        match event {
            Event::Bid(Bid { bidder, price, .. }) => {
                let offer = (bidder, price, time);
                match self.auction.get(context).wait()? {
                    Some(auction) => {
                        line(&auction, offer).map_or(Ok(()), |line| context.emit(line))
                    }
                    None => self.early.add(context, &offer),
                }
            }
            Event::Auction(auction) => {
                self.auction.set(context, &auction)?;
                let early = self.early.get(context).wait()?;
                self.early.clear(context)?;
                early
                    .into_iter()
                    .filter_map(|offer| line(&auction, offer))
                    .try_for_each(|line| context.emit(line))
            }
            Event::Person(_) => Ok(()),
        }
    }
}

/// The auction that an event is about.
fn auction(event: &Event) -> Option<u64> {
    match event {
        Event::Auction(auction) => Some(auction.id),
        Event::Bid(bid) => Some(bid.auction),
        Event::Person(_) => None,
    }
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    events
        .with_time()
        .filter(|(_, event)| auction(event).is_some())
        .key_by(|(_, event)| auction(event).unwrap_or_default())
        .process("expanded-bids", ExpandedBids::open)
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let (mut auctions, mut bids) = (HashMap::new(), Vec::new());
    for (time, event) in events {
        match event {
            Event::Auction(auction) => {
                auctions.insert(auction.id, auction);
            }
            Event::Bid(bid) => bids.push((time, bid)),
            Event::Person(_) => {}
        }
    }
    let expanded = bids
        .into_iter()
        .filter_map(|(time, bid)| line(auctions.get(&bid.auction)?, (bid.bidder, bid.price, time)));
    let mut lines: Vec<_> = expanded.collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bids_of_the_category_are_expanded_whenever_they_come() {
        let auction =
            |id, category| Event::Auction(Auction { id, seller: 5, category, expires: 90 });
        let bid = |auction| Event::Bid(Bid { auction, bidder: 3, price: 8, ..Bid::default() });
        let events = [
            (1, bid(1)),
            (2, auction(1, 10)),
            (99, bid(1)), // after it has expired
            (3, auction(2, 11)),
            (4, bid(2)),
            (5, bid(3)), // never opens
        ];
        assert_eq!(reference(events.into_iter()), ["1,3,8,1,5,10,90", "1,3,8,99,5,10,90"]);
    }
}
