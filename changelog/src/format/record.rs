//! One change as bytes: an operation, the address it is for, and what it brings.
//!
//! Layout: `docs/formats/changelog.md`. Four bytes are added to key and value where state number, key
//! group and lengths are small and the namespace is empty.

use std::ops::Bound;

use weir_state_api::{Address, KeyGroup, KeyRef, MapRange, Millis, StateId, TimerRef};

const PUT: u8 = 0;
const DELETE: u8 = 1;
const APPEND: u8 = 2;
const PUT_ENTRY: u8 = 3;
const DELETE_ENTRY: u8 = 4;
const APPEND_ENTRY: u8 = 5;
const DELETE_RANGE: u8 = 6;
const REGISTER_TIMER: u8 = 7;
const DELETE_TIMER: u8 = 8;

const OPERATION: u8 = 0x0f;
const HAS_NAMESPACE: u8 = 0x10;
const STATE_SHIFT: u32 = 5;
/// In place of a small state number: the number follows.
const STATE_FOLLOWS: u8 = 7;

/// The longest thing before the key: head, state, key group, length of the key.
const MAX_HEAD: usize = 1 + 3 + 3 + 3;

/// A change, borrowed from the batch it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) state: StateId,
    pub(crate) group: KeyGroup,
    pub(crate) key: &'a [u8],
    pub(crate) namespace: &'a [u8],
    pub(crate) change: Change<'a>,
}

/// What a change does at its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Put { map_key: &'a [u8], value: &'a [u8] },
    Delete { map_key: &'a [u8] },
    Append { map_key: &'a [u8], value: &'a [u8] },
    DeleteRange { from: Bound<&'a [u8]>, to: Bound<&'a [u8]> },
    RegisterTimer { time: Millis },
    DeleteTimer { time: Millis },
}

/// Appends a replacement of a value.
#[inline]
pub(crate) fn push_put(at: &Address<'_>, value: &[u8], out: &mut Vec<u8>) {
    push_write(PUT, PUT_ENTRY, at, value, out);
}

/// Appends an appended part of a value.
#[inline]
pub(crate) fn push_append(at: &Address<'_>, value: &[u8], out: &mut Vec<u8>) {
    push_write(APPEND, APPEND_ENTRY, at, value, out);
}

/// Appends a removal.
#[inline]
pub(crate) fn push_delete(at: &Address<'_>, out: &mut Vec<u8>) {
    let operation = if at.map_key.is_empty() { DELETE } else { DELETE_ENTRY };
    push_place(operation, at.state, at.key, at.namespace, out);
    if operation == DELETE_ENTRY {
        push_bytes(at.map_key, out);
    }
}

/// Appends a removal of the map keys in a range.
pub(crate) fn push_delete_range(at: &Address<'_>, range: MapRange<'_>, out: &mut Vec<u8>) {
    push_place(DELETE_RANGE, at.state, at.key, at.namespace, out);
    let (from, from_key) = bound(range.from);
    let (to, to_key) = bound(range.to);
    out.push(from | to << 4);
    for key in [from_key, to_key].into_iter().flatten() {
        push_bytes(key, out);
    }
}

/// Appends the registration of a timer.
#[inline]
pub(crate) fn push_register_timer(timer: &TimerRef<'_>, out: &mut Vec<u8>) {
    push_place(REGISTER_TIMER, timer.queue, timer.key, timer.namespace, out);
    out.extend_from_slice(&timer.time.to_le_bytes());
}

/// Appends the removal of a timer, by its identity: deleted and polled ones alike.
#[inline]
pub(crate) fn push_delete_timer(timer: &TimerRef<'_>, out: &mut Vec<u8>) {
    push_place(DELETE_TIMER, timer.queue, timer.key, timer.namespace, out);
    out.extend_from_slice(&timer.time.to_le_bytes());
}

#[inline]
fn push_write(point: u8, entry: u8, at: &Address<'_>, value: &[u8], out: &mut Vec<u8>) {
    let operation = if at.map_key.is_empty() { point } else { entry };
    push_place(operation, at.state, at.key, at.namespace, out);
    if operation == entry {
        push_bytes(at.map_key, out);
    }
    push_bytes(value, out);
}

#[inline]
fn push_place(operation: u8, state: StateId, key: KeyRef<'_>, namespace: &[u8], out: &mut Vec<u8>) {
    let (bytes, group) = (key.bytes(), key.group().0);
    out.reserve(MAX_HEAD + bytes.len());
    let mut head = operation;
    if !namespace.is_empty() {
        head |= HAS_NAMESPACE;
    }
    if state.0 < u16::from(STATE_FOLLOWS) && group < 0x80 && bytes.len() < 0x80 {
        // Each of them fits a byte.
        head |= (state.0 as u8) << STATE_SHIFT;
        out.extend_from_slice(&[head, group as u8, bytes.len() as u8]);
    } else {
        if state.0 < u16::from(STATE_FOLLOWS) {
            out.push(head | (state.0 as u8) << STATE_SHIFT);
        } else {
            out.push(head | STATE_FOLLOWS << STATE_SHIFT);
            push_varint(u64::from(state.0), out);
        }
        push_varint(u64::from(group), out);
        push_varint(bytes.len() as u64, out);
    }
    out.extend_from_slice(bytes);
    if !namespace.is_empty() {
        push_bytes(namespace, out);
    }
}

fn bound(bound: Bound<&[u8]>) -> (u8, Option<&[u8]>) {
    match bound {
        Bound::Unbounded => (0, None),
        Bound::Included(key) => (1, Some(key)),
        Bound::Excluded(key) => (2, Some(key)),
    }
}

#[inline]
fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    push_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[inline]
fn push_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads the changes of a batch one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Records { rest: bytes }
    }

    /// The next change, or nothing at the end. `Err` when no change stands there.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Record<'a>>, Malformed> {
        let Some((&head, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        self.record(head).map(Some).ok_or(Malformed)
    }

    fn record(&mut self, head: u8) -> Option<Record<'a>> {
        let state = match head >> STATE_SHIFT {
            STATE_FOLLOWS => u16::try_from(self.varint()?).ok()?,
            small => u16::from(small),
        };
        let group = u16::try_from(self.varint()?).ok()?;
        let key = self.bytes()?;
        let namespace = if head & HAS_NAMESPACE == 0 { &[] } else { self.bytes()? };
        let change = match head & OPERATION {
            PUT => Change::Put { map_key: &[], value: self.bytes()? },
            DELETE => Change::Delete { map_key: &[] },
            APPEND => Change::Append { map_key: &[], value: self.bytes()? },
            PUT_ENTRY => Change::Put { map_key: self.bytes()?, value: self.bytes()? },
            DELETE_ENTRY => Change::Delete { map_key: self.bytes()? },
            APPEND_ENTRY => Change::Append { map_key: self.bytes()?, value: self.bytes()? },
            DELETE_RANGE => {
                let kinds = self.take(1)?.first().copied()?;
                let (from, to) = (self.bound(kinds & 0x0f)?, self.bound(kinds >> 4)?);
                Change::DeleteRange { from, to }
            }
            REGISTER_TIMER => Change::RegisterTimer { time: self.millis()? },
            DELETE_TIMER => Change::DeleteTimer { time: self.millis()? },
            _ => return None,
        };
        Some(Record { state: StateId(state), group: KeyGroup(group), key, namespace, change })
    }

    fn bound(&mut self, kind: u8) -> Option<Bound<&'a [u8]>> {
        match kind {
            0 => Some(Bound::Unbounded),
            1 => Some(Bound::Included(self.bytes()?)),
            2 => Some(Bound::Excluded(self.bytes()?)),
            _ => None,
        }
    }

    fn millis(&mut self) -> Option<Millis> {
        Some(Millis::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    #[inline]
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        self.take(length)
    }

    #[inline]
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if bits.leading_zeros() < shift {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

/// Bytes that are no change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
