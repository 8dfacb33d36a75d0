//! What the layout of the RocksDB backend rests on, measured on the raw crate: hash indexes in the data
//! blocks of point states, and a column family per access pattern in place of one per state
//! (`docs/decisions/0004-rocks-layout.md`).

use std::hint::black_box;

use rocksdb::ColumnFamily;
use weir_state_api::{Error, ErrorKind, Result};

use crate::clock::Stopwatch;
use crate::interrupt;
use crate::measure::{Recorder, Samples, millis};
use crate::peers::rocksdb::{Layout, RawRocksdb, failed, options_with};
use crate::shuffle::shuffled;

const SUITE: &str = "layout";

/// One key in so many has an entry in one of those states.
const SHARE: usize = 5;
/// States of an operator that has many.
const STATES: usize = 50;
/// Entries of each that change between two checkpoints.
const CHANGES: usize = 20;

const READ: &str = "read";
const PINNED: &str = "synchronous part";

/// Measures both on so many keys.
pub(crate) fn run(recorder: &mut Recorder, keys: usize) -> Result<()> {
    let order = shuffled(keys as i64, 42);
    for length in [8, 100] {
        data_blocks(recorder, &order, length)?;
    }
    families(recorder, &order[..keys / SHARE])
}

/// Reads of sorted files, all of which are in the block cache.
fn data_blocks(recorder: &mut Recorder, order: &[i64], length: usize) -> Result<()> {
    let (hash, binary) = ("kDataBlockBinaryAndHash", "kDataBlockBinarySearch");
    let mut entrants = Vec::new();
    for (name, index) in [("hash index", hash), ("binary search", binary)] {
        let options = options_with(Layout::Points, |settings| {
            settings
                .replace(&format!("={hash};"), &format!("={index};"))
                .replace(&format!("={binary};"), &format!("={index};"))
        })?;
        let mut database = RawRocksdb::open_with(&options)?;
        for key in order {
            database.at(*key);
            database.value.clear();
            database.value.resize(length, *key as u8);
            database.db.put_opt(&database.key, &database.value, &database.write).map_err(failed)?;
        }
        database.db.compact_range::<&[u8], &[u8]>(None, None);
        entrants.push((name.to_string(), database, Samples::default()));
    }
    // The first round warms up.
    for round in (0..=recorder.rounds()).take_while(|_| !interrupt::requested()) {
        for (_, database, samples) in &mut entrants {
            let watch = Stopwatch::start();
            for key in order {
                database.at(*key);
                let value = database.db.get_pinned_opt(&database.key, &database.read);
                black_box(value.map_err(failed)?.map_or(0, |value| value.len()));
            }
            let time = watch.stop().thread.as_nanos() as f64 / order.len() as f64;
            if round > 0 {
                samples.add(READ, "ns/op", time);
            }
        }
    }
    for (_, database, samples) in &mut entrants {
        let bytes = database.db.property_int_value("rocksdb.total-sst-files-size");
        samples.add("files", "MB", bytes.map_err(failed)?.unwrap_or(0) as f64 / 1e6);
    }
    let contestants = entrants.into_iter().map(|(name, _, samples)| (name, samples)).collect();
    let workload = format!("values of {length} bytes in sorted files");
    recorder.record_turns(SUITE, &workload, READ, contestants);
    Ok(())
}

/// Checkpoints of many states that change a little.
fn families(recorder: &mut Recorder, order: &[i64]) -> Result<()> {
    let mut entrants = Vec::new();
    for (name, families) in [("one family", 1), ("a family each", STATES)] {
        entrants.push((name.to_string(), ManyStates::open(families)?, Samples::default()));
    }
    for (_, states, samples) in &mut entrants {
        for (index, key) in order.iter().enumerate() {
            states.write(index % STATES, *key)?;
        }
        states.checkpoint(samples, false)?;
    }
    for round in (0..=recorder.rounds()).take_while(|_| !interrupt::requested()) {
        for (_, states, samples) in &mut entrants {
            let watch = Stopwatch::start();
            for (index, key) in order.iter().enumerate() {
                states.read(index % STATES, *key)?;
            }
            let time = watch.stop().thread.as_nanos() as f64 / order.len() as f64;
            if round > 0 {
                samples.add(READ, "ns/op", time);
            }
            for (index, key) in order.iter().cycle().take(STATES * CHANGES).enumerate() {
                states.write(index % STATES, *key)?;
            }
            states.checkpoint(samples, round > 0)?;
        }
    }
    let contestants = entrants.into_iter().map(|(name, _, samples)| (name, samples)).collect();
    recorder.record_turns(SUITE, "50 states, 20 changes in each", PINNED, contestants);
    Ok(())
}

/// A database with some column families for many states.
struct ManyStates {
    database: RawRocksdb,
    names: Vec<String>,
}

impl ManyStates {
    fn open(families: usize) -> Result<Self> {
        let options = options_with(Layout::Points, |settings| settings)?;
        let mut database = RawRocksdb::open_with(&options)?;
        let names: Vec<String> = (0..families).map(|number| format!("family-{number}")).collect();
        for name in &names {
            database.db.create_cf(name, &options).map_err(failed)?;
        }
        Ok(ManyStates { database, names })
    }

    fn family(&self, state: usize) -> Result<&ColumnFamily> {
        let name = &self.names[state % self.names.len()];
        self.database.db.cf_handle(name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "a column family is missing").object(name.as_str())
        })
    }

    fn address(&mut self, state: usize, key: i64) {
        self.database.at(key);
        self.database.key[2..4].copy_from_slice(&(state as u16).to_be_bytes());
    }

    fn write(&mut self, state: usize, key: i64) -> Result<()> {
        self.address(state, key);
        let RawRocksdb { db, key, write, .. } = &self.database;
        db.put_cf_opt(self.family(state)?, key, [state as u8; 100], write).map_err(failed)
    }

    fn read(&mut self, state: usize, key: i64) -> Result<()> {
        self.address(state, key);
        let RawRocksdb { db, key, read, .. } = &self.database;
        let value = db.get_pinned_cf_opt(self.family(state)?, key, read).map_err(failed)?;
        black_box(value.map_or(0, |value| value.len()));
        Ok(())
    }

    fn checkpoint(&mut self, samples: &mut Samples, is_measured: bool) -> Result<()> {
        let buffers = self.names.iter().map(|name| {
            let family = self.database.db.cf_handle(name)?;
            let property = "rocksdb.size-all-mem-tables";
            self.database.db.property_int_value_cf(family, property).ok()?
        });
        let buffers: u64 = buffers.flatten().sum();
        let (pinned, new) = self.database.checkpoint()?;
        if is_measured {
            samples.add(PINNED, "ms", millis(pinned));
            samples.add("new files", "", new.count as f64);
            samples.add("write buffers", "MB", buffers as f64 / 1e6);
        }
        Ok(())
    }
}
