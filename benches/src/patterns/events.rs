//! What arrives at an operator: the same events for every contestant.

use serde::{Deserialize, Serialize};
use weir_state_api::Millis;

use crate::shuffle::Random;
use crate::zipf::Zipf;

/// How often keys come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Skew {
    /// All alike.
    Uniform,
    /// As in Zipf's law with the exponent 0.99.
    Zipf,
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) key: i64,
    /// Counts up from 0; also when it arrives, in milliseconds.
    pub(crate) number: i64,
    /// When it happened: up to [`DISORDER`] before it arrives.
    pub(crate) time: Millis,
    /// Something random.
    pub(crate) random: u64,
}

/// By how much events are out of order.
pub(crate) const DISORDER: Millis = 64;

/// Events without end.
#[derive(Debug)]
pub(crate) struct Events {
    random: Random,
    keys: u64,
    zipf: Option<Zipf>,
    number: i64,
}

impl Events {
    pub(crate) fn new(keys: u64, skew: Skew) -> Self {
        let zipf = (skew == Skew::Zipf).then(|| Zipf::new(keys, 0.99));
        Events { random: Random(42), keys, zipf, number: 0 }
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let rank = match &self.zipf {
            Some(zipf) => zipf.next(&mut self.random),
            None => self.random.below(self.keys),
        };
        let random = self.random.next();
        let number = self.number;
        self.number += 1;
        let time = number - (random % DISORDER as u64) as Millis;
        // Spreads the frequent keys over all of them: multiplied by a prime.
        let key = (rank.wrapping_mul(2_654_435_761) % self.keys) as i64;
        Some(Event { key, number, time, random })
    }
}

/// Bytes of the given length that begin with a number and do not compress.
pub(crate) fn payload(number: u64, len: usize, bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend_from_slice(&number.to_be_bytes());
    let mut random = Random(number);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len.max(8));
}

/// The number that a payload begins with.
pub(crate) fn number_in(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |head| u64::from_be_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_in_every_process_and_skewed_as_asked() {
        let events = |skew| Events::new(1_000, skew).take(20_000).collect::<Vec<_>>();
        assert_eq!(events(Skew::Zipf), events(Skew::Zipf));
        let most = |events: &[Event]| {
            let mut counts = vec![0; 1_000];
            events.iter().for_each(|event| counts[event.key as usize] += 1);
            counts.into_iter().max().unwrap()
        };
        assert!(most(&events(Skew::Zipf)) > 1_500);
        assert!(most(&events(Skew::Uniform)) < 60);
    }

    #[test]
    fn payloads_have_their_length_and_their_number() {
        let mut bytes = Vec::new();
        for len in [8, 16, 100, 1_024] {
            payload(77, len, &mut bytes);
            assert_eq!((bytes.len(), number_in(&bytes)), (len, 77));
        }
    }
}
