//! An ordered sequence in chunks, shared by reference count and copied chunk by chunk on write.
//!
//! Up to [`CHUNK_LEN`] elements are one sorted vector, which is all that most maps ever need: found
//! by binary search, scanned as one run of memory. More are a sorted list of such vectors. A
//! `BTreeMap` would be as fast to change, but could only be copied whole: a scan or snapshot that
//! holds on to a large map would make its next write pay for its size. Here the write copies one
//! chunk and the list of chunks (a copy of one element for some 32 to 64).

use std::cmp::Ordering;
use std::sync::Arc;

use crate::chunk_list::{CHUNK_LEN, Chunk, Chunks};

/// An ordered sequence; cloning it is O(1), and neither clone sees changes of the other.
#[derive(Debug, Clone, Default)]
pub(crate) enum SortedChunks<T> {
    /// Nothing yet, and nothing allocated.
    #[default]
    Empty,
    /// A single chunk, the only one that may be empty.
    One(Arc<Vec<T>>),
    /// Two or more chunks, none of them empty.
    Many(Arc<Chunks<T>>),
}

/// A place in a sequence: of an element, or the end (which is behind the last chunk). Valid until
/// the sequence is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) chunk: usize,
    pub(crate) index: usize,
}

impl Position {
    /// The place of the first element, or the end of an empty sequence when it is compared with
    /// [`SortedChunks::end`].
    pub(crate) const START: Position = Position { chunk: 0, index: 0 };
}

impl<T: Clone> SortedChunks<T> {
    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            SortedChunks::Empty => 0,
            SortedChunks::One(chunk) => chunk.len(),
            SortedChunks::Many(chunks) => chunks.len,
        }
    }

    /// Whether there is no element.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The place behind the last element.
    pub(crate) fn end(&self) -> Position {
        if self.is_empty() {
            return Position::START;
        }
        Position { chunk: self.chunk_count(), index: 0 }
    }

    /// The smallest element.
    #[inline]
    pub(crate) fn first(&self) -> Option<&T> {
        self.chunk(0)?.first()
    }

    /// The place of the first element that is not `before`; all that are must come first.
    #[inline]
    pub(crate) fn lower_bound(&self, before: impl Fn(&T) -> bool) -> Position {
        let (chunk, elements) = match self {
            SortedChunks::Empty => return Position::START,
            SortedChunks::One(elements) => (0, elements),
            SortedChunks::Many(chunks) => {
                let after = chunks.list.partition_point(|chunk| before(&chunk.fence));
                let chunk = after.saturating_sub(1);
                (chunk, &chunks.list[chunk].elements)
            }
        };
        let index = elements.partition_point(before);
        if index == elements.len() && index > 0 {
            return Position { chunk: chunk + 1, index: 0 };
        }
        Position { chunk, index }
    }

    /// The place of the element that compares equal, or where it would have to be inserted.
    #[inline]
    pub(crate) fn search(&self, compare: impl Fn(&T) -> Ordering) -> Result<Position, Position> {
        let at = self.lower_bound(|element| compare(element) == Ordering::Less);
        match self.get(at) {
            Some(element) if compare(element) == Ordering::Equal => Ok(at),
            _ => Err(at),
        }
    }

    /// The element at a place.
    #[inline]
    pub(crate) fn get(&self, at: Position) -> Option<&T> {
        self.chunk(at.chunk)?.get(at.index)
    }

    /// All elements in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.chunk_count()).filter_map(|chunk| self.chunk(chunk)).flatten()
    }

    /// Inserts before a place.
    pub(crate) fn insert(&mut self, at: Position, element: T) {
        if let SortedChunks::Empty = self {
            *self = SortedChunks::One(Arc::default());
        }
        let last = self.chunk_count() - 1;
        let chunk = at.chunk.min(last);
        let len = self.chunk(chunk).map_or(0, <[T]>::len);
        let index = if at.chunk > last { len } else { at.index };
        if index == 0
            && let SortedChunks::Many(chunks) = self
        {
            Arc::make_mut(chunks).list[chunk].fence = element.clone();
        }
        if len < CHUNK_LEN {
            self.chunk_mut(chunk).insert(index, element);
        } else {
            self.insert_into_full(chunk, index, element);
        }
        if let SortedChunks::Many(chunks) = self {
            Arc::make_mut(chunks).len += 1;
        }
    }

    /// Adds an element that is greater than all others.
    pub(crate) fn push(&mut self, element: T) {
        self.insert(self.end(), element);
    }

    /// Removes and returns the element at a place.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn remove(&mut self, at: Position) -> T {
        let removed = self.chunk_mut(at.chunk).remove(at.index);
        if let SortedChunks::Many(chunks) = self {
            let chunks = Arc::make_mut(chunks);
            chunks.len -= 1;
            chunks.tidy(at.chunk);
            self.collapse();
        }
        removed
    }

    /// Removes and returns the smallest element.
    pub(crate) fn pop_first(&mut self) -> Option<T> {
        self.first()?;
        Some(self.remove(Position::START))
    }

    /// Inserts and removes many elements at once. `changes` are ascending, each with whether it is to
    /// be there afterwards; `each` is told of those that change something.
    pub(crate) fn apply(&mut self, changes: Vec<(T, bool)>, mut each: impl FnMut(&T, bool))
    where
        T: Ord,
    {
        // A pass over the list of chunks costs about as much as this many searches for each chunk.
        if changes.len() * 32 >= self.chunk_count() {
            return self.merge(changes, each);
        }
        for (element, present) in changes {
            match self.search(|other| other.cmp(&element)) {
                Err(at) if present => {
                    each(&element, true);
                    self.insert(at, element);
                }
                Ok(at) if !present => {
                    each(&element, false);
                    self.remove(at);
                }
                _ => {}
            }
        }
    }

    /// The same in one pass over the list of chunks; of these it visits those that change.
    fn merge(&mut self, changes: Vec<(T, bool)>, mut each: impl FnMut(&T, bool))
    where
        T: Ord,
    {
        let mut len = self.len();
        let chunks = match std::mem::take(self) {
            SortedChunks::Empty => Vec::new(),
            SortedChunks::One(one) => Chunk::of(one).into_iter().collect(),
            SortedChunks::Many(chunks) => Arc::unwrap_or_clone(chunks).list,
        };
        let mut list = Vec::with_capacity(chunks.len() + changes.len() / CHUNK_LEN + 1);
        let mut changes = changes.into_iter().peekable();
        let mut chunks = chunks.into_iter().peekable();
        // Without a chunk everything goes to one of its own.
        let mut next = chunks.next();
        while next.is_some() || changes.peek().is_some() {
            let fence = chunks.peek().map(|chunk| &chunk.fence);
            let is_here = |change: &(T, bool)| fence.is_none_or(|fence| change.0 < *fence);
            if changes.peek().is_none_or(|change| !is_here(change)) {
                list.extend(next);
                next = chunks.next();
                continue;
            }
            let old = next.map(|chunk| Arc::unwrap_or_clone(chunk.elements)).unwrap_or_default();
            let mut merged = Vec::with_capacity(CHUNK_LEN.max(old.len()));
            let mut old = old.into_iter().peekable();
            while let Some((element, present)) = changes.next_if(is_here) {
                while let Some(smaller) = old.next_if(|other| *other < element) {
                    merged.push(smaller);
                }
                let was_present = old.next_if(|other| *other == element).is_some();
                if was_present != present {
                    each(&element, present);
                    len = if present { len + 1 } else { len - 1 };
                }
                if present {
                    merged.push(element);
                }
            }
            merged.extend(old);
            push_pieces(&mut list, merged);
            next = chunks.next();
        }
        *self = SortedChunks::Many(Arc::new(Chunks { list, len }));
        self.collapse();
    }

    fn chunk_count(&self) -> usize {
        match self {
            SortedChunks::Empty => 0,
            SortedChunks::One(_) => 1,
            SortedChunks::Many(chunks) => chunks.list.len(),
        }
    }

    #[inline]
    fn chunk(&self, chunk: usize) -> Option<&[T]> {
        match self {
            SortedChunks::Empty => None,
            SortedChunks::One(elements) => (chunk == 0).then_some(elements),
            SortedChunks::Many(chunks) => chunks.list.get(chunk).map(|c| c.elements.as_slice()),
        }
    }

    #[inline]
    fn chunk_mut(&mut self, chunk: usize) -> &mut Vec<T> {
        if let SortedChunks::Empty = self {
            *self = SortedChunks::One(Arc::default());
        }
        match self {
            SortedChunks::Empty => unreachable!("it was replaced above"),
            SortedChunks::One(chunk) => Arc::make_mut(chunk),
            SortedChunks::Many(chunks) => Arc::make_mut(chunks).elements_mut(chunk),
        }
    }

    fn insert_into_full(&mut self, chunk: usize, index: usize, element: T) {
        if let SortedChunks::One(one) = self {
            let (elements, len) = (std::mem::take(one), CHUNK_LEN);
            let list = vec![Chunk { fence: elements[0].clone(), elements }];
            *self = SortedChunks::Many(Arc::new(Chunks { list, len }));
        }
        let SortedChunks::Many(chunks) = self else { return };
        let chunks = Arc::make_mut(chunks);
        if index == CHUNK_LEN && chunk + 1 == chunks.list.len() {
            // Elements that come in ascending order (times, sequence numbers) fill whole chunks.
            chunks.list.extend(Chunk::new(vec![element]));
            return;
        }
        let left = chunks.elements_mut(chunk);
        let mut right = left.split_off(CHUNK_LEN / 2);
        if index <= CHUNK_LEN / 2 {
            left.insert(index, element);
        } else {
            right.insert(index - CHUNK_LEN / 2, element);
        }
        if let Some(right) = Chunk::new(right) {
            chunks.list.insert(chunk + 1, right);
        }
    }

    /// Restores that two or more chunks are `Many`.
    fn collapse(&mut self) {
        if let SortedChunks::Many(chunks) = self
            && chunks.list.len() < 2
        {
            let only = Arc::make_mut(chunks).list.pop();
            *self = SortedChunks::One(only.map(|chunk| chunk.elements).unwrap_or_default());
        }
    }
}

/// Appends elements in chunks of about the same length; a few of them to the last chunk.
fn push_pieces<T: Clone>(list: &mut Vec<Chunk<T>>, elements: Vec<T>) {
    if let Some(last) = list.last_mut()
        && last.elements.len() + elements.len() <= CHUNK_LEN / 2
    {
        Arc::make_mut(&mut last.elements).extend(elements);
        return;
    }
    if elements.len() <= CHUNK_LEN {
        list.extend(Chunk::new(elements));
        return;
    }
    let piece_len = elements.len().div_ceil(elements.len().div_ceil(CHUNK_LEN));
    let mut rest = elements.into_iter();
    while let Some(chunk) = Chunk::new(rest.by_ref().take(piece_len).collect()) {
        list.push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(chunks: &SortedChunks<u16>, model: &std::collections::BTreeSet<u16>) {
        assert_eq!(chunks.len(), model.len());
        assert!(chunks.iter().eq(model.iter()));
        assert_eq!(chunks.first(), model.first());
        if let SortedChunks::Many(many) = chunks {
            assert!(many.list.len() > 1);
            let mut lengths = many.list.iter().map(|chunk| chunk.elements.len());
            assert!(lengths.all(|len| (1..=CHUNK_LEN).contains(&len)));
            for pair in many.list.windows(2) {
                let (last, first) = (pair[0].elements.last(), pair[1].elements.first());
                assert!(last < Some(&pair[1].fence) && Some(&pair[1].fence) <= first);
            }
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_set(operations in prop::collection::vec((0..4_u8, 0..700_u16), 1..900)) {
            let mut chunks = SortedChunks::default();
            let mut model = std::collections::BTreeSet::new();
            let mut kept = Vec::new();
            for (step, (kind, value)) in operations.into_iter().enumerate() {
                match (kind, chunks.search(|other: &u16| other.cmp(&value))) {
                    (0 | 1, Err(at)) => {
                        prop_assert!(model.insert(value));
                        chunks.insert(at, value);
                    }
                    (0 | 1, Ok(at)) => prop_assert_eq!(chunks.get(at), Some(&value)),
                    (2, Ok(at)) => {
                        prop_assert!(model.remove(&value));
                        prop_assert_eq!(chunks.remove(at), value);
                    }
                    (2, Err(_)) => prop_assert!(!model.contains(&value)),
                    (3, _) if step % 4 == 0 => {
                        // One change, or many, of which some change nothing.
                        let len = [1, 3, 90][usize::from(value % 3)];
                        let values = (value..value + len).filter(|other| other % 7 < 5);
                        let changes: Vec<_> = values.map(|other| (other, other % 3 > 0)).collect();
                        let mut told = Vec::new();
                        chunks.apply(changes.clone(), |value, came| told.push((*value, came)));
                        let told_too = changes.into_iter().filter(|&(value, came)| match came {
                            true => model.insert(value),
                            false => model.remove(&value),
                        });
                        prop_assert_eq!(told, told_too.collect::<Vec<_>>());
                    }
                    (3, _) if step % 16 == 1 => {
                        prop_assert_eq!(chunks.pop_first(), model.pop_first());
                    }
                    _ if step % 16 == 2 => kept.push((chunks.clone(), model.clone())),
                    _ => {}
                }
                if step % 32 == 0 {
                    check(&chunks, &model);
                }
            }
            check(&chunks, &model);
            for (chunks, model) in &kept {
                check(chunks, model);
            }
        }
    }

    #[test]
    fn ascending_elements_fill_their_chunks_and_leave_in_any_order() {
        let mut chunks = SortedChunks::default();
        for value in 0..10_000_u16 {
            let at = chunks.search(|other: &u16| other.cmp(&value)).unwrap_err();
            chunks.insert(at, value);
        }
        assert_eq!(chunks.chunk_count(), 10_000_usize.div_ceil(CHUNK_LEN));
        for value in (0..10_000).rev().step_by(2).chain((0..10_000).step_by(2)) {
            let at = chunks.search(|other: &u16| other.cmp(&value)).unwrap();
            assert_eq!(chunks.remove(at), value);
        }
        assert!(matches!(chunks, SortedChunks::One(_)));
        assert!(chunks.is_empty());
    }
}
