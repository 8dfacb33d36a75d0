//! Refreshes of reads that end after their call: pending ones, and iterations.
//!
//! Such a read has no access to the backend when it knows what it has read. It leaves the new bytes
//! here, and the next access writes them, unless somebody has written there since the read began:
//! then the read has nothing to refresh any more.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Address, Key, KeyedBackend, Result, StateId, key_hash};

/// The refreshes of one instance.
#[derive(Default)]
pub(super) struct Refreshes {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Reads that have not ended, plus refreshes to write: nothing is locked while it is zero.
    active: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    reads: HashMap<u64, Read>,
    /// The reads at a place, by its hash. Two places with one hash cost a refresh, nothing else.
    by_place: HashMap<u64, Vec<u64>>,
    ready: Vec<Ready>,
}

/// A read that has not ended.
struct Read {
    place_hash: u64,
    /// Map keys that were written since; `None` when all were.
    overwritten: Option<HashSet<Vec<u8>>>,
}

struct Ready {
    place: Arc<Place>,
    map_key: Vec<u8>,
    value: Vec<u8>,
}

struct Place {
    state: StateId,
    key: Key,
    namespace: Vec<u8>,
}

impl Refreshes {
    /// Writes what is ready.
    #[inline]
    pub(super) fn write(&mut self, backend: &mut dyn KeyedBackend) -> Result<()> {
        if self.shared.active.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.write_ready(backend)
    }

    #[cold]
    fn write_ready(&mut self, backend: &mut dyn KeyedBackend) -> Result<()> {
        let ready = std::mem::take(&mut self.shared.table().ready);
        self.shared.active.fetch_sub(ready.len(), Ordering::AcqRel);
        ready.iter().try_for_each(|Ready { place, map_key, value }| {
            let (key, namespace) = (place.key.as_ref(), place.namespace.as_slice());
            backend.put(&Address { state: place.state, key, namespace, map_key }, value)
        })
    }

    /// Notes that the place is written, or, of a map, the entry with this key.
    #[inline]
    pub(super) fn overwritten(&self, at: &Address<'_>, map_key: Option<&[u8]>) {
        if self.shared.active.load(Ordering::Acquire) > 0 {
            self.shared.overwritten(place_hash(at), map_key);
        }
    }

    /// Notes a read that ends later.
    pub(super) fn begin(&self, at: &Address<'_>) -> Refresher {
        let mut key = Key::default();
        key.refill_from(at.key);
        let place = Place { state: at.state, key, namespace: at.namespace.to_vec() };
        let place_hash = place_hash(at);
        let mut table = self.shared.table();
        let number = table.next;
        table.next += 1;
        table.reads.insert(number, Read { place_hash, overwritten: Some(HashSet::new()) });
        table.by_place.entry(place_hash).or_default().push(number);
        self.shared.active.fetch_add(1, Ordering::AcqRel);
        Refresher { shared: self.shared.clone(), number, place: Arc::new(place) }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn overwritten(&self, place_hash: u64, map_key: Option<&[u8]>) {
        let table = &mut *self.table();
        for number in table.by_place.get(&place_hash).into_iter().flatten() {
            let Some(read) = table.reads.get_mut(number) else { continue };
            match (map_key, &mut read.overwritten) {
                (Some(map_key), Some(overwritten)) => drop(overwritten.insert(map_key.to_vec())),
                _ => read.overwritten = None,
            }
        }
    }
}

/// A read that ends later and may refresh what it reads. Dropping it ends the read.
pub(super) struct Refresher {
    shared: Arc<Shared>,
    number: u64,
    place: Arc<Place>,
}

impl Refresher {
    /// Leaves new bytes for what was read under a map key (empty for all kinds but maps).
    pub(super) fn refresh(&self, map_key: &[u8], value: Vec<u8>) {
        let mut table = self.shared.table();
        let read = table.reads.get(&self.number).and_then(|read| read.overwritten.as_ref());
        if read.is_some_and(|overwritten| !overwritten.contains(map_key)) {
            let (place, map_key) = (self.place.clone(), map_key.to_vec());
            table.ready.push(Ready { place, map_key, value });
            self.shared.active.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Refresher {
    fn drop(&mut self) {
        let table = &mut *self.shared.table();
        if let Some(read) = table.reads.remove(&self.number)
            && let Some(numbers) = table.by_place.get_mut(&read.place_hash)
        {
            numbers.retain(|number| *number != self.number);
            if numbers.is_empty() {
                table.by_place.remove(&read.place_hash);
            }
        }
        self.shared.active.fetch_sub(1, Ordering::AcqRel);
    }
}

fn place_hash(at: &Address<'_>) -> u64 {
    let namespace = if at.namespace.is_empty() { 0 } else { key_hash(at.namespace) };
    at.key.hash() ^ namespace.rotate_left(17) ^ u64::from(at.state.0).rotate_left(48)
}

impl fmt::Debug for Refreshes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let active = self.shared.active.load(Ordering::Acquire);
        f.debug_struct("Refreshes").field("active", &active).finish_non_exhaustive()
    }
}
