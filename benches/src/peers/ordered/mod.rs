//! Ordered stores of bytes, on which patterns are written by hand.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use weir_state_api::Result;

use crate::micro::Peer;

/// An ordered map of bytes.
pub(crate) trait Ordered {
    /// The value of a key, if there is one.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&mut self, key: &[u8]) -> Result<()>;
    /// Entries in order, from one key to before another.
    fn scan(&mut self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;
    /// The first entry from one key to before another.
    fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>>;
}

/// An ordered store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Store {
    /// The standard library's.
    BTreeMap,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Store::BTreeMap => "BTreeMap",
        })
    }
}

impl Store {
    /// An empty one.
    pub(crate) fn open(self) -> Result<Box<dyn Ordered>> {
        match self {
            Store::BTreeMap => Ok(Box::<BTreeMap<Vec<u8>, Vec<u8>>>::default()),
        }
    }

    /// Whether it takes part when these peers were asked for.
    pub(crate) fn is_asked(self, peers: &[Peer]) -> bool {
        match self {
            Store::BTreeMap => peers.contains(&Peer::Raw),
        }
    }

    /// Its options, for the report.
    pub(crate) fn options(self) -> &'static str {
        match self {
            Store::BTreeMap => "the standard library's, from bytes to bytes; no snapshots",
        }
    }
}

impl Ordered for BTreeMap<Vec<u8>, Vec<u8>> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(BTreeMap::get(self, key).cloned())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.remove(key);
        Ok(())
    }

    fn scan(&mut self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)))
            .for_each(|(key, value)| each(key, value));
        Ok(())
    }

    fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>> {
        let bounds = (std::ops::Bound::Included(from), std::ops::Bound::Excluded(to));
        Ok(self.range::<[u8], _>(bounds).next().map(|(key, _)| key.clone()))
    }
}
