//! Comparing the whole job with the model.

use std::collections::BTreeSet;

use super::instance::{Checked, Instance, bind, same, text};
use super::job::Job;
use super::program::KEYS;

impl Job<'_, '_> {
    /// Fires all timers up to `until` in each instance, in order.
    pub(super) fn poll(&mut self, until: i64) -> Checked {
        let mut fired = BTreeSet::new();
        for Instance { store, timers, .. } in &mut self.instances {
            let mut last = None;
            while let Some(timer) = store.poll_timer(timers, until).wait().map_err(text)? {
                let timer = (timer.time, store.key().map_err(text)?, timer.namespace);
                if last.as_ref() >= Some(&timer) {
                    return Err(format!("timer {timer:?} came after {last:?}"));
                }
                fired.insert(timer.clone());
                last = Some(timer);
            }
        }
        let due = |timer: &&(i64, String, u8)| timer.0 <= until;
        let expected: BTreeSet<_> = self.oracle.timers.iter().filter(due).cloned().collect();
        self.oracle.timers.retain(|timer| timer.0 > until);
        same("the timers", fired, expected)
    }

    pub(super) fn check_keys(&mut self) -> Checked {
        let expiring = self.oracle.lives.keys(self.harness.now());
        for (name, expected) in self.oracle.keys().into_iter().chain(expiring) {
            let mut found = BTreeSet::new();
            for instance in &mut self.instances {
                for listed in instance.store.keys(name).map_err(text)? {
                    let (key, ns) = listed.map_err(text)?;
                    let place = (key, *ns.first().ok_or("a listed namespace is empty")?);
                    if !found.insert(place.clone()) {
                        return Err(format!("{name} lists {place:?} twice"));
                    }
                }
            }
            same(name, found, expected)?;
        }
        Ok(())
    }

    /// Compares every key of every state but timers, whose reading would change them.
    pub(super) fn check_all(&mut self) -> Checked {
        self.check_keys()?;
        for key in 0..KEYS.len() {
            for ns in 0..2 {
                let (i, oracle, key) = self.at(key)?;
                let place = (key, ns);
                let store = &mut i.store;
                let value = bind(&i.values, ns)?.get(store).wait().map_err(text)?;
                same("a value", value, oracle.values.get(&place).copied())?;
                let list = bind(&i.lists, ns)?.get(store).wait().map_err(text)?;
                same("a list", list, oracle.lists.get(&place).cloned().unwrap_or_default())?;
                let sum = bind(&i.sums, ns)?.get(store).wait().map_err(text)?;
                same("a sum", sum, oracle.sums.get(&place).copied())?;
                let fold = bind(&i.folds, ns)?.get(store).wait().map_err(text)?;
                same("a fold", fold, oracle.folds.get(&place).cloned())?;
                let entries: Vec<(i16, Vec<u8>)> = bind(&i.maps, ns)?
                    .entries(store)
                    .wait()
                    .and_then(Iterator::collect)
                    .map_err(text)?;
                let map = oracle.maps.get(&place).cloned().unwrap_or_default();
                same("a map", entries, map.into_iter().collect())?;
            }
        }
        self.check_ageing()
    }
}
