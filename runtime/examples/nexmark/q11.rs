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
//! One operator, keyed by bidder ([`Sessions`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::{Event, Millis};

/// The inactivity that ends a session, in ms.
pub(crate) const GAP: Millis = 10_000;

/// The sessions of one user that may still grow. State of the operator keyed by bidder.
///
/// There is more than one when bids come out of order, or when a bid of the next session comes
/// before the watermark has closed the last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sessions {
    /// In order of time, each at least [`GAP`] after the one before.
    open: Vec<Session>,
}

/// Bids of one user, each less than [`GAP`] after the one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// Time of the first bid.
    start: Millis,
    /// Time of the last bid.
    last: Millis,
    /// How many there are.
    bids: u64,
}

impl Session {
    /// The latest time at which another bid would prolong the session; when the watermark gets
    /// there, none will.
    fn closes(&self) -> Millis {
        self.last + GAP - 1
    }

    /// The result for a session that is closed.
    pub(crate) fn row(&self, bidder: u64) -> Row {
        Row { bidder, start: self.start, end: self.last + GAP, bids: self.bids }
    }
}

impl Sessions {
    /// Counts a bid made at `time`, which may prolong or join sessions. Returns the time of the
    /// timer to set.
    pub(crate) fn add(&mut self, time: Millis) -> Millis {
        // The sessions that the bid touches follow each other, and there are two at most.
        let from = self.open.partition_point(|session| session.closes() < time);
        let to = self.open.partition_point(|session| session.start - GAP < time);
        let mut joined = Session { start: time, last: time, bids: 1 };
        for session in self.open.drain(from..to) {
            joined.start = joined.start.min(session.start);
            joined.last = joined.last.max(session.last);
            joined.bids += session.bids;
        }
        let closes = joined.closes();
        self.open.insert(from, joined);
        closes
    }

    /// Handles a timer set for `time`: takes out the sessions that have closed. A timer from before
    /// a session was prolonged finds none.
    pub(crate) fn timer(&mut self, time: Millis) -> impl Iterator<Item = Session> {
        let closed = self.open.partition_point(|session| session.closes() <= time);
        self.open.drain(..closed)
    }

    /// Whether there is nothing left to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

/// A row of the result; unique by bidder and start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    use super::super::simulation::{Arrival, Keyed, Remains, event_sets};
    use super::*;

    fn bid(bidder: u64) -> Event {
        Event::Bid(Bid { auction: 1, bidder, price: 1 })
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

    #[test]
    fn a_late_bid_joins_two_sessions() {
        let mut sessions = Sessions::default();
        assert_eq!(sessions.add(30_000), 39_999);
        assert_eq!(sessions.add(45_000), 54_999);
        assert_eq!(sessions.add(10_000), 19_999);
        assert_eq!(sessions.add(37_500), 54_999);
        assert_eq!(sessions.timer(19_998).count(), 0);
        assert!(sessions.timer(19_999).eq([Session { start: 10_000, last: 10_000, bids: 1 }]));
        assert_eq!(sessions.timer(39_999).count(), 0);
        assert!(sessions.timer(54_999).eq([Session { start: 30_000, last: 45_000, bids: 3 }]));
        assert!(sessions.is_empty());
    }

    #[test]
    fn bids_a_gap_apart_stay_apart() {
        for order in [[0, 10_000, 20_000], [20_000, 10_000, 0], [0, 20_000, 10_000]] {
            let mut sessions = Sessions::default();
            for time in order {
                sessions.add(time);
            }
            assert_eq!(sessions.timer(29_999).count(), 3);
        }
    }

    fn incremental(arrivals: &[Arrival]) -> Vec<String> {
        let mut bidders = Keyed::<u64, Sessions>::new();
        let mut lines = Vec::new();
        for Arrival { time, event, watermark } in arrivals {
            if let Event::Bid(bid) = event {
                bidders.update(&bid.bidder, |sessions| [sessions.add(*time)]);
            }
            bidders.advance(*watermark, |time, bidder, sessions| {
                lines.extend(sessions.timer(time).map(|session| session.row(*bidder).to_line()));
                if sessions.is_empty() { Remains::Nothing } else { Remains::Something }
            });
        }
        assert!(bidders.is_empty());
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
