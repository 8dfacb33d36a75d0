//! Ordered stores of bytes run the same operations: keys and values written by hand, in order-preserving
//! bytes of fixed width.

use weir_state_api::Result;

use super::map::Maps;
use super::range::{LongMaps, RANGE_LEN};
use super::value::Values;
use crate::peers::ordered::{Ordered, Store};

/// A store, and the key under hand.
pub(crate) struct ByBytes {
    store: Box<dyn Ordered>,
    key: [u8; 16],
}

/// Length of a key without a map key.
const KEY_LEN: usize = 8;

/// Bytes that sort as the numbers do.
#[inline(always)]
fn ordered(number: i64) -> [u8; 8] {
    (number ^ i64::MIN).to_be_bytes()
}

#[inline(always)]
fn number(bytes: &[u8]) -> i64 {
    bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

fn map_key_in(stored: &[u8]) -> i64 {
    stored.last_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes) ^ i64::MIN)
}

/// The stored key of an entry.
#[inline(always)]
fn entry_key(key: i64, map_key: i64) -> [u8; 16] {
    let mut stored = [0; 16];
    stored[..KEY_LEN].copy_from_slice(&ordered(key));
    stored[KEY_LEN..].copy_from_slice(&ordered(map_key));
    stored
}

impl ByBytes {
    /// An empty store.
    pub(crate) fn open(store: Store) -> Result<Self> {
        Ok(ByBytes { store: store.open_default()?, key: [0; 16] })
    }

    fn read(&mut self, len: usize) -> Result<Option<i64>> {
        let mut value = None;
        self.store.read(&self.key[..len], &mut |found| value = Some(number(found)))?;
        Ok(value)
    }

    /// Whether the map of a key has entries.
    fn has_entries(&mut self, key: i64) -> Result<bool> {
        let first = self.store.first(&entry_key(key, i64::MIN), &entry_key(key, i64::MAX))?;
        Ok(first.is_some())
    }
}

impl Values for ByBytes {
    #[inline(always)]
    fn get(&mut self, key: i64) -> Result<Option<i64>> {
        self.key[..KEY_LEN].copy_from_slice(&ordered(key));
        self.read(KEY_LEN)
    }

    #[inline(always)]
    fn set(&mut self, key: i64, value: i64) -> Result<()> {
        self.store.put(&ordered(key), &value.to_le_bytes())
    }

    #[inline(always)]
    fn increment(&mut self, key: i64) -> Result<i64> {
        let new = Values::get(self, key)?.unwrap_or(0).wrapping_add(1);
        Values::set(self, key, new)?;
        Ok(new)
    }
}

impl Maps for ByBytes {
    fn get(&mut self, key: i64, map_key: i64) -> Result<Option<f64>> {
        self.key = entry_key(key, map_key);
        Ok(self.read(16)?.map(|bits| f64::from_bits(bits as u64)))
    }

    fn contains(&mut self, key: i64, map_key: i64) -> Result<bool> {
        Ok(Maps::get(self, key, map_key)?.is_some())
    }

    fn is_empty(&mut self, key: i64) -> Result<bool> {
        Ok(!self.has_entries(key)?)
    }

    fn put(&mut self, key: i64, map_key: i64, value: f64) -> Result<()> {
        self.store.put(&entry_key(key, map_key), &value.to_le_bytes())
    }

    fn put_all(&mut self, key: i64, entries: &[(i64, f64)]) -> Result<()> {
        entries.iter().try_for_each(|&(map_key, value)| Maps::put(self, key, map_key, value))
    }

    fn remove(&mut self, key: i64, map_key: i64) -> Result<()> {
        self.store.delete(&entry_key(key, map_key))
    }

    fn sum(&mut self, key: i64, f: impl Fn(i64, f64) -> u64) -> Result<u64> {
        let mut sum = 0u64;
        let (from, to) = (entry_key(key, i64::MIN), entry_key(key, i64::MAX));
        self.store.scan(&from, &to, &mut |stored, value| {
            let value = f64::from_bits(number(value) as u64);
            sum = sum.wrapping_add(f(map_key_in(stored), value));
        })?;
        Ok(sum)
    }

    fn begin_reading(&mut self, key: i64) -> Result<()> {
        std::hint::black_box(self.has_entries(key)?);
        Ok(())
    }
}

impl LongMaps for ByBytes {
    fn put(&mut self, key: i64, map_key: i64, value: f64) -> Result<()> {
        Maps::put(self, key, map_key, value)
    }

    fn scan(&mut self, key: i64, from: i64) -> Result<u64> {
        let mut sum = 0u64;
        let (from, to) = (entry_key(key, from), entry_key(key, from + RANGE_LEN));
        self.store
            .scan(&from, &to, &mut |_, value| sum = sum.wrapping_add(number(value) as u64))?;
        Ok(sum)
    }
}
