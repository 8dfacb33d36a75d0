//! A run of map entries in order, in one allocation: the whole of a small map, a piece of a long one.
//!
//! A look-up reads the head, searches the keys and reads a value, all in a few neighbouring cache
//! lines. Where all keys have one length and all values have one length, which integers, floats and
//! time stamps have, nothing but keys and values is stored:
//!
//! ```text
//! head | key 0, key 1, ...  (room for some more) | value 0, value 1, ...  (room for some more)
//! ```
//!
//! Otherwise the ends of each key and value come first:
//!
//! ```text
//! head | ends 0, ends 1, ...  (room for some more) | key 0, value 0, key 1, value 1, ... (room)
//! ```
//!
//! The head has eight bytes: the number of entries, the room for entries, the length of the keys, the
//! length of the values.

use std::ops::Range;

use crate::compact_bytes::copy_short;
use crate::keyed_table::same_bytes;

/// The most entries that a chunk should have: what one page of a scan takes.
pub(crate) const MAX_ENTRIES: usize = 128;

/// The most bytes that a chunk should use, if it has more than one entry.
pub(crate) const MAX_BYTES: usize = 2048;

/// The longest value. Two of them, and their keys, have ends below 2³².
pub(crate) const MAX_VALUE_LEN: u64 = (1 << 31) - (1 << 18);

const HEAD_LEN: usize = 8;

/// Bytes of the two ends of an entry.
const ENDS_LEN: usize = 8;

/// In place of the length of the keys: lengths differ, or are too great for the head.
const VARYING: u16 = u16::MAX;

/// What the head says.
#[derive(Debug, Clone, Copy)]
struct Head {
    count: usize,
    room: usize,
    /// The length of every key and of every value.
    widths: Option<(usize, usize)>,
}

impl Head {
    #[inline(always)]
    fn of(chunk: &[u8]) -> Self {
        let head = u64::from_le_bytes(chunk.first_chunk().copied().unwrap_or_default());
        let key = (head >> 16) as u16;
        Head {
            count: usize::from(head as u8),
            room: usize::from((head >> 8) as u8),
            widths: (key != VARYING).then_some((usize::from(key), (head >> 32) as usize)),
        }
    }

    fn write(self, chunk: &mut [u8]) {
        // A chunk has at most `MAX_ENTRIES` entries and one more before it is split.
        let (key, value) = self.widths.map_or((VARYING, 0), |(k, v)| (k as u16, v as u32));
        let [k0, k1] = key.to_le_bytes();
        let [v0, v1, v2, v3] = value.to_le_bytes();
        let head = [self.count as u8, self.room as u8, k0, k1, v0, v1, v2, v3];
        chunk[..HEAD_LEN].copy_from_slice(&head);
    }

    /// Where keys and values begin, if lengths vary.
    fn data_at(self) -> usize {
        HEAD_LEN + self.room * ENDS_LEN
    }
}

/// An entry: map key, value.
pub(crate) type Entry<'a> = (&'a [u8], &'a [u8]);

/// The entries of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entries<'a> {
    chunk: &'a [u8],
    head: Head,
}

impl<'a> Entries<'a> {
    /// The entries of this chunk.
    #[inline(always)]
    pub(crate) fn of(chunk: &'a [u8]) -> Self {
        Entries { chunk, head: Head::of(chunk) }
    }

    /// How many there are.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        self.head.count
    }

    /// Entry number `index`.
    #[inline(always)]
    pub(crate) fn get(self, index: usize) -> Option<Entry<'a>> {
        if index >= self.head.count {
            return None;
        }
        let (key, value) = self.places(index);
        Some((self.chunk.get(key)?, self.chunk.get(value)?))
    }

    /// The value of entry number `index`.
    #[inline(always)]
    pub(crate) fn value(self, index: usize) -> Option<&'a [u8]> {
        self.chunk.get(self.places(index).1)
    }

    /// The entries of `range` in order.
    pub(crate) fn range(self, range: Range<usize>) -> impl Iterator<Item = Entry<'a>> + Clone {
        range.map_while(move |index| self.get(index))
    }

    /// All entries in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = Entry<'a>> + Clone {
        self.range(0..self.head.count)
    }

    /// The entry with this key, or the first one with a greater key.
    #[inline(always)]
    pub(crate) fn search(self, key: &[u8]) -> Result<usize, usize> {
        if let Some((8, _)) = self.head.widths
            && let Ok(word) = <[u8; 8]>::try_from(key)
        {
            let words = self.words();
            let at = count_below(words, u64::from_be_bytes(word));
            return if words.get(at) == Some(&word) { Ok(at) } else { Err(at) };
        }
        let at = self.count_while(|other| other < key);
        match self.get(at) {
            Some((other, _)) if same_bytes(other, key) => Ok(at),
            _ => Err(at),
        }
    }

    /// Where the value of a key is.
    ///
    /// A few words are compared for equality, not for order as [`search`](Entries::search) does it: that
    /// takes a third of the instructions, and the fewer there are the more accesses the processor
    /// overlaps.
    #[inline(always)]
    pub(crate) fn find(self, key: &[u8]) -> Option<Range<usize>> {
        if let (Some((8, value_len)), Ok(word)) = (self.head.widths, <&[u8; 8]>::try_from(key)) {
            let words = self.words();
            if words.len() <= FEW {
                let mut found = FEW;
                for (index, other) in words.iter().enumerate() {
                    found = if other == word { index } else { found };
                }
                let value = HEAD_LEN + 8 * self.head.room + found * value_len;
                return (found < FEW).then_some(value..value + value_len);
            }
        }
        Some(self.places(self.search(key).ok()?).1)
    }

    /// How many entries come first whose keys are `before`.
    pub(crate) fn count_while(self, before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.head.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle).is_some_and(|(key, _)| before(key)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The keys, if they are words.
    #[inline(always)]
    fn words(self) -> &'a [[u8; 8]] {
        let keys = self.chunk.get(HEAD_LEN..HEAD_LEN + 8 * self.head.count).unwrap_or_default();
        keys.as_chunks().0
    }

    /// Where key and value of an entry are.
    #[inline(always)]
    fn places(self, index: usize) -> (Range<usize>, Range<usize>) {
        let Some((key_len, value_len)) = self.head.widths else {
            return self.varying_places(index);
        };
        let key = HEAD_LEN + index * key_len;
        let value = HEAD_LEN + self.head.room * key_len + index * value_len;
        (key..key + key_len, value..value + value_len)
    }

    #[inline(never)]
    fn varying_places(self, index: usize) -> (Range<usize>, Range<usize>) {
        let data = self.head.data_at();
        let start = index.checked_sub(1).map_or(0, |before| self.ends(before).1);
        let (key_end, end) = self.ends(index);
        (data + start..data + key_end, data + key_end..data + end)
    }

    /// Where key and value of an entry end, behind the beginning of the first one.
    fn ends(self, index: usize) -> (usize, usize) {
        let at = HEAD_LEN + index * ENDS_LEN;
        let ends = self.chunk.get(at..).and_then(<[u8]>::first_chunk).copied();
        let [k0, k1, k2, k3, e0, e1, e2, e3] = ends.unwrap_or_default();
        let number = |bytes| u32::from_le_bytes(bytes) as usize;
        (number([k0, k1, k2, k3]), number([e0, e1, e2, e3]))
    }

    /// Bytes of the keys and values of `range`.
    pub(crate) fn bytes_of(self, range: Range<usize>) -> usize {
        let Some((key, value)) = self.head.widths else {
            let end_of = |index: usize| index.checked_sub(1).map_or(0, |last| self.ends(last).1);
            return end_of(range.end) - end_of(range.start);
        };
        range.len() * (key + value)
    }

    /// Bytes in use, room for more left out.
    pub(crate) fn used_bytes(self) -> usize {
        match self.head.widths {
            Some((key, value)) => HEAD_LEN + self.head.count * (key + value),
            None => HEAD_LEN + self.head.count * ENDS_LEN + self.data_len(),
        }
    }

    /// Bytes of keys and values, if lengths vary.
    fn data_len(self) -> usize {
        self.head.count.checked_sub(1).map_or(0, |last| self.ends(last).1)
    }

    /// Whether the chunk should be split.
    pub(crate) fn are_too_many(self) -> bool {
        let count = self.head.count;
        count > MAX_ENTRIES || (count > 1 && self.used_bytes() > MAX_BYTES)
    }
}

/// So many words are looked at one after the other.
const FEW: usize = 16;

/// How many of these ascending words are less. All of a few are looked at: no branch depends on what
/// they are, and there is nothing to mispredict.
#[inline(always)]
fn count_below(words: &[[u8; 8]], word: u64) -> usize {
    let is_below = |other: &[u8; 8]| u64::from_be_bytes(*other) < word;
    if words.len() <= FEW {
        return words.iter().map(|other| usize::from(is_below(other))).sum();
    }
    words.partition_point(is_below)
}

/// A chunk of these entries, with room for so many more of their kind.
pub(crate) fn build<'e>(
    entries: impl Iterator<Item = Entry<'e>> + Clone,
    spare: usize,
) -> Box<[u8]> {
    let mut lengths = entries.clone().map(|(key, value)| (key.len(), value.len()));
    let first = lengths.next().unwrap_or_default();
    let (mut count, mut bytes, mut uniform) = (1, first.0 + first.1, true);
    for (key, value) in lengths {
        count += 1;
        bytes += key + value;
        uniform &= (key, value) == first;
    }
    // The head of a uniform chunk says its lengths.
    let widths = first.0 < usize::from(VARYING) && first.1 < u32::MAX as usize;
    let room = (count + spare).min(MAX_ENTRIES).max(count);
    let head = Head { count, room, widths: (uniform && widths).then_some(first) };
    let spare_bytes = bytes.div_ceil(count) * (room - count);
    let mut chunk = match head.widths {
        Some((key, value)) => vec![0; HEAD_LEN + room * (key + value)],
        None => vec![0; head.data_at() + bytes + spare_bytes],
    }
    .into_boxed_slice();
    head.write(&mut chunk);
    let mut end = 0;
    for (index, (key, value)) in entries.enumerate() {
        if head.widths.is_none() {
            write_ends(&mut chunk, index, (end + key.len(), end + key.len() + value.len()));
            end += key.len() + value.len();
        }
        let places = Entries::of(&chunk).places(index);
        copy_short(&mut chunk[places.0], key);
        copy_short(&mut chunk[places.1], value);
    }
    chunk
}

fn write_ends(chunk: &mut [u8], index: usize, (key_end, end): (usize, usize)) {
    let at = HEAD_LEN + index * ENDS_LEN;
    chunk[at..at + 4].copy_from_slice(&(key_end as u32).to_le_bytes());
    chunk[at + 4..at + ENDS_LEN].copy_from_slice(&(end as u32).to_le_bytes());
}

/// The outcome of a change: a chunk to use from now on, where it was not done in place.
pub(crate) type Moved = Option<Box<[u8]>>;

/// Replaces a value.
#[inline]
pub(crate) fn set_value(chunk: &mut [u8], index: usize, value: &[u8]) -> Moved {
    let place = Entries::of(chunk).places(index).1;
    if place.len() == value.len() {
        copy_short(&mut chunk[place], value);
        return None;
    }
    resize_value(chunk, index, value.len(), |target| target.copy_from_slice(value))
}

/// Appends to a value: amortised O(appended) for the only entry of a chunk.
pub(crate) fn append_value(chunk: &mut [u8], index: usize, more: &[u8]) -> Moved {
    let old = Entries::of(chunk).places(index).1.len();
    let len = old + more.len();
    resize_value(chunk, index, len, |target| target[old..].copy_from_slice(more))
}

/// Gives a value another length and lets `fill` write it; it begins with the old one.
fn resize_value(chunk: &mut [u8], index: usize, len: usize, fill: impl FnOnce(&mut [u8])) -> Moved {
    let entries = Entries::of(chunk);
    let place = entries.places(index).1;
    if entries.head.widths.is_none()
        && entries.head.data_at() + entries.data_len() - place.len() + len <= chunk.len()
    {
        shift(chunk, index, place.end, place.start + len);
        fill(&mut chunk[place.start..place.start + len]);
        return None;
    }
    let old = entries.value(index).unwrap_or_default();
    let mut value = old[..old.len().min(len)].to_vec();
    value.resize(len, 0);
    fill(&mut value);
    let key = entries.get(index).map_or(&[][..], |(key, _)| key);
    let (before, after) = (entries.range(0..index), entries.range(index + 1..entries.len()));
    let all = before.chain(std::iter::once((key, &value[..]))).chain(after);
    // A longer value may become longer yet.
    Some(build(all, if len > old.len() { 1 + entries.len() / 4 } else { 0 }))
}

/// Moves all that lies from `from` on, the end of the value of entry `index`, to `to`.
fn shift(chunk: &mut [u8], index: usize, from: usize, to: usize) {
    let entries = Entries::of(chunk);
    let (count, end) = (entries.len(), entries.head.data_at() + entries.data_len());
    chunk.copy_within(from..end, to);
    for at in index..count {
        let (key_end, end) = Entries::of(chunk).ends(at);
        let moved = |end: usize| end + to - from;
        let key_end = if at == index { key_end } else { moved(key_end) };
        write_ends(chunk, at, (key_end, moved(end)));
    }
}

/// Inserts an entry before entry number `index`.
pub(crate) fn insert(chunk: &mut [u8], index: usize, key: &[u8], value: &[u8]) -> Moved {
    let entries = Entries::of(chunk);
    let head @ Head { count, room, widths } = entries.head;
    if count < room && widths == Some((key.len(), value.len())) {
        open_gap(chunk, HEAD_LEN, index, count, key);
        open_gap(chunk, HEAD_LEN + room * key.len(), index, count, value);
        Head { count: count + 1, ..head }.write(chunk);
        return None;
    }
    let (data, len) = (head.data_at(), key.len() + value.len());
    if count < room && widths.is_none() && data + entries.data_len() + len <= chunk.len() {
        let start = index.checked_sub(1).map_or(0, |before| entries.ends(before).1);
        let (at, end) = (data + start, data + entries.data_len());
        chunk.copy_within(at..end, at + len);
        let (key_place, value_place) = chunk[at..at + len].split_at_mut(key.len());
        key_place.copy_from_slice(key);
        value_place.copy_from_slice(value);
        for moved in (index..count).rev() {
            let (key_end, end) = Entries::of(chunk).ends(moved);
            write_ends(chunk, moved + 1, (key_end + len, end + len));
        }
        write_ends(chunk, index, (start + key.len(), start + len));
        Head { count: count + 1, ..head }.write(chunk);
        return None;
    }
    let (before, after) = (entries.range(0..index), entries.range(index..count));
    Some(build(before.chain(std::iter::once((key, value))).chain(after), count.div_ceil(2)))
}

/// Inserts an item before item number `index` of `count` in a column that begins at `column`.
fn open_gap(chunk: &mut [u8], column: usize, index: usize, count: usize, item: &[u8]) {
    let (at, end) = (column + index * item.len(), column + count * item.len());
    chunk.copy_within(at..end, at + item.len());
    copy_short(&mut chunk[at..at + item.len()], item);
}

/// Removes the entries of `range`, not all; gives memory back when most of it is unused.
pub(crate) fn remove(chunk: &mut [u8], range: Range<usize>) -> Moved {
    let entries = Entries::of(chunk);
    let head @ Head { count, room, widths } = entries.head;
    let left = count - range.len();
    match widths {
        Some((key_len, value_len)) => {
            for (column, len) in [(HEAD_LEN, key_len), (HEAD_LEN + room * key_len, value_len)] {
                let rest = column + range.end * len..column + count * len;
                chunk.copy_within(rest, column + range.start * len);
            }
        }
        None => {
            let data = head.data_at();
            let end_of = |index: usize| index.checked_sub(1).map_or(0, |last| entries.ends(last).1);
            let (from, to, end) = (end_of(range.end), end_of(range.start), entries.data_len());
            chunk.copy_within(data + from..data + end, data + to);
            for (at, moved) in (range.start..).zip(range.end..count) {
                let (key_end, end) = Entries::of(chunk).ends(moved);
                write_ends(chunk, at, (key_end - (from - to), end - (from - to)));
            }
        }
    }
    Head { count: left, ..head }.write(chunk);
    let entries = Entries::of(chunk);
    (chunk.len() > 64 && entries.used_bytes() < chunk.len() / 4)
        .then(|| build(entries.iter(), left / 2))
}

/// Two chunks of the entries before `at` and of the others.
pub(crate) fn split(chunk: &[u8], at: usize) -> (Box<[u8]>, Box<[u8]>) {
    let entries = Entries::of(chunk);
    let part = |range: Range<usize>| {
        let spare = range.len() / 4;
        build(entries.range(range), spare)
    };
    (part(0..at), part(at..entries.len()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A key or value: an integer of eight bytes, or anything.
    fn part(fixed: bool, seed: u16) -> Vec<u8> {
        if fixed {
            u64::from(seed).to_be_bytes().to_vec()
        } else {
            let bytes = seed.to_be_bytes();
            vec![bytes[1]; usize::from(bytes[1] % 40)].into_iter().chain(bytes).collect()
        }
    }

    fn check(chunk: &[u8], model: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let entries = Entries::of(chunk);
        assert!(entries.iter().eq(model.iter().map(|(key, value)| (&key[..], &value[..]))));
        for (index, key) in model.keys().enumerate() {
            assert_eq!(entries.search(key), Ok(index));
        }
        assert!(entries.used_bytes() <= chunk.len());
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(
            fixed in 0..4_u8,
            operations in prop::collection::vec((0..6_u8, 0..90_u16, 0..400_u16), 1..300),
        ) {
            // Keys and values of one length, either, or neither.
            let (fixed_key, fixed_value) = (fixed & 1 == 0, fixed & 2 == 0);
            let mut model = BTreeMap::from([(part(fixed_key, 0), part(fixed_value, 0))]);
            let mut chunk = build([(&part(fixed_key, 0)[..], &part(fixed_value, 0)[..])].into_iter(), 0);
            for (kind, key, value) in operations {
                // Once in a while another length than the others.
                let key = part(fixed_key != (value == 1), key);
                let value = part(fixed_value != (value == 2), value);
                let found = Entries::of(&chunk).search(&key);
                prop_assert_eq!(found.is_ok(), model.contains_key(&key));
                let moved = match (kind, found) {
                    (0..=2, Err(at)) if model.len() < MAX_ENTRIES => {
                        model.insert(key.clone(), value.clone());
                        insert(&mut chunk, at, &key, &value)
                    }
                    (0..=1, Ok(at)) => {
                        model.insert(key.clone(), value.clone());
                        set_value(&mut chunk, at, &value)
                    }
                    (2, Ok(at)) => {
                        model.get_mut(&key).unwrap().extend_from_slice(&value);
                        append_value(&mut chunk, at, &value)
                    }
                    (3, Ok(at)) if model.len() > 1 => {
                        model.remove(&key);
                        remove(&mut chunk, at..at + 1)
                    }
                    (4, Ok(at) | Err(at)) => {
                        let end = (at + 20).min(model.len());
                        if at < end && end - at < model.len() {
                            for key in model.keys().skip(at).take(end - at).cloned().collect::<Vec<_>>() {
                                model.remove(&key);
                            }
                            remove(&mut chunk, at..end)
                        } else {
                            None
                        }
                    }
                    (5, _) if model.len() > 1 => {
                        let (left, right) = split(&chunk, model.len() / 2);
                        let both = || Entries::of(&left).iter().chain(Entries::of(&right).iter());
                        Some(build(both(), 0))
                    }
                    _ => None,
                };
                if let Some(moved) = moved {
                    chunk = moved;
                }
                check(&chunk, &model);
            }
        }
    }

    #[test]
    fn ten_small_entries_have_no_overhead_but_the_head_and_growth_is_amortised() {
        let mut chunk = build([(&[0; 8][..], &[0; 8][..])].into_iter(), 0);
        assert_eq!(chunk.len(), HEAD_LEN + 16);
        let mut moves = 0;
        for key in 1..10_u64 {
            if let Some(moved) = insert(&mut chunk, key as usize, &key.to_be_bytes(), &[1; 8]) {
                (chunk, moves) = (moved, moves + 1);
            }
        }
        assert_eq!((chunk.len(), moves), (HEAD_LEN + 160, 3));
    }

    #[test]
    fn keys_of_the_greatest_length_and_empty_ones_are_kept() {
        let long = vec![7; 64 * 1024];
        for key in [&long[..], &long[1..], &long[2..], &[]] {
            let mut chunk = build([(key, &b"v"[..])].into_iter(), 0);
            if let Some(moved) = append_value(&mut chunk, 0, b"w") {
                chunk = moved;
            }
            assert_eq!(Entries::of(&chunk).get(0), Some((key, &b"vw"[..])));
        }
    }
}
