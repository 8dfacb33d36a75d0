//! A few rows of the output for people.

use std::fmt::Write;

use super::hourly::HEADER;

/// The columns that are shown, and what to call them.
const COLUMNS: [(&str, &str); 7] = [
    ("hour", "hour"),
    ("carrier", "carrier"),
    ("flights", "flights"),
    ("late", "late"),
    ("delay_previous_leg", "previous leg"),
    ("delay_own_bad_weather", "bad weather"),
    ("delay_own", "own"),
];

/// The `count` rows with the most minutes of delay, worst first, as a table.
pub(crate) fn worst_hours<'a>(lines: impl IntoIterator<Item = &'a String>, count: usize) -> String {
    let mut lines: Vec<&String> = lines.into_iter().collect();
    lines.sort_by_key(|line| std::cmp::Reverse(delay(line)));
    let mut text = String::new();
    row(&mut text, |(_, title)| title.to_owned());
    for line in lines.into_iter().take(count) {
        row(&mut text, |(column, _)| field(line, column).replace('T', " "));
    }
    text
}

fn row(text: &mut String, cell: impl Fn((&'static str, &'static str)) -> String) {
    let cells = COLUMNS.map(cell);
    let [hour, rest @ ..] = &cells;
    // Writing into a string cannot fail.
    write!(text, "  {hour:16}").unwrap_or_default();
    for cell in rest {
        write!(text, "  {cell:>12}").unwrap_or_default();
    }
    text.push('\n');
}

/// All minutes of delay in a line.
fn delay(line: &str) -> i64 {
    let minutes = |column| field(line, column).parse().unwrap_or(0);
    minutes("delay_previous_leg") + minutes("delay_own_bad_weather") + minutes("delay_own")
}

/// A column of a line; empty when there is none.
fn field<'a>(line: &'a str, column: &str) -> &'a str {
    let position = HEADER.split(',').position(|name| name == column);
    position.and_then(|position| line.split(',').nth(position)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_hours_come_first() {
        let lines =
            ["2013-01-01T05:00,AA,4,0,0,0,0,1,0,2,0", "2013-01-31T23:00,B6,2,0,0,0,2,2,7,13,1"];
        let table = worst_hours(&lines.map(str::to_owned), 9);
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows[0],
            ["hour", "carrier", "flights", "late", "previous", "leg", "bad", "weather", "own"]
        );
        assert_eq!(rows[1], ["2013-01-31", "23:00", "B6", "2", "2", "7", "1", "13"]);
        assert_eq!(rows[2], ["2013-01-01", "05:00", "AA", "4", "1", "0", "0", "2"]);
    }
}
