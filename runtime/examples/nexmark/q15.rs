//! Query 15: statistics of all bids, with distinct bidders and auctions.
//!
//! ```sql
//! SELECT DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`,
//!        count(*), count(*) FILTER (WHERE price < 10000), ...
//!        count(distinct bidder), count(distinct bidder) FILTER (WHERE price < 10000), ...
//!        count(distinct auction), count(distinct auction) FILTER (WHERE price < 10000), ...
//! FROM bid
//! GROUP BY DATE_FORMAT(dateTime, 'yyyy-MM-dd')
//! ```
//!
//! The result is final: one row per window of 10 s, which stands in place of the day: a run covers
//! less than one. All bids of a window have the same key, so its work is that of one subtask.

use weir_runtime::Stream;
use weir_state_api::Result;

use super::distinct::{self, Group};
use super::event::{Event, Millis};

/// `window_start,bids,bidders,auctions`, four counts each: all, and by rank of price
fn line(Group { window, totals, .. }: &Group<()>) -> String {
    format!("{},{totals}", window.start)
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    Ok(distinct::groups(events, |_| ())?.map(|group| line(&group)))
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut lines: Vec<_> = distinct::reference(events, |_| ()).iter().map(line).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::super::event::Bid;
    use super::*;

    #[test]
    fn bidders_and_auctions_count_once_in_all_and_once_in_each_rank() {
        let bid =
            |bidder, auction, price| Event::Bid(Bid { auction, bidder, price, ..Bid::default() });
        let events = [
            (0, bid(1, 7, 5)),
            (1, bid(1, 7, 20_000)),
            (2, bid(1, 8, 20_000)),
            (9_999, bid(2, 7, 2_000_000)),
            (10_000, bid(2, 7, 5)),
        ];
        assert_eq!(
            reference(events.into_iter()),
            ["0,4,1,2,1,2,1,1,1,2,1,2,1", "10000,1,1,0,0,1,1,0,0,1,1,0,0"]
        );
    }
}
