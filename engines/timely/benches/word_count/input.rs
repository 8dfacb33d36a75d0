//! Words that are made from their number.

use std::cell::Cell;
use std::collections::HashSet;

use weir_engine_timely::{ReadState, Split};
use weir_state_api::{Error, ErrorKind, Result};

/// So many words, of which so many are different.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input {
    /// Words with a number below this come once each, before all others.
    pub(crate) old: u64,
    /// The number behind the last word.
    pub(crate) end: u64,
    /// Different words among those that are not old.
    pub(crate) distinct: u64,
    /// So many of a thousand words behind the old ones are old ones again.
    pub(crate) per_mille: u64,
    /// An error ends the run, after a checkpoint of all words: the next one may have more.
    pub(crate) breaks: bool,
}

impl Input {
    pub(crate) fn new(words: u64, distinct: u64) -> Self {
        Input { old: 0, end: words, distinct, per_mille: 0, breaks: false }
    }

    pub(crate) fn word(&self, number: u64) -> String {
        if number < self.old {
            return format!("old-{number}");
        }
        let mixed = mix(number);
        if self.comes_back(mixed) {
            return format!("old-{}", mixed % self.old);
        }
        format!("word-{}", mixed % self.distinct)
    }

    fn comes_back(&self, mixed: u64) -> bool {
        self.per_mille > 0 && (mixed >> 40) % 1000 < self.per_mille
    }

    /// How many old words come again, each counted once: then their counts are in memory.
    pub(crate) fn come_again(&self) -> usize {
        let mixed = (self.old..self.end).map(mix).filter(|mixed| self.comes_back(*mixed));
        mixed.map(|mixed| mixed % self.old).collect::<HashSet<_>>().len()
    }
}

fn mix(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// What ends a run that can go on with more words.
pub(crate) const BROKEN: &str = "the input is interrupted";

/// The words of one worker.
pub(crate) struct Words {
    pub(crate) next: u64,
    pub(crate) step: u64,
    pub(crate) input: Input,
    /// Checkpoints that have begun since all words were read.
    begun: Cell<u32>,
}

impl Words {
    pub(crate) fn new(input: Input, next: u64, step: u64) -> Self {
        Words { next, step, input, begun: Cell::new(0) }
    }
}

impl Split for Words {
    type Record = String;

    fn read(&mut self, records: &mut Vec<String>, limit: usize) -> Result<ReadState> {
        let to = self.input.end.min(self.next + limit as u64 * self.step);
        let numbers = (self.next..to).step_by(self.step as usize);
        records.extend(numbers.map(|number| self.input.word(number)));
        self.next += records.len() as u64 * self.step;
        if self.next < self.input.end {
            return Ok(ReadState::More);
        }
        match (self.input.breaks, self.begun.get()) {
            (false, _) => Ok(ReadState::Ended),
            (true, 0..2) => Ok(ReadState::Idle),
            // The second begins when the first one is complete.
            (true, _) => Err(Error::new(ErrorKind::Unavailable, BROKEN)),
        }
    }

    fn offset(&self) -> u64 {
        self.begun.set(self.begun.get() + u32::from(self.next >= self.input.end));
        self.next
    }
}
