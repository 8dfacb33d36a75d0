//! Query 9: the winning bid of each auction.
//!
//! ```sql
//! SELECT id, category, seller, auction, bidder, price, bid_dateTime
//! FROM (SELECT A.*, B.*, ROW_NUMBER() OVER (PARTITION BY A.id
//!                                           ORDER BY B.price DESC, B.dateTime ASC) AS rownum
//!       FROM auction A, bid B
//!       WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires)
//! WHERE rownum <= 1
//! ```
//!
//! The result is final: one row per auction that was sold, when it expires. Which bid wins stands in
//! [`winning_bids`].

use weir_runtime::Stream;
use weir_state_api::Result;

use super::event::{Event, Millis};
use super::winning_bids::{self, Sale};

/// `auction,category,seller,expires,bidder,price,time`
fn line(Sale { auction, winner }: &Sale) -> String {
    format!(
        "{},{},{},{},{},{},{}",
        auction.id,
        auction.category,
        auction.seller,
        auction.expires,
        winner.bidder.0,
        winner.price,
        winner.time.0
    )
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    Ok(winning_bids::sales(events)?.map(|sale| line(&sale)))
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut lines: Vec<_> = winning_bids::reference(events).iter().map(line).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::super::event::{Auction, Bid};
    use super::*;

    #[test]
    fn of_equal_bids_the_earliest_wins() {
        let bid = |bidder, price| Event::Bid(Bid { auction: 1, bidder, price, ..Bid::default() });
        let auction = Event::Auction(Auction { id: 1, seller: 5, category: 10, expires: 200 });
        let events = [
            (99, bid(9, 90)), // too early
            (100, auction),
            (120, bid(2, 70)),
            (110, bid(8, 70)),
            (110, bid(3, 70)),
            (150, bid(4, 60)),
            (201, bid(9, 90)), // too late
        ];
        assert_eq!(reference(events.into_iter()), ["1,10,5,200,3,70,110"]);
    }
}
