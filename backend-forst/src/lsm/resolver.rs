//! What the versions of one key come to.
//!
//! Flushes, compactions, reads and scans all ask here. The caller brings the versions newest first,
//! as far as no newer range delete hides them ([`Merge`](super::Merge) sees to that).

use std::borrow::Cow;

use weir_state_api::ttl::TtlTime;
use weir_state_api::{Result, StateKind};

use super::StateEras;
use crate::format::EntryKind;

/// One version of a key: what a memtable or a run holds for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyVersion<'v> {
    pub kind: EntryKind,
    /// The era of its bytes.
    pub era: u8,
    /// Empty for a delete.
    pub value: &'v [u8],
}

/// What versions come to, in bytes of the current era.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resolved<'v> {
    /// Nothing has to be stored.
    Nothing,
    /// The key is absent, and older versions must stay hidden.
    Delete,
    /// The whole value.
    Put(Cow<'v, [u8]>),
    /// Operands, to be appended to what older versions hold.
    Append(Cow<'v, [u8]>),
}

impl<'v> Resolved<'v> {
    /// What a read sees when these are all versions there are.
    pub(crate) fn value(self) -> Option<Cow<'v, [u8]>> {
        match self {
            Resolved::Put(value) | Resolved::Append(value) => Some(value),
            Resolved::Nothing | Resolved::Delete => None,
        }
    }

    /// As an entry of a table; `None` when there is nothing to store.
    pub(crate) fn entry(&self) -> Option<(EntryKind, &[u8])> {
        match self {
            Resolved::Nothing => None,
            Resolved::Delete => Some((EntryKind::Delete, &[])),
            Resolved::Put(value) => Some((EntryKind::Put, value)),
            Resolved::Append(value) => Some((EntryKind::Append, value)),
        }
    }
}

/// Resolves the versions of the keys of one kind of use.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    /// The time to sweep at. `None` leaves everything in: reads do not hide what has expired.
    sweep_at: Option<TtlTime>,
}

impl Resolver {
    /// For reads and scans.
    pub(crate) fn for_reads() -> Self {
        Resolver { sweep_at: None }
    }

    /// For flushes and compactions: what has expired at `time` goes.
    pub(crate) fn sweeping(time: TtlTime) -> Self {
        Resolver { sweep_at: Some(time) }
    }

    /// Resolves the versions of one key, newest first. What comes after a put or a delete is not
    /// looked at. `nothing_older`: no version exists beyond the given ones, so nothing has to be
    /// hidden.
    ///
    /// A version that has expired counts as a delete: it never uncovers an older one.
    ///
    /// # Errors
    /// [`Corrupt`](weir_state_api::ErrorKind::Corrupt) for a version of an era that the state has
    /// not had.
    pub(crate) fn resolve<'v>(
        &self,
        state: &StateEras,
        versions: impl IntoIterator<Item = KeyVersion<'v>>,
        nothing_older: bool,
    ) -> Result<Resolved<'v>> {
        let hidden = if nothing_older { Resolved::Nothing } else { Resolved::Delete };
        let mut versions = versions.into_iter();
        let Some(newest) = versions.next() else { return Ok(Resolved::Nothing) };
        match newest.kind {
            EntryKind::Delete => return Ok(hidden),
            EntryKind::Put => {
                let value = state.convert(newest.value, newest.era)?;
                let value = value.and_then(|value| self.swept(state, value));
                return Ok(value.map_or(hidden, Resolved::Put));
            }
            EntryKind::Append => {}
        }
        // Newest first, to be joined the other way round.
        let mut operands = Vec::new();
        let mut settled = nothing_older;
        for version in std::iter::once(newest).chain(versions) {
            if version.kind != EntryKind::Delete
                && let Some(value) = state.convert(version.value, version.era)?
            {
                operands.push(value);
            }
            if version.kind != EntryKind::Append {
                settled = true;
                break;
            }
        }
        let joined = join(operands);
        if settled {
            let value = joined.and_then(|value| self.swept(state, value));
            return Ok(value.map_or(hidden, Resolved::Put));
        }
        // Only lists consist of parts that expire each on its own.
        let value = match joined {
            Some(value) if state.kind() == StateKind::List => self.swept(state, value),
            other => other,
        };
        // An operand of which nothing is left hides nothing.
        Ok(value.map_or(Resolved::Nothing, Resolved::Append))
    }

    fn swept<'v>(&self, state: &StateEras, value: Cow<'v, [u8]>) -> Option<Cow<'v, [u8]>> {
        match &self.sweep_at {
            Some(time) => state.swept(value, time),
            None => Some(value),
        }
    }
}

/// Joins operands that come newest first; `None` when there is none.
fn join(mut operands: Vec<Cow<'_, [u8]>>) -> Option<Cow<'_, [u8]>> {
    if operands.len() <= 1 {
        return operands.pop();
    }
    let mut joined = Vec::with_capacity(operands.iter().map(|operand| operand.len()).sum());
    operands.iter().rev().for_each(|operand| joined.extend_from_slice(operand));
    Some(Cow::Owned(joined))
}

#[cfg(test)]
#[path = "resolver_tests.rs"]
mod tests;
