//! What is in a table, without looking into it. Stands in the table and in manifests.

use weir_state_api::{KeyGroupRange, Millis, Result, StateId};

use super::entry::EntryKind;
use super::wire::{Decoder, put_bytes, put_varint, zigzag};

/// What is in a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TableProperties {
    /// The smallest key of an entry or start of a range delete; empty when there is neither.
    pub(crate) first_key: Box<[u8]>,
    /// Behind all entries and range deletes: less than this are all keys that the table says
    /// something about.
    pub(crate) end_key: Box<[u8]>,
    /// The states of which there are entries, by number.
    pub(crate) states: Vec<StateProperties>,
    /// Range deletes, after neighbours have been joined.
    pub(crate) range_deletes: u64,
    /// The lengths of all keys and values.
    pub(crate) raw_bytes: u64,
}

/// What a table holds of one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateProperties {
    /// The state's number in the table's keys.
    pub(crate) state: StateId,
    /// The era of all its entries.
    pub(crate) era: u8,
    /// Entries by kind.
    pub(crate) puts: u64,
    /// See `puts`.
    pub(crate) deletes: u64,
    /// See `puts`.
    pub(crate) appends: u64,
    /// When the first of the puts and appends expires; `None` when none ever does.
    pub(crate) earliest_expiry: Option<Millis>,
    /// When the last of the puts and appends expires; `None` when one of them never does, and when
    /// there are none.
    pub(crate) latest_expiry: Option<Millis>,
}

impl StateProperties {
    fn new(state: StateId) -> Self {
        StateProperties {
            state,
            era: 0,
            puts: 0,
            deletes: 0,
            appends: 0,
            earliest_expiry: None,
            latest_expiry: None,
        }
    }

    /// All entries.
    pub(crate) fn entries(&self) -> u64 {
        self.puts + self.deletes + self.appends
    }

    #[inline]
    fn count(&mut self, kind: EntryKind, expiry: Option<Millis>) {
        if kind == EntryKind::Delete {
            self.deletes += 1;
            return;
        }
        let first = self.puts + self.appends == 0;
        if let Some(at) = expiry {
            self.earliest_expiry =
                Some(self.earliest_expiry.map_or(at, |earliest| earliest.min(at)));
        }
        self.latest_expiry = match (self.latest_expiry, expiry) {
            (None, at) if first => at,
            (Some(latest), Some(at)) => Some(latest.max(at)),
            _ => None,
        };
        match kind {
            EntryKind::Append => self.appends += 1,
            EntryKind::Put | EntryKind::Delete => self.puts += 1,
        }
    }
}

impl TableProperties {
    /// All entries.
    pub(crate) fn entries(&self) -> u64 {
        self.states.iter().map(StateProperties::entries).sum()
    }

    /// Whether there is nothing: neither an entry nor a range delete.
    pub(crate) fn is_empty(&self) -> bool {
        self.states.is_empty() && self.range_deletes == 0
    }

    /// What there is of a state; `None` for no entry.
    pub(crate) fn of_state(&self, state: StateId) -> Option<&StateProperties> {
        let at = self.states.binary_search_by_key(&state, |of| of.state).ok()?;
        self.states.get(at)
    }

    /// The key groups that entries and range deletes are in.
    pub(crate) fn groups(&self) -> KeyGroupRange {
        let group = |key: &[u8]| {
            let byte = |at: usize| key.get(at).copied().unwrap_or(0);
            u16::from_be_bytes([byte(0), byte(1)])
        };
        if self.first_key >= self.end_key {
            return KeyGroupRange::EMPTY;
        }
        let (first, end) = (group(&self.first_key), group(&self.end_key));
        // An end of two bytes is the start of its group: nothing of it comes before.
        let last = if self.end_key.len() > 2 { end } else { end.saturating_sub(1) };
        KeyGroupRange::new(first, last)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let keys = self.first_key.len() + self.end_key.len();
        keys + self.states.len() * size_of::<StateProperties>()
    }

    /// Counts an entry. States come in any order: a state's keys are spread over the key groups.
    pub(super) fn count(
        &mut self,
        state: StateId,
        kind: EntryKind,
        expiry: Option<Millis>,
        raw_len: usize,
    ) {
        // Mostly it is of a table's only state.
        let is_only = matches!(self.states[..], [ref only] if only.state == state);
        let found =
            if is_only { Ok(0) } else { self.states.binary_search_by_key(&state, |of| of.state) };
        let at = match found {
            Ok(at) => at,
            Err(at) => {
                self.states.insert(at, StateProperties::new(state));
                at
            }
        };
        self.states[at].count(kind, expiry);
        self.raw_bytes += raw_len as u64;
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.first_key);
        put_bytes(out, &self.end_key);
        put_varint(out, self.range_deletes);
        put_varint(out, self.raw_bytes);
        put_varint(out, self.states.len() as u64);
        for of in &self.states {
            put_varint(out, u64::from(of.state.0));
            out.push(of.era);
            for count in [of.puts, of.deletes, of.appends] {
                put_varint(out, count);
            }
            for expiry in [of.earliest_expiry, of.latest_expiry] {
                out.push(u8::from(expiry.is_some()));
                if let Some(at) = expiry {
                    put_varint(out, zigzag(at));
                }
            }
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Self> {
        let (first_key, end_key) = (decoder.bytes()?, decoder.bytes()?);
        let (range_deletes, raw_bytes) = (decoder.varint()?, decoder.varint()?);
        let count = decoder.count(7)?;
        let mut states: Vec<StateProperties> = Vec::with_capacity(count);
        for _ in 0..count {
            let mut of = StateProperties::new(StateId(decoder.number()?));
            [of.era] = decoder.array()?;
            (of.puts, of.deletes, of.appends) =
                (decoder.varint()?, decoder.varint()?, decoder.varint()?);
            of.earliest_expiry = decode_expiry(decoder)?;
            of.latest_expiry = decode_expiry(decoder)?;
            let ascending = states.last().is_none_or(|last| last.state < of.state);
            let counted = of.puts.checked_add(of.deletes).and_then(|n| n.checked_add(of.appends));
            if !ascending || counted.is_none_or(|entries| entries == 0 || entries > u64::MAX >> 16)
            {
                return Err(decoder.corrupt("the properties of states are not in order"));
            }
            states.push(of);
        }
        let empty = states.is_empty() && range_deletes == 0;
        if empty != (first_key >= end_key) {
            return Err(decoder.corrupt("the range of keys is not one"));
        }
        Ok(TableProperties {
            first_key: first_key.into(),
            end_key: end_key.into(),
            states,
            range_deletes,
            raw_bytes,
        })
    }
}

fn decode_expiry(decoder: &mut Decoder<'_>) -> Result<Option<Millis>> {
    if decoder.flag()? { decoder.signed().map(Some) } else { Ok(None) }
}
