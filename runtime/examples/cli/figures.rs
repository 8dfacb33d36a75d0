//! Figures for people.

use std::time::Duration;

/// `1234567` as `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in the largest unit that fits.
pub(crate) fn bytes(number: u64) -> String {
    let number = number as f64;
    match number {
        _ if number < 1e3 => format!("{number} B"),
        _ if number < 1e6 => format!("{:.1} kB", number / 1e3),
        _ if number < 1e9 => format!("{:.1} MB", number / 1e6),
        _ => format!("{:.2} GB", number / 1e9),
    }
}

/// Milliseconds, more exactly when they are few.
pub(crate) fn millis(millis: f64) -> String {
    match millis {
        _ if millis < 1.0 => format!("{millis:.3} ms"),
        _ if millis < 10.0 => format!("{millis:.2} ms"),
        _ => format!("{millis:.0} ms"),
    }
}

/// A duration in milliseconds, in thousandths.
pub(crate) fn in_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500), "1.5 kB");
        assert_eq!(bytes(2_500_000), "2.5 MB");
        assert_eq!(millis(0.0123), "0.012 ms");
        assert_eq!(millis(1.234), "1.23 ms");
        assert_eq!(millis(123.4), "123 ms");
        assert_eq!(in_millis(Duration::from_nanos(1_234_567)), 1.235);
    }
}
