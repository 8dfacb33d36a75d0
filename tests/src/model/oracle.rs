//! The plain model: what every state must hold.

use std::collections::{BTreeMap, BTreeSet};

use super::ageing::Lives;

/// Key and namespace.
pub(super) type Place = (String, u8);

/// All state of the job, whatever its parallelism.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Oracle {
    pub(super) values: BTreeMap<Place, u64>,
    pub(super) lists: BTreeMap<Place, Vec<Vec<u8>>>,
    pub(super) maps: BTreeMap<Place, BTreeMap<i16, Vec<u8>>>,
    pub(super) sums: BTreeMap<Place, i64>,
    pub(super) folds: BTreeMap<Place, String>,
    /// Time, key, namespace: the order in which they come due.
    pub(super) timers: BTreeSet<(i64, String, u8)>,
    /// States whose values expire.
    pub(super) lives: Lives,
}

impl Oracle {
    /// Removes the map when it is empty.
    pub(super) fn tidy(&mut self, place: &Place) {
        if self.maps.get(place).is_some_and(BTreeMap::is_empty) {
            self.maps.remove(place);
        }
    }

    /// The (key, namespace) pairs of each state, by its name.
    pub(super) fn keys(&self) -> [(&'static str, BTreeSet<Place>); 5] {
        [
            ("values", self.values.keys().cloned().collect()),
            ("lists", self.lists.keys().cloned().collect()),
            ("maps", self.maps.keys().cloned().collect()),
            ("sums", self.sums.keys().cloned().collect()),
            ("folds", self.folds.keys().cloned().collect()),
        ]
    }
}

/// Moves what `from` holds into `into`, combined, target first.
pub(super) fn merge<T>(
    state: &mut BTreeMap<Place, T>,
    key: &str,
    into: u8,
    combine: impl Fn(T, T) -> T,
) {
    let (target, source) = ((key.to_string(), into), (key.to_string(), 1 - into));
    let Some(moved) = state.remove(&source) else { return };
    let merged = match state.remove(&target) {
        Some(old) => combine(old, moved),
        None => moved,
    };
    state.insert(target, merged);
}
