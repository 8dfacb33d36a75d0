//! The raw `rocksdb` crate runs the same operations: the bytes that Weir stores, written by hand.

use weir_state_api::Result;

use super::folding::Folds;
use super::list::Lists;
use super::map::Maps;
use super::range::{LongMaps, RANGE_LEN};
use super::value::Values;
use crate::peers::rocksdb::{RawRocksdb, entry, failed};

/// Weir stores a byte behind each value.
const BEHIND: u8 = 0;

/// The first eight bytes as a number.
#[inline(always)]
fn number(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.get(..8).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 8]))
}

impl RawRocksdb {
    #[inline(always)]
    fn read(&self) -> Result<Option<rocksdb::DBPinnableSlice<'_>>> {
        self.db.get_pinned_opt(&self.key, &self.read).map_err(failed)
    }

    #[inline(always)]
    fn write(&self) -> Result<()> {
        self.db.put_opt(&self.key, &self.value, &self.write).map_err(failed)
    }

    fn write_number(&mut self, number: i64) -> Result<()> {
        self.value.clear();
        self.value.extend_from_slice(&number.to_le_bytes());
        self.value.push(BEHIND);
        self.write()
    }

    /// Elements as Weir frames them: a length and the element.
    fn frame(&mut self, elements: &[i64]) {
        self.value.clear();
        for element in elements {
            self.value.push(8);
            self.value.extend_from_slice(&element.to_le_bytes());
        }
    }
}

impl Values for RawRocksdb {
    #[inline(always)]
    fn get(&mut self, key: i64) -> Result<Option<i64>> {
        self.at(key);
        Ok(self.read()?.map(|value| number(&value)))
    }

    #[inline(always)]
    fn set(&mut self, key: i64, value: i64) -> Result<()> {
        self.at(key);
        self.write_number(value)
    }

    #[inline(always)]
    fn increment(&mut self, key: i64) -> Result<i64> {
        self.at(key);
        let new = self.read()?.map_or(0, |value| number(&value)).wrapping_add(1);
        self.write_number(new)?;
        Ok(new)
    }
}

/// A sum.
impl Folds for RawRocksdb {
    fn add(&mut self, key: i64, value: i64) -> Result<()> {
        self.at(key);
        let sum = self.read()?.map_or(0, |value| number(&value)).wrapping_add(value);
        self.write_number(sum)
    }

    fn get(&mut self, key: i64) -> Result<Option<i64>> {
        Values::get(self, key)
    }
}

impl Lists for RawRocksdb {
    fn add_all(&mut self, key: i64, elements: &[i64]) -> Result<()> {
        self.at(key);
        self.frame(elements);
        self.db.merge_opt(&self.key, &self.value, &self.write).map_err(failed)
    }

    fn set(&mut self, key: i64, elements: &[i64]) -> Result<()> {
        self.at(key);
        self.frame(elements);
        self.write()
    }

    fn clear(&mut self, key: i64) -> Result<()> {
        self.at(key);
        self.db.delete_opt(&self.key, &self.write).map_err(failed)
    }

    fn get(&mut self, key: i64) -> Result<bool> {
        self.at(key);
        Ok(self.read()?.is_some())
    }

    fn fold(&mut self, key: i64, f: impl Fn(u64, i64) -> u64) -> Result<u64> {
        self.at(key);
        let Some(list) = self.read()? else { return Ok(0) };
        Ok(list.chunks_exact(9).fold(0, |sum, element| f(sum, number(&element[1..]))))
    }

    fn add(&mut self, key: i64, element: i64) -> Result<()> {
        self.add_all(key, &[element])
    }
}

impl Maps for RawRocksdb {
    fn get(&mut self, key: i64, map_key: i64) -> Result<Option<f64>> {
        self.at_entry(key, map_key);
        Ok(self.read()?.map(|value| f64::from_bits(number(&value) as u64)))
    }

    fn contains(&mut self, key: i64, map_key: i64) -> Result<bool> {
        self.at_entry(key, map_key);
        Ok(self.read()?.is_some())
    }

    fn is_empty(&mut self, key: i64) -> Result<bool> {
        let walk = self.walk(key, i64::MIN, None);
        walk.status().map_err(failed)?;
        Ok(!walk.valid())
    }

    fn put(&mut self, key: i64, map_key: i64, value: f64) -> Result<()> {
        self.at_entry(key, map_key);
        self.write_number(value.to_bits() as i64)
    }

    fn put_all(&mut self, key: i64, entries: &[(i64, f64)]) -> Result<()> {
        entries.iter().try_for_each(|&(map_key, value)| Maps::put(self, key, map_key, value))
    }

    fn remove(&mut self, key: i64, map_key: i64) -> Result<()> {
        self.at_entry(key, map_key);
        self.db.delete_opt(&self.key, &self.write).map_err(failed)
    }

    fn sum(&mut self, key: i64, f: impl Fn(i64, f64) -> u64) -> Result<u64> {
        let mut walk = self.walk(key, i64::MIN, None);
        let mut sum = 0u64;
        while let Some((stored, value)) = walk.item() {
            let (map_key, value) = entry(stored, value);
            sum = sum.wrapping_add(f(map_key, value));
            walk.next();
        }
        walk.status().map_err(failed)?;
        Ok(sum)
    }

    fn begin_reading(&mut self, key: i64) -> Result<()> {
        std::hint::black_box(self.walk(key, i64::MIN, None).valid());
        Ok(())
    }
}

impl LongMaps for RawRocksdb {
    fn put(&mut self, key: i64, map_key: i64, value: f64) -> Result<()> {
        Maps::put(self, key, map_key, value)
    }

    fn scan(&mut self, key: i64, from: i64) -> Result<u64> {
        let mut walk = self.walk(key, from, Some(from + RANGE_LEN));
        let mut sum = 0u64;
        while let Some((stored, value)) = walk.item() {
            sum = sum.wrapping_add(entry(stored, value).1.to_bits());
            walk.next();
        }
        walk.status().map_err(failed)?;
        Ok(sum)
    }
}
