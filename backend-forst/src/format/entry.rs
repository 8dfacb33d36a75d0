//! Entries: a key, what happened to it, a value.

use weir_state_api::{Millis, StateShape};

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EntryKind {
    /// It has this value, whatever it had before.
    Put,
    /// It is gone. Without a value.
    Delete,
    /// The value is appended to what it had before.
    Append,
}

impl EntryKind {
    /// The two bits that stand for it in a block.
    #[inline]
    pub(crate) fn code(self) -> u8 {
        match self {
            EntryKind::Put => 0,
            EntryKind::Delete => 1,
            EntryKind::Append => 2,
        }
    }

    /// The kind with this code.
    #[inline]
    pub(crate) fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(EntryKind::Put),
            1 => Some(EntryKind::Delete),
            2 => Some(EntryKind::Append),
            _ => None,
        }
    }
}

/// An entry of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The stored key ([`stored_key`](weir_state_api::stored_key)).
    pub(crate) key: &'a [u8],
    /// What happened to it.
    pub(crate) kind: EntryKind,
    /// The value; empty for a delete.
    pub(crate) value: &'a [u8],
}

/// What a table's writer needs to know of an entry beyond its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryTraits {
    /// How its state is accessed. Timers are never looked up: they enter neither filter nor hash
    /// index.
    pub(crate) shape: StateShape,
    /// When it expires, in the time of its state; `None` for never. Of a list, when its last element
    /// does. Ignored for deletes.
    pub(crate) expiry: Option<Millis>,
    /// For maps: how many bytes of the key all entries of its map begin with
    /// ([`push_map_prefix`](weir_state_api::stored_key::push_map_prefix)). They enter the filter
    /// too, so that a scan of one map skips tables without it.
    pub(crate) map_prefix_len: usize,
}

impl EntryTraits {
    /// Of an entry of a point state that never expires.
    pub(crate) const POINT: EntryTraits =
        EntryTraits { shape: StateShape::Point, expiry: None, map_prefix_len: 0 };

    /// Of a timer.
    pub(crate) const TIMER: EntryTraits =
        EntryTraits { shape: StateShape::Queue, expiry: None, map_prefix_len: 0 };

    /// Of an entry of a map that never expires.
    pub(crate) const fn map(map_prefix_len: usize) -> EntryTraits {
        EntryTraits { shape: StateShape::Ordered, expiry: None, map_prefix_len }
    }

    /// The same, expiring at this instant.
    pub(crate) const fn expiring(self, at: Option<Millis>) -> EntryTraits {
        EntryTraits { expiry: at, ..self }
    }
}
