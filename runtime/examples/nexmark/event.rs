//! The events of the auction site, reduced to the fields that the queries read.
//!
//! Names, descriptions and padding make a generated event several hundred bytes long; what is
//! kept here is what has to cross a channel or sit in state.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, in event time.
pub(crate) type Millis = i64;

/// Something that happened on the auction site; its time travels beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// Somebody registered.
    Person(Person),
    /// Somebody put an item up for auction.
    Auction(Auction),
    /// Somebody bid for an item.
    Bid(Bid),
}

/// A new user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Person {
    /// Unique among persons.
    pub(crate) id: u64,
    /// Full name.
    pub(crate) name: String,
}

/// A new auction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Auction {
    /// Unique among auctions.
    pub(crate) id: u64,
    /// The person who sells; may register later than the auction opens, or never.
    pub(crate) seller: u64,
    /// What kind of item it is.
    pub(crate) category: u64,
    /// The last millisecond at which a bid counts; always later than the auction opens.
    pub(crate) expires: Millis,
}

/// A bid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bid {
    /// The auction bid for; may open later than the bid is made, have expired before, or never
    /// open.
    pub(crate) auction: u64,
    /// The person who bids; may register later than the bid is made, or never.
    pub(crate) bidder: u64,
    /// In cents.
    pub(crate) price: u64,
}
