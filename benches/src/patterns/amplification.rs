//! How many bytes an operator asks for, so that what the system reads, writes and keeps can be divided
//! by it.
//!
//! The pattern that is written by hand says it: it runs once on a map in memory that counts the keys
//! and values that go through it. Bytes per event hardly depend on the number of keys, so few will do.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use weir_state_api::Result;

use super::events::{Events, Skew};
use super::operator::{Operator, Pattern, Shape};
use crate::peers::ordered::{Ordered, Store};

/// Keys in the count, unless there are fewer.
const KEYS: u64 = 20_000;

/// Bytes of keys and values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Asked {
    /// Read for an event.
    pub(crate) read: f64,
    /// Written for an event.
    pub(crate) written: f64,
    /// What all of the state holds.
    pub(crate) live: f64,
}

impl Asked {
    /// Counts it for a pattern.
    pub(crate) fn count(pattern: Pattern, skew: Skew, shape: Shape) -> Result<Self> {
        let keys = shape.keys.min(KEYS);
        let tally = Rc::new(Tally::default());
        let counting = Counting { store: Store::BTreeMap.open_default()?, tally: tally.clone() };
        let mut operator = pattern.by_hand(Box::new(counting), Shape { keys, ..shape });
        let mut events = Events::new(keys, skew);
        handle(&mut *operator, &mut events, keys)?;
        let (read, written) = (tally.read.get(), tally.written.get());
        handle(&mut *operator, &mut events, keys)?;
        let each = |bytes: u64| bytes as f64 / keys as f64;
        Ok(Asked {
            read: each(tally.read.get() - read),
            written: each(tally.written.get() - written),
            live: each(tally.live.get()) * shape.keys as f64,
        })
    }
}

fn handle(operator: &mut dyn Operator, events: &mut Events, count: u64) -> Result<()> {
    events.take(count as usize).try_for_each(|event| operator.handle(&event).map(drop))
}

#[derive(Debug, Default)]
struct Tally {
    read: Cell<u64>,
    written: Cell<u64>,
    live: Cell<u64>,
}

fn add(cell: &Cell<u64>, bytes: usize) {
    cell.set(cell.get() + bytes as u64);
}

/// A store that counts.
struct Counting {
    store: Box<dyn Ordered>,
    tally: Rc<Tally>,
}

impl Counting {
    /// The entry of a key goes away, if there is one.
    fn forget(&mut self, key: &[u8]) -> Result<()> {
        let live = &self.tally.live;
        self.store.read(key, &mut |value| live.set(live.get() - (key.len() + value.len()) as u64))
    }
}

impl Ordered for Counting {
    fn read(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        let tally = &self.tally;
        self.store.read(key, &mut |value| {
            add(&tally.read, key.len() + value.len());
            found(value);
        })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.forget(key)?;
        add(&self.tally.live, key.len() + value.len());
        add(&self.tally.written, key.len() + value.len());
        self.store.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.forget(key)?;
        add(&self.tally.written, key.len());
        self.store.delete(key)
    }

    fn scan(&mut self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let tally = &self.tally;
        self.store.scan(from, to, &mut |key, value| {
            add(&tally.read, key.len() + value.len());
            each(key, value);
        })
    }

    fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>> {
        let first = self.store.first(from, to)?;
        add(&self.tally.read, first.as_ref().map_or(0, Vec::len));
        Ok(first)
    }
}

/// Bytes that the files below a folder take on the disk. What vanishes meanwhile counts nothing.
pub(crate) fn bytes_on_disk(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_on_disk(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_reads_and_writes_its_key_and_its_value() {
        let shape = Shape { keys: 100, value_bytes: 50 };
        let asked = Asked::count(Pattern::Counter, Skew::Uniform, shape).unwrap();
        // A byte that names the state, eight for the key.
        assert_eq!(asked.written, 59.0);
        // Some of the keys are new to it.
        assert!(asked.read > 30.0 && asked.read < 59.0, "{asked:?}");
        assert!(asked.live > 59.0 * 60.0 && asked.live < 59.0 * 100.0, "{asked:?}");
    }

    #[test]
    fn every_pattern_has_bytes_to_divide_by() {
        use clap::ValueEnum;
        let shape = Shape { keys: 500, value_bytes: 16 };
        for &pattern in Pattern::value_variants() {
            let asked = Asked::count(pattern, Skew::Zipf, shape).unwrap();
            assert!(asked.written > 0.0 && asked.live > 0.0, "{pattern}: {asked:?}");
        }
    }

    #[test]
    fn files_are_found_in_folders() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(bytes_on_disk(folder.path()), 0);
        std::fs::create_dir(folder.path().join("deeper")).unwrap();
        std::fs::write(folder.path().join("deeper/file"), vec![7; 100_000]).unwrap();
        assert!(bytes_on_disk(folder.path()) >= 100_000);
    }
}
