//! Medians and what can be said about them.

/// The median with the interval that holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Median {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The median of samples, with the smallest and the largest. There must be one at least.
pub(crate) fn median_of(mut samples: Vec<f64>) -> Median {
    samples.sort_by(f64::total_cmp);
    Median { value: middle(&samples), low: samples[0], high: samples[samples.len() - 1] }
}

/// The median of paired ratios, with an interval that holds the true median with 95 % confidence,
/// whatever the distribution (the sign test's); with fewer than six samples their whole range,
/// which is the best that can be said.
pub(crate) fn median_with_confidence(mut samples: Vec<f64>) -> Median {
    samples.sort_by(f64::total_cmp);
    let count = samples.len();
    let cut = tail(count);
    Median { value: middle(&samples), low: samples[cut], high: samples[count - 1 - cut] }
}

/// How many samples may be cut off at each end so that the rest still holds the median with 95 %.
fn tail(count: usize) -> usize {
    let mut outside = 0.0;
    let mut chance = 0.5f64.powi(count as i32);
    for cut in 0..count / 2 {
        outside += chance;
        if 2.0 * outside > 0.05 {
            return cut.saturating_sub(1);
        }
        chance *= (count - cut) as f64 / (cut + 1) as f64;
    }
    (count / 2).saturating_sub(1)
}

/// The geometric mean; `None` of nothing.
pub(crate) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0u32);
    for value in values {
        sum += value.ln();
        count += 1;
    }
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

/// A quantile of samples.
pub(crate) fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len().saturating_sub(1) as f64 * part).round() as usize;
    sorted.get(place).copied().unwrap_or_default()
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_intervals_are_those_of_the_sign_test() {
        // From tables of the binomial distribution: ranks cut off at each end.
        assert_eq!([1, 5, 6, 8, 9, 12, 20].map(tail), [0, 0, 0, 0, 1, 2, 5]);
        let median = median_with_confidence((1..=9).rev().map(f64::from).collect());
        assert_eq!(median, Median { value: 5.0, low: 2.0, high: 8.0 });
    }

    #[test]
    fn means() {
        assert_eq!(median_of(vec![4.0, 1.0, 3.0, 2.0]).value, 2.5);
        assert_eq!(geometric_mean([1.0, 4.0]), Some(2.0));
        assert_eq!(geometric_mean([]), None);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.0, 0.99, 1.0].map(|part| quantile(&hundred, part)), [1.0, 99.0, 100.0]);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
