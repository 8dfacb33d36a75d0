//! Query 11: user sessions, how many bids a user made in each period of activity.
//!
//! ```sql
//! SELECT B.bidder, count(*), SESSION_START(B.dateTime, INTERVAL '10' SECOND),
//!        SESSION_END(B.dateTime, INTERVAL '10' SECOND)
//! FROM bid B
//! GROUP BY B.bidder, SESSION(B.dateTime, INTERVAL '10' SECOND)
//! ```
//!
//! The result is final: one row per session. Two consecutive bids of a user belong to the same
//! session when they are *less* than 10 s apart. (Were bids exactly 10 s apart joined, a session
//! would have to stay open for one millisecond more than its window; engines that do not wait make
//! the result depend on the order of arrival.)
//!
//! One operator, keyed by bidder, that counts bids in session windows: windows of a user merge when
//! a bid comes between them.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_runtime::{SessionWindows, Stream};
use weir_state_api::Result;

use super::accumulate::Accumulate;
use super::event::{Event, Millis};

/// The inactivity that ends a session, in ms.
pub(crate) const GAP: Millis = 10_000;

/// A row of the result; unique by bidder and start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// The user.
    pub(crate) bidder: u64,
    /// Time of the first bid.
    pub(crate) start: Millis,
    /// Time of the last bid, plus [`GAP`].
    pub(crate) end: Millis,
    /// How many bids there are.
    pub(crate) bids: u64,
}

impl Row {
    /// `bidder,start,end,bids`
    pub(crate) fn to_line(&self) -> String {
        let Row { bidder, start, end, bids } = self;
        format!("{bidder},{start},{end},{bids}")
    }
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    let sessions = SessionWindows::with_gap(Duration::from_millis(GAP.unsigned_abs()))?;
    let counts = events
        .filter_map(|event| Some(event.into_bid()?.bidder))
        .key_by(|bidder| *bidder)
        .window("sessions", sessions, Accumulate::<_, u64>::new())?;
    Ok(counts.map(|count| {
        let (start, end) = (count.window.start, count.window.end);
        Row { bidder: count.key, start, end, bids: count.value }.to_line()
    }))
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut bidders: BTreeMap<u64, Vec<Millis>> = BTreeMap::new();
    for (time, event) in events {
        if let Event::Bid(bid) = event {
            bidders.entry(bid.bidder).or_default().push(time);
        }
    }
    let mut lines = Vec::new();
    for (bidder, mut times) in bidders {
        times.sort_unstable();
        for session in times.chunk_by(|earlier, later| later - earlier < GAP) {
            if let (Some(first), Some(last)) = (session.first(), session.last()) {
                let bids = session.len() as u64;
                lines.push(Row { bidder, start: *first, end: last + GAP, bids }.to_line());
            }
        }
    }
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::super::event::Bid;
    use super::*;

    fn bid(bidder: u64) -> Event {
        Event::Bid(Bid { auction: 1, bidder, price: 1, ..Bid::default() })
    }

    #[test]
    fn ten_seconds_of_silence_end_a_session() {
        let events = [
            (1_000, bid(1)),
            (10_999, bid(1)), // just in time
            (20_999, bid(1)), // just too late
            (1_000, bid(2)),
            (1_000, bid(2)),
        ];
        assert_eq!(
            reference(events.into_iter()),
            ["1,1000,20999,2", "1,20999,30999,1", "2,1000,11000,2"]
        );
    }
}
