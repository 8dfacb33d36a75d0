//! A small deterministic generator: the same order of keys in every run, on every machine.

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The numbers `0..count` in a fixed random order (Fisher and Yates).
pub(crate) fn shuffled(count: i64, seed: u64) -> Vec<i64> {
    let mut random = Random(seed);
    let mut numbers: Vec<i64> = (0..count).collect();
    for i in (1..numbers.len()).rev() {
        numbers.swap(i, random.below(i as u64 + 1) as usize);
    }
    numbers
}
