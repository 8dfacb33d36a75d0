//! The entries of a map in order: one chunk, which is all that most maps ever need, or a list of
//! chunks.
//!
//! The single chunk belongs to its map alone and is changed in place. The chunks of a long map are
//! shared by reference count and copied one by one on write, so that a scan or snapshot that holds on
//! to it does not make its next write pay for its size: that copies one chunk and the list (about one
//! element for a hundred entries).

use std::ops::Bound;
use std::sync::Arc;

use weir_state_api::MapRange;

use crate::compact_bytes::CompactBytes;
use crate::entry_chunk::{self, Entries, Entry, MAX_BYTES, MAX_ENTRIES, Moved, build, split};
use crate::sorted_chunks::Position;

/// See the module. Never empty.
#[derive(Debug, Clone)]
pub(crate) enum EntryChunks {
    One(Box<[u8]>),
    Many(Arc<ChunkList>),
}

/// Two or more chunks in order.
#[derive(Debug, Clone)]
pub(crate) struct ChunkList {
    chunks: Vec<Chunk>,
    /// Entries in all of them.
    len: usize,
    /// Bytes of all of them.
    bytes: usize,
}

/// A chunk of a list; never empty.
#[derive(Debug, Clone)]
struct Chunk {
    /// Greater than all keys before the chunk and not greater than its own: a search goes by the
    /// fences, which lie side by side, and visits one chunk. A removal leaves it as it is.
    fence: CompactBytes,
    entries: Arc<[u8]>,
}

impl Chunk {
    fn new(entries: Box<[u8]>) -> Self {
        let first = Entries::of(&entries).get(0).map_or(&[][..], |(key, _)| key);
        Chunk { fence: CompactBytes::new(first), entries: entries.into() }
    }
}

impl EntryChunks {
    /// A map of one entry.
    pub(crate) fn of(entry: Entry<'_>) -> Self {
        EntryChunks::One(build([entry].into_iter(), 0))
    }

    /// A map of ascending entries, of which there is one at least.
    pub(crate) fn from_ascending<'e, E>(
        entries: impl Iterator<Item = Result<Entry<'e>, E>>,
    ) -> Result<Option<Self>, E> {
        let (mut chunks, mut gathered, mut bytes) = (Vec::new(), Vec::new(), 0);
        for entry in entries {
            let (key, value) = entry?;
            let len = key.len() + value.len() + 8;
            if !gathered.is_empty() && (bytes + len > MAX_BYTES || gathered.len() == MAX_ENTRIES) {
                chunks.push(Chunk::new(build(gathered.iter().copied(), 0)));
                gathered.clear();
                bytes = 0;
            }
            bytes += len;
            gathered.push((key, value));
        }
        if gathered.is_empty() {
            return Ok(None);
        }
        let last = build(gathered.iter().copied(), 0);
        if chunks.is_empty() {
            return Ok(Some(EntryChunks::One(last)));
        }
        chunks.push(Chunk::new(last));
        Ok(Some(EntryChunks::Many(Arc::new(ChunkList::of(chunks)))))
    }

    /// The number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            EntryChunks::One(chunk) => Entries::of(chunk).len(),
            EntryChunks::Many(list) => list.len,
        }
    }

    /// Bytes on the heap.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            EntryChunks::One(chunk) => chunk.len(),
            EntryChunks::Many(list) => list.bytes + list.chunks.capacity() * size_of::<Chunk>(),
        }
    }

    fn chunk_count(&self) -> usize {
        match self {
            EntryChunks::One(_) => 1,
            EntryChunks::Many(list) => list.chunks.len(),
        }
    }

    /// The entries of a chunk.
    #[inline]
    pub(crate) fn chunk(&self, chunk: usize) -> Option<Entries<'_>> {
        match self {
            EntryChunks::One(entries) => (chunk == 0).then(|| Entries::of(entries)),
            EntryChunks::Many(list) => list.chunks.get(chunk).map(|c| Entries::of(&c.entries)),
        }
    }

    /// The place behind the last entry.
    pub(crate) fn end(&self) -> Position {
        Position { chunk: self.chunk_count(), index: 0 }
    }

    /// The place of the entry with this key, or where it would have to be inserted.
    #[inline(always)]
    pub(crate) fn search(&self, key: &[u8]) -> Result<Position, Position> {
        match self {
            EntryChunks::One(chunk) => match Entries::of(chunk).search(key) {
                Ok(index) => Ok(Position { chunk: 0, index }),
                Err(index) => Err(Position { chunk: 0, index }),
            },
            EntryChunks::Many(list) => list.search(key),
        }
    }

    /// The value of a key.
    #[inline(always)]
    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        if let EntryChunks::One(chunk) = self {
            return chunk.get(Entries::of(chunk).find(key)?);
        }
        self.value(self.search(key).ok()?)
    }

    /// The place of the value of a key, if it is in the single chunk.
    #[inline(always)]
    pub(crate) fn value_in_one(&mut self, key: &[u8]) -> Option<&mut [u8]> {
        let EntryChunks::One(chunk) = self else { return None };
        let value = Entries::of(chunk).find(key)?;
        chunk.get_mut(value)
    }

    /// The value at a place.
    pub(crate) fn value(&self, at: Position) -> Option<&[u8]> {
        self.chunk(at.chunk)?.get(at.index).map(|(_, value)| value)
    }

    /// The places of the first entry in the range, and of the first one after it.
    pub(crate) fn bounds(&self, range: MapRange<'_>) -> (Position, Position) {
        if range.is_empty() {
            return (Position::START, Position::START);
        }
        let from = match range.from {
            Bound::Unbounded => Position::START,
            Bound::Included(key) => self.first_from(key, false),
            Bound::Excluded(key) => self.first_from(key, true),
        };
        let to = match range.to {
            Bound::Unbounded => self.end(),
            Bound::Included(key) => self.first_from(key, true),
            Bound::Excluded(key) => self.first_from(key, false),
        };
        (from, to)
    }

    /// The place of the first entry from this key on; with `after` behind it.
    fn first_from(&self, key: &[u8], after: bool) -> Position {
        let at = match self.search(key) {
            Ok(at) if after => Position { index: at.index + 1, ..at },
            Ok(at) | Err(at) => at,
        };
        match self.chunk(at.chunk) {
            Some(entries) if at.index < entries.len() => at,
            _ => Position { chunk: at.chunk + 1, index: 0 },
        }
    }

    /// The entries of `from..to` in order.
    pub(crate) fn range(&self, from: Position, to: Position) -> impl Iterator<Item = Entry<'_>> {
        (from.chunk..self.chunk_count().min(to.chunk + 1)).flat_map(move |chunk| {
            let entries = self.chunk(chunk);
            let begin = if chunk == from.chunk { from.index } else { 0 };
            let len = entries.map_or(0, Entries::len);
            let end = if chunk == to.chunk { to.index } else { len };
            entries.into_iter().flat_map(move |entries| entries.range(begin..end))
        })
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.range(Position::START, self.end())
    }

    /// Replaces the value at a place.
    #[inline(always)]
    pub(crate) fn set(&mut self, at: Position, value: &[u8]) {
        self.change(at, |chunk| entry_chunk::set_value(chunk, at.index, value));
    }

    /// Appends to the value at a place.
    pub(crate) fn append(&mut self, at: Position, more: &[u8]) {
        self.change(at, |chunk| entry_chunk::append_value(chunk, at.index, more));
    }

    /// Inserts an entry where a search for its key did not find it.
    pub(crate) fn insert(&mut self, at: Position, key: &[u8], value: &[u8]) {
        if let EntryChunks::Many(list) = self {
            Arc::make_mut(list).make_way(at, key);
        }
        self.change(at, |chunk| entry_chunk::insert(chunk, at.index, key, value));
    }

    #[inline(always)]
    fn change(&mut self, at: Position, change: impl FnOnce(&mut [u8]) -> Moved) {
        match self {
            EntryChunks::One(chunk) => {
                if let Some(moved) = change(chunk) {
                    self.put_moved(at, moved);
                }
            }
            EntryChunks::Many(list) => Arc::make_mut(list).change(at, change),
        }
    }

    /// Replaces the single chunk.
    #[inline(never)]
    fn put_moved(&mut self, at: Position, moved: Box<[u8]>) {
        *self = match split_if_full(moved, at.index) {
            (one, None) => EntryChunks::One(one),
            (left, Some(right)) => EntryChunks::Many(Arc::new(ChunkList::of(vec![
                Chunk::new(left),
                Chunk::new(right),
            ]))),
        }
    }

    /// Removes the entry at a place, which is not the only one.
    pub(crate) fn remove(&mut self, at: Position) {
        self.remove_range(at, Position { index: at.index + 1, ..at });
    }

    /// Removes the entries of `from..to`, which are not all.
    pub(crate) fn remove_range(&mut self, from: Position, to: Position) {
        match self {
            EntryChunks::One(chunk) => {
                let end = if to.chunk == 0 { to.index } else { Entries::of(chunk).len() };
                if let Some(moved) = entry_chunk::remove(chunk, from.index..end) {
                    *chunk = moved;
                }
            }
            EntryChunks::Many(list) => {
                let list = Arc::make_mut(list);
                list.remove_range(from, to);
                if let [only] = &list.chunks[..] {
                    *self = EntryChunks::One(Box::from(&*only.entries));
                }
            }
        }
    }
}

impl ChunkList {
    fn of(chunks: Vec<Chunk>) -> Self {
        let len = chunks.iter().map(|chunk| Entries::of(&chunk.entries).len()).sum();
        let bytes = chunks.iter().map(|chunk| chunk.entries.len()).sum();
        ChunkList { chunks, len, bytes }
    }

    fn search(&self, key: &[u8]) -> Result<Position, Position> {
        let after = self.chunks.partition_point(|chunk| chunk.fence.as_slice() <= key);
        let chunk = after.saturating_sub(1);
        match Entries::of(&self.chunks[chunk].entries).search(key) {
            Ok(index) => Ok(Position { chunk, index }),
            Err(index) => Err(Position { chunk, index }),
        }
    }

    /// Counts an entry that will be inserted, and keeps the fence before it.
    fn make_way(&mut self, at: Position, key: &[u8]) {
        self.len += 1;
        let chunk = &mut self.chunks[at.chunk];
        if key < chunk.fence.as_slice() {
            chunk.fence = CompactBytes::new(key);
        }
    }

    fn change(&mut self, at: Position, change: impl FnOnce(&mut [u8]) -> Moved) {
        let chunk = &mut self.chunks[at.chunk];
        let Some(moved) = change(Arc::make_mut(&mut chunk.entries)) else { return };
        self.bytes -= chunk.entries.len();
        let (left, right) = split_if_full(moved, at.index);
        self.bytes += left.len();
        chunk.entries = left.into();
        if let Some(right) = right {
            self.bytes += right.len();
            self.chunks.insert(at.chunk + 1, Chunk::new(right));
        }
    }

    fn remove_range(&mut self, from: Position, to: Position) {
        let to = if to.index == 0 { to } else { self.remove_in(to.chunk, from, to) };
        let first = if from.index > 0 && from.chunk < to.chunk {
            let end = Position { chunk: from.chunk + 1, index: 0 };
            self.remove_in(from.chunk, from, end);
            from.chunk + 1
        } else {
            from.chunk
        };
        for chunk in self.chunks.drain(first..to.chunk.max(first)) {
            self.len -= Entries::of(&chunk.entries).len();
            self.bytes -= chunk.entries.len();
        }
        self.tidy(from.chunk.min(self.chunks.len() - 1));
    }

    /// Removes those of `from..to` that are in one chunk, as long as others are left in it. Returns
    /// where the range ends then, at the beginning of a chunk.
    fn remove_in(&mut self, number: usize, from: Position, to: Position) -> Position {
        let chunk = &mut self.chunks[number];
        let all = Entries::of(&chunk.entries).len();
        let begin = if from.chunk == number { from.index } else { 0 };
        let end = if to.chunk == number { to.index } else { all };
        if begin == 0 && end == all {
            return Position { chunk: number + 1, index: 0 };
        }
        self.len -= end - begin;
        self.bytes -= chunk.entries.len();
        if let Some(moved) = entry_chunk::remove(Arc::make_mut(&mut chunk.entries), begin..end) {
            chunk.entries = moved.into();
        }
        self.bytes += chunk.entries.len();
        Position { chunk: number, index: 0 }
    }

    /// Merges a chunk with the next one when both are small.
    fn tidy(&mut self, number: usize) {
        let [left, right] = [number, number + 1]
            .map(|number| self.chunks.get(number).map(|chunk| Entries::of(&chunk.entries)));
        let (Some(left), Some(right)) = (left, right) else { return };
        let bytes = left.used_bytes() + right.used_bytes();
        if left.len() + right.len() > MAX_ENTRIES / 2 || bytes > MAX_BYTES / 2 {
            return;
        }
        let merged: Arc<[u8]> = build(left.iter().chain(right.iter()), 0).into();
        self.bytes += merged.len();
        self.bytes -= self.chunks.remove(number + 1).entries.len();
        self.bytes -= std::mem::replace(&mut self.chunks[number].entries, merged).len();
    }
}

/// Splits a chunk that has become too large by an insertion at `at`.
fn split_if_full(chunk: Box<[u8]>, at: usize) -> (Box<[u8]>, Option<Box<[u8]>>) {
    let entries = Entries::of(&chunk);
    if !entries.are_too_many() {
        return (chunk, None);
    }
    // Keys that come in ascending order (times, sequence numbers) fill whole chunks.
    let last = entries.len() - 1;
    let half = entries.bytes_of(0..last + 1) / 2;
    let middle = || (1..last).find(|middle| entries.bytes_of(0..*middle) >= half);
    let (left, right) = split(&chunk, if at == last { last } else { middle().unwrap_or(last) });
    (left, Some(right))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn entry<'e>((key, value): (&'e Vec<u8>, &'e Vec<u8>)) -> Entry<'e> {
        (key, value)
    }

    fn check(map: &EntryChunks, model: &Model) {
        assert_eq!(map.len(), model.len());
        assert!(map.iter().eq(model.iter().map(entry)));
        if let EntryChunks::Many(list) = map {
            assert!(list.chunks.len() > 1);
            assert_eq!(list.bytes, list.chunks.iter().map(|c| c.entries.len()).sum::<usize>());
            let ends = list.chunks.iter().map(|chunk| {
                let entries = Entries::of(&chunk.entries);
                // Room for more is used up before a chunk is split.
                assert!((1..=MAX_ENTRIES).contains(&entries.len()));
                assert!(entries.used_bytes() <= 3 * MAX_BYTES);
                let key = |index| entries.get(index).unwrap().0;
                assert!(chunk.fence.as_slice() <= key(0));
                (chunk.fence.as_slice(), key(entries.len() - 1))
            });
            let ends: Vec<_> = ends.collect();
            assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }

    fn bytes(number: u16, long: bool) -> Vec<u8> {
        let len = if long { usize::from(number % 700) } else { 6 };
        [&number.to_be_bytes()[..], &vec![3; len]].concat()
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(
            long in 0..2_u8,
            operations in prop::collection::vec((0..6_u8, 0..700_u16, 0..900_u16), 1..900),
        ) {
            let long = long == 1;
            let first = (bytes(1, false), bytes(1, long));
            let mut map = EntryChunks::of((&first.0, &first.1));
            let mut model = Model::from([first]);
            let mut kept = Vec::new();
            for (step, (kind, key, value)) in operations.into_iter().enumerate() {
                let (number, key, value) = (key, bytes(key, false), bytes(value, long));
                match (kind, map.search(&key)) {
                    (0..=2, Err(at)) => {
                        map.insert(at, &key, &value);
                        model.insert(key, value);
                    }
                    (0 | 1, Ok(at)) => {
                        prop_assert_eq!(map.value(at), model.get(&key).map(|value| &value[..]));
                        map.set(at, &value);
                        model.insert(key, value);
                    }
                    (2, Ok(at)) => {
                        map.append(at, &value[..2]);
                        model.get_mut(&key).unwrap().extend_from_slice(&value[..2]);
                    }
                    (3, Ok(at)) if model.len() > 1 => {
                        map.remove(at);
                        model.remove(&key);
                    }
                    (4, _) if step % 8 == 0 => {
                        let to = bytes(number.saturating_add(100), false);
                        let range =
                            MapRange { from: Bound::Included(&key), to: Bound::Excluded(&to) };
                        let (a, b) = map.bounds(range);
                        let wanted = (Bound::Included(key.clone()), Bound::Excluded(to.clone()));
                        let wanted: Vec<_> = model.range(wanted).map(entry).collect();
                        prop_assert!(map.range(a, b).eq(wanted.iter().copied()));
                        prop_assert_eq!(a >= b, wanted.is_empty());
                        let all = (a, b) == (Position::START, map.end());
                        prop_assert_eq!(all, wanted.len() == model.len());
                        if a < b && !all {
                            map.remove_range(a, b);
                            model.retain(|other, _| *other < key || *other >= to);
                        }
                    }
                    (5, _) if step % 16 == 1 => kept.push((map.clone(), model.clone())),
                    _ => {}
                }
                if step % 32 == 0 {
                    check(&map, &model);
                }
            }
            check(&map, &model);
            for (map, model) in &kept {
                check(map, model);
            }
            let ascending = model.iter().map(|one| Ok::<_, ()>(entry(one)));
            check(&EntryChunks::from_ascending(ascending).unwrap().unwrap(), &model);
        }
    }

    #[test]
    fn ascending_keys_fill_their_chunks_and_leave_in_any_order() {
        let key = |number: u64| number.to_be_bytes();
        let mut map = EntryChunks::of((&key(0), &[1]));
        for number in 1..10_000 {
            let at = map.search(&key(number)).unwrap_err();
            map.insert(at, &key(number), &[1]);
        }
        assert_eq!(map.chunk_count(), 10_000_usize.div_ceil(MAX_ENTRIES));
        for number in (1..10_000).rev().step_by(2).chain((2..10_000).step_by(2)) {
            map.remove(map.search(&key(number)).unwrap());
        }
        assert!(matches!(map, EntryChunks::One(_)));
        assert_eq!(map.len(), 1);
    }
}
