//! An entry of a point state in 32 bytes: key, namespace and value together.
//!
//! Half a cache line, aligned, so that a read that finds its entry costs one cache miss. When the
//! three are longer than 24 bytes together, they are one allocation, so it costs two. 24 bytes are a
//! key of one word and a value of one word, with a time stamp for states that expire.

use std::sync::Arc;

use weir_state_api::KeyRef;

use crate::clean_up::Sieve;
use crate::compact_bytes::{ARC_OVERHEAD, copy_short, touch};
use crate::keyed_table::{Locator, Slot, hash_of, same_bytes};
use crate::segment::Hashed;

/// The longest content (key, namespace and value together) that needs no allocation.
const SMALL_LEN: usize = 24;

/// See the module. Cloning copies 32 bytes; longer content is shared until one side changes it.
#[derive(Debug, Clone)]
#[repr(align(32))]
pub(crate) enum PointSlot {
    /// All of it is here. `lens` are those of key and namespace, compared at once.
    Small { value_len: u8, lens: [u8; 2], epoch: u32, data: [u8; SMALL_LEN] },
    /// Written whole; the rest of `bytes` is the value.
    Fixed { epoch: u32, hash: StoredHash, lens: Lens, bytes: Arc<[u8]> },
    /// Appended to: the buffer has room for more.
    Growable { epoch: u32, hash: StoredHash, lens: Lens, bytes: Arc<Vec<u8>> },
}

/// What a table needs of a hash: entries move without a look at their content, which would be a cache miss
/// for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredHash {
    upper: [u8; 4],
    tag: u16,
}

impl StoredHash {
    #[inline]
    fn new(hash: u64) -> Self {
        StoredHash { upper: ((hash >> 32) as u32).to_ne_bytes(), tag: hash as u16 }
    }

    /// The hash without the bits that select a key group.
    #[inline]
    fn get(self) -> u64 {
        u64::from(u32::from_ne_bytes(self.upper)) << 32 | u64::from(self.tag)
    }
}

/// The lengths of a key and a namespace, 64 KiB each at most: 17 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lens {
    low: [[u8; 2]; 2],
    high: u8,
}

impl Lens {
    fn new(key_len: usize, namespace_len: usize) -> Self {
        let low = [key_len, namespace_len].map(|len| (len as u16).to_ne_bytes());
        Lens { low, high: (key_len >> 16) as u8 | (namespace_len >> 16 << 1) as u8 }
    }

    #[inline]
    fn get(self) -> (usize, usize) {
        let [key_len, namespace_len] = self.low.map(|low| usize::from(u16::from_ne_bytes(low)));
        let high = usize::from(self.high);
        (key_len | (high & 1) << 16, namespace_len | (high & 2) << 15)
    }

    /// Where the value begins.
    #[inline]
    fn sum(self) -> usize {
        let (key_len, namespace_len) = self.get();
        key_len + namespace_len
    }
}

/// A key of eight bytes in the default namespace: the most common one, compared as a word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordKey {
    bytes: [u8; 8],
    tag: u16,
}

impl WordKey {
    /// The key, if it has eight bytes.
    #[inline(always)]
    pub(crate) fn new(key: KeyRef<'_>) -> Option<Self> {
        let bytes = *<&[u8; 8]>::try_from(key.bytes()).ok()?;
        Some(WordKey { bytes, tag: key.hash() as u16 })
    }
}

impl PointSlot {
    /// An entry with this value.
    #[inline]
    pub(crate) fn new(at: Locator<'_>, value: &[u8], epoch: u32) -> Self {
        Self::of(epoch, at.hash(), at.key(), at.namespace(), value)
    }

    fn of(epoch: u32, hash: u64, key: &[u8], namespace: &[u8], value: &[u8]) -> Self {
        let len = key.len() + namespace.len() + value.len();
        if len > SMALL_LEN {
            let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
            if let Some(bytes) = Arc::get_mut(&mut bytes) {
                let (head, tail) = bytes.split_at_mut(key.len());
                head.copy_from_slice(key);
                let (head, tail) = tail.split_at_mut(namespace.len());
                head.copy_from_slice(namespace);
                tail.copy_from_slice(value);
            }
            let (hash, lens) = (StoredHash::new(hash), Lens::new(key.len(), namespace.len()));
            return PointSlot::Fixed { epoch, hash, lens, bytes };
        }
        let mut data = [0; SMALL_LEN];
        let value_at = key.len() + namespace.len();
        copy_short(&mut data[..key.len()], key);
        data[key.len()..value_at].copy_from_slice(namespace);
        copy_short(&mut data[value_at..len], value);
        PointSlot::Small {
            lens: [key.len() as u8, namespace.len() as u8],
            epoch,
            value_len: value.len() as u8,
            data,
        }
    }

    /// The value.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self {
            PointSlot::Small { lens, value_len, data, .. } => {
                let start = usize::from(lens[0]) + usize::from(lens[1]);
                data.get(start..start + usize::from(*value_len)).unwrap_or_default()
            }
            PointSlot::Fixed { lens, bytes, .. } => &bytes[lens.sum()..],
            PointSlot::Growable { lens, bytes, .. } => &bytes[lens.sum()..],
        }
    }

    /// Whether the slot holds the content of this key's entry.
    #[inline(always)]
    pub(crate) fn holds(&self, key: WordKey) -> bool {
        match self {
            PointSlot::Small { lens: [8, 0], data, .. } => data.starts_with(&key.bytes),
            _ => false,
        }
    }

    /// Whether it holds the content of this key's entry, or may refer to it.
    #[inline(always)]
    pub(crate) fn may_be(&self, key: WordKey) -> bool {
        match self {
            PointSlot::Small { .. } => self.holds(key),
            PointSlot::Fixed { hash, .. } | PointSlot::Growable { hash, .. } => hash.tag == key.tag,
        }
    }

    /// The value of a slot that [`holds`](PointSlot::holds) the content of a key of one word.
    #[inline(always)]
    pub(crate) fn value_of_word(&self) -> Option<&[u8]> {
        match self {
            PointSlot::Small { value_len, data, .. } => data.get(8..8 + usize::from(*value_len)),
            _ => None,
        }
    }

    /// Replaces the value if the slot holds its content before and after; says whether it does.
    #[inline]
    fn set_small(&mut self, value: &[u8]) -> bool {
        match self {
            PointSlot::Small { lens, .. } => {
                let start = usize::from(lens[0]) + usize::from(lens[1]);
                self.set_small_at(start, value, self.epoch())
            }
            _ => false,
        }
    }

    /// As `set_small`, in the epoch `now`, for a slot whose value begins at `start`: the length of its
    /// key, in the default namespace. Where the value goes then depends on nothing in the slot, so later reads
    /// need not wait for the slot to arrive before they know that this write is not theirs.
    #[inline(always)]
    pub(crate) fn set_small_at(&mut self, start: usize, value: &[u8], now: u32) -> bool {
        let PointSlot::Small { lens, value_len, epoch, data } = self else {
            return false;
        };
        debug_assert_eq!(usize::from(lens[0]) + usize::from(lens[1]), start);
        let Some(target) = data.get_mut(start..start + value.len()) else { return false };
        copy_short(target, value);
        *value_len = value.len() as u8;
        *epoch = now;
        true
    }

    /// Replaces the value, in place when its place is as long and nobody else holds it.
    #[inline]
    pub(crate) fn set(&mut self, value: &[u8]) {
        if !self.set_small(value) {
            self.set_long(value);
        }
    }

    #[inline(never)]
    fn set_long(&mut self, value: &[u8]) {
        let (key, namespace) = self.key_and_namespace();
        let start = key.len() + namespace.len();
        let len = start + value.len();
        match self {
            PointSlot::Fixed { bytes, .. } if bytes.len() == len && len > SMALL_LEN => {
                if let Some(bytes) = Arc::get_mut(bytes) {
                    bytes[start..].copy_from_slice(value);
                    return;
                }
            }
            PointSlot::Growable { bytes, .. } if len > SMALL_LEN => {
                if let Some(bytes) = Arc::get_mut(bytes)
                    && (bytes.capacity() / 4..=bytes.capacity()).contains(&len)
                {
                    bytes.truncate(start);
                    bytes.extend_from_slice(value);
                    return;
                }
            }
            _ => {}
        }
        let (key, namespace) = self.key_and_namespace();
        *self = PointSlot::of(self.epoch(), self.hash(), key, namespace, value);
    }

    /// Appends to the value: amortised O(appended) while nobody else holds it.
    pub(crate) fn append(&mut self, more: &[u8]) {
        match self {
            PointSlot::Small { lens: [key_len, namespace_len], value_len, data, .. } => {
                let end = [*key_len, *namespace_len, *value_len].map(usize::from).iter().sum();
                if let Some(target) = data.get_mut(end..end + more.len()) {
                    target.copy_from_slice(more);
                    *value_len += more.len() as u8;
                    return;
                }
            }
            PointSlot::Growable { bytes, .. } => {
                if let Some(bytes) = Arc::get_mut(bytes) {
                    bytes.extend_from_slice(more);
                    return;
                }
            }
            PointSlot::Fixed { .. } => {}
        }
        let ((key, namespace), value) = (self.key_and_namespace(), self.value());
        let parts = [key, namespace, value, more];
        let len: usize = parts.iter().map(|part| part.len()).sum();
        // Room for half as much again: the next appends do not copy the whole.
        let mut bytes = Vec::with_capacity(len + len / 2);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        *self = PointSlot::Growable {
            epoch: self.epoch(),
            hash: StoredHash::new(self.hash()),
            lens: Lens::new(key.len(), namespace.len()),
            bytes: Arc::new(bytes),
        };
    }
}

impl Slot for PointSlot {
    fn is_live(&self, sieve: &Sieve) -> bool {
        sieve.is_live(self.value())
    }

    #[inline]
    fn touch(&self) {
        match self {
            PointSlot::Small { .. } => {}
            PointSlot::Fixed { bytes, .. } => touch(bytes),
            PointSlot::Growable { bytes, .. } => touch(bytes),
        }
    }

    #[inline]
    fn key_and_namespace(&self) -> (&[u8], &[u8]) {
        let (bytes, (key_len, namespace_len)) = match self {
            PointSlot::Small { lens, data, .. } => {
                (&data[..], (usize::from(lens[0]), usize::from(lens[1])))
            }
            PointSlot::Fixed { lens, bytes, .. } => (&bytes[..], lens.get()),
            PointSlot::Growable { lens, bytes, .. } => (&bytes[..], lens.get()),
        };
        let (key, rest) = bytes.split_at(key_len);
        (key, &rest[..namespace_len])
    }

    #[inline(always)]
    fn is_at(&self, at: Locator<'_>) -> bool {
        if let PointSlot::Small { lens, data, .. } = self {
            let key_len = usize::from(lens[0]);
            return key_len == at.key().len()
                && usize::from(lens[1]) == at.namespace().len()
                && data.get(..key_len).is_some_and(|key| same_bytes(key, at.key()))
                && data
                    .get(key_len..key_len + at.namespace().len())
                    .is_some_and(|namespace| same_bytes(namespace, at.namespace()));
        }
        let (key, namespace) = self.key_and_namespace();
        self.hash() as u16 == at.tag()
            && same_bytes(key, at.key())
            && same_bytes(namespace, at.namespace())
    }

    #[inline]
    fn table_hash(&self) -> u64 {
        match self {
            PointSlot::Small { .. } => {
                let (key, namespace) = self.key_and_namespace();
                hash_of(key, namespace)
            }
            PointSlot::Fixed { hash, .. } | PointSlot::Growable { hash, .. } => hash.get(),
        }
    }

    #[inline]
    fn entry_count(&self) -> usize {
        1
    }

    #[inline]
    fn epoch(&self) -> u32 {
        match self {
            PointSlot::Small { epoch, .. }
            | PointSlot::Fixed { epoch, .. }
            | PointSlot::Growable { epoch, .. } => *epoch,
        }
    }

    #[inline]
    fn set_epoch(&mut self, now: u32) {
        match self {
            PointSlot::Small { epoch, .. }
            | PointSlot::Fixed { epoch, .. }
            | PointSlot::Growable { epoch, .. } => *epoch = now,
        }
    }

    #[inline]
    fn heap_bytes(&self) -> usize {
        match self {
            PointSlot::Small { .. } => 0,
            PointSlot::Fixed { bytes, .. } => bytes.len() + ARC_OVERHEAD,
            PointSlot::Growable { bytes, .. } => {
                bytes.capacity() + ARC_OVERHEAD + size_of::<Vec<u8>>()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_state_api::{KeyGroup, key_hash};

    use super::*;

    fn locate<'a>(key: &'a [u8], namespace: &'a [u8]) -> Locator<'a> {
        Locator::with_key_hash(key, key_hash(key), namespace)
    }

    #[test]
    fn takes_half_a_cache_line() {
        assert_eq!((size_of::<PointSlot>(), align_of::<PointSlot>()), (32, 32));
    }

    #[test]
    fn every_length_is_kept_by_every_way_to_write_it() {
        let content: Vec<u8> = (0..200).collect();
        for (key_len, namespace_len) in [(0, 0), (8, 0), (0, 8), (8, 16), (20, 8), (28, 0), (40, 3)]
        {
            let (key, namespace) = (&content[..key_len], &content[50..50 + namespace_len]);
            let check = |slot: &PointSlot, value: &[u8]| {
                assert_eq!(slot.key_and_namespace(), (key, namespace));
                assert_eq!(slot.value(), value);
                assert_eq!(slot.epoch(), 7);
                assert!(slot.is_at(locate(key, namespace)));
                assert!(!slot.is_at(locate(key, b"no")));
                assert!(!slot.is_at(locate(b"no", namespace)));
                let key_ref = KeyRef::with_group(key, KeyGroup(0)).unwrap();
                if let (Some(word), 0) = (WordKey::new(key_ref), namespace_len) {
                    assert!(slot.may_be(word));
                    assert_eq!(slot.holds(word), matches!(slot, PointSlot::Small { .. }));
                    assert!(!slot.holds(word) || slot.value_of_word() == Some(value));
                }
                let other = KeyRef::with_group(b"otherkey", KeyGroup(0)).unwrap();
                assert!(!slot.may_be(WordKey::new(other).unwrap()));
            };
            let lengths = [0, 1, 4, 5, 8, 12, 13, 20, 21, 28, 29, 60, 199];
            for (before, after) in lengths.iter().flat_map(|a| lengths.map(|b| (*a, b))) {
                let (before, after) = (&content[..before], &content[..after]);
                let mut slot = PointSlot::new(locate(key, namespace), before, 7);
                check(&slot, before);
                slot.set(after);
                check(&slot, after);
                let shared = slot.clone();
                slot.append(before);
                check(&slot, &[after, before].concat());
                let grown = slot.clone();
                slot.append(before);
                slot.set(before);
                check(&slot, before);
                check(&shared, after);
                check(&grown, &[after, before].concat());
            }
        }
    }

    #[test]
    fn the_longest_keys_and_namespaces_are_kept() {
        let longest = vec![7; 64 << 10];
        for (key, namespace) in
            [(&longest[..], &b""[..]), (b"", &longest), (&longest, &longest), (&longest[1..], b"n")]
        {
            let at = locate(key, namespace);
            let mut slot = PointSlot::new(at, b"value", 0);
            slot.append(b"s");
            assert!(slot.is_at(at));
            assert_eq!(
                (slot.key_and_namespace(), slot.value()),
                ((key, namespace), &b"values"[..])
            );
        }
    }

    /// A table that is moved finds its entries where their full hash says.
    #[test]
    fn what_a_table_needs_of_a_hash_is_stored() {
        const GROUP_BITS: u64 = 0xffff_0000;
        for (number, len) in (0_u64..1_000).flat_map(|number| [0, 100].map(|len| (number, len))) {
            let key = number.to_le_bytes();
            let at = locate(&key, b"");
            let mut slot = PointSlot::new(at, &vec![0; len], 0);
            assert_eq!(slot.hash() & !GROUP_BITS, at.hash() & !GROUP_BITS);
            slot.append(&[0; 50]);
            assert_eq!(slot.hash() & !GROUP_BITS, at.hash() & !GROUP_BITS);
        }
    }

    #[test]
    fn appending_does_not_reallocate_each_time() {
        let mut slot = PointSlot::new(locate(b"key", b""), b"", 0);
        let (mut reallocations, mut last) = (0, 0);
        for _ in 0..10_000 {
            slot.append(&[7; 8]);
            let heap = slot.heap_bytes();
            reallocations += usize::from(heap != last);
            last = heap;
        }
        assert_eq!(slot.value().len(), 80_000);
        assert!(reallocations < 30, "{reallocations}");
    }

    #[test]
    fn a_long_value_of_the_same_length_is_overwritten_in_place() {
        let mut slot = PointSlot::new(locate(b"key", b""), &[1; 100], 0);
        let place = slot.value().as_ptr();
        slot.set(&[2; 100]);
        assert_eq!((slot.value(), slot.value().as_ptr()), (&[2; 100][..], place));
    }
}
