//! Durations on the command line: `500ms`, `1s`, `1.5s`, `2m`.

use std::time::Duration;

/// Reads a duration with its unit; it must be at least a millisecond.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let expected = "expected a number and its unit, as in 500ms, 1.5s or 2m";
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| expected.to_owned())?;
    let seconds = match unit {
        "ms" => number / 1_000.0,
        "s" => number,
        "m" | "min" => number * 60.0,
        _ => return Err(expected.to_owned()),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration >= Duration::from_millis(1) => Ok(duration),
        _ => Err("expected at least 1ms".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "1", "s", "1h", "-1s", "1.2.3s", "0s", "0.1ms", "99999999999999999999999s"]
        {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
