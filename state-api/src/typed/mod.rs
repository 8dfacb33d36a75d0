//! The typed facade: what users of state see. Written once, works on every backend.

mod access;
mod expiring;
mod expiry;
mod folding;
mod key_rules;
mod keys;
mod list;
mod map;
mod map_entries;
mod namespaced;
mod refresh;
mod registration;
mod sorted_map;
mod state_name;
mod store;
mod timers;
mod value;
mod with_namespace;

pub(crate) use key_rules::KeyRules;

pub use access::{Scope, StateAccess};
pub use expiry::Expiry;
pub use folding::{Aggregate, AggregatingState, ReducingState};
pub use keys::{EncodedKey, Keys};
pub use list::ListState;
pub use map::MapState;
pub use map_entries::MapEntries;
pub use namespaced::{Bind, Namespaced};
pub use registration::Registration;
pub use sorted_map::SortedMapState;
pub use store::KeyedStore;
pub use timers::{FiredTimer, TimerState};
pub use value::ValueState;
pub use with_namespace::WithNamespace;
