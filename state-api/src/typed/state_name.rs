//! Names of states, each kept once for the life of the process.
//!
//! Handles, iterations and pending reads carry the name of their state, for their errors. Counted
//! references would be a locked instruction at each copy, across which the processor overlaps no two
//! accesses.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// See the module. The names of a program are few, so they are never given back.
#[derive(Clone, Copy)]
pub(crate) struct StateName(&'static str);

impl StateName {
    /// The kept form of a name.
    pub(crate) fn new(name: &str) -> Self {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = known.get(name) {
            return StateName(kept);
        }
        let kept = Box::leak(Box::from(name));
        known.insert(kept);
        StateName(kept)
    }

    /// The name.
    pub(crate) fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let (a, b) = (StateName::new("carts"), StateName::new(&String::from("carts")));
        assert_eq!(a.as_str().as_ptr(), b.as_str().as_ptr());
        assert_ne!(StateName::new("visits").as_str(), a.as_str());
    }
}
