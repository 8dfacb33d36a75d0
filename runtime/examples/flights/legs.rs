//! Whose fault a late departure is: the aircraft's previous leg, or the flight itself.
//!
//! The data has departures from New York only, so the previous leg of an aircraft is its last
//! departure from there on the same day; that it flew back in between is certain, when is not. The
//! rule is a heuristic:
//!
//! - The *previous leg* is the one that left last before this one did, of those of the same day
//!   that were scheduled for an earlier minute. A cancelled flight is no leg.
//! - To be back, the aircraft needs the time of a *round trip*: twice the previous leg's time in
//!   the air and [`TAXI`], and a [`TURNAROUND`] at either end.
//! - What the schedule leaves beyond that between the two departures is *slack*, which absorbs a
//!   late arrival. What is left of the previous leg's arrival delay is carried over.
//! - No more is carried over than the flight is late; the rest of its delay is its own. A flight
//!   without a previous leg, or whose previous leg never arrived, has only delay of its own.

use serde::{Deserialize, Serialize};

use super::records::{Arrival, Departure, Flight};
use super::timeline::{self, Minutes};

/// What a flight spends on taxiways, both ends together, in minutes.
pub(crate) const TAXI: Minutes = 25;

/// What an aircraft spends at the gate between two flights at least, in minutes.
pub(crate) const TURNAROUND: Minutes = 40;

/// The legs of an aircraft on one day: the state that is kept per tail number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AircraftDay {
    /// The day, counted from 0; the legs of an earlier day are dropped when a later one begins.
    day: i64,
    /// The legs so far, in the order in which they were given. A handful at most.
    legs: Vec<Leg>,
}

impl AircraftDay {
    /// The point in event time from which on the state is not needed any more: the end of the day.
    pub(crate) fn expires(&self) -> Minutes {
        (self.day + 1) * timeline::DAY
    }
}

/// A flight that left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Leg {
    scheduled: Minutes,
    number: i64,
    departure: Departure,
}

impl Leg {
    /// When it left.
    fn left(&self) -> Minutes {
        self.scheduled + self.departure.delay
    }
}

/// A flight of which is known why it is late.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttributedFlight {
    /// Scheduled departure.
    pub(crate) scheduled: Minutes,
    /// Code of the carrier.
    pub(crate) carrier: String,
    /// Code of the airport that it leaves.
    pub(crate) origin: String,
    /// Whether the aircraft is known by its tail number.
    pub(crate) has_tail: bool,
    /// How late it left, and why; `None` when it was cancelled.
    pub(crate) delay: Option<Delay>,
}

/// How late a flight left, by cause. A flight that left early or on time has no delay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delay {
    /// Whether there is a previous leg and it arrived.
    pub(crate) has_previous_leg: bool,
    /// Minutes carried over from the previous leg.
    pub(crate) previous_leg: Minutes,
    /// Minutes that the flight itself is to blame for.
    pub(crate) own: Minutes,
}

/// Attributes the delay of a flight, given the state of its aircraft, and adds the flight to it.
///
/// The flights of an aircraft must be given in event-time order; those scheduled for the same
/// minute may come in any. A flight without tail number neither reads nor changes the state.
pub(crate) fn attribute(state: &mut AircraftDay, flight: &Flight) -> AttributedFlight {
    let delay = flight.departure.map(|departure| {
        if flight.tail.is_none() {
            return split(departure.delay, None);
        }
        let day = timeline::day(flight.scheduled);
        if state.day != day {
            *state = AircraftDay { day, legs: Vec::new() };
        }
        let leg = Leg { scheduled: flight.scheduled, number: flight.number, departure };
        let delay = split(departure.delay, carried_over(&state.legs, &leg));
        state.legs.push(leg);
        delay
    });
    AttributedFlight {
        scheduled: flight.scheduled,
        carrier: flight.carrier.clone(),
        origin: flight.origin.clone(),
        has_tail: flight.tail.is_some(),
        delay,
    }
}

/// What the arrival of the previous leg leaves too little time for, in minutes; `None` when there
/// is no previous leg or it did not arrive.
fn carried_over(legs: &[Leg], leg: &Leg) -> Option<Minutes> {
    let previous = legs
        .iter()
        .filter(|earlier| earlier.scheduled < leg.scheduled && earlier.left() < leg.left())
        // The data has aircraft that leave twice in a minute; the number makes the choice the same
        // in whatever order the two came.
        .max_by_key(|earlier| (earlier.left(), earlier.scheduled, earlier.number))?;
    let Arrival { delay, air_time } = previous.departure.arrival?;
    let round_trip = 2 * (air_time + TAXI + TURNAROUND);
    let slack = (leg.scheduled - previous.scheduled - round_trip).max(0);
    Some((delay - slack).max(0))
}

/// Splits a delay into what was carried over and the rest.
fn split(delay: Minutes, carried_over: Option<Minutes>) -> Delay {
    let delay = delay.max(0);
    let previous_leg = carried_over.unwrap_or(0).min(delay);
    let own = delay - previous_leg;
    Delay { has_previous_leg: carried_over.is_some(), previous_leg, own }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flight that is `delay` late and arrives `arrival` late after 100 minutes in the air: the
    /// round trip takes 330 minutes.
    fn flight(scheduled: Minutes, delay: Minutes, arrival: Option<Minutes>) -> Flight {
        let arrival = arrival.map(|delay| Arrival { delay, air_time: 100 });
        Flight {
            scheduled,
            carrier: "UA".to_owned(),
            number: scheduled,
            tail: Some("N1".to_owned()),
            origin: "EWR".to_owned(),
            destination: "IAH".to_owned(),
            departure: Some(Departure { delay, arrival }),
        }
    }

    fn cancelled(scheduled: Minutes) -> Flight {
        Flight { departure: None, ..flight(scheduled, 0, None) }
    }

    /// The delays by cause (previous leg, own) of flights of one aircraft; `None` if cancelled.
    fn causes(flights: &[Flight]) -> Vec<Option<(Minutes, Minutes)>> {
        let mut state = AircraftDay::default();
        let attributed = flights.iter().map(|flight| attribute(&mut state, flight));
        attributed.map(|flight| flight.delay.map(|delay| (delay.previous_leg, delay.own))).collect()
    }

    #[test]
    fn slack_absorbs_a_late_arrival() {
        let second = |gap: Minutes, delay| {
            causes(&[flight(300, 50, Some(60)), flight(300 + gap, delay, Some(0))])[1].unwrap()
        };
        assert_eq!(second(330, 70), (60, 10));
        assert_eq!(second(340, 70), (50, 20));
        assert_eq!(second(390, 70), (0, 70));
        assert_eq!(second(900, 70), (0, 70));
        // Less time than a round trip is no slack, but no further delay either.
        assert_eq!(second(200, 70), (60, 10));
    }

    #[test]
    fn no_more_is_carried_over_than_the_flight_is_late() {
        let second =
            |delay| causes(&[flight(300, 50, Some(60)), flight(630, delay, Some(0))])[1].unwrap();
        assert_eq!(second(20), (20, 0));
        assert_eq!(second(0), (0, 0));
        assert_eq!(second(-5), (0, 0));
    }

    #[test]
    fn an_early_arrival_carries_nothing_over() {
        assert_eq!(causes(&[flight(300, 0, Some(-9)), flight(630, 5, None)])[1], Some((0, 5)));
    }

    #[test]
    fn without_a_previous_leg_the_delay_is_the_flights_own() {
        let mut state = AircraftDay::default();
        let first = attribute(&mut state, &flight(300, 7, None)).delay;
        assert_eq!(first, Some(Delay { has_previous_leg: false, previous_leg: 0, own: 7 }));
        // The first never arrived.
        let second = attribute(&mut state, &flight(630, 9, Some(90))).delay;
        assert_eq!(second, Some(Delay { has_previous_leg: false, previous_leg: 0, own: 9 }));
        let third = attribute(&mut state, &flight(960, 100, None)).delay;
        assert_eq!(third, Some(Delay { has_previous_leg: true, previous_leg: 90, own: 10 }));
    }

    #[test]
    fn a_cancelled_flight_is_no_leg() {
        let flights = [flight(300, 50, Some(60)), cancelled(400), flight(630, 70, Some(0))];
        assert_eq!(causes(&flights), [Some((0, 50)), None, Some((60, 10))]);
    }

    #[test]
    fn a_new_day_forgets_the_legs() {
        let mut state = AircraftDay::default();
        attribute(&mut state, &flight(timeline::DAY - 10, 50, Some(300)));
        assert_eq!(state.expires(), timeline::DAY);
        let next = attribute(&mut state, &flight(timeline::DAY, 70, Some(0)));
        assert_eq!(next.delay, Some(Delay { has_previous_leg: false, previous_leg: 0, own: 70 }));
        assert_eq!((state.expires(), state.legs.len()), (2 * timeline::DAY, 1));
    }

    #[test]
    fn a_leg_that_left_later_is_not_the_previous_one() {
        // The first, due before the second, left after it.
        let flights = [flight(300, 500, Some(500)), flight(400, 60, Some(0))];
        assert_eq!(causes(&flights)[1], Some((0, 60)));
    }

    #[test]
    fn flights_of_the_same_minute_may_come_in_any_order() {
        let first = flight(300, 10, Some(40));
        let twin = Flight { number: 1, ..flight(630, 30, Some(20)) };
        let other = Flight { number: 2, ..flight(630, 30, Some(90)) };
        let last = flight(960, 100, None);
        let one = causes(&[first.clone(), twin.clone(), other.clone(), last.clone()]);
        let two = causes(&[first, other, twin, last]);
        assert_eq!(one, [Some((0, 10)), Some((30, 0)), Some((30, 0)), Some((90, 10))]);
        assert_eq!(one, two);
    }

    #[test]
    fn a_flight_without_tail_number_stands_alone() {
        let mut state = AircraftDay::default();
        attribute(&mut state, &flight(300, 50, Some(60)));
        let before = state.clone();
        let unknown = Flight { tail: None, ..flight(630, 70, Some(0)) };
        let attributed = attribute(&mut state, &unknown);
        assert!(!attributed.has_tail);
        assert_eq!(
            attributed.delay,
            Some(Delay { has_previous_leg: false, previous_leg: 0, own: 70 })
        );
        assert_eq!(state, before);
    }
}
