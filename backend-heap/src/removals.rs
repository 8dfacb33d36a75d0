//! The keys that were removed since earlier snapshots: what an incremental snapshot has to say
//! about entries that are not there any more.

use std::sync::Arc;

use weir_state_api::key_hash;

use crate::compact_bytes::CompactBytes;
use crate::keyed_table::{Locator, same_bytes};
use crate::segment::{Hashed, Segment};

/// More removed keys than this, and than there are entries, are not worth keeping: the next snapshot
/// writes the table whole.
const MIN_KEPT: usize = 256;

/// A key and a namespace that were removed.
#[derive(Debug, Clone)]
pub(crate) struct RemovedKey {
    key_len: u32,
    /// The key followed by the namespace.
    bytes: CompactBytes,
}

impl RemovedKey {
    /// The key and the namespace.
    pub(crate) fn key_and_namespace(&self) -> (&[u8], &[u8]) {
        self.bytes.as_slice().split_at(self.key_len as usize)
    }
}

impl Hashed for RemovedKey {
    fn hash(&self) -> u64 {
        let (key, namespace) = self.key_and_namespace();
        Locator::with_key_hash(key, key_hash(key), namespace).hash()
    }
}

/// The removed keys of one epoch, each once.
pub(crate) type RemovedKeys = Segment<RemovedKey>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    /// Of the running epoch.
    current: RemovedKeys,
    /// Of earlier epochs, ascending.
    past: Vec<(u32, Arc<RemovedKeys>)>,
    past_len: usize,
    /// The removals after this epoch are known; `None`: nothing is recorded.
    known_after: Option<u32>,
}

impl Removals {
    /// Starts recording, if it has not started; `epoch` is the last one that is over.
    pub(crate) fn record_after(&mut self, epoch: u32) {
        self.known_after.get_or_insert(epoch);
    }

    /// Forgets everything: what was removed up to now is not known. `epoch` is the running one.
    pub(crate) fn lose(&mut self, epoch: u32) {
        if self.known_after.is_some() {
            *self = Removals { known_after: Some(epoch), ..Removals::default() };
        }
    }

    /// Records a removal. `epoch` is the running one, `entries` the number of entries left.
    pub(crate) fn record(&mut self, at: Locator<'_>, epoch: u32, entries: usize) {
        if self.known_after.is_none() {
            return;
        }
        let is_it = |removed: &RemovedKey| {
            let (key, namespace) = removed.key_and_namespace();
            same_bytes(key, at.key()) && same_bytes(namespace, at.namespace())
        };
        if self.current.find(at.hash(), is_it).is_some() {
            return;
        }
        if self.past_len + self.current.len() >= entries.max(MIN_KEPT) {
            self.lose(epoch);
            return;
        }
        let bytes = CompactBytes::concat(at.key(), at.namespace());
        // Keys have at most 64 KiB.
        self.current.insert(at.hash(), RemovedKey { key_len: at.key().len() as u32, bytes });
    }

    /// Ends the epoch: O(1).
    pub(crate) fn end_epoch(&mut self, epoch: u32) {
        if !self.current.is_empty() {
            self.past_len += self.current.len();
            self.past.push((epoch, Arc::new(std::mem::take(&mut self.current))));
        }
    }

    /// What was removed after the epoch `base`, as far as epochs are over; `None` when not all of
    /// it is known.
    pub(crate) fn since(&self, base: u32) -> Option<Vec<Arc<RemovedKeys>>> {
        self.known_after.filter(|known| *known <= base)?;
        let after = self.past.iter().filter(|(epoch, _)| *epoch > base);
        Some(after.map(|(_, removed)| Arc::clone(removed)).collect())
    }

    /// No snapshot will build on an epoch before `base` any more.
    pub(crate) fn forget_up_to(&mut self, base: u32) {
        self.past.retain(|(epoch, _)| *epoch > base);
        self.past_len = self.past.iter().map(|(_, removed)| removed.len()).sum();
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let past: usize = self.past.iter().map(|(_, removed)| removed.memory_bytes()).sum();
        past + self.current.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(removals: &mut Removals, key: &[u8], epoch: u32) {
        removals.record(Locator::with_key_hash(key, key_hash(key), b""), epoch, 0);
    }

    fn keys(removed: Option<Vec<Arc<RemovedKeys>>>) -> Option<Vec<Vec<u8>>> {
        let mut keys: Vec<_> = removed?
            .iter()
            .flat_map(|keys| keys.iter().map(|key| key.key_and_namespace().0.to_vec()))
            .collect();
        keys.sort_unstable();
        Some(keys)
    }

    #[test]
    fn each_key_is_told_once_an_epoch_to_those_who_build_on_an_earlier_one() {
        let mut removals = Removals::default();
        record(&mut removals, b"before", 1);
        assert!(removals.since(0).is_none(), "nothing was recorded");
        removals.record_after(1);
        record(&mut removals, b"a", 2);
        record(&mut removals, b"a", 2);
        removals.end_epoch(2);
        record(&mut removals, b"b", 3);
        removals.end_epoch(3);
        assert!(removals.since(0).is_none());
        assert_eq!(keys(removals.since(1)).unwrap(), [b"a", b"b"]);
        assert_eq!(keys(removals.since(2)).unwrap(), [b"b"]);
        assert!(keys(removals.since(3)).unwrap().is_empty());
        removals.forget_up_to(2);
        assert_eq!(keys(removals.since(2)).unwrap(), [b"b"]);
    }

    #[test]
    fn too_many_are_given_up_and_that_is_known() {
        let mut removals = Removals::default();
        removals.record_after(1);
        for number in 0..=MIN_KEPT as u32 {
            record(&mut removals, &number.to_be_bytes(), 2);
        }
        assert!(removals.memory_bytes() < MIN_KEPT, "let go");
        removals.end_epoch(2);
        assert!(removals.since(1).is_none());
        assert!(removals.since(2).is_some());
    }
}
