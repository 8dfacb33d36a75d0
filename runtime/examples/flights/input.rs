//! The input of the job, read and put in order once, and replayed as often as one likes.
//!
//! Files are read as a whole before the job starts, for two reasons. A malformed row is found before
//! anything is computed. And the original files are not in the order of event time: sorted, they
//! make sources whose watermarks are exact, so that no row is ever late.
//!
//! To replay the input, its days follow each other again and again: rows of repetition `n` happen
//! `n` times the length of the input later, in whole days. Everything else about them stays.

use std::path::Path;
use std::sync::Arc;

use weir_state_api::{Error, ErrorKind, Result};

use super::records::{self, Flight, Weather};
use super::reference;
use super::replay::{Event, Replay};
use super::rows::{RowError, Rows};
use super::source::Source;
use super::timeline::{self, Minutes};

static JANUARY_FLIGHTS: &[u8] = include_bytes!("data/flights-2013-01.csv.gz");
static JANUARY_WEATHER: &[u8] = include_bytes!("data/weather-2013-01.csv.gz");

/// Splits of each source. More than a job has subtasks do no harm; the number is part of what a
/// checkpoint means, so it does not depend on the parallelism.
const SPLITS: u32 = 8;

/// The rows of both files, by event time.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    flights: Arc<Vec<Flight>>,
    weather: Arc<Vec<Weather>>,
    /// From one repetition to the next.
    period: Minutes,
    repetitions: u64,
    /// How many flights there are in all repetitions, or are read of them.
    flights_in_all: u64,
}

impl Input {
    /// Reads flights and weather; without a file, those of January 2013 that are part of the
    /// program. `-` stands for standard input.
    pub(crate) fn read(flights: Option<&str>, weather: Option<&Path>) -> Result<Self> {
        let flights = match flights {
            None => Source::embedded("the flights of January", JANUARY_FLIGHTS),
            Some("-") => Source::stdin(),
            Some(path) => Source::file(Path::new(path)),
        };
        let weather = match weather {
            None => Source::embedded("the weather of January", JANUARY_WEATHER),
            Some(path) => Source::file(path),
        };
        Ok(Self::new(
            in_order(flights.and_then(records::flights))?,
            in_order(weather.and_then(records::weather))?,
        ))
    }

    fn new(flights: Vec<Flight>, weather: Vec<Weather>) -> Self {
        let times = || {
            let flights = flights.iter().map(Event::time);
            flights.chain(weather.iter().map(Event::time)).map(timeline::day)
        };
        let days = times().max().unwrap_or(0) - times().min().unwrap_or(0) + 1;
        Input {
            period: days * timeline::DAY,
            repetitions: 1,
            flights_in_all: flights.len() as u64,
            flights: Arc::new(flights),
            weather: Arc::new(weather),
        }
    }

    /// The input `repetitions` times, and no more than `limit` flights of it in all.
    #[must_use]
    pub(crate) fn replayed(self, repetitions: u32, limit: Option<u64>) -> Self {
        let repetitions = u64::from(repetitions);
        let flights = self.flights.len() as u64 * repetitions;
        Input { repetitions, flights_in_all: flights.min(limit.unwrap_or(u64::MAX)), ..self }
    }

    /// The number of rows that both sources have.
    pub(crate) fn rows(&self) -> u64 {
        self.flights_in_all + self.weather.len() as u64 * self.repetitions
    }

    /// The flights as a source for the job.
    pub(crate) fn flights(&self) -> Replay<Flight> {
        Replay::new(self.flights.clone(), self.period, self.flights_in_all, SPLITS)
    }

    /// The weather as a source for the job.
    pub(crate) fn weather(&self) -> Replay<Weather> {
        let count = self.weather.len() as u64 * self.repetitions;
        Replay::new(self.weather.clone(), self.period, count, SPLITS)
    }

    /// The lines that the job has to publish, computed without an engine. Nothing that it computes
    /// goes beyond a day, so each repetition is evaluated on its own.
    pub(crate) fn expected(&self) -> impl Iterator<Item = String> + use<> {
        let input = self.clone();
        (0..input.repetitions).flat_map(move |repetition| {
            let before = repetition * input.flights.len() as u64;
            let count = input.flights_in_all.saturating_sub(before);
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let later = input.period * repetition as Minutes;
            let flights = input.flights.iter().take(count).map(|row| Ok(row.later(later)));
            let weather = input.weather.iter().map(|row| Ok(row.later(later)));
            match reference::lines::<std::convert::Infallible>(flights, weather) {
                Ok(lines) => lines,
                Err(never) => match never {},
            }
        })
    }
}

/// All rows, sorted by event time; the first malformed one is an error.
fn in_order<R: super::rows::Record + Event>(rows: Result<Rows<R>, RowError>) -> Result<Vec<R>> {
    let malformed = |error: RowError| {
        Error::new(ErrorKind::InvalidUsage, "the input cannot be used").source(error)
    };
    let mut rows: Vec<R> = rows.map_err(malformed)?.collect::<Result<_, _>>().map_err(malformed)?;
    rows.sort_by_key(Event::time);
    Ok(rows)
}
