//! Query 3: local items, who in three states sells items of one category.
//!
//! ```sql
//! SELECT P.name, P.city, P.state, A.id
//! FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
//! WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')
//! ```
//!
//! A join without windows: a person and an auction meet however far apart they are, so both are kept
//! for ever. Should an id register twice, the first registration that arrives stands; the generator
//! gives each id once.
//!
//! One operator, keyed by person ([`LocalItems`]).

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use weir_runtime::{Context, KeyedOperator, Stream};
use weir_state_api::{ListState, Postcard, Result, ValueState};

use super::event::{Event, Millis, Person};

/// The category of the items.
pub(crate) const CATEGORY: u64 = 10;

/// The states whose sellers count.
pub(crate) const STATES: [&str; 3] = ["or", "id", "ca"];

/// Somebody who has registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Seller {
    /// In one of the states.
    Local { name: String, city: String, state: String },
    /// Elsewhere: what they sell does not count.
    Elsewhere,
}

impl From<Person> for Seller {
    fn from(Person { name, city, state, .. }: Person) -> Self {
        if STATES.contains(&state.as_str()) {
            Seller::Local { name, city, state }
        } else {
            Seller::Elsewhere
        }
    }
}

impl Seller {
    /// `name,city,state,auction`
    fn line(&self, auction: u64) -> Option<String> {
        match self {
            Seller::Local { name, city, state } => Some(format!("{name},{city},{state},{auction}")),
            Seller::Elsewhere => None,
        }
    }
}

/// Joins a person with their auctions.
struct LocalItems {
    seller: ValueState<Seller, Postcard>,
    /// Auctions that came before their seller had registered.
    early: ListState<u64>,
}

impl KeyedOperator for LocalItems {
    type Key = u64;
    type In = Event;
    type Out = String;
    type Timer = ();

    fn process(&mut self, event: Event, context: &mut Context<'_, Self>) -> Result<()> {
        let known = self.seller.get(context).wait()?;
        match (event, known) {
            (Event::Person(person), None) => {
                let seller = Seller::from(person);
                self.seller.set(context, &seller)?;
                let early = self.early.get(context).wait()?;
                self.early.clear(context)?;
                early
                    .into_iter()
                    .filter_map(|auction| seller.line(auction))
                    .try_for_each(|line| context.emit(line))
            }
            (Event::Auction(auction), Some(seller)) => {
                seller.line(auction.id).map_or(Ok(()), |line| context.emit(line))
            }
            (Event::Auction(auction), None) => self.early.add(context, &auction.id),
            (Event::Person(_) | Event::Bid(_), _) => Ok(()),
        }
    }
}

/// Who registers, or who sells an item of the category.
fn person(event: &Event) -> Option<u64> {
    match event {
        Event::Person(person) => Some(person.id),
        Event::Auction(auction) if auction.category == CATEGORY => Some(auction.seller),
        Event::Auction(_) | Event::Bid(_) => None,
    }
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    events
        .filter(|event| person(event).is_some())
        .key_by(|event| person(event).unwrap_or_default())
        .process("local-items", |store| {
            Ok(LocalItems {
                seller: store.value_with("seller", Postcard::schema("nexmark.local-seller", 1))?,
                early: store.list("early")?,
            })
        })
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let (mut persons, mut auctions) = (HashMap::new(), Vec::new());
    for (_, event) in events {
        match event {
            Event::Person(person) => {
                persons.entry(person.id).or_insert(person);
            }
            Event::Auction(auction) => auctions.push(auction),
            Event::Bid(_) => {}
        }
    }
    let mut lines = Vec::new();
    for auction in auctions.iter().filter(|auction| auction.category == CATEGORY) {
        if let Some(Person { name, city, state, .. }) = persons.get(&auction.seller)
            && STATES.contains(&state.as_str())
        {
            lines.push(format!("{name},{city},{state},{}", auction.id));
        }
    }
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use weir_runtime::{JobConfig, JobGraph, VecSink, VecSource};

    use super::super::event::Auction;
    use super::*;

    fn registers(id: u64, name: &str, state: &str) -> Event {
        Event::Person(Person { id, name: name.into(), city: "town".into(), state: state.into() })
    }

    fn sells(seller: u64, id: u64, category: u64) -> Event {
        Event::Auction(Auction { id, seller, category, expires: 99_000 })
    }

    #[test]
    fn sellers_in_the_states_with_items_of_the_category() {
        let events = vec![
            (1, sells(1, 100, 10)), // before registering
            (2, registers(1, "ada", "or")),
            (3, sells(1, 101, 10)),
            (4, sells(1, 102, 11)),
            (5, registers(2, "bob", "wa")),
            (6, sells(2, 103, 10)),
            (7, sells(3, 104, 10)), // never registers
        ];
        let expected = ["ada,town,or,100", "ada,town,or,101"];
        assert_eq!(reference(events.clone().into_iter()), expected);

        let graph = JobGraph::new("test");
        let lines = VecSink::default();
        let events = graph.source("events", VecSource::with_splits([events])).unwrap();
        job(&events).unwrap().sink("lines", lines.clone()).unwrap();
        weir_runtime::run(&graph, JobConfig::default()).unwrap();
        let mut lines = lines.take();
        lines.sort();
        assert_eq!(lines, expected);
    }
}
