//! Some neighbouring entries of a map or queue, packed: what a scan shares with the writer.

use std::cmp::Ordering;
use std::ops::Range;

use super::Found;
use crate::format::{Entry, EntryKind};

/// What has been outgrown or removed stays in the bytes of a leaf, until it is this much and half of
/// what is there.
const MIN_GARBAGE: usize = 256;

/// What a leaf costs beside its slots and bytes: itself with its counts, three allocations, and its share
/// of a branch.
const OVERHEAD: usize = size_of::<Leaf>() + 16 + 3 * 16 + 24;

/// An entry, without its bytes.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// See [`head_of`].
    head: u64,
    /// Where its key begins; the value follows.
    at: usize,
    value_len: usize,
    /// Of the whole stored key. Those have some 128 KiB at most.
    key_len: u32,
    kind: EntryKind,
}

/// Entries in the order of their stored keys, which begin with the same bytes: what precedes the map key.
/// The slots are in order; the bytes are not, so that an entry finds its place without moving others'.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaf {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    /// How many bytes are of entries as they are now.
    live: usize,
}

/// The first bytes of a map key as a number: in the order of the keys, as far as they decide it.
#[inline]
pub(super) fn head_of(map_key: &[u8]) -> u64 {
    match map_key.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; size_of::<u64>()];
            first[..map_key.len()].copy_from_slice(map_key);
            u64::from_be_bytes(first)
        }
    }
}

/// A stored key that is looked for among keys that begin with the same bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought<'k> {
    pub(super) head: u64,
    pub(super) key: &'k [u8],
    pub(super) prefix_len: usize,
}

impl<'k> Sought<'k> {
    #[inline]
    pub(super) fn new(key: &'k [u8], prefix_len: usize) -> Self {
        Sought { head: head_of(&key[prefix_len..]), key, prefix_len }
    }

    /// Whether it is the same as a key of this length if their heads are: most map keys are numbers, and
    /// have nothing behind.
    #[inline]
    fn is_decided_by_heads(&self, key_len: usize) -> bool {
        let decided = self.prefix_len + size_of::<u64>();
        key_len == decided && self.key.len() == decided
    }

    /// How a key compares with it that begins with the same bytes, and then with this head.
    #[inline]
    pub(super) fn order_of(&self, head: u64, key: &[u8]) -> Ordering {
        head.cmp(&self.head).then_with(|| {
            if self.is_decided_by_heads(key.len()) {
                return Ordering::Equal;
            }
            key[self.prefix_len..].cmp(&self.key[self.prefix_len..])
        })
    }
}

/// Makes room for so many more. Grows by half: there are many short leaves, and doubling would waste much.
#[inline]
fn make_room<T>(vec: &mut Vec<T>, more: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more.max(vec.len() / 2));
    }
}

impl Leaf {
    /// A leaf with one entry.
    pub(super) fn of(sought: Sought<'_>, kind: EntryKind, value: &[u8]) -> Self {
        let mut leaf = Leaf::default();
        leaf.insert(0, sought, kind, value);
        leaf
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of its entries.
    pub(super) fn live_bytes(&self) -> usize {
        self.live
    }

    /// Whether an entry has a value.
    pub(super) fn has_value(&self) -> bool {
        self.slots.iter().any(|slot| slot.kind != EntryKind::Delete)
    }

    /// Bytes held.
    #[inline]
    pub(super) fn memory_bytes(&self) -> usize {
        OVERHEAD + self.slots.capacity() * size_of::<Slot>() + self.bytes.capacity()
    }

    #[inline]
    fn key(&self, slot: &Slot) -> &[u8] {
        &self.bytes[slot.at..slot.at + slot.key_len as usize]
    }

    /// The stored key of the first entry.
    #[inline]
    pub(super) fn first_key(&self) -> &[u8] {
        self.slots.first().map_or(&[], |slot| self.key(slot))
    }

    /// Whether the first stored key begins with this.
    #[inline]
    pub(super) fn begins_with(&self, prefix: &[u8]) -> bool {
        let first = self.slots.first().and_then(|slot| self.bytes.get(slot.at..));
        first.is_some_and(|bytes| bytes.starts_with(prefix))
    }

    /// The head of the first entry.
    pub(super) fn first_head(&self) -> u64 {
        self.slots.first().map_or(0, |slot| slot.head)
    }

    /// Where a key is, or would be.
    #[inline]
    pub(super) fn find(&self, sought: Sought<'_>) -> Result<usize, usize> {
        let from = self.slots.partition_point(|slot| slot.head < sought.head);
        let Some(first) = self.slots.get(from).filter(|slot| slot.head == sought.head) else {
            return Err(from);
        };
        if sought.is_decided_by_heads(first.key_len as usize) {
            return Ok(from);
        }
        self.find_behind_heads(from, sought)
    }

    /// The same among keys whose heads are equal.
    fn find_behind_heads(&self, from: usize, sought: Sought<'_>) -> Result<usize, usize> {
        let equal = &self.slots[from..];
        let equal = &equal[..equal.partition_point(|slot| slot.head == sought.head)];
        let found = equal.binary_search_by(|slot| sought.order_of(slot.head, self.key(slot)));
        found.map(|at| from + at).map_err(|at| from + at)
    }

    /// Kind and value of an entry.
    #[inline]
    pub(super) fn found(&self, index: usize) -> Found<'_> {
        let slot = &self.slots[index];
        let start = slot.at + slot.key_len as usize;
        Found { kind: slot.kind, value: &self.bytes[start..start + slot.value_len] }
    }

    /// An entry.
    #[inline]
    pub(super) fn entry(&self, index: usize) -> Entry<'_> {
        let slot = &self.slots[index];
        let (key, value) = self.bytes[slot.at..].split_at(slot.key_len as usize);
        Entry { key, kind: slot.kind, value: &value[..slot.value_len] }
    }

    /// Adds an entry where [`find`](Leaf::find) says it would be.
    pub(super) fn insert(
        &mut self,
        index: usize,
        sought: Sought<'_>,
        kind: EntryKind,
        value: &[u8],
    ) {
        let Sought { head, key, .. } = sought;
        let at = self.bytes.len();
        make_room(&mut self.slots, 1);
        make_room(&mut self.bytes, key.len() + value.len());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.live += key.len() + value.len();
        let (key_len, value_len) = (key.len() as u32, value.len());
        self.slots.insert(index, Slot { head, at, value_len, key_len, kind });
    }

    /// Replaces kind and value of an entry where they are, if the value is as long as the one before.
    #[inline]
    pub(super) fn overwrite(&mut self, index: usize, kind: EntryKind, value: &[u8]) -> bool {
        let slot = &mut self.slots[index];
        if slot.value_len != value.len() {
            return false;
        }
        slot.kind = kind;
        let start = slot.at + slot.key_len as usize;
        self.bytes[start..start + value.len()].copy_from_slice(value);
        true
    }

    /// Replaces kind and value of an entry.
    pub(super) fn replace(&mut self, index: usize, kind: EntryKind, value: &[u8]) {
        if !self.overwrite(index, kind, value) {
            self.write(index, kind, 0, value);
        }
    }

    /// Appends to the value of an entry: to one that was deleted, as its new value.
    pub(super) fn append(&mut self, index: usize, more: &[u8]) {
        let Slot { kind, value_len, .. } = self.slots[index];
        let kind = if kind == EntryKind::Delete { EntryKind::Put } else { kind };
        self.write(index, kind, value_len, more);
    }

    /// Replaces what is behind the first `keep` bytes of a value.
    fn write(&mut self, index: usize, kind: EntryKind, keep: usize, bytes: &[u8]) {
        let slot = &mut self.slots[index];
        slot.kind = kind;
        let (start, kept_to) = (slot.at, slot.at + slot.key_len as usize + keep);
        let (before, len) = (slot.value_len, keep + bytes.len());
        slot.value_len = len;
        self.live = self.live - before + len;
        if len <= before {
            self.bytes[kept_to..kept_to + bytes.len()].copy_from_slice(bytes);
        } else {
            if kept_to - keep + before == self.bytes.len() {
                self.bytes.truncate(kept_to);
            } else {
                slot.at = self.bytes.len();
                self.bytes.extend_from_within(start..kept_to);
            }
            self.bytes.extend_from_slice(bytes);
        }
        self.tidy();
    }

    /// Removes entries. How many bytes they had.
    pub(super) fn remove(&mut self, range: Range<usize>) {
        let gone = self.slots.drain(range).map(|slot| slot.key_len as usize + slot.value_len);
        self.live -= gone.sum::<usize>();
        self.tidy();
    }

    /// Cuts off the upper half.
    pub(super) fn split(&mut self) -> Leaf {
        let upper = self.part(self.len() / 2..self.len());
        *self = self.part(0..self.len() / 2);
        upper
    }

    fn tidy(&mut self) {
        let garbage = self.bytes.len() - self.live;
        if garbage >= MIN_GARBAGE && garbage * 2 >= self.bytes.len() {
            *self = self.part(0..self.len());
        }
    }

    /// A copy of some entries.
    fn part(&self, range: Range<usize>) -> Leaf {
        let slots = &self.slots[range];
        let live = slots.iter().map(|slot| slot.key_len as usize + slot.value_len).sum();
        let mut part =
            Leaf { slots: Vec::with_capacity(slots.len()), bytes: Vec::with_capacity(live), live };
        for slot in slots {
            part.slots.push(Slot { at: part.bytes.len(), ..*slot });
            let len = slot.key_len as usize + slot.value_len;
            part.bytes.extend_from_slice(&self.bytes[slot.at..slot.at + len]);
        }
        part
    }
}
