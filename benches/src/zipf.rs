//! Skewed keys.

use crate::shuffle::Random;

/// Ranks `0..count`, the first ones most often, as in Zipf's law (Gray and others, "Quickly generating
/// billion-record synthetic databases", 1994).
#[derive(Debug)]
pub(crate) struct Zipf {
    count: f64,
    skew: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// A skew between 0 (all alike) and 1, without 1.
    pub(crate) fn new(count: u64, skew: f64) -> Self {
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-skew)).sum::<f64>();
        let (count_f, all) = (count as f64, zeta(count));
        let eta = (1.0 - (2.0 / count_f).powf(1.0 - skew)) / (1.0 - zeta(2) / all);
        Zipf { count: count_f, skew, zeta: all, eta }
    }

    pub(crate) fn next(&self, random: &mut Random) -> u64 {
        let uniform = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.skew) {
            return 1;
        }
        let base = self.eta.mul_add(uniform, 1.0 - self.eta);
        let rank = self.count * base.powf(1.0 / (1.0 - self.skew));
        (rank as u64).min(self.count as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_as_often_as_the_law_says() {
        let zipf = Zipf::new(1_000, 0.99);
        let mut random = Random(42);
        let mut counts = vec![0_u32; 1_000];
        for _ in 0..100_000 {
            counts[zipf.next(&mut random) as usize] += 1;
        }
        let expected = |rank: usize| 100_000.0 / zipf.zeta / (rank as f64 + 1.0).powf(0.99);
        for rank in [0, 1, 9, 99] {
            let (found, expected) = (f64::from(counts[rank]), expected(rank));
            assert!((found / expected - 1.0).abs() < 0.25, "{rank}: {found} of {expected}");
        }
    }
}
