//! Where the newest version of each key of a kind is, over all memtables of a shard.
//!
//! One hash table, however many memtables there are. What is in no memtable any more is not forgotten at
//! once: its slot counts as empty, and goes when there are many of that kind.

use std::collections::VecDeque;

use hashbrown::HashTable;

/// Where a version is: in which memtable, by the number of freezes before it, and where there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link<P> {
    pub(super) epoch: u32,
    pub(super) place: P,
}

/// Where the newest version of a key is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot<P> {
    /// Of the key, so that a growing table need not look at it, nor mostly a search at another one.
    pub(super) hash: u64,
    pub(super) at: Link<P>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Index<P> {
    pub(super) table: HashTable<Slot<P>>,
    /// How many slots point to each memtable that takes no more writes, the newest being the first.
    pub(super) held: VecDeque<usize>,
    /// How many slots point to memtables that are gone.
    pub(super) gone: usize,
}

impl<P> Default for Index<P> {
    fn default() -> Self {
        Index { table: HashTable::new(), held: VecDeque::new(), gone: 0 }
    }
}

impl<P: Copy + PartialEq> Index<P> {
    /// What a slot costs in a table that is half full at least.
    pub(super) const SLOT_BYTES: usize = 2 * (size_of::<Slot<P>>() + 1);

    /// Where the newest version of the key is that has this hash and is there.
    #[inline]
    pub(super) fn find(
        &self,
        hash: u64,
        mut is_there: impl FnMut(Link<P>) -> bool,
    ) -> Option<Link<P>> {
        let slot = self.table.find(hash, |slot| slot.hash == hash && is_there(slot.at));
        slot.map(|slot| slot.at)
    }

    /// Adds the first version of a key.
    pub(super) fn insert(&mut self, hash: u64, at: Link<P>) {
        self.table.insert_unique(hash, Slot { hash, at }, |slot| slot.hash);
    }

    /// The newest version of a key, which was in a memtable that takes no more writes, is here from now on,
    /// in the one that does.
    pub(super) fn renew(&mut self, hash: u64, before: Link<P>, at: Link<P>) {
        self.held[(at.epoch - before.epoch) as usize - 1] -= 1;
        if let Some(slot) = self.table.find_mut(hash, |slot| slot.at == before) {
            slot.at = at;
        }
    }

    /// The only version of a key, in the memtable that takes writes, is gone.
    pub(super) fn remove(&mut self, hash: u64, at: Link<P>) {
        if let Ok(slot) = self.table.find_entry(hash, |slot| slot.at == at) {
            slot.remove();
        }
    }

    /// Bytes of the slots that point to a memtable that takes no more writes.
    pub(super) fn held_bytes(&self, behind: usize) -> usize {
        self.held.get(behind).map_or(0, |slots| slots * Self::SLOT_BYTES)
    }

    /// The memtable that took writes, to which so many slots point, takes no more.
    pub(super) fn freeze(&mut self, slots: usize) {
        self.held.push_front(slots);
    }

    /// The oldest memtable is gone. `is_left`: whether that of an epoch is not.
    pub(super) fn forget_oldest(&mut self, is_left: impl Fn(u32) -> bool) {
        self.gone += self.held.pop_back().unwrap_or(0);
        if self.gone * 2 >= self.table.len() {
            self.sweep(is_left);
        }
    }

    /// Removes the slots that count as empty: half of all, so it is paid for by the writes that took them.
    fn sweep(&mut self, is_left: impl Fn(u32) -> bool) {
        self.table.retain(|slot| is_left(slot.at.epoch));
        self.gone = 0;
        if self.table.len() < self.table.capacity() / 4 {
            self.table.shrink_to(self.table.len() * 2, |slot| slot.hash);
        }
    }
}
