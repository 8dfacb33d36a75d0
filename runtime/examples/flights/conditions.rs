//! When the weather counts as bad.

use serde::{Deserialize, Serialize};

use super::records::Weather;

/// Wind from which on the weather is bad: 25 miles per hour, in thousandths.
const STRONG_WIND: i64 = 25_000;

/// Gusts from which on the weather is bad: 40 miles per hour, in thousandths.
const STRONG_GUST: i64 = 40_000;

/// Wind that is not believed: 200 miles per hour, in thousandths. The data has one of over 1000, in
/// Newark on 12 February.
const IMPOSSIBLE_WIND: i64 = 200_000;

/// Rain or snow from which on the weather is bad: 0.1 inch within the hour, in hundredths.
const HEAVY_PRECIPITATION: i64 = 10;

/// Visibility below which the weather is bad: 3 miles, in hundredths. Below it pilots may not
/// rely on their eyes.
const POOR_VISIBILITY: i64 = 300;

/// The weather of an hour at an airport, as far as it matters here.
///
/// Should an hour be observed twice, the worse observation counts, which is the greater of the
/// two; so the order in which they come does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Conditions {
    /// Nothing to blame a delay on.
    Fair,
    /// Strong wind, heavy rain or snow, or poor visibility.
    Bad,
}

impl Conditions {
    /// The conditions that an observation tells of. What is missing in it counts as fair.
    pub(crate) fn of(weather: &Weather) -> Self {
        let reaches = |value: Option<i64>, limit| {
            value.is_some_and(|value| (limit..IMPOSSIBLE_WIND).contains(&value))
        };
        let bad = reaches(weather.wind_speed, STRONG_WIND)
            || reaches(weather.wind_gust, STRONG_GUST)
            || weather.precipitation.is_some_and(|inches| inches >= HEAVY_PRECIPITATION)
            || weather.visibility.is_some_and(|miles| miles < POOR_VISIBILITY);
        if bad { Conditions::Bad } else { Conditions::Fair }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calm() -> Weather {
        Weather {
            hour: 0,
            origin: "EWR".to_owned(),
            wind_speed: Some(24_999),
            wind_gust: Some(39_999),
            precipitation: Some(9),
            visibility: Some(300),
        }
    }

    #[test]
    fn each_measure_alone_makes_it_bad() {
        assert_eq!(Conditions::of(&calm()), Conditions::Fair);
        let bad = [
            Weather { wind_speed: Some(25_000), ..calm() },
            Weather { wind_gust: Some(40_000), ..calm() },
            Weather { precipitation: Some(10), ..calm() },
            Weather { visibility: Some(299), ..calm() },
        ];
        for weather in bad {
            assert_eq!(Conditions::of(&weather), Conditions::Bad, "{weather:?}");
        }
    }

    #[test]
    fn what_is_missing_or_impossible_is_fair() {
        let impossible = Weather { wind_speed: Some(1_048_361), ..calm() };
        assert_eq!(Conditions::of(&impossible), Conditions::Fair);
        let missing = Weather {
            wind_speed: None,
            wind_gust: None,
            precipitation: None,
            visibility: None,
            ..calm()
        };
        assert_eq!(Conditions::of(&missing), Conditions::Fair);
    }

    #[test]
    fn bad_is_worse_than_fair() {
        assert_eq!(Conditions::Fair.max(Conditions::Bad), Conditions::Bad);
    }
}
