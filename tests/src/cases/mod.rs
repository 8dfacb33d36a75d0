//! The cases, one file per theme.

mod absent;
mod bytes;
mod damage;
mod enumeration;
mod failures;
mod fill;
mod folding;
mod isolation;
mod iteration;
mod keys;
mod list;
mod map;
mod model;
mod namespaces;
mod registration;
mod restore;
mod sharing;
mod sorted_map;
mod timers;
mod ttl;
mod ttl_change;
mod ttl_clean_up;
mod ttl_event;
mod ttl_expired;
pub(crate) mod ttl_probe;
mod value;

use crate::conformance::Case;

/// All themes.
pub(crate) const ALL: &[&[Case]] = &[
    value::CASES,
    list::CASES,
    map::CASES,
    iteration::CASES,
    sorted_map::CASES,
    folding::CASES,
    namespaces::CASES,
    absent::CASES,
    enumeration::CASES,
    registration::CASES,
    keys::CASES,
    failures::CASES,
    timers::CASES,
    bytes::CASES,
    isolation::CASES,
    restore::CASES,
    damage::CASES,
    sharing::CASES,
    ttl::CASES,
    ttl_expired::CASES,
    ttl_event::CASES,
    ttl_change::CASES,
    ttl_clean_up::CASES,
    model::CASES,
];

/// A table of cases: function, clause, and the capability it needs.
macro_rules! group {
    ($group:literal: $($case:ident => $clause:literal $(if $needs:literal)?,)*) => {
        &[$(Case {
            name: stringify!($case),
            group: $group,
            clause: $clause,
            needs: super::needs!($($needs)?),
            run: $case,
        }),*]
    };
}
macro_rules! needs {
    () => {
        None
    };
    ($needs:literal) => {
        Some($needs)
    };
}
use {group, needs};

/// The error of something that must fail.
#[track_caller]
fn refusal<T>(result: weir_state_api::Result<T>, what: &str) -> weir_state_api::Error {
    match result {
        Ok(_) => panic!("it succeeded, although {what}"),
        Err(error) => error,
    }
}
