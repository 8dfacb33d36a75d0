//! The events of the auction site, reduced to the fields that the queries read.
//!
//! Names, descriptions and padding make a generated event several hundred bytes long; what is
//! kept here is what has to cross a channel or sit in state.

use std::fmt;

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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Person {
    /// Unique among persons.
    pub(crate) id: u64,
    /// Full name.
    pub(crate) name: String,
    /// Where they live.
    pub(crate) city: String,
    /// Two letters, in lower case.
    pub(crate) state: String,
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bid {
    /// The auction bid for; may open later than the bid is made, have expired before, or never
    /// open.
    pub(crate) auction: u64,
    /// The person who bids; may register later than the bid is made, or never.
    pub(crate) bidder: u64,
    /// In cents.
    pub(crate) price: u64,
    /// Through which channel it came.
    pub(crate) channel: Channel,
}

impl Event {
    /// The bid, if it is one.
    pub(crate) fn into_bid(self) -> Option<Bid> {
        match self {
            Event::Bid(bid) => Some(bid),
            Event::Person(_) | Event::Auction(_) => None,
        }
    }
}

/// A channel through which bids come, by number: half of the bids come through four that have a name,
/// the others through `channel-0` to `channel-9999`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub(crate) struct Channel(pub(crate) u32);

const NAMED: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];

impl Channel {
    /// The channel of that name; none that the generator does not know.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let named = NAMED.iter().position(|known| *known == name);
        let numbered = || Some(name.strip_prefix("channel-")?.parse::<usize>().ok()? + NAMED.len());
        u32::try_from(named.or_else(numbered)?).ok().map(Channel)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0 as usize;
        match NAMED.get(number) {
            Some(name) => f.write_str(name),
            None => write!(f, "channel-{}", number - NAMED.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_keep_their_names() {
        for name in ["Google", "Apple", "channel-0", "channel-9999"] {
            assert_eq!(Channel::of_name(name).unwrap().to_string(), name);
        }
        assert_eq!(Channel::of_name("elsewhere"), None);
    }
}
