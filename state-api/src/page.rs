//! Packed results of scans and batched reads: one buffer, no allocation per entry.

use crate::KeyGroup;

/// How many entries a backend puts into one page of a scan at most.
pub const PAGE_ENTRIES: usize = 128;

/// How many bytes a page of a scan holds before the backend ends it (one entry may exceed it).
pub const PAGE_BYTES: usize = 64 * 1024;

/// Entries of a scan, each a pair of byte strings, packed into one buffer that is reused.
///
/// For a map scan the pair is (map key, value), for an enumeration of keys it is (key, namespace).
#[derive(Debug, Clone)]
pub struct Page {
    limit: usize,
    /// The byte strings of each entry, one behind the other.
    data: Vec<u8>,
    len: usize,
    /// The lengths of the two byte strings of each entry, while they are the same for all.
    widths: (usize, usize),
    /// Otherwise: where they end in `data`.
    ends: Vec<(usize, usize)>,
    groups: Vec<KeyGroup>,
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}

impl Page {
    /// An empty page for [`PAGE_ENTRIES`] entries.
    pub fn new() -> Self {
        Self::with_limit(PAGE_ENTRIES)
    }

    /// An empty page for fewer entries (one at least): for who needs only the first ones. The pages
    /// that follow are not bound to it.
    pub fn with_limit(entries: usize) -> Self {
        let limit = entries.clamp(1, PAGE_ENTRIES);
        let (data, ends, groups) = (Vec::new(), Vec::new(), Vec::new());
        Page { limit, data, len: 0, widths: (0, 0), ends, groups }
    }

    /// How many entries it is for: [`PAGE_ENTRIES`], or fewer when its reader needs only the first ones.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Removes all entries; keeps the buffers and the limit.
    pub fn clear(&mut self) {
        self.data.clear();
        self.len = 0;
        self.ends.clear();
        self.groups.clear();
    }

    /// Makes room for so many more bytes, as far as the page takes them: spares growing step by step.
    pub fn reserve(&mut self, bytes: usize) {
        self.data.reserve(bytes.min(PAGE_BYTES));
    }

    /// Appends an entry of a map scan.
    #[inline]
    pub fn push(&mut self, first: &[u8], second: &[u8]) {
        let widths = (first.len(), second.len());
        if self.len == 0 {
            self.widths = widths;
        }
        if self.widths != widths || !self.ends.is_empty() {
            self.push_ends(widths);
        }
        extend(&mut self.data, first);
        extend(&mut self.data, second);
        self.len += 1;
    }

    /// Notes where an entry will end that has other lengths than the ones before, or follows one that
    /// had.
    #[inline(never)]
    fn push_ends(&mut self, (first, second): (usize, usize)) {
        if self.ends.is_empty() {
            let (width, both) = (self.widths.0, self.widths.0 + self.widths.1);
            self.ends.extend((0..self.len).map(|index| (index * both + width, (index + 1) * both)));
        }
        let middle = self.data.len() + first;
        self.ends.push((middle, middle + second));
    }

    /// Appends an entry of an enumeration of keys.
    pub fn push_key(&mut self, group: KeyGroup, key: &[u8], namespace: &[u8]) {
        self.push(key, namespace);
        self.groups.push(group);
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a backend should end the page here.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit || self.data.len() >= PAGE_BYTES
    }

    /// Entry number `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        if index >= self.len {
            return None;
        }
        if self.ends.is_empty() {
            let both = self.widths.0 + self.widths.1;
            let entry = self.data.get(index * both..(index + 1) * both)?;
            return entry.split_at_checked(self.widths.0);
        }
        let &(middle, end) = self.ends.get(index)?;
        let start = match index.checked_sub(1) {
            Some(previous) => self.ends[previous].1,
            None => 0,
        };
        Some((&self.data[start..middle], &self.data[middle..end]))
    }

    /// The key group of entry `index` of an enumeration of keys.
    pub fn group(&self, index: usize) -> Option<KeyGroup> {
        self.groups.get(index).copied()
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// Appends bytes; one word or two, the most common lengths, without a call. Two are appended one by
/// one: a load of both would wait for the stores that have just written them, if they were two.
#[inline(always)]
fn extend(data: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.as_chunks::<8>() {
        ([word], []) => data.extend_from_slice(word),
        ([first, second], []) => {
            data.extend_from_slice(first);
            data.extend_from_slice(second);
        }
        _ => data.extend_from_slice(bytes),
    }
}

/// Results of a batched read, packed into one buffer that is reused: value or absence per key.
#[derive(Debug, Default, Clone)]
pub struct Values {
    data: Vec<u8>,
    slots: Vec<Option<(usize, usize)>>,
}

impl Values {
    /// An empty set of results.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all results and makes room for `count` absent ones.
    pub fn reset(&mut self, count: usize) {
        self.data.clear();
        self.slots.clear();
        self.slots.resize(count, None);
    }

    /// Sets result `index` to a value.
    ///
    /// # Panics
    /// When `index` is not below the count given to [`reset`](Values::reset).
    pub fn set(&mut self, index: usize, value: &[u8]) {
        let start = self.data.len();
        self.data.extend_from_slice(value);
        self.slots[index] = Some((start, self.data.len()));
    }

    /// The value of result `index`; `None` when absent.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = (*self.slots.get(index)?)?;
        Some(&self.data[start..end])
    }

    /// The number of results.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no result.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_entries_apart_also_empty_ones() {
        let mut page = Page::new();
        page.push(b"", b"");
        page.push(b"a", b"");
        page.push(b"", b"b");
        page.push_key(KeyGroup(3), b"k", b"n");
        let entries: Vec<_> = page.iter().collect();
        assert_eq!(entries, [(&b""[..], &b""[..]), (b"a", b""), (b"", b"b"), (b"k", b"n")]);
        assert_eq!(page.get(4), None);
        page.clear();
        assert!(page.is_empty());
        for (first, second) in [(&b"12345678"[..], &b"1"[..]), (b"87654321", b"2"), (b"", b"")] {
            page.push(first, second);
        }
        let entries: Vec<_> = page.iter().collect();
        assert_eq!(entries[..2], [(&b"12345678"[..], &b"1"[..]), (b"87654321", b"2")]);
        assert_eq!((entries[2], page.len()), ((&b""[..], &b""[..]), 3));
    }

    #[test]
    fn values_tell_absent_from_empty() {
        let mut values = Values::new();
        values.reset(3);
        values.set(2, b"");
        values.set(0, b"x");
        assert_eq!(
            (values.get(0), values.get(1), values.get(2)),
            (Some(&b"x"[..]), None, Some(&b""[..]))
        );
        assert_eq!(values.get(3), None);
    }
}
