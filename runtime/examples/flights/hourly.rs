//! The result: for every carrier and hour, how many flights were late by how much, and why.

use serde::{Deserialize, Serialize};

use super::conditions::Conditions;
use super::legs::AttributedFlight;
use super::timeline::{self, Minutes};

/// The names of the columns of [`HourlyRow::line`].
///
/// - `hour`: start of the hour of the scheduled departures, New York time, `YYYY-MM-DDTHH:MM`
/// - `carrier`: code of the carrier
/// - the fields of [`HourlyRow`], in their order
pub(crate) const HEADER: &str = "hour,carrier,flights,cancelled,no_tail,no_weather,\
    with_previous_leg,late,delay_previous_leg,delay_own,delay_own_bad_weather";

/// What a row is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct HourlyKey {
    /// Start of the hour of the scheduled departures.
    pub(crate) hour: Minutes,
    /// Code of the carrier.
    pub(crate) carrier: String,
}

impl HourlyKey {
    /// The row that a flight counts in.
    pub(crate) fn of(flight: &AttributedFlight) -> Self {
        HourlyKey { hour: timeline::hour(flight.scheduled), carrier: flight.carrier.clone() }
    }
}

/// The flights of one carrier and hour, counted.
///
/// All fields are sums of integers: flights may be added and rows be merged in any order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HourlyRow {
    /// Flights scheduled. The next four are counts out of these.
    pub(crate) flights: u64,
    /// Flights that never left.
    pub(crate) cancelled: u64,
    /// Flights whose aircraft is not known, nor therefore a previous leg.
    pub(crate) no_tail: u64,
    /// Flights for whose hour there is no observation of the weather, which thus counts as fair.
    pub(crate) no_weather: u64,
    /// Flights that left and whose aircraft had a previous leg that arrived.
    pub(crate) with_previous_leg: u64,
    /// Flights that left at least a minute late. Their delay is the sum of the next three.
    pub(crate) late: u64,
    /// Minutes of delay carried over from previous legs, whatever the weather.
    pub(crate) delay_previous_leg: Minutes,
    /// Minutes of delay that flights are to blame for themselves, in fair weather.
    pub(crate) delay_own: Minutes,
    /// Minutes of delay that flights would be to blame for themselves, but for the bad weather.
    pub(crate) delay_own_bad_weather: Minutes,
}

impl HourlyRow {
    /// Adds a flight and the weather in the hour of its schedule at its origin, if observed.
    pub(crate) fn add(&mut self, flight: &AttributedFlight, weather: Option<Conditions>) {
        self.flights += 1;
        self.cancelled += u64::from(flight.delay.is_none());
        self.no_tail += u64::from(!flight.has_tail);
        self.no_weather += u64::from(weather.is_none());
        let Some(delay) = flight.delay else { return };
        self.with_previous_leg += u64::from(delay.has_previous_leg);
        self.late += u64::from(delay.previous_leg + delay.own > 0);
        self.delay_previous_leg += delay.previous_leg;
        match weather {
            Some(Conditions::Bad) => self.delay_own_bad_weather += delay.own,
            Some(Conditions::Fair) | None => self.delay_own += delay.own,
        }
    }

    /// Adds the flights of another row.
    pub(crate) fn merge(&mut self, other: &HourlyRow) {
        self.flights += other.flights;
        self.cancelled += other.cancelled;
        self.no_tail += other.no_tail;
        self.no_weather += other.no_weather;
        self.with_previous_leg += other.with_previous_leg;
        self.late += other.late;
        self.delay_previous_leg += other.delay_previous_leg;
        self.delay_own += other.delay_own;
        self.delay_own_bad_weather += other.delay_own_bad_weather;
    }

    /// The row as a line of CSV under [`HEADER`], without line break. Lines sort as their keys do.
    pub(crate) fn line(&self, key: &HourlyKey) -> String {
        let HourlyRow {
            flights,
            cancelled,
            no_tail,
            no_weather,
            with_previous_leg,
            late,
            delay_previous_leg,
            delay_own,
            delay_own_bad_weather,
        } = self;
        let hour = timeline::text(key.hour);
        let carrier = &key.carrier;
        format!(
            "{hour},{carrier},{flights},{cancelled},{no_tail},{no_weather},{with_previous_leg},\
             {late},{delay_previous_leg},{delay_own},{delay_own_bad_weather}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::legs::Delay;
    use super::*;

    fn flight(delay: Option<(Minutes, Minutes)>) -> AttributedFlight {
        let delay = delay.map(|(previous_leg, own)| Delay {
            has_previous_leg: previous_leg > 0,
            previous_leg,
            own,
        });
        AttributedFlight {
            scheduled: timeline::DAY + 5 * timeline::HOUR + 59,
            carrier: "UA".to_owned(),
            origin: "EWR".to_owned(),
            has_tail: delay.is_some(),
            delay,
        }
    }

    fn flights() -> Vec<(AttributedFlight, Option<Conditions>)> {
        vec![
            (flight(None), Some(Conditions::Bad)),
            (flight(Some((0, 0))), None),
            (flight(Some((10, 5))), Some(Conditions::Fair)),
            (flight(Some((20, 7))), Some(Conditions::Bad)),
            (flight(Some((0, 1))), None),
        ]
    }

    fn row(flights: &[(AttributedFlight, Option<Conditions>)]) -> HourlyRow {
        let mut row = HourlyRow::default();
        for (flight, weather) in flights {
            row.add(flight, *weather);
        }
        row
    }

    #[test]
    fn every_flight_counts_under_its_causes() {
        let expected = HourlyRow {
            flights: 5,
            cancelled: 1,
            no_tail: 1,
            no_weather: 2,
            with_previous_leg: 2,
            late: 3,
            delay_previous_leg: 30,
            delay_own: 6,
            delay_own_bad_weather: 7,
        };
        assert_eq!(row(&flights()), expected);
    }

    #[test]
    fn rows_merge_to_the_row_of_all_flights() {
        let flights = flights();
        for cut in 0..=flights.len() {
            let (left, right) = flights.split_at(cut);
            let mut merged = row(right);
            merged.merge(&row(left));
            assert_eq!(merged, row(&flights));
        }
    }

    #[test]
    fn a_line_has_the_columns_of_the_header() {
        let flights = flights();
        let line = row(&flights).line(&HourlyKey::of(&flights[0].0));
        assert_eq!(line, "2013-01-02T05:00,UA,5,1,1,2,2,3,30,6,7");
        assert_eq!(line.split(',').count(), HEADER.split(',').count());
        assert!(!HEADER.contains(' '));
    }
}
