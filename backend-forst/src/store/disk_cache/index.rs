//! Which tables are on disk, and which make way.

use std::collections::HashMap;
use std::sync::Arc;

use crate::store::cache_id::CacheId;
use crate::store::heat::{Density, Heat};

/// What is on disk. It plans and accounts; files are others' work.
#[derive(Debug)]
pub(super) struct Index {
    limit: u64,
    /// Bytes of tables and of what is being written.
    used: u64,
    tables: HashMap<CacheId, Entry>,
    /// Numbers entries in the order they came.
    next: u64,
}

#[derive(Debug)]
struct Entry {
    length: u64,
    heat: Arc<Heat>,
    number: u64,
}

impl Index {
    pub(super) fn new(limit: u64) -> Self {
        Index { limit, used: 0, tables: HashMap::new(), next: 0 }
    }

    pub(super) fn length_of(&self, id: CacheId) -> Option<u64> {
        self.tables.get(&id).map(|entry| entry.length)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tables.len()
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used
    }

    pub(super) fn attach(&mut self, id: CacheId, heat: &Arc<Heat>) {
        if let Some(entry) = self.tables.get_mut(&id)
            && !Arc::ptr_eq(&entry.heat, heat)
        {
            entry.heat = Arc::clone(heat);
        }
    }

    /// The density of all that is here.
    pub(super) fn average_density(&self) -> Density {
        Density::of_all(self.tables.values().map(|entry| (&*entry.heat, entry.length)))
    }

    /// Adds a table that is on disk and not accounted for yet.
    pub(super) fn insert(&mut self, id: CacheId, length: u64, heat: Arc<Heat>) {
        self.used += length;
        self.keep_reserved(id, length, heat);
    }

    /// What was reserved is a table now; the space of one with the same id is given back.
    pub(super) fn keep_reserved(&mut self, id: CacheId, length: u64, heat: Arc<Heat>) {
        let entry = Entry { length, heat, number: self.next };
        self.next += 1;
        if let Some(before) = self.tables.insert(id, entry) {
            self.used -= before.length;
        }
    }

    /// Takes a table out; its length.
    pub(super) fn remove(&mut self, id: CacheId) -> Option<u64> {
        let entry = self.tables.remove(&id)?;
        self.used -= entry.length;
        Some(entry.length)
    }

    /// Gives back what was reserved.
    pub(super) fn release(&mut self, bytes: u64) {
        self.used -= bytes;
    }

    /// Takes `bytes` for something as hot as `density`; the tables that have made way. `None`, and
    /// nothing happens, when there is not enough room even without all that are colder.
    pub(super) fn reserve(&mut self, bytes: u64, density: Density) -> Option<Vec<(CacheId, u64)>> {
        let evicted = self.make_room(bytes, Some(density))?;
        self.used += bytes;
        Some(evicted)
    }

    /// Takes out the coldest tables until there is room for `bytes`, but none that is hotter than
    /// `density`.
    pub(super) fn make_room(
        &mut self,
        bytes: u64,
        density: Option<Density>,
    ) -> Option<Vec<(CacheId, u64)>> {
        let victims = self.victims(bytes, density)?;
        for (id, _) in &victims {
            self.remove(*id);
        }
        Some(victims)
    }

    pub(super) fn has_room(&self, bytes: u64, density: Density) -> bool {
        self.victims(bytes, Some(density)).is_some()
    }

    /// Among tables of equal heat the oldest goes first.
    fn victims(&self, bytes: u64, density: Option<Density>) -> Option<Vec<(CacheId, u64)>> {
        let mut surplus = self.used.saturating_add(bytes).saturating_sub(self.limit);
        if surplus == 0 {
            return Some(Vec::new());
        }
        let ranked =
            self.tables.iter().map(|(id, entry)| (entry.heat.density(entry.length), entry, *id));
        let mut ranked: Vec<_> =
            ranked.filter(|(of, ..)| density.is_none_or(|density| *of <= density)).collect();
        ranked.sort_by(|(a, x, _), (b, y, _)| a.0.total_cmp(&b.0).then(x.number.cmp(&y.number)));
        let mut victims = Vec::new();
        for (_, entry, id) in ranked {
            if surplus == 0 {
                break;
            }
            surplus = surplus.saturating_sub(entry.length);
            victims.push((id, entry.length));
        }
        (surplus == 0).then_some(victims)
    }
}
