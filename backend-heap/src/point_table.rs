//! Point states: one byte string per (key, namespace).

use weir_state_api::{Change, KeyRef, Result, UpdateFn, ValueLimit};

use crate::keyed_table::{Fate, KeyedTable, Locator, Slot};
use crate::point_slot::{PointSlot, WordKey};
use crate::segment::Segment;

/// The values of one point state in one key group.
pub(crate) type PointTable = KeyedTable<PointSlot>;

impl PointTable {
    /// The value of a key in the default namespace, if its segment can be read without a lock.
    ///
    /// A read of a small value of a key of one word is a few dozen instructions, so that the processor
    /// waits for the memory of several of them at once.
    #[inline(always)]
    pub(crate) fn read(&self, key: KeyRef<'_>) -> Option<&[u8]> {
        let segment = self.cell(key.hash())?.readable()?;
        if let Some(word) = WordKey::new(key) {
            let slot = segment.find_entry(key.hash(), |slot| slot.may_be(word))?;
            if let value @ Some(_) = slot.value_of_word() {
                return value;
            }
        }
        read_any(segment, key)
    }

    /// Writes a value that is found to lie in its slot and stays there, for a key of one word in the
    /// default namespace; as [`read`](PointTable::read). Such a change leaves the accounts as
    /// they are. Says whether it was done.
    #[inline(always)]
    pub(crate) fn put_word(&mut self, key: KeyRef<'_>, value: &[u8]) -> bool {
        let epoch = self.epoch();
        self.find_word_mut(key).is_some_and(|slot| slot.set_small_at(8, value, epoch))
    }

    /// The slot of a key of one word if the writer alone holds it and it holds its content.
    #[inline(always)]
    pub(crate) fn find_word_mut(&mut self, key: KeyRef<'_>) -> Option<&mut PointSlot> {
        let word = WordKey::new(key)?;
        let segment = self.cell_mut(key.hash())?.owned()?;
        segment.find_entry_mut(key.hash(), |slot| slot.holds(word))
    }

    /// Stores a value.
    #[inline]
    pub(crate) fn put(&mut self, at: Locator<'_>, value: &[u8]) -> Result<()> {
        let epoch = self.epoch();
        self.change(at, |slot| {
            let Some(slot) = slot else {
                return Ok(Fate::Store(PointSlot::new(at, value, epoch)));
            };
            slot.set(value);
            Ok(Fate::Changed)
        })
    }

    /// Appends to a value.
    pub(crate) fn append(&mut self, at: Locator<'_>, more: &[u8], limit: ValueLimit) -> Result<()> {
        let epoch = self.epoch();
        self.change(at, |slot| {
            let Some(slot) = slot else {
                return Ok(Fate::Store(PointSlot::new(at, more, epoch)));
            };
            limit.check(slot.value().len() + more.len())?;
            slot.append(more);
            Ok(Fate::Changed)
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
        let epoch = self.epoch();
        self.change(at, |slot| {
            match f(slot.as_deref().map(PointSlot::value), buffer)? {
                Change::Keep => return Ok(Fate::Keep),
                Change::Delete => return Ok(Fate::Remove),
                Change::Put => limit.check(buffer.len())?,
            }
            let Some(slot) = slot else {
                return Ok(Fate::Store(PointSlot::new(at, buffer, epoch)));
            };
            slot.set(buffer);
            Ok(Fate::Changed)
        })
    }
}

#[inline(never)]
fn read_any<'s>(segment: &'s Segment<PointSlot>, key: KeyRef<'_>) -> Option<&'s [u8]> {
    let at = Locator::new(key, b"");
    segment.find_entry(key.hash(), |slot| slot.is_at(at)).map(PointSlot::value)
}
