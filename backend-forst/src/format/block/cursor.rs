//! Walking through a block, forwards and backwards.

#[cfg(test)]
use bytes::Bytes;

use super::super::entry::{Entry, EntryKind};
use super::search::{Block, take_entry};

/// A place in a block: an entry, or beyond either end. Keeps its block alive; reuse it for the next
/// block with [`enter`](BlockCursor::enter).
#[derive(Debug, Clone)]
pub(crate) struct BlockCursor {
    block: Block,
    /// The group whose entries are unfolded.
    group: u32,
    places: Vec<EntryPlace>,
    /// Index into `places`; beyond it when the cursor is not at an entry.
    at: usize,
    key: Vec<u8>,
}

/// Where an entry's parts are in the payload.
#[derive(Debug, Clone, Copy)]
struct EntryPlace {
    shared: u32,
    suffix: u32,
    suffix_len: u32,
    value: u32,
    value_len: u32,
    kind: EntryKind,
}

const NOWHERE: usize = usize::MAX;

impl BlockCursor {
    /// A cursor at the first entry.
    pub(crate) fn new(block: Block) -> Self {
        let mut cursor =
            BlockCursor { block, group: 0, places: Vec::new(), at: NOWHERE, key: Vec::new() };
        cursor.seek_to_first();
        cursor
    }

    /// Goes over to the first entry of another block.
    pub(crate) fn enter(&mut self, block: Block) {
        self.block = block;
        self.seek_to_first();
    }

    /// Whether it is at an entry.
    pub(crate) fn is_valid(&self) -> bool {
        self.at < self.places.len()
    }

    /// The entry it is at; `None` beyond the ends.
    #[inline]
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let place = self.places.get(self.at)?;
        let value = &self.block.payload()[place.value_range()];
        Some(Entry { key: &self.key, kind: place.kind, value })
    }

    #[cfg(test)]
    /// The value of the entry it is at; keeps the block's memory alive.
    pub(crate) fn value_bytes(&self) -> Option<Bytes> {
        let place = self.places.get(self.at)?;
        Some(self.block.payload().slice(place.value_range()))
    }

    /// Goes to the first entry.
    pub(crate) fn seek_to_first(&mut self) {
        self.unfold(0);
        self.go_to(0);
    }

    #[cfg(test)]
    /// Goes to the last entry.
    pub(crate) fn seek_to_last(&mut self) {
        self.unfold(self.block.groups() - 1);
        self.go_to(self.places.len() - 1);
    }

    /// Goes to the first entry whose key is not before `from`; beyond the end when there is none.
    pub(crate) fn seek(&mut self, from: &[u8]) {
        self.unfold(self.block.group_of(from).unwrap_or(0));
        self.go_to(0);
        while self.is_valid() && self.key.as_slice() < from {
            self.next();
        }
    }

    /// Goes to the last entry whose key is before `to`; beyond the start when there is none.
    pub(crate) fn seek_before(&mut self, to: &[u8]) {
        let Some(group) = self.block.group_of(to) else {
            self.at = NOWHERE;
            return;
        };
        self.unfold(group);
        self.go_to(self.places.len() - 1);
        while self.is_valid() && self.key.as_slice() >= to {
            self.prev();
        }
    }

    /// Goes to the next entry, or beyond the end. Beyond an end it stays there.
    #[inline]
    pub(crate) fn next(&mut self) {
        if self.at.wrapping_add(1) < self.places.len() && self.is_valid() {
            // The keys of a group begin with bytes of the same head.
            let common = self.places[self.at].shared.min(self.places[self.at + 1].shared);
            self.at += 1;
            self.complete_key(common as usize);
        } else if self.is_valid() && self.group + 1 < self.block.groups() {
            self.unfold(self.group + 1);
            self.go_to(0);
        } else {
            self.at = NOWHERE;
        }
    }

    /// Goes to the entry before, or beyond the start. Beyond an end it stays there.
    pub(crate) fn prev(&mut self) {
        if !self.is_valid() {
            return;
        }
        if self.at > 0 {
            self.go_to(self.at - 1);
        } else if self.group > 0 {
            self.unfold(self.group - 1);
            self.go_to(self.places.len() - 1);
        } else {
            self.at = NOWHERE;
        }
    }

    /// Finds the parts of all entries of a group.
    fn unfold(&mut self, group: u32) {
        let row = self.block.row(group);
        let payload = self.block.payload();
        let mut keys = &payload[row.keys..row.values];
        let mut value = row.values;
        self.group = group;
        self.places.clear();
        while !keys.is_empty() {
            // Verified when the block was decoded.
            let Some(entry) = take_entry(&mut keys) else { break };
            let suffix = row.values - keys.len() - entry.suffix.len();
            self.places.push(EntryPlace {
                shared: entry.shared as u32,
                suffix: suffix as u32,
                suffix_len: entry.suffix.len() as u32,
                value: value as u32,
                value_len: entry.value_len as u32,
                kind: entry.kind,
            });
            value += entry.value_len;
        }
    }

    /// Goes to an entry of the unfolded group.
    #[inline]
    fn go_to(&mut self, at: usize) {
        self.at = at;
        self.complete_key(0);
    }

    /// Makes the key that of the entry it is at; so many bytes of it are right.
    #[inline]
    fn complete_key(&mut self, right: usize) {
        if let Some(place) = self.places.get(self.at) {
            self.key.truncate(right);
            let shared = place.shared as usize;
            if right < shared {
                self.key.extend_from_slice(&self.block.head(self.group)[right..shared]);
            }
            let suffix = place.suffix as usize;
            let suffix = suffix..suffix + place.suffix_len as usize;
            self.key.extend_from_slice(&self.block.payload()[suffix]);
        }
    }
}

impl EntryPlace {
    fn value_range(&self) -> std::ops::Range<usize> {
        self.value as usize..(self.value + self.value_len) as usize
    }
}
