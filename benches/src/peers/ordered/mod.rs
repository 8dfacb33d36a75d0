//! Ordered stores of bytes: the standard library's in memory, fjall and redb on the local disk.
//!
//! Suites are written once on [`Ordered`], so every store does the same work with the same bytes.

mod btree;
mod fjall;
mod redb;

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use weir_state_api::{Error, ErrorKind, Result};

use crate::backends::Budget;
use crate::micro::Peer;

/// An ordered map of bytes.
pub(crate) trait Ordered {
    /// Shows the value of a key, if there is one.
    fn read(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()>;
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&mut self, key: &[u8]) -> Result<()>;
    /// Entries in order, from one key to before another.
    fn scan(&mut self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;
    /// The first key from one key to before another.
    fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The value of a key, if there is one.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.read(key, &mut |found| value = Some(found.to_vec()))?;
        Ok(value)
    }
}

/// An ordered store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Store {
    /// The standard library's.
    BTreeMap,
    /// A log-structured merge tree on the local disk.
    Fjall,
    /// A copy-on-write B+ tree on the local disk.
    Redb,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Store::BTreeMap => "BTreeMap",
            Store::Fjall => "fjall",
            Store::Redb => "redb",
        })
    }
}

impl Store {
    /// An empty one with so much memory, if it has a budget.
    pub(crate) fn open(self, budget: Budget) -> Result<Box<dyn Ordered>> {
        Ok(match self {
            Store::BTreeMap => Box::<btree::BTree>::default(),
            Store::Fjall => Box::new(fjall::Fjall::open(budget)?),
            Store::Redb => Box::new(redb::Redb::open(budget)?),
        })
    }

    /// An empty one with the memory that Weir's backends have.
    pub(crate) fn open_default(self) -> Result<Box<dyn Ordered>> {
        self.open(Budget::default())
    }

    /// Whether its state may be larger than its memory.
    pub(crate) fn has_cache(self) -> bool {
        self != Store::BTreeMap
    }

    /// Whether it takes part when these peers were asked for.
    pub(crate) fn is_asked(self, peers: &[Peer]) -> bool {
        peers.contains(&match self {
            Store::BTreeMap => Peer::Raw,
            Store::Fjall => Peer::Fjall,
            Store::Redb => Peer::Redb,
        })
    }

    /// Its options, for the report.
    pub(crate) fn options(self, budget: Budget) -> String {
        match self {
            Store::BTreeMap => "the standard library's, from bytes to bytes; no snapshots".into(),
            Store::Fjall => fjall::options(budget),
            Store::Redb => redb::options(budget),
        }
    }
}

/// The error of a store.
fn failed(store: Store, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{store} fails")).source(error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::shuffle::Random;

    /// Every store answers as a plain map does, over more writes than a transaction holds.
    #[test]
    fn stores_are_ordered_maps() {
        for &store in Store::value_variants() {
            let mut stored = store.open_default().unwrap();
            let mut model = BTreeMap::new();
            let mut random = Random(1);
            for step in 0..3 * redb::WRITES_IN_TRANSACTION / 2 {
                let key = (random.below(500) as u16).to_be_bytes();
                if random.below(4) == 0 {
                    stored.delete(&key).unwrap();
                    model.remove(&key);
                } else {
                    stored.put(&key, &step.to_be_bytes()).unwrap();
                    model.insert(key, step.to_be_bytes());
                }
                if step % 1_000 > 0 {
                    continue;
                }
                let probe = (random.below(500) as u16).to_be_bytes();
                let end = (random.below(500) as u16).max(u16::from_be_bytes(probe)).to_be_bytes();
                let value = model.get(&probe).map(|value| value.to_vec());
                assert_eq!(stored.get(&probe).unwrap(), value, "{store}");
                let mut found = Vec::new();
                stored
                    .scan(&probe, &end, &mut |k, v| found.push((k.to_vec(), v.to_vec())))
                    .unwrap();
                let expected: Vec<_> =
                    model.range(probe..end).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
                assert_eq!(found, expected, "{store}");
                let first = expected.first().map(|(key, _)| key.clone());
                assert_eq!(stored.first(&probe, &end).unwrap(), first, "{store}");
            }
        }
    }
}
