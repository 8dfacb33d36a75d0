//! The input: words that are made from their number, in four splits.

use std::collections::BTreeMap;
use std::time::Instant;

use weir_engine_timely::{ReadState, Split};
use weir_state_api::Result;

use crate::options::Options;

/// Splits, whatever the number of workers is.
pub(crate) const SPLITS: u32 = 4;

/// One split: every fourth word.
pub(crate) struct Words {
    split: u64,
    /// Words of the split that were read.
    next: u64,
    end: u64,
    distinct: u64,
    rate: u64,
    since: Instant,
    first: u64,
}

impl Words {
    pub(crate) fn new(options: &Options, split: u32, offset: u64) -> Self {
        let (split, splits) = (u64::from(split), u64::from(SPLITS));
        Words {
            split,
            next: offset,
            end: options.words.saturating_sub(split).div_ceil(splits),
            distinct: options.distinct,
            rate: options.rate,
            since: Instant::now(),
            first: offset,
        }
    }

    /// The end of what may be read by now.
    fn allowed(&self) -> u64 {
        if self.rate == 0 {
            return self.end;
        }
        let due = self.since.elapsed().as_secs_f64() * self.rate as f64;
        self.end.min(self.first + due as u64)
    }
}

impl Split for Words {
    type Record = String;

    fn read(&mut self, records: &mut Vec<String>, limit: usize) -> Result<ReadState> {
        let to = self.allowed().min(self.next + limit as u64);
        let numbers = (self.next..to).map(|n| n * u64::from(SPLITS) + self.split);
        records.extend(numbers.map(|number| word(number, self.distinct)));
        let progressed = to > self.next;
        self.next = to.max(self.next);
        Ok(if self.next == self.end {
            ReadState::Ended
        } else if progressed {
            ReadState::More
        } else {
            ReadState::Idle
        })
    }

    fn offset(&self) -> u64 {
        self.next
    }
}

fn word(number: u64, distinct: u64) -> String {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("word-{}", (mixed ^ (mixed >> 29)) % distinct)
}

/// How often each word comes.
pub(crate) fn counts(options: &Options) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for number in 0..options.words {
        *counts.entry(word(number, options.distinct)).or_default() += 1;
    }
    counts
}
