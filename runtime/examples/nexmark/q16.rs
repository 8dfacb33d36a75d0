//! Query 16: statistics of the bids of each channel, with distinct bidders and auctions.
//!
//! ```sql
//! SELECT channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`,
//!        max(DATE_FORMAT(dateTime, 'HH:mm')) AS `minute`,
//!        count(*), count(*) FILTER (WHERE price < 10000), ...
//!        count(distinct bidder), ..., count(distinct auction), ...
//! FROM bid
//! GROUP BY channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd')
//! ```
//!
//! The result is final: one row per channel and window of 10 s, which stands in place of the day; the
//! time of the last bid, in ms, in place of its minute.

use weir_runtime::Stream;
use weir_state_api::Result;

use super::distinct::{self, Group};
use super::event::{Channel, Event, Millis};

/// `channel,window_start,last,bids,bidders,auctions`; the latter four counts each
fn line(Group { key, window, totals }: &Group<u32>) -> String {
    format!("{},{},{},{totals}", Channel(*key), window.start, totals.last)
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    Ok(distinct::groups(events, |bid| bid.channel.0)?.map(|group| line(&group)))
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let groups = distinct::reference(events, |bid| bid.channel.0);
    let mut lines: Vec<_> = groups.iter().map(line).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::super::event::Bid;
    use super::*;

    #[test]
    fn channels_are_apart() {
        let bid = |channel, bidder| {
            Event::Bid(Bid { auction: 7, bidder, price: 5, channel: Channel(channel) })
        };
        let events = [(0, bid(3, 1)), (5, bid(3, 2)), (9, bid(4, 1))];
        assert_eq!(
            reference(events.into_iter()),
            ["Apple,0,5,2,2,0,0,2,2,0,0,1,1,0,0", "channel-0,0,9,1,1,0,0,1,1,0,0,1,1,0,0"]
        );
    }
}
