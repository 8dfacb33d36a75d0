//! A hash table of bounded size, the unit that snapshots share with the writer.
//!
//! Open addressing with linear probing and nothing beside the entries: a look-up reads the one cache
//! line where its entry is, or that and the next. A table with control bytes reads those first, and
//! only then knows which entry to read: two misses one after the other, which is twice the time in a
//! state larger than the cache.
//!
//! An entry's home is its hash scaled to the capacity, so the capacity may be any number, and memory
//! grows by a third instead of doubling.

/// What a segment holds, and how it finds it again when it moves.
pub(crate) trait Hashed {
    /// The hash that the entry was inserted with. Not stored: it is needed only when entries move.
    fn hash(&self) -> u64;
}

/// So many places are read together by who reads all: their entries' cache misses overlap.
const RUN_LEN: usize = 16;

/// The smallest capacity that is not zero.
const MIN_CAPACITY: usize = 4;

/// See the module. The upper 32 bits of a hash choose the place.
///
/// Invariants: at least one place is empty, so every probe ends; between the home of an entry and
/// the entry no place is empty; `len` counts the entries.
#[derive(Debug, Clone)]
pub(crate) struct Segment<S> {
    places: Box<[Option<S>]>,
    len: usize,
}

impl<S> Default for Segment<S> {
    fn default() -> Self {
        Segment { places: Box::default(), len: 0 }
    }
}

impl<S: Hashed> Segment<S> {
    /// An empty segment with room for `len` entries.
    pub(crate) fn with_room(len: usize) -> Self {
        Segment { places: empty_places(roomy(len)), len: 0 }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the table itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.places.len() * size_of::<Option<S>>()
    }

    /// The number of places, empty ones too.
    pub(crate) fn place_count(&self) -> usize {
        self.places.len()
    }

    /// The entries, in no defined order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &S> {
        self.places.iter().flatten()
    }

    /// The same, some at a time: neighbouring places.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &[Option<S>]> {
        self.places.chunks(RUN_LEN)
    }

    /// The place of the entry with this hash for which `is_it` holds.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(&S) -> bool) -> Option<usize> {
        let mut at = self.home(hash);
        while let Some(entry) = self.places.get(at)? {
            if is_it(entry) {
                return Some(at);
            }
            at += 1;
            if at == self.places.len() {
                at = 0;
            }
        }
        None
    }

    /// The entry with this hash for which `is_it` holds.
    #[inline(always)]
    pub(crate) fn find_entry(&self, hash: u64, mut is_it: impl FnMut(&S) -> bool) -> Option<&S> {
        let mut places = self.places.get(self.home(hash)..)?;
        loop {
            for place in places {
                match place {
                    Some(entry) if is_it(entry) => return Some(entry),
                    Some(_) => {}
                    None => return None,
                }
            }
            places = &self.places;
        }
    }

    /// The same for writing; what decides the hash must stay.
    #[inline(always)]
    pub(crate) fn find_entry_mut(
        &mut self,
        hash: u64,
        is_it: impl FnMut(&S) -> bool,
    ) -> Option<&mut S> {
        let place = self.find(hash, is_it)?;
        self.get_mut(place)
    }

    /// The entry at a place, if there is one.
    #[inline(always)]
    pub(crate) fn get(&self, place: usize) -> Option<&S> {
        self.places.get(place)?.as_ref()
    }

    /// The same for writing; what decides the hash must stay.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut S> {
        self.places.get_mut(place)?.as_mut()
    }

    /// Adds an entry that is not there.
    pub(crate) fn insert(&mut self, hash: u64, entry: S) {
        if self.len >= room(self.places.len()) {
            self.resize(roomy(self.len + 1));
        }
        self.insert_with_room(hash, entry);
    }

    fn insert_with_room(&mut self, hash: u64, entry: S) {
        let mut at = self.home(hash);
        while self.places[at].is_some() {
            at = self.after(at);
        }
        self.places[at] = Some(entry);
        self.len += 1;
    }

    /// Removes the entry at a place, and moves up those that it kept from their homes.
    pub(crate) fn remove(&mut self, place: usize) -> Option<S> {
        let removed = self.places.get_mut(place)?.take()?;
        self.len -= 1;
        let (mut gap, mut at) = (place, self.after(place));
        while let Some(entry) = &self.places[at] {
            let home = self.home(entry.hash());
            if self.distance(home, at) >= self.distance(gap, at) {
                self.places.swap(gap, at);
                gap = at;
            }
            at = self.after(at);
        }
        Some(removed)
    }

    /// Takes out the entries whose hash `moves`, and gives back the room that they leave.
    pub(crate) fn extract(&mut self, moves: impl Fn(u64) -> bool) -> Segment<S> {
        let mut moved = Segment::with_room(self.len / 2);
        let mut kept = Segment::with_room(self.len - self.len / 2);
        for entry in std::mem::take(&mut self.places).into_iter().flatten() {
            let hash = entry.hash();
            let target = if moves(hash) { &mut moved } else { &mut kept };
            target.insert(hash, entry);
        }
        *self = kept;
        moved
    }

    /// Gives memory back when most of it is unused. The capacity at least halves, so the removals
    /// since the last time have paid for it.
    pub(crate) fn shrink_if_sparse(&mut self) {
        if self.places.len() > 64 && self.len < self.places.len() / 8 {
            self.resize(roomy(self.len));
        }
    }

    fn resize(&mut self, capacity: usize) {
        let old = std::mem::replace(&mut self.places, empty_places(capacity));
        self.len = 0;
        for entry in old.into_iter().flatten() {
            self.insert_with_room(entry.hash(), entry);
        }
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.places.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        if place + 1 == self.places.len() { 0 } else { place + 1 }
    }

    /// Steps from one place forward to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.places.len() - from }
    }
}

/// The most entries at a capacity: three quarters. A look-up of what is there then visits two and a
/// half places on average in the fullest table, and one and three quarters at average fill.
fn room(capacity: usize) -> usize {
    capacity / 4 * 3
}

/// The capacity to grow or shrink to for so many entries: there is room for a third as many again.
fn roomy(len: usize) -> usize {
    (len + len / 3).div_ceil(3).max(1) * MIN_CAPACITY
}

fn empty_places<S>(capacity: usize) -> Box<[Option<S>]> {
    std::iter::repeat_with(|| None).take(capacity).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A hash, an identity.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    struct Item(u64, u32);

    impl Hashed for Item {
        fn hash(&self) -> u64 {
            self.0
        }
    }

    /// A pseudo-random sequence.
    fn numbers(seed: u64) -> impl Iterator<Item = u64> {
        (seed..).map(|n| weir_state_api::key_hash(&n.to_le_bytes()))
    }

    #[test]
    fn agrees_with_a_map_whatever_is_inserted_and_removed() {
        // Few distinct homes, so that runs are long and wrap around the end.
        for homes in [1_u64, 3, 40, 5_000] {
            let mut segment = Segment::default();
            let mut model = BTreeMap::new();
            for (step, number) in numbers(homes).take(20_000).enumerate() {
                let home = (number % homes).wrapping_mul(u64::MAX / homes.max(2));
                let hash = home & !0xff | number >> 20 & 1;
                let item = Item(hash, (number >> 40) as u32 % 300);
                let place = segment.find(hash, |entry| *entry == item);
                assert_eq!(place.is_some(), model.contains_key(&item), "step {step}");
                match place {
                    Some(place) => {
                        assert_eq!(segment.remove(place), Some(item));
                        model.remove(&item);
                        segment.shrink_if_sparse();
                    }
                    None if model.len() < 2_000 => {
                        segment.insert(hash, item);
                        model.insert(item, ());
                    }
                    None => {}
                }
                assert_eq!(segment.len(), model.len());
            }
            let mut entries: Vec<_> = segment.iter().copied().collect();
            entries.sort_unstable();
            assert_eq!(entries, model.into_keys().collect::<Vec<_>>());
        }
    }

    #[test]
    fn is_never_full_and_never_wasteful() {
        let mut segment = Segment::default();
        for (count, hash) in numbers(1).take(10_000).enumerate() {
            segment.insert(hash, Item(hash, 0));
            let (places, len) = (segment.place_count(), count + 1);
            assert!(places * 3 >= len * 4, "{places} places for {len} entries");
            assert!(places <= 2 * len + 2 * MIN_CAPACITY, "{places} places for {len} entries");
        }
        for hash in numbers(1).take(9_990) {
            let place = segment.find(hash, |entry| entry.hash() == hash).unwrap();
            segment.remove(place);
            segment.shrink_if_sparse();
        }
        assert!(segment.place_count() <= 64);
        assert_eq!(segment.len(), 10);
    }

    #[test]
    fn extracting_splits_the_entries() {
        let mut segment = Segment::default();
        numbers(5).take(3_000).for_each(|hash| segment.insert(hash, Item(hash, 1)));
        let moved = segment.extract(|hash| hash & 1 == 1);
        assert_eq!(segment.len() + moved.len(), 3_000);
        assert!(moved.iter().all(|entry| entry.hash() & 1 == 1));
        assert!(segment.iter().all(|entry| entry.hash() & 1 == 0));
        for hash in numbers(5).take(3_000) {
            let holder = if hash & 1 == 1 { &moved } else { &segment };
            assert!(holder.find(hash, |entry| entry.hash() == hash).is_some());
        }
    }
}
