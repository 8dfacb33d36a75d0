//! Values that have been read, found by hash.
//!
//! RocksDB finds a value in a skip list or in the blocks of sorted files, by some twenty comparisons that
//! each miss the processor's caches; and its block cache holds whole blocks for one value that is
//! wanted. Here a value lies alone, one look away. Operators read few keys often, so that a small part
//! of the budget answers most of their reads.
//!
//! There are two generations. What is read enters the younger one, what is found in the elder one
//! moves over, and when there is no more room the elder one is forgotten as a whole and the generations
//! change places. So what has been read since the last change stays, no entry has an order to keep, and
//! each generation is one piece of memory that is only added to.
//!
//! Where hardly any read finds its row, as when all keys of a large state are read alike, most rows are
//! not worth what it takes to keep them: then one read in eight brings its row in. Should the state fit
//! after all, it comes in more slowly.
//!
//! A row is what RocksDB has, in its stored form (`eras`). Whoever changes RocksDB changes or removes
//! the row. Nothing here knows RocksDB.

use hashbrown::HashTable;

use crate::hashed_key::{HashedKey, spread};
use crate::memory::RowMemory;

/// Lengths of key and value before each row.
const HEADER: usize = 8;

/// What a row takes beside its bytes: its place in the table at its usual load.
const SLOT_BYTES: usize = 2 * size_of::<Slot>();

/// A longer row is read from RocksDB faster than it is worth its room.
const MAX_ROW: usize = 16 << 10;

/// Reads after which it is decided anew how many bring their row in.
const WINDOW: u32 = 1 << 16;

/// If fewer of them found their row, only one in eight does.
const FEW_HITS: u32 = WINDOW / 8;

/// Where a row of a generation begins.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u32,
    at: u32,
}

/// Where a row is, until the next change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowPlace {
    generation: usize,
    at: u32,
}

/// Rows that were read at about the same time.
#[derive(Debug, Default)]
struct Generation {
    /// Each row behind the lengths of its key and its value.
    bytes: Vec<u8>,
    places: HashTable<Slot>,
    /// How much of the budget it has.
    granted: usize,
}

impl Generation {
    fn used(&self) -> usize {
        self.bytes.len() + self.places.len() * SLOT_BYTES
    }

    #[inline]
    fn has_room(&self, need: usize) -> bool {
        self.used() + need <= self.granted
    }

    fn forget_all(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    #[inline]
    fn find(&self, key: HashedKey<'_>) -> Option<u32> {
        let found = self.places.find(spread(key.hash), |slot| is_of(&self.bytes, *slot, key));
        found.map(|slot| slot.at)
    }

    /// Forgets a row; where it was.
    #[inline]
    fn take(&mut self, key: HashedKey<'_>) -> Option<u32> {
        let Generation { bytes, places, .. } = self;
        let found = places.find_entry(spread(key.hash), |slot| is_of(bytes, *slot, key)).ok()?;
        Some(found.remove().0.at)
    }

    /// Adds a row, which is not there.
    #[inline]
    fn add(&mut self, key: HashedKey<'_>, value: &[u8]) -> u32 {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&(key.bytes.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(key.bytes);
        self.bytes.extend_from_slice(value);
        let slot = Slot { hash: key.hash, at };
        self.places.insert_unique(spread(key.hash), slot, |slot| spread(slot.hash));
        at
    }
}

/// Key and value of the row at a place.
#[inline]
fn row(bytes: &[u8], at: u32) -> (&[u8], &[u8]) {
    let (header, rows) = bytes[at as usize..].split_at(HEADER);
    let len = |from: usize| {
        let bytes = [header[from], header[from + 1], header[from + 2], header[from + 3]];
        u32::from_le_bytes(bytes) as usize
    };
    let (key, values) = rows.split_at(len(0));
    (key, &values[..len(4)])
}

#[inline]
fn is_of(bytes: &[u8], slot: Slot, key: HashedKey<'_>) -> bool {
    slot.hash == key.hash && row(bytes, slot.at).0 == key.bytes
}

/// The rows of one database.
#[derive(Debug)]
pub(crate) struct RowCache {
    generations: [Generation; 2],
    /// The one that rows enter.
    younger: usize,
    memory: RowMemory,
    hits: u64,
    misses: u64,
    window: Window,
}

/// The last reads.
#[derive(Debug, Default)]
struct Window {
    reads: u32,
    hits: u32,
    /// Of the reads, all bring their row in, or one in eight.
    selective: bool,
}

impl Window {
    #[inline]
    fn note(&mut self, hit: bool) {
        self.reads += 1;
        self.hits += u32::from(hit);
        if self.reads == WINDOW {
            *self = Window { selective: self.hits < FEW_HITS, reads: 0, hits: 0 };
        }
    }

    /// By chance, so that keys that come in turns are not always the same ones.
    #[inline]
    fn lets_in(&self, key: HashedKey<'_>) -> bool {
        !self.selective
            || key.hash.wrapping_add(self.reads).wrapping_mul(0x9e37_79b1).leading_zeros() >= 3
    }
}

impl RowCache {
    /// Takes room as rows come.
    pub(crate) fn new(memory: RowMemory) -> Self {
        RowCache {
            generations: Default::default(),
            younger: 0,
            memory,
            hits: 0,
            misses: 0,
            window: Window::default(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.generations.iter().all(|generation| generation.places.is_empty())
    }

    /// Where the row of a key is, if it is there.
    #[inline]
    pub(crate) fn find(&mut self, key: HashedKey<'_>) -> Option<RowPlace> {
        let younger = self.younger;
        if let Some(at) = self.generations[younger].find(key) {
            self.note_hit();
            return Some(RowPlace { generation: younger, at });
        }
        let elder = 1 - younger;
        let at = self.generations[elder].find(key)?;
        self.note_hit();
        let len = row(&self.generations[elder].bytes, at).1.len();
        if !self.generations[younger].has_room(need(key, len)) {
            // Rows that enter make room; this one may be gone then.
            return Some(RowPlace { generation: elder, at });
        }
        self.generations[elder].take(key);
        let [first, second] = &mut self.generations;
        let (from, to) = if elder == 0 { (first, second) } else { (second, first) };
        let at = to.add(key, row(&from.bytes, at).1);
        Some(RowPlace { generation: younger, at })
    }

    #[inline]
    fn note_hit(&mut self) {
        self.hits += 1;
        self.window.note(true);
    }

    pub(crate) fn contains(&self, key: HashedKey<'_>) -> bool {
        self.generations.iter().any(|generation| generation.find(key).is_some())
    }

    /// The value of a row that was found just now.
    #[inline]
    pub(crate) fn value(&self, place: RowPlace) -> &[u8] {
        row(&self.generations[place.generation].bytes, place.at).1
    }

    /// Takes what was read from RocksDB for a key that has no row.
    #[inline]
    pub(crate) fn insert(&mut self, key: HashedKey<'_>, stored: &[u8]) {
        self.misses += 1;
        self.window.note(false);
        if self.window.lets_in(key) {
            self.add(key, stored);
        }
    }

    #[inline]
    fn add(&mut self, key: HashedKey<'_>, stored: &[u8]) {
        if key.bytes.len() + stored.len() > MAX_ROW {
            return;
        }
        let need = need(key, stored.len());
        if !self.makes_room(need) {
            self.change_places();
            if !self.makes_room(need) {
                return;
            }
        }
        self.generations[self.younger].add(key, stored);
    }

    /// If a key has a row, this is it from now on.
    #[inline]
    pub(crate) fn change(&mut self, key: HashedKey<'_>, stored: &[u8]) {
        for generation in &mut self.generations {
            let Some(at) = generation.find(key) else { continue };
            let (_, known) = row(&generation.bytes, at);
            if known.len() == stored.len() {
                let from = at as usize + HEADER + key.bytes.len();
                generation.bytes[from..from + stored.len()].copy_from_slice(stored);
            } else {
                generation.take(key);
                self.add(key, stored);
            }
            return;
        }
    }

    /// Forgets the row of a key.
    #[inline]
    pub(crate) fn remove(&mut self, key: HashedKey<'_>) {
        for generation in &mut self.generations {
            generation.take(key);
        }
    }

    /// Forgets all rows.
    pub(crate) fn clear(&mut self) {
        self.generations.iter_mut().for_each(Generation::forget_all);
    }

    /// Reads that found their row, and those whose value RocksDB had.
    pub(crate) fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// What it has of the budget.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.generations.iter().map(|generation| generation.granted).sum()
    }

    /// Whether the younger generation has room, or gets it.
    #[inline]
    fn makes_room(&mut self, need: usize) -> bool {
        let generation = &mut self.generations[self.younger];
        if !generation.has_room(need) {
            let wanted = generation.used() + need;
            // Half of the share is for the other one. Places in it have 32 bits.
            let most = (self.memory.share() / 2).min(u32::MAX as usize);
            generation.granted = self.memory.grow(generation.granted, wanted, most);
        }
        generation.has_room(need)
    }

    /// Forgets the elder generation, and lets the younger one become it.
    fn change_places(&mut self) {
        self.younger = 1 - self.younger;
        let most = self.memory.share() / 2;
        let younger = &mut self.generations[self.younger];
        younger.forget_all();
        // Others have come that want their part.
        if younger.granted > most {
            self.memory.give_back(younger.granted);
            *younger = Generation::default();
        }
    }
}

/// What a row takes.
#[inline]
fn need(key: HashedKey<'_>, value_len: usize) -> usize {
    HEADER + key.bytes.len() + value_len + SLOT_BYTES
}

#[cfg(test)]
#[path = "row_cache_tests.rs"]
mod tests;
