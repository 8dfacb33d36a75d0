//! Point states: one byte string per (key, namespace).

use weir_state_api::{Change, Result, UpdateFn};

use crate::compact_bytes::CompactBytes;
use crate::keyed_table::{Fate, KeyedTable, Locator};
use crate::limits::ValueLimit;

/// The values of one point state in one key group.
pub(crate) type PointTable = KeyedTable<CompactBytes>;

impl PointTable {
    /// Stores a value.
    #[inline]
    pub(crate) fn put(&mut self, at: Locator<'_>, value: &[u8]) -> Result<()> {
        self.change(at, |old| match old {
            Some(old) => {
                old.set(value);
                Ok(Fate::Keep)
            }
            None => Ok(Fate::Store(CompactBytes::new(value))),
        })
    }

    /// Appends to a value.
    pub(crate) fn append(&mut self, at: Locator<'_>, more: &[u8], limit: ValueLimit) -> Result<()> {
        self.change(at, |old| match old {
            Some(old) => {
                limit.check(old.as_slice().len() + more.len())?;
                old.append(more);
                Ok(Fate::Keep)
            }
            None => Ok(Fate::Store(CompactBytes::new(more))),
        })
    }

    /// Lets `f` read, change or remove a value. `buffer` is for its output.
    #[inline]
    pub(crate) fn update(
        &mut self,
        at: Locator<'_>,
        f: &mut UpdateFn<'_>,
        buffer: &mut Vec<u8>,
        limit: ValueLimit,
    ) -> Result<()> {
        buffer.clear();
        self.change(at, |old| {
            let change = f(old.as_deref().map(CompactBytes::as_slice), buffer)?;
            match (change, old) {
                (Change::Keep, _) => Ok(Fate::Keep),
                (Change::Delete, _) => Ok(Fate::Remove),
                (Change::Put, old) => {
                    limit.check(buffer.len())?;
                    match old {
                        Some(old) => old.set(buffer),
                        None => return Ok(Fate::Store(CompactBytes::new(buffer))),
                    }
                    Ok(Fate::Keep)
                }
            }
        })
    }
}
