//! The two kinds of input: departures from New York, and the weather at its airports.

use serde::{Deserialize, Serialize};

use super::rows::{Record, Row, RowError, Rows};
use super::source::Source;
use super::timeline::{self, Minutes};

/// The flights in a source, in its order.
pub(crate) fn flights(source: Source) -> Result<Rows<Flight>, RowError> {
    Rows::new(source)
}

/// The observations of the weather in a source, in its order.
pub(crate) fn weather(source: Source) -> Result<Rows<Weather>, RowError> {
    Rows::new(source)
}

/// A scheduled departure from New York and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flight {
    /// Scheduled departure: the event time of the flight.
    pub(crate) scheduled: Minutes,
    /// Code of the carrier, as `UA`.
    pub(crate) carrier: String,
    /// Flight number, unique per carrier and day at best.
    pub(crate) number: i64,
    /// Tail number of the aircraft, as `N14228`. Some cancelled flights have none.
    pub(crate) tail: Option<String>,
    /// Code of the airport that it leaves: `EWR`, `JFK` or `LGA`.
    pub(crate) origin: String,
    /// Code of the airport that it goes to.
    pub(crate) destination: String,
    /// Whether and when it left; `None` when it was cancelled.
    pub(crate) departure: Option<Departure>,
}

/// How a flight left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Departure {
    /// Minutes after the schedule; negative when early.
    pub(crate) delay: Minutes,
    /// How it arrived; `None` when it did not get to its destination, mostly by being diverted.
    pub(crate) arrival: Option<Arrival>,
}

/// How a flight arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrival {
    /// Minutes after the schedule; negative when early.
    pub(crate) delay: Minutes,
    /// Minutes in the air.
    pub(crate) air_time: Minutes,
}

/// The longest delay or air time that is believed, in minutes: a week. The longest delay of 2013
/// is under a day.
const LONGEST: Minutes = 7 * timeline::DAY;

impl Record for Flight {
    const COLUMNS: &'static [&'static str] = &[
        "year",
        "month",
        "day",
        "dep_time",
        "dep_delay",
        "arr_delay",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "air_time",
        "hour",
        "minute",
    ];

    fn parse(row: &Row<'_>) -> Result<Self, RowError> {
        let minute = row.integer("minute", 0..=59)?;
        Ok(Flight {
            scheduled: hour(row)? + minute,
            carrier: row.code("carrier")?,
            number: row.integer("flight", 0..=99_999)?,
            tail: row.text("tailnum").map(str::to_owned),
            origin: row.code("origin")?,
            destination: row.code("dest")?,
            departure: departure(row)?,
        })
    }
}

/// The start of the hour that a row is about.
fn hour(row: &Row<'_>) -> Result<Minutes, RowError> {
    let year = row.integer("year", timeline::FIRST_YEAR..=2099)?;
    let month = row.integer("month", 1..=12)?;
    let day = row.integer("day", 1..=31)?;
    let hour = row.integer("hour", 0..=23)?;
    timeline::at(year, month, day, hour, 0).ok_or_else(|| {
        let what = format!("month {month} of {year} has no day {day}");
        row.error("day", what, "check year, month and day")
    })
}

/// The departure in a row. A flight that has no time of departure was cancelled.
fn departure(row: &Row<'_>) -> Result<Option<Departure>, RowError> {
    // Hours and minutes, as 517 for 05:17 and 2400 for midnight. Only whether it is there matters.
    if row.optional_integer("dep_time", 0..=2400)?.is_none() {
        return Ok(None);
    }
    let delay = row.integer("dep_delay", -LONGEST..=LONGEST)?;
    let arrival = match row.optional_integer("arr_delay", -LONGEST..=LONGEST)? {
        Some(delay) => Some(Arrival { delay, air_time: row.integer("air_time", 0..=LONGEST)? }),
        None => None,
    };
    Ok(Some(Departure { delay, arrival }))
}

/// The weather at an airport in one hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Weather {
    /// Start of the hour: the event time of the observation.
    pub(crate) hour: Minutes,
    /// Code of the airport: `EWR`, `JFK` or `LGA`.
    pub(crate) origin: String,
    /// Mean speed of the wind in thousandths of a mile per hour.
    pub(crate) wind_speed: Option<i64>,
    /// Speed of gusts in thousandths of a mile per hour; mostly missing when there are none.
    pub(crate) wind_gust: Option<i64>,
    /// Rain or snow that fell within the hour, in hundredths of an inch.
    pub(crate) precipitation: Option<i64>,
    /// How far one can see, in hundredths of a mile; 10 miles is the most that is reported.
    pub(crate) visibility: Option<i64>,
}

impl Record for Weather {
    const COLUMNS: &'static [&'static str] =
        &["origin", "year", "month", "day", "hour", "wind_speed", "wind_gust", "precip", "visib"];

    fn parse(row: &Row<'_>) -> Result<Self, RowError> {
        Ok(Weather {
            hour: hour(row)?,
            origin: row.code("origin")?,
            wind_speed: row.optional_scaled("wind_speed", 3)?,
            wind_gust: row.optional_scaled("wind_gust", 3)?,
            precipitation: row.optional_scaled("precip", 2)?,
            visibility: row.optional_scaled("visib", 2)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// The first two and a cancelled row of the original file.
    const ORIGINAL: &str = "\
year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,\
tailnum,origin,dest,air_time,distance,hour,minute,time_hour
2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
2013,1,2,2400,2359,1,NA,451,NA,B6,739,N527JB,JFK,PSE,NA,1617,23,59,2013-01-03T04:00:00Z
2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,NA,EWR,RDU,NA,416,16,30,2013-01-01T21:00:00Z
";

    fn parse_flights(text: String) -> Vec<Result<Flight, RowError>> {
        flights(Source::new("test", Cursor::new(text)).unwrap()).unwrap().collect()
    }

    #[test]
    fn the_original_file_parses() {
        let read: Vec<_> =
            parse_flights(ORIGINAL.to_owned()).into_iter().map(Result::unwrap).collect();
        let first = Flight {
            scheduled: 5 * 60 + 15,
            carrier: "UA".to_owned(),
            number: 1545,
            tail: Some("N14228".to_owned()),
            origin: "EWR".to_owned(),
            destination: "IAH".to_owned(),
            departure: Some(Departure {
                delay: 2,
                arrival: Some(Arrival { delay: 11, air_time: 227 }),
            }),
        };
        assert_eq!(read[0], first);
        assert_eq!(read[1].scheduled, 2 * timeline::DAY - 1);
        assert_eq!(read[1].departure, Some(Departure { delay: 1, arrival: None }));
        assert_eq!((&read[2].tail, read[2].departure), (&None, None));
    }

    #[test]
    fn impossible_values_are_errors_that_name_the_column() {
        let cases = [
            ("2013,1,1,517", "2012,1,1,517", "year"),
            ("2013,1,1,517", "2013,13,1,517", "month"),
            ("2013,1,1,517", "2013,2,29,517", "day"),
            ("2013,1,1,517", "2013,1,1,9999", "dep_time"),
            (",5,15,", ",24,15,", "hour"),
            (",5,15,", ",5,60,", "minute"),
            (",2,830", ",NA,830", "dep_delay"),
            (",11,UA", ",99999,UA", "arr_delay"),
            (",227,1400", ",NA,1400", "air_time"),
            (",UA,", ",\"U,A\",", "carrier"),
            (",1545,", ",-1,", "flight"),
        ];
        for (good, bad, column) in cases {
            let read = parse_flights(ORIGINAL.replacen(good, bad, 1));
            let error = read[0].as_ref().unwrap_err();
            assert_eq!((error.line, error.column.as_deref()), (Some(2), Some(column)), "{error}");
            assert!(read[1].is_ok() && read[2].is_ok());
        }
    }

    #[test]
    fn weather_is_scaled_to_integers() {
        let text = "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,\
                    precip,pressure,visib,time_hour\n\
                    EWR,2013,1,1,1,39.02,26.06,59.37,270,10.357019999999999,NA,0.03,1012,2.5,\n";
        let source = Source::new("test", Cursor::new(text)).unwrap();
        let read: Result<Vec<_>, _> = weather(source).unwrap().collect();
        let expected = Weather {
            hour: 60,
            origin: "EWR".to_owned(),
            wind_speed: Some(10_357),
            wind_gust: None,
            precipitation: Some(3),
            visibility: Some(250),
        };
        assert_eq!(read.unwrap(), [expected]);
    }

    #[test]
    fn the_files_kept_here_are_complete_and_in_event_time_order() {
        let bytes = include_bytes!("data/flights-2013-01.csv.gz");
        let source = Source::embedded("flights", bytes).unwrap();
        let read: Vec<_> = flights(source).unwrap().map(Result::unwrap).collect();
        assert_eq!(read.len(), 27_004);
        assert!(read.is_sorted_by_key(|flight| flight.scheduled));

        let bytes = include_bytes!("data/weather-2013-01.csv.gz");
        let source = Source::embedded("weather", bytes).unwrap();
        let read: Vec<_> = weather(source).unwrap().map(Result::unwrap).collect();
        assert_eq!(read.len(), 2_226);
        assert!(read.is_sorted_by_key(|weather| weather.hour));
    }

    #[test]
    fn a_compressed_file_that_is_cut_short_ends_with_an_error() {
        let bytes = include_bytes!("data/flights-2013-01.csv.gz");
        let source = Source::embedded("flights", &bytes[..bytes.len() / 2]).unwrap();
        let mut read = flights(source).unwrap();
        let error = read.find_map(Result::err).unwrap();
        assert_eq!((error.line, error.what.as_str()), (None, "the compressed data ends too early"));
        assert!(read.next().is_none());
    }
}
