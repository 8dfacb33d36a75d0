//! The same job without an engine: one thread, everything in memory. What the engine computes is
//! checked against it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::conditions::Conditions;
use super::hourly::{HourlyKey, HourlyRow};
use super::legs::{self, AircraftDay};
use super::records::{Flight, Weather};
use super::timeline;

/// The lines that the job has to publish for its inputs, in order, without header.
///
/// The inputs may fail, as when they are read from files; the first error is returned. Their order
/// does not matter.
pub(crate) fn lines<E>(
    flights: impl IntoIterator<Item = Result<Flight, E>>,
    weather: impl IntoIterator<Item = Result<Weather, E>>,
) -> Result<BTreeSet<String>, E> {
    let mut conditions = HashMap::new();
    for observation in weather {
        let observation = observation?;
        let observed = Conditions::of(&observation);
        let worst = conditions.entry((observation.origin, observation.hour)).or_insert(observed);
        *worst = observed.max(*worst);
    }

    let mut flights = flights.into_iter().collect::<Result<Vec<_>, E>>()?;
    flights.sort_by_key(|flight| flight.scheduled);

    // Flights without tail number share a state, which they leave alone.
    let mut aircraft: HashMap<Option<String>, AircraftDay> = HashMap::new();
    let mut rows: BTreeMap<HourlyKey, HourlyRow> = BTreeMap::new();
    for flight in flights {
        let state = aircraft.entry(flight.tail.clone()).or_default();
        let flight = legs::attribute(state, &flight);
        let place = (flight.origin.clone(), timeline::hour(flight.scheduled));
        let weather = conditions.get(&place).copied();
        rows.entry(HourlyKey::of(&flight)).or_default().add(&flight, weather);
    }
    Ok(rows.iter().map(|(key, row)| row.line(key)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::records;
    use super::super::rows::RowError;
    use super::super::source::Source;
    use super::*;

    fn january_flights() -> impl Iterator<Item = Result<Flight, RowError>> {
        let bytes = include_bytes!("data/flights-2013-01.csv.gz");
        records::flights(Source::embedded("flights", bytes).unwrap()).unwrap()
    }

    fn january_weather() -> impl Iterator<Item = Result<Weather, RowError>> {
        let bytes = include_bytes!("data/weather-2013-01.csv.gz");
        records::weather(Source::embedded("weather", bytes).unwrap()).unwrap()
    }

    /// The sums of the columns from the third on.
    fn totals(lines: &BTreeSet<String>) -> Vec<i64> {
        let mut totals = vec![0; 9];
        for line in lines {
            for (total, field) in totals.iter_mut().zip(line.split(',').skip(2)) {
                *total += field.parse::<i64>().unwrap();
            }
        }
        totals
    }

    #[test]
    fn january() {
        let lines = lines(january_flights(), january_weather()).unwrap();
        assert_eq!(lines.len(), 5_133);
        assert_eq!(lines.first().unwrap(), "2013-01-01T05:00,AA,1,0,0,0,0,1,0,2,0");
        assert_eq!(lines.last().unwrap(), "2013-01-31T23:00,B6,2,0,0,0,2,2,0,13,0");
        let totals = totals(&lines);
        assert_eq!(totals, [27_004, 521, 155, 52, 6_414, 9_662, 29_920, 257_099, 54_391]);
    }

    #[test]
    fn the_order_of_the_inputs_does_not_matter() {
        let reversed = lines(
            january_flights().collect::<Vec<_>>().into_iter().rev(),
            january_weather().collect::<Vec<_>>().into_iter().rev(),
        );
        assert_eq!(reversed, lines(january_flights(), january_weather()));
    }

    #[test]
    fn an_error_in_an_input_is_returned() {
        let flights = [Err("broken flight")];
        let weather = [Err("broken weather")];
        assert_eq!(lines(flights, []), Err("broken flight"));
        assert_eq!(lines([], weather), Err("broken weather"));
    }
}
