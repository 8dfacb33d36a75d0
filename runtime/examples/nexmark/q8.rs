//! Query 8: new sellers, persons who opened an auction in the same ten seconds in which they
//! registered.
//!
//! ```sql
//! SELECT P.id, P.name, P.window_start
//! FROM (SELECT id, name, window_start, window_end
//!       FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
//!       GROUP BY id, name, window_start, window_end) P
//! JOIN (SELECT seller, window_start, window_end
//!       FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
//!       GROUP BY seller, window_start, window_end) A
//! ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end
//! ```
//!
//! The result is final: one row per person, however many auctions they opened, and whether the
//! first of them is earlier or later than the registration. A person registers once; should an id
//! come twice in a window, the alphabetically first name stands.
//!
//! One operator, keyed by person, that joins both kinds of event in windows ([`NewSeller`]).

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_runtime::{Stream, TumblingWindows};
use weir_state_api::{Postcard, Result};

use super::accumulate::{Accumulate, Accumulator};
use super::event::{Event, Millis, Person};
use super::window::Window;

/// Length of the windows, in ms.
pub(crate) const WINDOW: Millis = 10_000;

/// The window in which an event at `time` counts.
pub(crate) fn window(time: Millis) -> Window {
    Window::tumbling(time, WINDOW)
}

/// The person that an event is about: who registers, or who sells.
pub(crate) fn person(event: &Event) -> Option<u64> {
    match event {
        Event::Person(person) => Some(person.id),
        Event::Auction(auction) => Some(auction.seller),
        Event::Bid(_) => None,
    }
}

/// What a person did in one window. Accumulator of the operator keyed by person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewSeller {
    /// The name under which the person registered.
    registered: Option<String>,
    /// Whether the person opened an auction.
    sells: bool,
}

impl Accumulator<Event> for NewSeller {
    fn add(&mut self, event: Event) {
        match event {
            Event::Person(Person { name, .. }) => self.register(name),
            Event::Auction(_) => self.sells = true,
            Event::Bid(_) => {}
        }
    }

    fn merge(&mut self, other: NewSeller) {
        if let Some(name) = other.registered {
            self.register(name);
        }
        self.sells |= other.sells;
    }
}

impl NewSeller {
    fn register(&mut self, name: String) {
        if self.registered.as_ref().is_none_or(|registered| name < *registered) {
            self.registered = Some(name);
        }
    }

    /// The result for the person and the window, once it is complete.
    pub(crate) fn row(self, person: u64, window: Window) -> Option<Row> {
        let name = self.registered.filter(|_| self.sells)?;
        Some(Row { window_start: window.start, person, name })
    }
}

/// A row of the result; unique by window and person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Start of the window in which the person registered and opened an auction.
    pub(crate) window_start: Millis,
    /// The person's id.
    pub(crate) person: u64,
    /// The person's name.
    pub(crate) name: String,
}

impl Row {
    /// `window_start,person,name`
    pub(crate) fn to_line(&self) -> String {
        let Row { window_start, person, name } = self;
        format!("{window_start},{person},{name}")
    }
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    let windows = TumblingWindows::of(Duration::from_millis(WINDOW.unsigned_abs()))?;
    let codec = Postcard::schema("nexmark.seller", 1);
    let sellers = events
        .filter(|event| person(event).is_some())
        .key_by(|event| person(event).unwrap_or_default())
        .window_with("new-sellers", windows, Accumulate::<_, NewSeller>::new(), codec)?;
    Ok(sellers.filter_map(|seller| {
        let row = seller.value.row(seller.key, seller.window.into())?;
        Some(row.to_line())
    }))
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut registered: BTreeMap<(Millis, u64), String> = BTreeMap::new();
    let mut sellers = HashSet::new();
    for (time, event) in events {
        let window_start = window(time).start;
        match event {
            Event::Person(Person { id, name, .. }) => {
                let known = registered.entry((window_start, id)).or_insert_with(|| name.clone());
                if name < *known {
                    *known = name;
                }
            }
            Event::Auction(auction) => {
                sellers.insert((window_start, auction.seller));
            }
            Event::Bid(_) => {}
        }
    }
    let mut lines: Vec<_> = registered
        .into_iter()
        .filter(|(key, _)| sellers.contains(key))
        .map(|((window_start, person), name)| Row { window_start, person, name }.to_line())
        .collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::super::event::Auction;
    use super::*;

    fn registers(id: u64, name: &str) -> Event {
        Event::Person(Person { id, name: name.to_owned(), ..Person::default() })
    }

    fn sells(seller: u64) -> Event {
        Event::Auction(Auction { id: 1, seller, category: 10, expires: 99_000 })
    }

    #[test]
    fn both_have_to_be_in_the_same_window() {
        let events = [
            (10_000, registers(1, "ada")),
            (19_999, sells(1)),
            (20_000, sells(1)),
            (10_500, sells(2)), // before registering
            (10_600, registers(2, "bob")),
            (10_700, sells(2)),
            (19_000, registers(3, "cyd")),
            (20_000, sells(3)), // in the next window
            (10_000, registers(4, "dot")),
            (10_000, sells(5)),
        ];
        assert_eq!(reference(events.into_iter()), ["10000,1,ada", "10000,2,bob"]);
    }

    #[test]
    fn order_does_not_matter() {
        let events = [registers(1, "ada"), sells(1), registers(1, "abe")];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut seller = NewSeller::default();
            for index in order {
                seller.add(events[index].clone());
            }
            let row = seller.row(1, window(5)).unwrap();
            assert_eq!(row.to_line(), "0,1,abe");
        }
        let lines = reference(events.into_iter().map(|event| (5, event)));
        assert_eq!(lines, ["0,1,abe"]);
    }
}
