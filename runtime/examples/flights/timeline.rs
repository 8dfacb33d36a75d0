//! Event time: minutes on New York's local clock since 2013-01-01 00:00.
//!
//! A flight happens at its scheduled departure, an observation of the weather at the start of its
//! hour. Both files give these as local year, month, day and hour, so nothing is converted, and a
//! day has 24 hours whatever the clocks do. In the nights of the changes (10 March and 3 November
//! 2013) that is off by an hour for a moment: the hour that is skipped has no rows, the hour that
//! is repeated has two observations of the weather. No flight is scheduled in either.

/// A point in event time, or a length of time, in minutes. Points are never negative.
pub(crate) type Minutes = i64;

/// Minutes in an hour.
pub(crate) const HOUR: Minutes = 60;

/// Minutes in a day.
pub(crate) const DAY: Minutes = 24 * HOUR;

/// The year in which event time starts.
pub(crate) const FIRST_YEAR: i64 = 2013;

/// The point in event time at a local date and time; `None` when there is no such date or time,
/// or it is before event time starts. Months and days count from 1.
pub(crate) fn at(year: i64, month: i64, day: i64, hour: i64, minute: i64) -> Option<Minutes> {
    let valid = year >= FIRST_YEAR
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute);
    if !valid {
        return None;
    }
    let years: i64 = (FIRST_YEAR..year).map(days_in_year).sum();
    let months: i64 = (1..month).map(|month| days_in_month(year, month)).sum();
    Some((years + months + day - 1) * DAY + hour * HOUR + minute)
}

/// `time` in milliseconds, as the runtime counts event time.
pub(crate) fn millis(time: Minutes) -> i64 {
    time * 60_000
}

/// The minute that a time in milliseconds is in.
pub(crate) fn minutes(millis: i64) -> Minutes {
    millis.div_euclid(60_000)
}

/// The day, counted from 0, that `time` is in.
pub(crate) fn day(time: Minutes) -> i64 {
    time.div_euclid(DAY)
}

/// The start of the hour that `time` is in.
pub(crate) fn hour(time: Minutes) -> Minutes {
    time - time.rem_euclid(HOUR)
}

/// `time` as `YYYY-MM-DDTHH:MM`, which sorts as the time does.
pub(crate) fn text(time: Minutes) -> String {
    let mut days = day(time);
    let mut year = FIRST_YEAR;
    while days >= days_in_year(year) {
        days -= days_in_year(year);
        year += 1;
    }
    let mut month = 1;
    while days >= days_in_month(year, month) {
        days -= days_in_month(year, month);
        month += 1;
    }
    let (day, minutes) = (days + 1, time.rem_euclid(DAY));
    let (hour, minute) = (minutes / HOUR, minutes % HOUR);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}")
}

fn is_leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

fn days_in_year(year: i64) -> i64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_at_are_inverse_for_every_day() {
        let mut expected = 0;
        for year in 2013..=2017 {
            for month in 1..=12 {
                for day in 1..=days_in_month(year, month) {
                    let time = at(year, month, day, 5, 7).unwrap();
                    assert_eq!(time, expected * DAY + 5 * HOUR + 7);
                    assert_eq!(text(time), format!("{year}-{month:02}-{day:02}T05:07"));
                    expected += 1;
                }
            }
        }
    }

    #[test]
    fn dates_and_times_that_do_not_exist() {
        assert_eq!(at(2012, 12, 31, 0, 0), None);
        assert_eq!(at(2013, 2, 29, 0, 0), None);
        assert!(at(2016, 2, 29, 0, 0).is_some());
        assert_eq!(at(2013, 13, 1, 0, 0), None);
        assert_eq!(at(2013, 1, 0, 0, 0), None);
        assert_eq!(at(2013, 1, 1, 24, 0), None);
        assert_eq!(at(2013, 1, 1, 0, 60), None);
    }

    #[test]
    fn hours_and_days_contain_their_start() {
        assert_eq!(hour(DAY + 59), DAY);
        assert_eq!(hour(DAY + HOUR), DAY + HOUR);
        assert_eq!((day(DAY - 1), day(DAY)), (0, 1));
    }
}
