//! The chunks of a long ordered sequence.

use std::sync::Arc;

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
        Self::of(Arc::new(elements))
    }

    /// The same for elements that may be shared.
    pub(crate) fn of(elements: Arc<Vec<T>>) -> Option<Self> {
        let fence = elements.first()?.clone();
        Some(Chunk { fence, elements })
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
}
