//! A replayable source of auction events, divided into splits.
//!
//! What the queries and the source rely on, as found in version 0.2 of the `nexmark` crate:
//!
//! * **Determinism.** There is no seed and no state carried from one event to the next: an event
//!   is a function of its number and of the configuration (the random generator is seeded anew
//!   with each event's number). The default configuration, however, starts at the current wall
//!   clock time, so the base time has to be set. Prices go through `f32::powf` and ids through
//!   `usize`, so two runs can be compared when they ran on the same kind of 64-bit platform.
//! * **Positioning.** Because of that, a generator is placed at any event number in constant time,
//!   and a step of `k` yields every `k`-th event without computing the ones between.
//! * **Kinds.** Of 50 consecutive events the first is a person, three are auctions and 46 are bids.
//!   With an even number of splits the persons are therefore, as long as events are in order, all
//!   in the even splits; to the queries that makes no difference.
//! * **Time.** At a constant rate, event time never decreases with the event number. It is computed
//!   in `f32`: during the first two hours of event time it is within two milliseconds of the exact
//!   value, later it advances in coarser steps, still without going back. (Varying rates do not keep
//!   this promise, so they are not offered here.)
//! * **Disorder.** With a group size `g` above 1, the events with numbers `g·i .. g·(i + 1)` are
//!   permuted among the positions of the same range. Nothing moves out of its group, which bounds
//!   the disorder. The permutation multiplies by 953 modulo `g`; `g` must not be a multiple of that
//!   prime, or events would repeat and others go missing.
//! * **References.** Ids in bids and auctions may run ahead: a bid may name one of the next ten
//!   auctions or bidders, a seller may be one of the next ten persons. Bids also name auctions that
//!   have expired.
//!
//! An auction stays open for two periods of 1666 events at most, whatever the rate; a user bids
//! during 50 000 events. At 1000 events per second that is 3.3 s and 50 s, so that windows of 10 s
//! and sessions with gaps of 10 s both have something to tell apart. At ten times that rate a
//! user's bids all fall into one session.

use std::fmt;

use nexmark::EventGenerator;
use nexmark::config::NexmarkConfig;
use serde::{Deserialize, Serialize};

use super::event::{Auction, Bid, Channel, Event, Millis, Person};

/// The factor by which the generator permutes a group; a prime.
const PERMUTATION_FACTOR: u64 = 953;

/// Which events there are; the same for all splits of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// How many events there are, over all splits. For the event set to be independent of
    /// `disorder`, this has to be a multiple of it.
    pub(crate) events: u64,
    /// How many of them there are in a second of event time.
    pub(crate) events_per_second: u32,
    /// Size of the groups within which events are out of order, in events; 1 means none are.
    pub(crate) disorder: u32,
    /// Time of the first event. A multiple of all window sizes gives the first windows their full
    /// share.
    pub(crate) base_time: Millis,
}

impl Settings {
    /// `events` events in order, 1000 a second.
    pub(crate) fn new(events: u64) -> Self {
        Settings { events, events_per_second: 1000, disorder: 1, base_time: 1_700_000_000_000 }
    }

    fn generator(&self) -> Result<NexmarkConfig, InvalidSplit> {
        if self.events_per_second == 0 {
            return Err(InvalidSplit("the event rate is zero"));
        }
        if self.disorder == 0 || u64::from(self.disorder).is_multiple_of(PERMUTATION_FACTOR) {
            return Err(InvalidSplit("the disorder is zero or a multiple of 953"));
        }
        let base_time = u64::try_from(self.base_time)
            .map_err(|_| InvalidSplit("the base time is before the epoch"))?;
        let rate = self.events_per_second as usize;
        Ok(NexmarkConfig {
            base_time,
            first_rate: rate,
            next_rate: rate,
            out_of_order_group_size: self.disorder as usize,
            // Padding that would be dropped right away; it is drawn last, so that leaving it out
            // changes no other field.
            avg_person_byte_size: 0,
            avg_auction_byte_size: 0,
            avg_bid_byte_size: 0,
            ..NexmarkConfig::default()
        })
    }
}

/// How far a split has been read: all that a source has to store to resume it.
///
/// Splits interleave: split `index` of `of` has the events `index`, `index + of`, and so on. All
/// splits thus advance through event time together, where contiguous ranges would hold the
/// watermark at the start of the slowest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Which split, counted from 0.
    pub(crate) index: u64,
    /// How many splits there are; fixed for the life of a job.
    pub(crate) of: u64,
    /// The first event that has not been read; equal to `index` modulo `of`.
    pub(crate) next_event_number: u64,
}

impl Position {
    /// The beginning of a split.
    pub(crate) fn start(index: u64, of: u64) -> Self {
        Position { index, of, next_event_number: index }
    }
}

/// Why a split cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidSplit(&'static str);

impl fmt::Display for InvalidSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot open the split: {}", self.0)
    }
}

impl std::error::Error for InvalidSplit {}

/// Reads the events of one split, each with its time.
#[derive(Debug)]
pub(crate) struct Split {
    /// Stands at `position.next_event_number`.
    generator: EventGenerator,
    events: u64,
    disorder: u64,
    position: Position,
    watermark: Millis,
}

impl Split {
    /// Opens a split where it was left, or at its start. Takes the same time everywhere.
    pub(crate) fn open(settings: &Settings, position: Position) -> Result<Self, InvalidSplit> {
        if position.index >= position.of {
            return Err(InvalidSplit("there are fewer splits than its index says"));
        }
        if position.next_event_number % position.of != position.index {
            return Err(InvalidSplit("the position is in another split"));
        }
        let generator = EventGenerator::new(settings.generator()?)
            .with_offset(position.next_event_number)
            .with_step(position.of);
        let mut split = Split {
            generator,
            events: settings.events,
            disorder: u64::from(settings.disorder),
            position,
            watermark: Millis::MIN,
        };
        split.watermark = split.watermark_at_position();
        Ok(split)
    }

    /// Where to resume so that the next event is the one that [`next`](Iterator::next) would
    /// return.
    #[cfg(test)]
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Whether all events have been returned.
    pub(crate) fn is_at_end(&self) -> bool {
        self.position.next_event_number >= self.events
    }

    /// The watermark after the events returned so far: every event still to come from this split is
    /// *later* than this, none is equal. [`Millis::MAX`] once there are none. Never decreases, and
    /// depends on the position only, so that a resumed split claims the same.
    pub(crate) fn watermark(&self) -> Millis {
        self.watermark
    }

    fn watermark_at_position(&self) -> Millis {
        let next = self.position.next_event_number;
        if self.is_at_end() {
            return Millis::MAX;
        }
        // The earliest event that can still come is the first of the group, which the permutation
        // leaves in its place.
        let group = next - next % self.disorder;
        let earliest = if group == next {
            self.generator.timestamp()
        } else {
            self.generator.clone().with_offset(group).timestamp()
        };
        millis(earliest) - 1
    }

    fn group_of_next(&self) -> u64 {
        self.position.next_event_number / self.disorder
    }
}

impl Iterator for Split {
    type Item = (Millis, Event);

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_at_end() {
            return None;
        }
        let event = self.generator.next()?;
        let group = self.group_of_next();
        self.position.next_event_number += self.position.of;
        if self.group_of_next() != group || self.is_at_end() {
            self.watermark = self.watermark_at_position();
        }
        Some((millis(event.timestamp()), compact(event)))
    }
}

/// Keeps the fields that the queries read.
fn compact(event: nexmark::event::Event) -> Event {
    match event {
        nexmark::event::Event::Person(person) => {
            let nexmark::event::Person { id, name, city, state, .. } = person;
            Event::Person(Person { id: id as u64, name, city, state })
        }
        nexmark::event::Event::Auction(auction) => Event::Auction(Auction {
            id: auction.id as u64,
            seller: auction.seller as u64,
            category: auction.category as u64,
            expires: millis(auction.expires),
        }),
        nexmark::event::Event::Bid(bid) => Event::Bid(Bid {
            auction: bid.auction as u64,
            bidder: bid.bidder as u64,
            price: bid.price as u64,
            channel: Channel::of_name(&bid.channel).unwrap_or_default(),
        }),
    }
}

/// Generated times are far below the limit; one that is not stays in order.
fn millis(time: u64) -> Millis {
    Millis::try_from(time).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(events: u64, disorder: u32) -> Settings {
        Settings { disorder, ..Settings::new(events) }
    }

    fn read(settings: &Settings, position: Position) -> Vec<(Millis, Event)> {
        Split::open(settings, position).unwrap().collect()
    }

    fn sorted(events: Vec<(Millis, Event)>) -> Vec<String> {
        let mut lines: Vec<_> = events.into_iter().map(|event| format!("{event:?}")).collect();
        lines.sort();
        lines
    }

    #[test]
    fn the_first_events_are_the_known_ones() {
        let events = read(&settings(50, 1), Position::start(0, 1));
        let start = Settings::new(0).base_time;
        let [name, city, state] = ["vicky noris", "cheyenne", "az"].map(String::from);
        assert_eq!(events[0], (start, Event::Person(Person { id: 1000, name, city, state })));
        assert!(matches!(&events[1], (_, Event::Auction(auction)) if auction.id == 1000));
        let bids = events.iter().filter(|(_, event)| matches!(event, Event::Bid(_))).count();
        assert_eq!((events.len(), bids), (50, 46));
        assert_eq!(events[49].0, start + 49);
    }

    #[test]
    fn splits_together_have_every_event_once() {
        let settings = settings(1001, 7);
        let whole = sorted(read(&settings, Position::start(0, 1)));
        for of in [2, 3, 7, 50] {
            let parts = (0..of).flat_map(|index| read(&settings, Position::start(index, of)));
            assert_eq!(sorted(parts.collect()), whole, "{of} splits");
        }
    }

    #[test]
    fn disorder_changes_the_order_and_not_the_events() {
        let ordered = read(&settings(3000, 1), Position::start(0, 1));
        let shuffled = read(&settings(3000, 100), Position::start(0, 1));
        assert_ne!(ordered, shuffled);
        assert_eq!(sorted(ordered), sorted(shuffled));
    }

    #[test]
    fn a_split_resumes_anywhere_with_the_same_watermark() {
        let settings = settings(500, 20);
        let mut split = Split::open(&settings, Position::start(1, 3)).unwrap();
        loop {
            let resumed = Split::open(&settings, split.position()).unwrap();
            assert_eq!(resumed.watermark(), split.watermark());
            let rest = read(&settings, split.position());
            assert_eq!(rest.first().cloned(), split.next());
            if rest.is_empty() {
                break;
            }
        }
        assert_eq!(split.watermark(), Millis::MAX);
    }

    #[test]
    fn watermarks_hold_and_advance() {
        for (disorder, of) in [(1, 1), (1, 4), (10, 1), (10, 3), (1000, 4), (3, 50)] {
            let settings = settings(5000, disorder);
            for index in 0..of {
                let mut split = Split::open(&settings, Position::start(index, of)).unwrap();
                let mut watermark = split.watermark();
                while let Some((time, _)) = split.next() {
                    assert!(time > watermark, "{time} came after watermark {watermark}");
                    // A group lasts as many milliseconds as it has events here.
                    assert!(time <= watermark + Millis::from(disorder));
                    assert!(split.watermark() >= watermark);
                    watermark = split.watermark();
                }
                assert_eq!(watermark, Millis::MAX);
            }
        }
    }

    #[test]
    fn time_never_goes_back_even_after_days() {
        for start in [0, 1 << 24, 1 << 27, 1 << 30] {
            let settings = settings(start + 100_000, 1);
            let position = Position { index: 0, of: 1, next_event_number: start };
            let times = Split::open(&settings, position).unwrap().map(|(time, _)| time);
            assert!(times.is_sorted(), "from event {start}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let good = settings(10, 1);
        assert!(Split::open(&good, Position::start(2, 2)).is_err());
        assert!(Split::open(&good, Position::start(0, 0)).is_err());
        let elsewhere = Position { index: 0, of: 2, next_event_number: 3 };
        assert!(Split::open(&good, elsewhere).is_err());
        assert!(Split::open(&settings(10, 0), Position::start(0, 1)).is_err());
        assert!(Split::open(&settings(10, 1906), Position::start(0, 1)).is_err());
        let before = Settings { base_time: -1, ..settings(10, 1) };
        assert!(Split::open(&before, Position::start(0, 1)).is_err());
        let stopped = Settings { events_per_second: 0, ..settings(10, 1) };
        assert!(Split::open(&stopped, Position::start(0, 1)).is_err());
    }
}
