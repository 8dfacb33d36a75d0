//! What a pattern is: an operator that takes an event and answers with a number.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use weir_state_api::Result;

use super::events::Event;
use super::{counter, deduplicate, join, profile, session, sliding, top, window};
use crate::backends::Instance;
use crate::peers::ordered::Ordered;

/// Handles events.
pub(crate) trait Operator {
    /// Handles one; the answer depends on everything that it read.
    fn handle(&mut self, event: &Event) -> Result<u64>;

    /// Memory held for state by the backend's own account, if it keeps one.
    fn own_account(&self) -> Option<u64> {
        None
    }
}

/// An access pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Pattern {
    /// Read, add one, write.
    Counter,
    /// Append to a tumbling window; read it and clear it when it ends.
    Window,
    /// A sum over the last five panes.
    Sliding,
    /// Session windows that merge.
    Session,
    /// Join of two streams: write to one side, scan a range of time of the other; with a TTL.
    Join,
    /// Write if absent, with a TTL.
    Deduplicate,
    /// The ten best of each key.
    Top,
    /// A rich struct, read, changed and written.
    Profile,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pattern::Counter => "counter",
            Pattern::Window => "tumbling window",
            Pattern::Sliding => "sliding window",
            Pattern::Session => "session window",
            Pattern::Join => "join",
            Pattern::Deduplicate => "deduplicate",
            Pattern::Top => "top 10",
            Pattern::Profile => "aggregate a struct",
        })
    }
}

/// How many keys there are, and how large values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
}

impl Shape {
    /// Bytes of a value for each key, with the key.
    pub(crate) fn state_bytes(self) -> u64 {
        self.keys * (8 + self.value_bytes as u64)
    }
}

impl Pattern {
    /// The pattern on an instance of a backend, through the typed layer.
    pub(crate) fn on_weir(self, instance: Instance, shape: Shape) -> Result<Box<dyn Operator>> {
        Ok(match self {
            Pattern::Counter => Box::new(counter::OnWeir::open(instance, shape)?),
            Pattern::Window => Box::new(window::OnWeir::open(instance, shape)?),
            Pattern::Sliding => Box::new(sliding::OnWeir::open(instance, shape)?),
            Pattern::Session => Box::new(session::OnWeir::open(instance)?),
            Pattern::Join => Box::new(join::OnWeir::open(instance, shape)?),
            Pattern::Deduplicate => Box::new(deduplicate::OnWeir::open(instance, shape)?),
            Pattern::Top => Box::new(top::OnWeir::open(instance, shape)?),
            Pattern::Profile => Box::new(profile::OnWeir::open(instance, shape)?),
        })
    }

    /// The pattern as it is written by hand on an ordered store.
    pub(crate) fn by_hand(self, ordered: Box<dyn Ordered>, shape: Shape) -> Box<dyn Operator> {
        match self {
            Pattern::Counter => Box::new(counter::ByHand::new(ordered, shape)),
            Pattern::Window => Box::new(window::ByHand::new(ordered, shape)),
            Pattern::Sliding => Box::new(sliding::ByHand::new(ordered, shape)),
            Pattern::Session => Box::new(session::ByHand::new(ordered)),
            Pattern::Join => Box::new(join::ByHand::new(ordered, shape)),
            Pattern::Deduplicate => Box::new(deduplicate::ByHand::new(ordered, shape)),
            Pattern::Top => Box::new(top::ByHand::new(ordered, shape)),
            Pattern::Profile => Box::new(profile::ByHand::new(ordered, shape)),
        }
    }
}

/// What an instance says that it holds.
pub(crate) fn account(instance: &Instance) -> Option<u64> {
    Some(instance.store.statistics().memory_bytes)
}

/// A key as bytes in order.
pub(crate) fn key_bytes(prefix: u8, key: i64, rest: &[i64]) -> Vec<u8> {
    let mut bytes = vec![prefix];
    for part in std::iter::once(&key).chain(rest) {
        bytes.extend_from_slice(&(part.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    }
    bytes
}

/// The last number of such a key.
pub(crate) fn last_part(key: &[u8]) -> i64 {
    key.last_chunk().map_or(0, |part| (u64::from_be_bytes(*part) ^ (1 << 63)).cast_signed())
}

/// Removes the entries of an ordered store from one key to before another.
pub(crate) fn remove_between(store: &mut dyn Ordered, from: &[u8], to: &[u8]) -> Result<()> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    store.scan(from, to, &mut |key, _| keys.push(key.to_vec()))?;
    keys.iter().try_for_each(|key| store.delete(key))
}

#[cfg(test)]
mod tests {
    use super::super::events::{Events, Skew};
    use super::*;
    use crate::backends::Backend;
    use crate::peers::ordered::Store;

    /// Some answers differ from all others, so that the comparison means something.
    #[test]
    fn every_pattern_answers_the_same_on_weir_and_by_hand() {
        let shape = Shape { keys: 50, value_bytes: 16 };
        for &pattern in Pattern::value_variants() {
            for skew in [Skew::Uniform, Skew::Zipf] {
                let mut weir = pattern.on_weir(Backend::Heap.open(128).unwrap(), shape).unwrap();
                let stores = Store::value_variants().iter();
                let mut by_hand: Vec<_> = stores
                    .map(|store| pattern.by_hand(store.open_default().unwrap(), shape))
                    .collect();
                let mut answers = std::collections::BTreeSet::new();
                for event in Events::new(shape.keys, skew).take(5_000) {
                    let answer = weir.handle(&event).unwrap();
                    for by_hand in &mut by_hand {
                        assert_eq!(by_hand.handle(&event).unwrap(), answer, "{pattern}, {event:?}");
                    }
                    answers.insert(answer);
                }
                assert!(answers.len() >= 2, "{pattern}");
            }
        }
    }

    #[test]
    fn keys_are_in_order() {
        let mut keys: Vec<_> =
            [(-5, 2), (-5, -1), (3, 0), (0, 7)].map(|(a, b)| key_bytes(b'k', a, &[b])).into();
        keys.sort();
        let parts: Vec<_> = keys.iter().map(|key| last_part(key)).collect();
        assert_eq!(parts, [-1, 2, 7, 0]);
    }
}
