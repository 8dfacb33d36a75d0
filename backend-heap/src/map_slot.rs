//! An entry of a map state: key, namespace and the map's entries, in 32 bytes and what these refer to.
//!
//! Half a cache line, aligned: a read of a small map costs two cache misses, this and the entries,
//! when the key is a word in the default namespace.

use crate::clean_up::Sieve;
use crate::compact_bytes::touch;
use crate::entry_chunk::Entry;
use crate::entry_chunks::EntryChunks;
use crate::keyed_table::{Locator, Slot, same_bytes};

/// See the module. The map is never empty while it is stored.
#[derive(Debug, Clone)]
#[repr(align(32))]
pub(crate) enum MapSlot {
    /// A key of eight bytes in the default namespace: the most common one, compared as a word.
    Word { epoch: u32, key: [u8; 8], entries: EntryChunks },
    /// Any other. The low bits of the hash tell most others apart without a look at them.
    Placed { tag: u16, epoch: u32, place: Box<Place>, entries: EntryChunks },
}

/// A key and a namespace that are no word.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    key_len: usize,
    /// The key followed by the namespace.
    bytes: Box<[u8]>,
}

impl MapSlot {
    /// A slot with these entries, of an epoch that is set when it is stored.
    pub(crate) fn new(at: Locator<'_>, entries: EntryChunks) -> Self {
        let epoch = 0;
        if let (Ok(key), true) = (<[u8; 8]>::try_from(at.key()), at.namespace().is_empty()) {
            return MapSlot::Word { epoch, key, entries };
        }
        let bytes = [at.key(), at.namespace()].concat().into_boxed_slice();
        let place = Box::new(Place { key_len: at.key().len(), bytes });
        MapSlot::Placed { tag: at.tag(), epoch, place, entries }
    }

    /// The entries in order.
    #[inline(always)]
    pub(crate) fn entries(&self) -> &EntryChunks {
        match self {
            MapSlot::Word { entries, .. } | MapSlot::Placed { entries, .. } => entries,
        }
    }

    /// The same for writing.
    #[inline(always)]
    pub(crate) fn entries_mut(&mut self) -> &mut EntryChunks {
        match self {
            MapSlot::Word { entries, .. } | MapSlot::Placed { entries, .. } => entries,
        }
    }

    /// Whether it is the map of this key in the default namespace.
    #[inline(always)]
    pub(crate) fn is_of(&self, word: &[u8; 8]) -> bool {
        matches!(self, MapSlot::Word { key, .. } if key == word)
    }

    /// Stores a value.
    #[inline(always)]
    pub(crate) fn put(&mut self, (key, value): Entry<'_>) {
        let entries = self.entries_mut();
        match entries.search(key) {
            Ok(at) => entries.set(at, value),
            Err(at) => entries.insert(at, key, value),
        }
    }
}

impl Slot for MapSlot {
    /// Fewer than of others: what a scan or snapshot copies at once are maps, not single entries.
    const SEGMENT_ENTRIES: usize = 512;

    fn is_live(&self, sieve: &Sieve) -> bool {
        self.entries().iter().any(|(_, value)| sieve.is_live(value))
    }

    #[inline]
    fn touch(&self) {
        if let EntryChunks::One(chunk) = self.entries() {
            touch(chunk);
        }
    }

    #[inline]
    fn key_and_namespace(&self) -> (&[u8], &[u8]) {
        match self {
            MapSlot::Word { key, .. } => (key, &[]),
            MapSlot::Placed { place, .. } => place.bytes.split_at(place.key_len),
        }
    }

    #[inline(always)]
    fn is_at(&self, at: Locator<'_>) -> bool {
        match self {
            MapSlot::Word { key, .. } => at.key() == key && at.namespace().is_empty(),
            MapSlot::Placed { tag, place, .. } => {
                let (key, namespace) = place.bytes.split_at(place.key_len);
                *tag == at.tag()
                    && same_bytes(key, at.key())
                    && same_bytes(namespace, at.namespace())
            }
        }
    }

    fn entry_count(&self) -> usize {
        self.entries().len()
    }

    #[inline]
    fn epoch(&self) -> u32 {
        match self {
            MapSlot::Word { epoch, .. } | MapSlot::Placed { epoch, .. } => *epoch,
        }
    }

    #[inline]
    fn set_epoch(&mut self, now: u32) {
        match self {
            MapSlot::Word { epoch, .. } | MapSlot::Placed { epoch, .. } => *epoch = now,
        }
    }

    #[inline]
    fn heap_bytes(&self) -> usize {
        let place = match self {
            MapSlot::Word { .. } => 0,
            MapSlot::Placed { place, .. } => size_of::<Place>() + place.bytes.len(),
        };
        place + self.entries().heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use weir_state_api::key_hash;

    use super::*;

    #[test]
    fn takes_half_a_cache_line() {
        assert_eq!((size_of::<MapSlot>(), size_of::<Option<MapSlot>>()), (32, 32));
    }

    #[test]
    fn a_word_is_no_other_key_or_namespace_of_the_same_bytes() {
        let pairs: [(&[u8], &[u8]); 5] = [
            (b"12345678", b""),
            (b"", b"12345678"),
            (b"1234", b"5678"),
            (b"12345678", b"1"),
            (b"", b""),
        ];
        let locate = |(key, namespace)| Locator::with_key_hash(key, key_hash(key), namespace);
        for (index, &pair) in pairs.iter().enumerate() {
            let slot = MapSlot::new(locate(pair), EntryChunks::of((b"", b"")));
            assert_eq!(slot.key_and_namespace(), pair);
            for (other, &at) in pairs.iter().enumerate() {
                assert_eq!(slot.is_at(locate(at)), index == other);
            }
        }
    }
}
