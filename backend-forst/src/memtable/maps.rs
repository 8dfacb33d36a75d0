//! What each memtable of a shard has of one map, or of a queue in one key group.
//!
//! One index over all memtables knows which of them has the newest part of a map. From there each part
//! has a link to the next older one. So a look-up visits only the memtables in which something of this
//! very map is, however many others there are; and the first write to a map after a freeze makes its slot
//! point to a new part, which is nothing to do for the freeze.
//!
//! A part is also what has no entries but ranges that were deleted: all of them are of one map, so no
//! other map has to ask for them.

use super::index::Link;
use super::memtables::memtable_of;
use super::ordered_table::{MapPlace, Part};
use super::{DeletedRanges, Found, MapRoute, Memtable, Memtables, Route, Sequence};
use crate::format::EntryKind;

/// What a memtable has of a map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapVersion<'m> {
    /// 0 for the memtable that takes writes, 1 for the one frozen last.
    pub(crate) age: usize,
    part: &'m Part,
    of: &'m Memtable,
}

impl<'m> MapVersion<'m> {
    /// Its entries, if there are any.
    #[inline]
    pub(crate) fn entries(&self) -> Option<&'m Sequence> {
        self.part.entries()
    }

    /// What the memtable deleted of anything older, when parts of this map are among it.
    #[inline]
    pub(crate) fn deleted(&self) -> Option<&'m DeletedRanges> {
        self.part.has_deleted.then_some(&self.of.deleted)
    }

    /// What it says of a stored key of the map: one in a deleted range counts as deleted.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<Found<'m>> {
        if let Some(found) = self.entries().and_then(|entries| entries.get(key)) {
            return Some(found);
        }
        let is_deleted = self.deleted()?.covers(key);
        is_deleted.then_some(Found { kind: EntryKind::Delete, value: &[] })
    }
}

/// What memtables have of a map, newest first, only those that have something of it.
#[derive(Debug, Clone)]
pub(crate) struct MapVersions<'m> {
    of: &'m Memtables,
    next: Option<Link<MapPlace>>,
}

impl<'m> Iterator for MapVersions<'m> {
    type Item = MapVersion<'m>;

    #[inline]
    fn next(&mut self) -> Option<MapVersion<'m>> {
        let version = self.of.map_version(self.next?);
        self.next = version.as_ref().and_then(|version| version.part.older);
        version
    }
}

impl Memtables {
    /// What all memtables have of a map, newest first. The keys of the map begin with `prefix`, which has
    /// this hash.
    #[inline]
    pub(crate) fn map(&self, hash: u64, prefix: &[u8]) -> MapVersions<'_> {
        MapVersions { of: self, next: self.newest_part(hash, prefix) }
    }

    /// The version of a stored key of a map, if it is in the memtable that takes writes; else what all
    /// memtables have of the map.
    pub(crate) fn newest_in_map(
        &self,
        MapRoute { hash, prefix_len }: MapRoute,
        key: &[u8],
    ) -> Result<Found<'_>, MapVersions<'_>> {
        let next = self.newest_part(hash, &key[..prefix_len]);
        if let Some(at) = next
            && at.epoch == self.epoch
            && let Some(entries) = self.active.ordered.part(at.place).entries()
            && let Some(found) = entries.get(key)
        {
            return Ok(found);
        }
        Err(MapVersions { of: self, next })
    }

    /// What is at a place, if its memtable is still there.
    #[inline]
    fn map_version(&self, at: Link<MapPlace>) -> Option<MapVersion<'_>> {
        let age = self.epoch - at.epoch;
        let of = memtable_of(&self.active, &self.older, age)?;
        Some(MapVersion { age: age as usize, part: of.ordered.part(at.place), of })
    }

    /// Where the newest part of a map is.
    #[inline]
    fn newest_part(&self, hash: u64, prefix: &[u8]) -> Option<Link<MapPlace>> {
        self.maps.find(hash, |at| self.map_version(at).is_some_and(|it| it.part.is_of(prefix)))
    }

    /// Makes this the newest version of a key of a map.
    #[inline]
    pub(super) fn set_in_map(
        &mut self,
        MapRoute { hash, prefix_len }: MapRoute,
        key: &[u8],
        kind: EntryKind,
        value: &[u8],
    ) {
        match self.newest_part(hash, &key[..prefix_len]) {
            Some(at) if at.epoch == self.epoch => {
                self.active.ordered.set(at.place, (key, prefix_len), kind, value);
            }
            older => {
                let place = self.active.ordered.add((key, prefix_len), kind, value, older);
                self.newest_part_is(hash, older, place);
            }
        }
    }

    /// Appends to the newest version of a key of a map: where a range was deleted, as a value.
    pub(super) fn append_in_map(&mut self, route: MapRoute, key: &[u8], more: &[u8]) {
        let MapRoute { hash, prefix_len } = route;
        let newest = self.newest_part(hash, &key[..prefix_len]);
        let Some(Link { place, .. }) = newest.filter(|at| at.epoch == self.epoch) else {
            return self.set(Route::Map(route), key, EntryKind::Append, more);
        };
        let Memtable { ordered, deleted, .. } = &mut self.active;
        let is_base = ordered.part(place).has_deleted && deleted.covers(key);
        let to_nothing = if is_base { EntryKind::Put } else { EntryKind::Append };
        ordered.append(place, (key, prefix_len), more, to_nothing);
    }

    /// Deletes all entries of a map from `from` up to `to`, in the memtable that takes writes and, if there
    /// can be any, in what is older. The keys of the map begin with `prefix`, which has this hash.
    pub(crate) fn delete_range(
        &mut self,
        (hash, prefix): (u64, &[u8]),
        from: &[u8],
        to: &[u8],
        older: bool,
    ) {
        let newest = self.newest_part(hash, prefix);
        let own = newest.filter(|at| at.epoch == self.epoch);
        if let Some(at) = own
            && !self.active.ordered.remove_range(at.place, from, to)
        {
            self.is_without_entries(hash, prefix, at, older);
        }
        if older && from < to {
            let place = match own {
                Some(at) => at.place,
                None => {
                    let place = self.active.ordered.add_empty(prefix, newest);
                    self.newest_part_is(hash, newest, place);
                    place
                }
            };
            self.active.ordered.mark_deleted(place);
            self.active.deleted.add(from, to);
        }
    }

    /// Whether of all memtables only the one that takes writes has a stored key of a map.
    pub(crate) fn is_in_active_only(
        &self,
        MapRoute { hash, prefix_len }: MapRoute,
        key: &[u8],
    ) -> bool {
        let has = |version: &MapVersion<'_>| {
            version.entries().is_some_and(|entries| entries.get(key).is_some())
        };
        let mut versions = self.map(hash, &key[..prefix_len]);
        versions.next().is_some_and(|newest| newest.age == 0 && has(&newest))
            && !versions.any(|version| has(&version))
    }

    /// Takes a stored key of a map out of the memtable that takes writes, as if it had never been written.
    pub(crate) fn take_out(&mut self, MapRoute { hash, prefix_len }: MapRoute, key: &[u8]) {
        let prefix = &key[..prefix_len];
        let newest = self.newest_part(hash, prefix);
        if let Some(at) = newest.filter(|at| at.epoch == self.epoch)
            && !self.active.ordered.take_out(at.place, key)
        {
            self.is_without_entries(hash, prefix, at, false);
        }
    }

    /// The active part of a map has lost its last entry: it goes, unless it is needed (`keep`), or says that
    /// ranges were deleted, or has an older one behind it.
    fn is_without_entries(&mut self, hash: u64, prefix: &[u8], at: Link<MapPlace>, keep: bool) {
        let Part { older, has_deleted, .. } = self.active.ordered.part(at.place);
        let is_link = older.is_some_and(|link| self.map_version(link).is_some());
        if keep || *has_deleted || is_link {
            self.active.ordered.leave_empty(at.place, prefix);
        } else {
            self.active.ordered.remove(at.place);
            self.maps.remove(hash, at);
        }
    }

    /// The memtable that takes writes has a part of a map from now on; the newest one was this.
    fn newest_part_is(&mut self, hash: u64, older: Option<Link<MapPlace>>, place: MapPlace) {
        let at = Link { epoch: self.epoch, place };
        match older {
            Some(older) => self.maps.renew(hash, older, at),
            None => self.maps.insert(hash, at),
        }
    }
}

#[cfg(test)]
#[path = "maps_tests.rs"]
mod tests;
