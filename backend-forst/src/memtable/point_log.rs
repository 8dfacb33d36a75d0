//! The memory of the entries of point states: each with all that is known of it, in the order in which
//! they were first written.
//!
//! Few large allocations in place of one for each entry, so that neither filling a memtable nor letting
//! go of one is work for the allocator; and who walks through all entries reads memory from one end to
//! the other.

use std::hint::black_box;

use super::Found;
use crate::format::EntryKind;

/// The longest entry that shares a chunk with others.
const LARGEST_SHARED: usize = 64 << 10;
/// A chunk is twice as long as the one before, from the first to the longest.
const CHUNK_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=1 << 20;

/// What an entry begins with: hash, length of the key, of the value, room for the value, marks.
const HEAD_LEN: usize = 8 + 4 + 4 + 4 + 1;
const VALUE_LEN_AT: usize = 12;
const MARKS_AT: usize = 20;
/// The link that follows if there is one: an epoch, and a place in its log.
const LINK_LEN: usize = 12;

/// The marks of an entry beside its kind.
const KIND: u8 = 0b0011;
const LINKED: u8 = 0b0100;
const ALONE: u8 = 0b1000;
/// It has outgrown its room, and is elsewhere.
const MOVED: u8 = 0b1_0000;

/// Where an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    chunk: u32,
    offset: u32,
}

/// Where an older version of a key is: in the log of an earlier memtable.
pub(super) type Link = super::index::Link<Place>;

/// What is known of an entry before the bytes of its key.
#[derive(Debug, Clone, Copy)]
struct Head {
    hash: u64,
    key_len: usize,
    /// Of what shares its chunk; the value of another one reaches to the end of its chunk.
    value_len: usize,
    room: usize,
    marks: u8,
}

impl Head {
    #[inline]
    fn decode([a, b, c, d, e, f, g, h, rest @ ..]: &[u8; HEAD_LEN]) -> Self {
        let [k0, k1, k2, k3, v0, v1, v2, v3, r0, r1, r2, r3, marks] = *rest;
        Head {
            hash: u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
            key_len: u32::from_le_bytes([k0, k1, k2, k3]) as usize,
            value_len: u32::from_le_bytes([v0, v1, v2, v3]) as usize,
            room: u32::from_le_bytes([r0, r1, r2, r3]) as usize,
            marks,
        }
    }

    fn encode(&self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[..8].copy_from_slice(&self.hash.to_le_bytes());
        // Keys have some 128 KiB at most; the other two are of entries that share chunks.
        for (at, len) in [(8, self.key_len), (VALUE_LEN_AT, self.value_len), (16, self.room)] {
            bytes[at..at + 4].copy_from_slice(&(len as u32).to_le_bytes());
        }
        bytes[MARKS_AT] = self.marks;
        bytes
    }

    #[inline]
    fn is(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    /// Where the key begins, from the entry on.
    #[inline]
    fn key_at(&self) -> usize {
        HEAD_LEN + if self.is(LINKED) { LINK_LEN } else { 0 }
    }

    #[inline]
    fn value_at(&self) -> usize {
        self.key_at() + self.key_len
    }

    #[inline]
    fn kind(&self) -> EntryKind {
        EntryKind::of(self.marks & KIND).expect("an entry is marked with its kind")
    }
}

/// An entry to be added.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewEntry<'e> {
    pub(super) hash: u64,
    pub(super) key: &'e [u8],
    pub(super) kind: EntryKind,
    pub(super) value: &'e [u8],
    pub(super) link: Option<Link>,
}

/// An entry of a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogEntry<'l> {
    /// Of the stored key, as filters want it.
    pub(crate) hash: u64,
    pub(crate) key: &'l [u8],
    pub(crate) found: Found<'l>,
    pub(super) link: Option<Link>,
}

/// Entries are changed where they are as long as they have room; what one has outgrown is lost until the
/// log goes.
#[derive(Debug, Default)]
pub(crate) struct PointLog {
    chunks: Vec<Vec<u8>>,
    /// The chunk that takes the next entry.
    open: Option<usize>,
    used: usize,
    len: usize,
}

impl PointLog {
    /// Bytes of all entries, and what they have outgrown.
    #[inline]
    pub(super) fn used_bytes(&self) -> usize {
        self.used
    }

    /// The number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, entry: NewEntry<'_>) -> Place {
        self.len += 1;
        self.push(entry, entry.value.len())
    }

    fn push(&mut self, entry: NewEntry<'_>, room: usize) -> Place {
        let NewEntry { hash, key, kind, value, link } = entry;
        let mut marks = kind.code();
        if link.is_some() {
            marks |= LINKED;
        }
        let mut head = Head { hash, key_len: key.len(), value_len: value.len(), room, marks };
        let len = head.value_at() + room;
        self.used += len;
        if len > LARGEST_SHARED {
            (head.marks, head.value_len, head.room) = (marks | ALONE, 0, 0);
            let mut bytes = Vec::with_capacity(len);
            put(&head, key, value, link, &mut bytes);
            self.chunks.push(bytes);
            return Place { chunk: index(self.chunks.len() - 1), offset: 0 };
        }
        let open = match self.open {
            Some(open) if self.chunks[open].capacity() - self.chunks[open].len() >= len => open,
            _ => self.begin_chunk(len),
        };
        let chunk = &mut self.chunks[open];
        let offset = chunk.len();
        put(&head, key, value, link, chunk);
        chunk.resize(offset + len, 0);
        // Chunks with several entries are no longer than a MiB.
        Place { chunk: index(open), offset: offset as u32 }
    }

    #[cold]
    fn begin_chunk(&mut self, len: usize) -> usize {
        let (first, longest) = (*CHUNK_BYTES.start(), *CHUNK_BYTES.end());
        let before = self.open.map_or(0, |open| self.chunks[open].capacity());
        let bytes = (before * 2).clamp(first, longest).max(len);
        self.chunks.push(Vec::with_capacity(bytes));
        *self.open.insert(self.chunks.len() - 1)
    }

    #[inline]
    fn at(&self, place: Place) -> (Head, &[u8]) {
        let entry = &self.chunks[place.chunk as usize][place.offset as usize..];
        (head_of(entry), entry)
    }

    /// Something of the first bytes of an entry and of the last ones.
    #[inline]
    fn ends(&self, place: Place) -> u8 {
        let (head, entry) = self.at(place);
        let last = entry.get(head.value_at() + head.value_len).copied();
        head.marks ^ last.unwrap_or_default()
    }

    /// Whether an entry is of this key.
    #[inline]
    pub(super) fn is_of(&self, place: Place, key: &[u8]) -> bool {
        let (head, entry) = self.at(place);
        &entry[head.key_at()..head.value_at()] == key
    }

    /// The entry at a place.
    #[inline]
    pub(super) fn get(&self, place: Place) -> LogEntry<'_> {
        let (head, entry) = self.at(place);
        let value = &entry[head.value_at()..];
        let value = if head.is(ALONE) { value } else { &value[..head.value_len] };
        LogEntry {
            hash: head.hash,
            key: &entry[head.key_at()..head.value_at()],
            found: Found { kind: head.kind(), value },
            link: head.is(LINKED).then(|| link_of(entry)),
        }
    }

    /// Replaces kind and value of an entry. Where it is now.
    #[inline]
    pub(super) fn replace(&mut self, place: Place, kind: EntryKind, value: &[u8]) -> Place {
        self.write(place, kind, 0, value)
    }

    /// Appends to the value of an entry: to one that was deleted, as its new value. Where it is now.
    pub(super) fn append(&mut self, place: Place, more: &[u8]) -> Place {
        let Found { kind, value } = self.get(place).found;
        let kind = if kind == EntryKind::Delete { EntryKind::Put } else { kind };
        self.write(place, kind, value.len(), more)
    }

    /// Replaces what is behind the first `keep` bytes of a value.
    #[inline]
    fn write(&mut self, place: Place, kind: EntryKind, keep: usize, bytes: &[u8]) -> Place {
        let chunk = &mut self.chunks[place.chunk as usize];
        let entry = &mut chunk[place.offset as usize..];
        let head = head_of(entry);
        let (value_at, len) = (head.value_at(), keep + bytes.len());
        entry[MARKS_AT] = head.marks & !KIND | kind.code();
        if head.is(ALONE) {
            let before = chunk.capacity();
            chunk.truncate(value_at + keep);
            chunk.extend_from_slice(bytes);
            self.used += chunk.capacity() - before;
        } else if len <= head.room {
            if len != head.value_len {
                // As short as its room.
                entry[VALUE_LEN_AT..][..4].copy_from_slice(&(len as u32).to_le_bytes());
            }
            entry[value_at + keep..][..bytes.len()].copy_from_slice(bytes);
        } else {
            return self.move_out(place, keep, bytes, len.max(head.room * 2));
        }
        place
    }

    /// An entry that has outgrown its room gets another place.
    #[cold]
    fn move_out(&mut self, place: Place, keep: usize, bytes: &[u8], room: usize) -> Place {
        let LogEntry { hash, key, found, link } = self.get(place);
        let (key, value) = (key.to_vec(), [&found.value[..keep], bytes].concat());
        let entry = NewEntry { hash, key: &key, kind: found.kind, value: &value, link };
        let moved = self.push(entry, room);
        self.chunks[place.chunk as usize][place.offset as usize + MARKS_AT] |= MOVED;
        moved
    }

    /// All entries in the order in which they were written.
    pub(crate) fn iter(&self) -> impl Iterator<Item = LogEntry<'_>> {
        self.raw().map(|(place, ..)| self.get(place))
    }

    /// Of each entry its place, its head, and the bytes from there to the end of its chunk.
    fn raw(&self) -> impl Iterator<Item = (Place, Head, &[u8])> {
        (0..).zip(&self.chunks).flat_map(|(chunk, bytes)| {
            let mut rest = &bytes[..];
            std::iter::from_fn(move || {
                while let Some(first) = rest.first_chunk() {
                    let (head, entry) = (Head::decode(first), rest);
                    // Chunks with several entries are no longer than a MiB.
                    let place = Place { chunk, offset: (bytes.len() - rest.len()) as u32 };
                    let len = head.value_at() + head.room;
                    rest = if head.is(ALONE) { &[] } else { &rest[len..] };
                    if !head.is(MOVED) {
                        return Some((place, head, entry));
                    }
                }
                None
            })
        })
    }

    /// All entries in the order of their stored keys.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = LogEntry<'_>> {
        let places = self.sorted_places();
        (0..places.len()).map(move |at| {
            if at % AHEAD == 0 {
                touch(places[at..].iter().take(AHEAD).map(|(_, place)| self.ends(*place)));
            }
            self.get(places[at].1)
        })
    }

    /// Where all entries are, in the order of their stored keys, beside the number by which they were
    /// sorted: a bucket for each key group first, then each bucket by eight bytes, from the first ones on in
    /// which any two keys differ, and by whole keys what that leaves open. So the entries themselves are
    /// hardly looked at.
    fn sorted_places(&self) -> Vec<(u64, Place)> {
        let key = |place: Place| self.get(place).key;
        let (mut counts, mut differing, mut any) = (Vec::new(), 0, None);
        self.raw().for_each(|(_, head, entry)| {
            let (group, rest) = first_bytes(&head, entry);
            if counts.len() <= group {
                counts.resize(group + 1, 0);
            }
            counts[group] += 1;
            differing |= rest ^ *any.get_or_insert(rest);
        });
        let mut next: Vec<usize> = counts
            .iter()
            .scan(0, |start, count| Some(std::mem::replace(start, *start + count)))
            .collect();
        let common = differing.leading_zeros().min(u64::BITS);
        let mut places = vec![(0, Place { chunk: 0, offset: 0 }); self.len];
        self.raw().for_each(|(place, head, entry)| {
            let (group, rest) = first_bytes(&head, entry);
            places[next[group]] = ((rest << common >> u64::BITS) as u64, place);
            next[group] += 1;
        });
        let mut unsorted = &mut places[..];
        for count in counts {
            let (bucket, others) = unsorted.split_at_mut(count);
            unsorted = others;
            // Numbers are compared without a branch.
            bucket.sort_unstable_by_key(|(number, _)| *number);
            for equal in bucket.chunk_by_mut(|(a, _), (b, _)| a == b) {
                if equal.len() > 1 {
                    equal.sort_unstable_by(|(_, a), (_, b)| key(*a).cmp(key(*b)));
                }
            }
        }
        places
    }
}

/// So many entries are brought into the processor's caches together when all are walked through in the
/// order of their keys: they lie anywhere, and one after the other each would be waited for.
const AHEAD: usize = 64;

/// Reads something of each, which do not wait for each other.
fn touch(ends: impl Iterator<Item = u8>) {
    black_box(ends.fold(0, |sum, ends| sum ^ ends));
}

/// The first two bytes of an entry's key, its key group, and the next 14 as a number with zeros behind: both
/// in the order of the keys, as far as they decide it.
#[inline]
fn first_bytes(head: &Head, entry: &[u8]) -> (usize, u128) {
    let from_key = &entry[head.key_at()..];
    let first = match from_key.first_chunk() {
        Some(first) => {
            // What stands behind a short key is not of it.
            let bits = 8 * head.key_len.min(size_of::<u128>()) as u32;
            u128::from_be_bytes(*first) & !u128::MAX.checked_shr(bits).unwrap_or(0)
        }
        None => {
            let mut first = [0; size_of::<u128>()];
            first[..head.key_len].copy_from_slice(&from_key[..head.key_len]);
            u128::from_be_bytes(first)
        }
    };
    ((first >> 112) as usize, first << 16)
}

fn put(head: &Head, key: &[u8], value: &[u8], link: Option<Link>, out: &mut Vec<u8>) {
    out.extend_from_slice(&head.encode());
    if let Some(Link { epoch, place: Place { chunk, offset } }) = link {
        for number in [epoch, chunk, offset] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

#[inline]
fn head_of(entry: &[u8]) -> Head {
    Head::decode(entry.first_chunk().expect("an entry begins with its head"))
}

fn link_of(entry: &[u8]) -> Link {
    let number = |at: usize| {
        let bytes = entry[HEAD_LEN + at..].first_chunk().expect("a link follows the head");
        u32::from_le_bytes(*bytes)
    };
    Link { epoch: number(0), place: Place { chunk: number(4), offset: number(8) } }
}

fn index(chunk: usize) -> u32 {
    // Each has 4 KiB at least: an index that does not fit is more memory than there is.
    u32::try_from(chunk).expect("fewer chunks than 2^32")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn entry<'e>(key: &'e [u8], value: &'e [u8]) -> NewEntry<'e> {
        NewEntry { hash: key.len() as u64, key, kind: EntryKind::Put, value, link: None }
    }

    #[test]
    fn entries_of_all_lengths_keep_to_themselves() {
        let mut log = PointLog::default();
        let lengths = [0, 1, 100, 4_000, 5_000, LARGEST_SHARED, LARGEST_SHARED + 1, 3 << 20];
        let (mut places, mut all) = (Vec::new(), 0);
        for round in 0..5_u8 {
            for (number, len) in (0..).zip(lengths) {
                let key = [round, number];
                let value = vec![round * 8 + number; len];
                all += key.len() + value.len();
                places.push((log.add(entry(&key, &value)), key, value));
            }
        }
        for (place, key, value) in &places {
            let entry = log.get(*place);
            assert_eq!((entry.key, entry.found.value), (&key[..], &value[..]));
            assert!(log.is_of(*place, key) && !log.is_of(*place, b"key"));
        }
        assert!(log.used_bytes() >= all);
        assert_eq!((log.len(), log.iter().count()), (places.len(), places.len()));
    }

    #[test]
    fn small_memtables_take_little() {
        let mut log = PointLog::default();
        log.add(entry(b"k", b"v"));
        assert_eq!(log.used_bytes(), HEAD_LEN + 2);
        assert!(log.chunks[0].capacity() < 8 << 10);
    }

    #[test]
    fn links_stay_when_their_entries_move() {
        let mut log = PointLog::default();
        let link = Some(Link { epoch: 7, place: Place { chunk: 8, offset: 9 } });
        let mut place = log.add(NewEntry { link, kind: EntryKind::Append, ..entry(b"k", b"a") });
        let mut expected = b"a".to_vec();
        for more in [&b""[..], b"b", &[7; 1_000], &[8; 100_000], b"c"] {
            place = log.append(place, more);
            expected.extend_from_slice(more);
            let entry = log.get(place);
            assert_eq!((entry.link, entry.found.value), (link, &expected[..]));
            assert_eq!(entry.found.kind, EntryKind::Append);
            assert_eq!((log.len(), log.iter().count()), (1, 1));
        }
    }

    /// Keys of many key groups that share their first bytes, or are the beginning of one another, and
    /// values that grow, shrink and move, against a sorted map.
    #[test]
    fn it_is_a_map_in_the_order_of_keys() {
        let mut log = PointLog::default();
        let (mut places, mut expected) = (BTreeMap::new(), BTreeMap::new());
        let mut random = 7_u64;
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (random >> 40) % 500;
            let mut key = vec![b'k'; (number % 40) as usize];
            key.extend_from_slice(&number.to_le_bytes()[..(number % 3) as usize]);
            if let (0, Some(second)) = (number % 4, key.get_mut(1)) {
                // Of another key group.
                *second = number as u8;
            }
            let len = if step % 1_000 == 0 { 70_000 } else { (random >> 33) as usize % 90 };
            let bytes = vec![step as u8; len];
            let replaces = random >> 63 == 0;
            let place = match places.get(&key) {
                None => log.add(entry(&key, &bytes)),
                Some(place) if replaces => log.replace(*place, EntryKind::Put, &bytes),
                Some(place) => log.append(*place, &bytes),
            };
            places.insert(key.clone(), place);
            let value: &mut Vec<u8> = expected.entry(key).or_default();
            if replaces {
                value.clear();
            }
            value.extend_from_slice(&bytes);
        }
        let both = |entry: LogEntry<'_>| (entry.key.to_vec(), entry.found.value.to_vec());
        assert!(log.sorted().map(both).eq(expected.clone()));
        assert!(log.iter().map(both).collect::<BTreeMap<_, _>>() == expected);
        for (key, value) in &expected {
            let entry = log.get(places[key]);
            assert_eq!((entry.key, entry.found.value), (&key[..], &value[..]));
        }
    }
}
