//! The job: from departures and weather to how late each carrier was in each hour, and why.
//!
//! ```text
//! flights ─┬─ with tail number ── aircraft ─┐
//!          └─ without ──────────────────────┼─ airport-hour ── carrier-hour ── lines
//! weather ──────────────────────────────────┘
//! ```

use std::path::Path;
use std::time::Duration;

use weir_runtime::{FileSink, JobGraph, Source, TumblingWindows};
use weir_state_api::{Aggregate, BoxError, Postcard, Result};

use super::aircraft::Aircraft;
use super::airport::{AirportEvent, AirportHour, FlightInWeather};
use super::hourly::{HourlyKey, HourlyRow};
use super::legs::{self, AircraftDay};
use super::records::{Flight, Weather};
use super::timeline;

/// The name of the job, which its checkpoints carry.
pub(crate) const NAME: &str = "flights";

/// Builds the job. Every result is published once, as a line in a file in `output`.
pub(crate) fn build(
    flights: impl Source<Out = Flight>,
    weather: impl Source<Out = Weather>,
    output: &Path,
) -> Result<JobGraph> {
    let graph = JobGraph::new(NAME);
    let flights = graph.source("flights", flights)?;
    let weather = graph.source("weather", weather)?;

    // Of most flights the aircraft is known; its previous leg may be to blame for a delay.
    let with_tail = flights
        .filter(|flight| flight.tail.is_some())
        .key_by(|flight| flight.tail.clone().unwrap_or_default())
        .process("aircraft", Aircraft::open)?;
    // The others stand alone. They need no state, nor a key, which all of them would share.
    let without_tail = flights
        .filter(|flight| flight.tail.is_none())
        .map(|flight| legs::attribute(&mut AircraftDay::default(), &flight));

    let departures = with_tail.map(AirportEvent::Departure);
    let flights_in_weather = departures
        .union(&without_tail.map(AirportEvent::Departure))
        .union(&weather.map(AirportEvent::Observation))
        .key_by(AirportEvent::place)
        .process("airport-hour", AirportHour::open)?;

    let hours = TumblingWindows::of(Duration::from_hours(1))?;
    let rows = flights_in_weather.key_by(|(flight, _)| flight.carrier.clone()).window_with(
        "carrier-hour",
        hours,
        CountFlights,
        Postcard::schema("HourlyRow", 1),
    )?;

    rows.map(|row| {
        let hour = timeline::minutes(row.window.start);
        row.value.line(&HourlyKey { hour, carrier: row.key })
    })
    .sink("lines", FileSink::new(output, |line: &String, out| out.extend(line.bytes())))?;
    Ok(graph)
}

/// Counts the flights of a window.
#[derive(Debug, Clone, Copy)]
struct CountFlights;

impl Aggregate for CountFlights {
    type Input = FlightInWeather;
    type Accumulator = HourlyRow;
    type Output = HourlyRow;

    fn create(&self) -> HourlyRow {
        HourlyRow::default()
    }

    fn add(&self, row: &mut HourlyRow, (flight, weather): FlightInWeather) -> Result<(), BoxError> {
        row.add(&flight, weather);
        Ok(())
    }

    fn merge(&self, mut a: HourlyRow, b: HourlyRow) -> Result<HourlyRow, BoxError> {
        a.merge(&b);
        Ok(a)
    }

    fn output(&self, row: &HourlyRow) -> HourlyRow {
        *row
    }
}
