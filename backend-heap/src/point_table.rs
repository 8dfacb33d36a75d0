//! Point states: one byte string per (key, namespace).

use weir_state_api::{Change, KeyRef, Result, UpdateFn};

use crate::keyed_table::{Fate, KeyedTable, Locator};
use crate::limits::ValueLimit;
use crate::point_slot::{PointSlot, WordKey};

/// The values of one point state in one key group.
pub(crate) type PointTable = KeyedTable<PointSlot>;

/// The outcome of [`PointTable::get_word`].
pub(crate) enum WordLookup<'a> {
    /// The value, or that there is none.
    Known(Option<&'a [u8]>),
    /// Ask again with [`KeyedTable::get`].
    Unknown,
}

impl PointTable {
    /// Looks up a key of one word as long as that takes nothing but slots that hold their content: a
    /// read of a small value is a few dozen instructions then, and the processor waits for the
    /// memory of several of them at once.
    #[inline(always)]
    pub(crate) fn get_word(&self, key: KeyRef<'_>) -> WordLookup<'_> {
        let Some(word) = WordKey::new(key) else { return WordLookup::Unknown };
        let Some(segment) = self.segment(key.hash()) else { return WordLookup::Known(None) };
        match segment.find_entry(key.hash(), |slot| slot.may_be(word)) {
            None => WordLookup::Known(None),
            Some(slot) => slot
                .value_of_word()
                .map_or(WordLookup::Unknown, |value| WordLookup::Known(Some(value))),
        }
    }

    /// The slot of a key of one word if it holds its content; as [`get_word`](PointTable::get_word),
    /// for writing. A change that stays small leaves the accounts as they are.
    #[inline(always)]
    pub(crate) fn find_word_mut(&mut self, key: KeyRef<'_>) -> Option<&mut PointSlot> {
        let word = WordKey::new(key)?;
        let segment = self.segment_mut(key.hash())?;
        segment.find_entry_mut(key.hash(), |slot| slot.holds(word))
    }

    /// Stores a value.
    #[inline]
    pub(crate) fn put(&mut self, at: Locator<'_>, value: &[u8]) -> Result<()> {
        self.change(at, |slot| {
            let Some(slot) = slot else { return Ok(Fate::Store(PointSlot::new(at, value))) };
            slot.set(value);
            Ok(Fate::Keep)
        })
    }

    /// Appends to a value.
    pub(crate) fn append(&mut self, at: Locator<'_>, more: &[u8], limit: ValueLimit) -> Result<()> {
        self.change(at, |slot| {
            let Some(slot) = slot else { return Ok(Fate::Store(PointSlot::new(at, more))) };
            limit.check(slot.value().len() + more.len())?;
            slot.append(more);
            Ok(Fate::Keep)
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
        self.change(at, |slot| {
            match f(slot.as_deref().map(PointSlot::value), buffer)? {
                Change::Keep => return Ok(Fate::Keep),
                Change::Delete => return Ok(Fate::Remove),
                Change::Put => limit.check(buffer.len())?,
            }
            let Some(slot) = slot else { return Ok(Fate::Store(PointSlot::new(at, buffer))) };
            slot.set(buffer);
            Ok(Fate::Keep)
        })
    }
}
