//! One change as bytes: an operation, the address it is for, and what it brings.
//!
//! Layout: `docs/formats/changelog.md`. Four bytes are added to key and value where state number, key
//! group and lengths are small and the namespace is empty.

use std::ops::Bound;

use weir_state_api::wire::{Decoder, put_bytes, put_varint};
use weir_state_api::{Address, KeyGroup, KeyRef, MapRange, Millis, Result, StateId, TimerRef};

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
        put_bytes(out, at.map_key);
    }
}

/// Appends a removal of the map keys in a range.
pub(crate) fn push_delete_range(at: &Address<'_>, range: MapRange<'_>, out: &mut Vec<u8>) {
    push_place(DELETE_RANGE, at.state, at.key, at.namespace, out);
    let (from, from_key) = bound(range.from);
    let (to, to_key) = bound(range.to);
    out.push(from | to << 4);
    for key in [from_key, to_key].into_iter().flatten() {
        put_bytes(out, key);
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
        put_bytes(out, at.map_key);
    }
    put_bytes(out, value);
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
            put_varint(out, u64::from(state.0));
        }
        put_varint(out, u64::from(group));
        put_varint(out, bytes.len() as u64);
    }
    out.extend_from_slice(bytes);
    if !namespace.is_empty() {
        put_bytes(out, namespace);
    }
}

fn bound(bound: Bound<&[u8]>) -> (u8, Option<&[u8]>) {
    match bound {
        Bound::Unbounded => (0, None),
        Bound::Included(key) => (1, Some(key)),
        Bound::Excluded(key) => (2, Some(key)),
    }
}

/// Reads the changes of a batch one after the other.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    rest: Decoder<'a>,
}

impl<'a> Records<'a> {
    /// Those of a batch in `object`, which errors name.
    pub(crate) fn new(bytes: &'a [u8], object: &'a str) -> Self {
        Records { rest: Decoder::new(bytes, object) }
    }

    /// The next change, or nothing at the end.
    ///
    /// # Errors
    /// [`Corrupt`](weir_state_api::ErrorKind::Corrupt) when no change stands there.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Record<'a>>> {
        if self.rest.is_empty() { Ok(None) } else { self.record().map(Some) }
    }

    fn record(&mut self) -> Result<Record<'a>> {
        let [head] = self.rest.array()?;
        let state = match head >> STATE_SHIFT {
            STATE_FOLLOWS => self.rest.number()?,
            small => u16::from(small),
        };
        let group = self.rest.number()?;
        let key = self.rest.bytes()?;
        let namespace = if head & HAS_NAMESPACE == 0 { &[] } else { self.rest.bytes()? };
        let change = match head & OPERATION {
            PUT => Change::Put { map_key: &[], value: self.rest.bytes()? },
            DELETE => Change::Delete { map_key: &[] },
            APPEND => Change::Append { map_key: &[], value: self.rest.bytes()? },
            PUT_ENTRY => Change::Put { map_key: self.rest.bytes()?, value: self.rest.bytes()? },
            DELETE_ENTRY => Change::Delete { map_key: self.rest.bytes()? },
            APPEND_ENTRY => {
                Change::Append { map_key: self.rest.bytes()?, value: self.rest.bytes()? }
            }
            DELETE_RANGE => {
                let [kinds] = self.rest.array()?;
                let (from, to) = (self.bound(kinds & 0x0f)?, self.bound(kinds >> 4)?);
                Change::DeleteRange { from, to }
            }
            REGISTER_TIMER => Change::RegisterTimer { time: self.millis()? },
            DELETE_TIMER => Change::DeleteTimer { time: self.millis()? },
            other => return Err(self.rest.corrupt(format!("{other} is no operation"))),
        };
        Ok(Record { state: StateId(state), group: KeyGroup(group), key, namespace, change })
    }

    fn bound(&mut self, kind: u8) -> Result<Bound<&'a [u8]>> {
        match kind {
            0 => Ok(Bound::Unbounded),
            1 => Ok(Bound::Included(self.rest.bytes()?)),
            2 => Ok(Bound::Excluded(self.rest.bytes()?)),
            other => Err(self.rest.corrupt(format!("{other} is no kind of bound"))),
        }
    }

    fn millis(&mut self) -> Result<Millis> {
        Ok(Millis::from_le_bytes(self.rest.array()?))
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
