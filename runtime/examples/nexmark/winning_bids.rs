//! Auctions with the bids that win them, for queries 4 and 9.
//!
//! The winner of an auction is decided when it expires: the highest bid made from the auction's
//! opening to its expiry, both included; of equal ones the earliest, and of those made at the same
//! millisecond that of the smallest bidder. A bid made at the same millisecond as the auction opens
//! counts. An auction without such a bid is not sold.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use weir_runtime::{Context, KeyedOperator, Stream};
use weir_state_api::{KeyedStore, MapState, Ordered, Postcard, Result, ValueState};

use super::event::{Auction, Bid, Event, Millis};

/// A bid without its auction; the greatest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// In cents.
    pub(crate) price: u64,
    /// When the bid was made.
    pub(crate) time: Reverse<Millis>,
    /// Who bid.
    pub(crate) bidder: Reverse<u64>,
}

impl Offer {
    fn new(time: Millis, bid: &Bid) -> Self {
        Offer { price: bid.price, time: Reverse(time), bidder: Reverse(bid.bidder) }
    }
}

/// An auction that has been seen and has not expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OpenAuction {
    opened: Millis,
    auction: Auction,
    best: Option<Offer>,
}

impl OpenAuction {
    fn offer(&mut self, offer: Offer) {
        if self.opened <= offer.time.0 && offer.time.0 <= self.auction.expires {
            self.best = self.best.max(Some(offer));
        }
    }

    /// The sale that the auction ends with.
    fn end(self) -> Option<Sale> {
        let OpenAuction { auction, best, .. } = self;
        best.map(|winner| Sale { auction, winner })
    }
}

/// An auction that has ended with a winning bid. Its time is that of the expiry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sale {
    /// What was sold.
    pub(crate) auction: Auction,
    /// The bid that won.
    pub(crate) winner: Offer,
}

/// Ends auctions: one [`Sale`] for each that has a winning bid.
struct WinningBids {
    open: ValueState<OpenAuction, Postcard>,
    /// The best offer per time of bid, for bids that came before their auction did. Each has a
    /// timer: an auction that comes after the watermark has passed the bid opens too late for it.
    early: MapState<Millis, Offer, Ordered, Postcard>,
}

impl WinningBids {
    fn open(store: &mut KeyedStore<u64>) -> Result<Self> {
        Ok(WinningBids {
            open: store.value_with("open", Postcard::schema("nexmark.auction", 2))?,
            early: store.map_with("early", Ordered, Postcard::schema("nexmark.offer", 1))?,
        })
    }

    fn bid(&self, bid: &Bid, context: &mut Context<'_, Self>) -> Result<()> {
        let offer = Offer::new(context.time(), bid);
        let add = |open: Option<OpenAuction>| {
            Ok(open.map(|mut auction| {
                auction.offer(offer);
                auction
            }))
        };
        if self.open.try_update(context, add).wait()?.is_some() {
            return Ok(());
        }
        let time = context.time();
        let best = self.early.get(context, &time).wait()?;
        if best.is_none() {
            context.register_timer(time, &())?;
        }
        if best < Some(offer) { self.early.put(context, &time, &offer) } else { Ok(()) }
    }

    fn auction(&self, auction: Auction, context: &mut Context<'_, Self>) -> Result<()> {
        let expires = auction.expires;
        let mut open = OpenAuction { opened: context.time(), auction, best: None };
        for early in self.early.entries(context).wait()? {
            open.offer(early?.1);
        }
        self.early.clear(context)?;
        self.open.set(context, &open)?;
        context.register_timer(expires, &())
    }
}

impl KeyedOperator for WinningBids {
    type Key = u64;
    type In = Event;
    type Out = Sale;
    type Timer = ();

    fn process(&mut self, event: Event, context: &mut Context<'_, Self>) -> Result<()> {
        match event {
            Event::Auction(auction) => self.auction(auction, context),
            Event::Bid(bid) => self.bid(&bid, context),
            Event::Person(_) => Ok(()),
        }
    }

    fn on_timer(&mut self, time: Millis, (): (), context: &mut Context<'_, Self>) -> Result<()> {
        self.early.remove(context, &time)?;
        match self.open.get(context).wait()? {
            Some(open) if open.auction.expires <= time => {
                self.open.clear(context)?;
                let expires = open.auction.expires;
                open.end().map_or(Ok(()), |sale| context.emit_at(expires, sale))
            }
            Some(_) | None => Ok(()),
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

/// The sales, each when its auction expires.
pub(crate) fn sales(events: &Stream<Event>) -> Result<Stream<Sale>> {
    events
        .filter(|event| auction(event).is_some())
        .key_by(|event| auction(event).unwrap_or_default())
        .process("winning-bids", WinningBids::open)
}

/// The sales, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<Sale> {
    let mut auctions = HashMap::new();
    let mut bids: HashMap<u64, Vec<Offer>> = HashMap::new();
    for (time, event) in events {
        match event {
            Event::Auction(auction) => {
                auctions.insert(auction.id, (time, auction));
            }
            Event::Bid(bid) => bids.entry(bid.auction).or_default().push(Offer::new(time, &bid)),
            Event::Person(_) => {}
        }
    }
    let sales = auctions.into_values().filter_map(|(opened, auction)| {
        let offers = bids.get(&auction.id).into_iter().flatten();
        let counting = offers.filter(|bid| (opened..=auction.expires).contains(&bid.time.0));
        counting.max().map(|winner| Sale { auction: auction.clone(), winner: *winner })
    });
    sales.collect()
}
