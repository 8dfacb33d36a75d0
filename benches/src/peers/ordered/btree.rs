//! The standard library's map: what ordered state in memory costs at least.

use std::collections::BTreeMap;
use std::ops::Bound;

use weir_state_api::Result;

use super::Ordered;

pub(super) type BTree = BTreeMap<Vec<u8>, Vec<u8>>;

fn between<'k>(from: &'k [u8], to: &'k [u8]) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    (Bound::Included(from), Bound::Excluded(to))
}

impl Ordered for BTree {
    fn read(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        if let Some(value) = BTreeMap::get(self, key) {
            found(value);
        }
        Ok(())
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
        self.range::<[u8], _>(between(from, to)).for_each(|(key, value)| each(key, value));
        Ok(())
    }

    fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.range::<[u8], _>(between(from, to)).next().map(|(key, _)| key.clone()))
    }
}
