//! Memory for keys with their values: few large allocations in place of one for each entry, so that
//! neither filling a memtable nor letting go of one is work for the allocator.

/// The longest entry that shares a chunk with others.
const LARGEST_SHARED: usize = 64 << 10;
/// A chunk is twice as long as the one before, from the first to the longest.
const CHUNK_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=1 << 20;

/// Where an entry is: a key and room for a value behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    chunk: u32,
    /// From where in the chunk; `ALONE` for an entry that has the chunk for itself.
    offset: u32,
}

const ALONE: u32 = u32::MAX;

/// Appends only: what an entry has outgrown is lost until the arena goes.
#[derive(Debug, Default)]
pub(super) struct Arena {
    chunks: Vec<Vec<u8>>,
    /// The chunk that takes the next entry.
    open: Option<usize>,
    used: usize,
}

impl Arena {
    /// Bytes of all entries, and what they have outgrown.
    #[inline]
    pub(super) fn used_bytes(&self) -> usize {
        self.used
    }

    /// Adds an entry with room for a value of `capacity` bytes, of which `value` are the first.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8], capacity: usize) -> Place {
        let len = key.len() + capacity;
        self.used += len;
        if len > LARGEST_SHARED {
            let mut bytes = Vec::with_capacity(len);
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
            self.chunks.push(bytes);
            return Place { chunk: index(self.chunks.len() - 1), offset: ALONE };
        }
        let open = match self.open {
            Some(open) if self.chunks[open].capacity() - self.chunks[open].len() >= len => open,
            _ => self.begin_chunk(len),
        };
        let chunk = &mut self.chunks[open];
        let offset = chunk.len();
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(value);
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

    /// The first `len` bytes of an entry.
    #[inline]
    pub(super) fn get(&self, place: Place, len: usize) -> &[u8] {
        let chunk = &self.chunks[place.chunk as usize];
        let from = if place.offset == ALONE { 0 } else { place.offset as usize };
        &chunk[from..from + len]
    }

    /// Replaces what is behind the first `at` bytes of an entry by `bytes`. The entry has room for them.
    #[inline]
    pub(super) fn write(&mut self, place: Place, at: usize, bytes: &[u8]) {
        let chunk = &mut self.chunks[place.chunk as usize];
        if place.offset == ALONE {
            let before = chunk.capacity();
            chunk.truncate(at);
            chunk.extend_from_slice(bytes);
            self.used += chunk.capacity() - before;
        } else {
            let from = place.offset as usize + at;
            chunk[from..from + bytes.len()].copy_from_slice(bytes);
        }
    }
}

impl Place {
    /// Whether the entry may grow where it is.
    pub(super) fn grows(self) -> bool {
        self.offset == ALONE
    }
}

fn index(chunk: usize) -> u32 {
    // Each has 4 KiB at least: an index that does not fit is more memory than there is.
    u32::try_from(chunk).expect("fewer chunks than 2^32")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_all_lengths_keep_to_themselves() {
        let mut arena = Arena::default();
        let lengths = [0, 1, 100, 4_000, 5_000, LARGEST_SHARED, LARGEST_SHARED + 1, 3 << 20];
        let mut places = Vec::new();
        for round in 0..5_u8 {
            for (number, len) in (0..).zip(lengths) {
                let value = vec![round * 8 + number; len];
                places.push((arena.add(b"key", &value, len), value));
            }
        }
        for (place, value) in &places {
            let entry = arena.get(*place, 3 + value.len());
            assert_eq!((&entry[..3], &entry[3..]), (&b"key"[..], &value[..]));
        }
        let all: usize = lengths.iter().map(|len| 5 * (3 + len)).sum();
        assert!(arena.used_bytes() >= all);
    }

    #[test]
    fn small_memtables_take_little() {
        let mut arena = Arena::default();
        arena.add(b"k", b"v", 1);
        assert_eq!(arena.used_bytes(), 2);
        assert!(arena.chunks[0].capacity() < 8 << 10);
    }
}
