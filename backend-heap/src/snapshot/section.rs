//! The entries of one state in one key group.
#![deny(clippy::indexing_slicing)]

use weir_state_api::wire::{Decoder, put_varint};
use weir_state_api::{Millis, Result};

use crate::removals::RemovedKey;
use crate::stored_timer::StoredTimer;

/// Appends a record of a point state.
#[inline]
pub(crate) fn encode_point(out: &mut Vec<u8>, (key, namespace, value): Point<'_>) {
    let lengths = [key.len(), namespace.len(), value.len()];
    if lengths.iter().all(|length| *length < 0x80) {
        // Numbers of one byte each, appended at once.
        out.extend_from_slice(&lengths.map(|length| length as u8));
    } else {
        lengths.iter().for_each(|length| put_varint(out, *length as u64));
    }
    out.extend_from_slice(key);
    out.extend_from_slice(namespace);
    out.extend_from_slice(value);
}

/// Appends a removed key.
pub(crate) fn encode_removal(out: &mut Vec<u8>, removed: &RemovedKey) {
    let (key, namespace) = removed.key_and_namespace();
    put_varint(out, key.len() as u64);
    put_varint(out, namespace.len() as u64);
    out.extend_from_slice(key);
    out.extend_from_slice(namespace);
}

/// Appends the head of a map's record; its entries follow.
pub(crate) fn encode_map_head(out: &mut Vec<u8>, key: &[u8], namespace: &[u8], entries: usize) {
    put_varint(out, key.len() as u64);
    put_varint(out, namespace.len() as u64);
    put_varint(out, entries as u64);
    out.extend_from_slice(key);
    out.extend_from_slice(namespace);
}

/// Appends an entry of a map.
#[inline]
pub(crate) fn encode_map_entry(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    put_varint(out, key.len() as u64);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// Appends a timer.
#[inline]
pub(crate) fn encode_timer(out: &mut Vec<u8>, timer: &StoredTimer) {
    let (key, namespace) = timer.key_and_namespace();
    out.extend_from_slice(&timer.time.to_le_bytes());
    put_varint(out, key.len() as u64);
    put_varint(out, namespace.len() as u64);
    out.extend_from_slice(key);
    out.extend_from_slice(namespace);
}

/// A record's key, namespace and value.
pub(crate) type Point<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// Reads the removed keys of a section; its records follow.
pub(crate) fn decode_removals<'a>(
    decoder: &mut Decoder<'a>,
    removals: u64,
    mut each: impl FnMut(&'a [u8], &'a [u8]) -> Result<()>,
) -> Result<()> {
    for _ in 0..removals {
        let (key, namespace) = (decoder.varint()?, decoder.varint()?);
        each(decoder.take(key)?, decoder.take(namespace)?)?;
    }
    Ok(())
}

/// Reads all records of a point state.
pub(crate) fn decode_points<'a>(
    mut decoder: Decoder<'a>,
    records: u64,
    mut each: impl FnMut(Point<'a>) -> Result<()>,
) -> Result<()> {
    for _ in 0..records {
        let (key, namespace) = (decoder.varint()?, decoder.varint()?);
        let value = decoder.varint()?;
        each((decoder.take(key)?, decoder.take(namespace)?, decoder.take(value)?))?;
    }
    finish(&decoder)
}

/// The entries of a map that is being read, in ascending order.
#[derive(Debug)]
pub(crate) struct MapEntries<'d, 'a> {
    decoder: &'d mut Decoder<'a>,
    left: u64,
    last: Option<&'a [u8]>,
}

impl<'a> MapEntries<'_, 'a> {
    fn read(&mut self) -> Result<(&'a [u8], &'a [u8])> {
        let (map_key, value) = (self.decoder.varint()?, self.decoder.varint()?);
        let (map_key, value) = (self.decoder.take(map_key)?, self.decoder.take(value)?);
        if self.last.is_some_and(|last| last >= map_key) {
            return Err(self.decoder.corrupt("the entries of a map are out of order"));
        }
        self.last = Some(map_key);
        Ok((map_key, value))
    }
}

impl<'a> Iterator for MapEntries<'_, 'a> {
    type Item = Result<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.read())
    }

    /// What the record says; nobody may allocate that much because of it.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::try_from(self.left).unwrap_or(usize::MAX), None)
    }
}

/// Reads all records of a map state; `each` must read all entries that it is given.
pub(crate) fn decode_maps<'a>(
    mut decoder: Decoder<'a>,
    records: u64,
    mut each: impl FnMut(&'a [u8], &'a [u8], MapEntries<'_, 'a>) -> Result<()>,
) -> Result<()> {
    for _ in 0..records {
        let (key, namespace) = (decoder.varint()?, decoder.varint()?);
        let entries = decoder.varint()?;
        let (key, namespace) = (decoder.take(key)?, decoder.take(namespace)?);
        if entries == 0 {
            return Err(decoder.corrupt("a map has no entry"));
        }
        each(key, namespace, MapEntries { decoder: &mut decoder, left: entries, last: None })?;
    }
    finish(&decoder)
}

/// Reads all timers of a queue.
pub(crate) fn decode_timers<'a>(
    mut decoder: Decoder<'a>,
    records: u64,
    mut each: impl FnMut(Millis, &'a [u8], &'a [u8]) -> Result<()>,
) -> Result<()> {
    let mut last = None;
    for _ in 0..records {
        let time = Millis::from_le_bytes(decoder.array()?);
        let (key, namespace) = (decoder.varint()?, decoder.varint()?);
        let timer = (time, decoder.take(key)?, decoder.take(namespace)?);
        if last.is_some_and(|last| last >= timer) {
            return Err(decoder.corrupt("the timers are out of order"));
        }
        last = Some(timer);
        each(timer.0, timer.1, timer.2)?;
    }
    finish(&decoder)
}

fn finish(decoder: &Decoder<'_>) -> Result<()> {
    if decoder.is_empty() {
        Ok(())
    } else {
        Err(decoder.corrupt("a section is longer than its records"))
    }
}
