//! Bids counted by price, for queries 15 to 17.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How many ranks of prices there are: below 100, below 10,000, and from there on; in whole units.
pub(crate) const RANKS: usize = 3;

/// The rank of a price in cents.
pub(crate) fn rank(price: u64) -> usize {
    match price {
        0..10_000 => 0,
        10_000..1_000_000 => 1,
        _ => 2,
    }
}

/// A count of things that bids are about, all together and by rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// All of them; one that is in several ranks counts once.
    pub(crate) all: u64,
    /// Those of each rank.
    pub(crate) ranks: [u64; RANKS],
}

impl Counts {
    /// Counts a bid.
    pub(crate) fn add(&mut self, price: u64) {
        self.all += 1;
        self.ranks[rank(price)] += 1;
    }

    /// Counts what another one has counted.
    pub(crate) fn merge(&mut self, other: Counts) {
        self.all += other.all;
        for (own, others) in self.ranks.iter_mut().zip(other.ranks) {
            *own += others;
        }
    }
}

/// `all,rank 1,rank 2,rank 3`
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third] = self.ranks;
        write!(f, "{},{first},{second},{third}", self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_end_where_the_statements_say() {
        let mut counts = Counts::default();
        [0, 9_999, 10_000, 999_999, 1_000_000].into_iter().for_each(|price| counts.add(price));
        let mut twice = counts;
        twice.merge(counts);
        assert_eq!((counts.to_string(), twice.all), ("5,2,2,1".into(), 10));
    }
}
