//! The chunks of a long ordered sequence.

use std::sync::Arc;

use crate::sorted_chunks::Position;

/// The most elements of a chunk.
pub(crate) const CHUNK_LEN: usize = 64;

/// A list of chunks.
#[derive(Debug, Clone)]
pub(crate) struct Chunks<T> {
    pub(crate) list: Vec<Chunk<T>>,
    /// The number of elements in all of them.
    pub(crate) len: usize,
}

/// A chunk of a list.
#[derive(Debug, Clone)]
pub(crate) struct Chunk<T> {
    /// Greater than all elements before the chunk and not greater than its own: a search goes by
    /// the fences, which lie side by side, and visits one chunk. A removal leaves it as it is.
    pub(crate) fence: T,
    /// In order.
    pub(crate) elements: Arc<Vec<T>>,
}

impl<T: Clone> Chunk<T> {
    /// A chunk of these elements, of which there is one at least.
    pub(crate) fn new(elements: Vec<T>) -> Option<Self> {
        let fence = elements.first()?.clone();
        Some(Chunk { fence, elements: Arc::new(elements) })
    }
}

impl<T: Clone> Chunks<T> {
    /// Write access to the elements of a chunk.
    pub(crate) fn elements_mut(&mut self, chunk: usize) -> &mut Vec<T> {
        Arc::make_mut(&mut self.list[chunk].elements)
    }

    /// Removes a chunk that became empty, or merges it with the next one when both are small.
    pub(crate) fn tidy(&mut self, chunk: usize) {
        let len = self.list[chunk].elements.len();
        if len == 0 {
            self.list.remove(chunk);
        } else if let Some(next) = self.list.get(chunk + 1)
            && len + next.elements.len() <= CHUNK_LEN / 2
        {
            let next = self.list.remove(chunk + 1);
            self.elements_mut(chunk).extend(next.elements.iter().cloned());
        }
    }

    /// Removes the elements of `from..to`, at least one.
    pub(crate) fn remove_range(&mut self, from: Position, to: Position) {
        if from.chunk == to.chunk {
            self.elements_mut(from.chunk).drain(from.index..to.index);
            self.len -= to.index - from.index;
            self.tidy(from.chunk);
            return;
        }
        if to.index > 0 {
            self.elements_mut(to.chunk).drain(..to.index);
            self.len -= to.index;
        }
        let mut first = from.chunk;
        if from.index > 0 {
            let elements = self.elements_mut(first);
            let removed = elements.len() - from.index;
            elements.truncate(from.index);
            self.len -= removed;
            first += 1;
        }
        self.len -= self.list.drain(first..to.chunk).map(|c| c.elements.len()).sum::<usize>();
    }
}
