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
    data: Vec<u8>,
    /// End of the first and of the second byte string of each entry, in `data`.
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
        Page { limit, data: Vec::new(), ends: Vec::new(), groups: Vec::new() }
    }

    /// Removes all entries; keeps the buffers and the limit.
    pub fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
        self.groups.clear();
    }

    /// Appends an entry of a map scan.
    pub fn push(&mut self, first: &[u8], second: &[u8]) {
        self.data.extend_from_slice(first);
        let middle = self.data.len();
        self.data.extend_from_slice(second);
        self.ends.push((middle, self.data.len()));
    }

    /// Appends an entry of an enumeration of keys.
    pub fn push_key(&mut self, group: KeyGroup, key: &[u8], namespace: &[u8]) {
        self.push(key, namespace);
        self.groups.push(group);
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether a backend should end the page here.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit || self.data.len() >= PAGE_BYTES
    }

    /// Entry number `index`.
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
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
