//! What is known of a state by its name: kind, codecs, time to live. Stored in every snapshot.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result, StateTtl};

/// The number of a state inside one backend instance.
///
/// Ids are local to the instance; snapshots identify states by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StateId(pub u16);

impl StateId {
    /// The id as an index.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The kinds of keyed state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StateKind {
    /// One value per key and namespace.
    Value,
    /// A list of framed elements per key and namespace, appended to without reading.
    List,
    /// An ordered map per key and namespace.
    Map,
    /// One value, combined with each added element by a user function.
    Reducing,
    /// One accumulator, fed with each added element by a user function.
    Aggregating,
    /// A set of (time, key, namespace), ordered by time, then key bytes, then namespace bytes.
    Timers,
    /// A map with an order that users rely on: its map keys are always encoded with `Ordered`.
    SortedMap,
}

impl StateKind {
    /// How the kind is stored: what a backend has to distinguish.
    pub fn shape(self) -> StateShape {
        match self {
            StateKind::Value | StateKind::List | StateKind::Reducing | StateKind::Aggregating => {
                StateShape::Point
            }
            StateKind::Map | StateKind::SortedMap => StateShape::Ordered,
            StateKind::Timers => StateShape::Queue,
        }
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StateKind::Value => "value",
            StateKind::List => "list",
            StateKind::Map => "map",
            StateKind::SortedMap => "sorted map",
            StateKind::Reducing => "reducing",
            StateKind::Aggregating => "aggregating",
            StateKind::Timers => "timers",
        })
    }
}

/// The three access patterns behind all kinds of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateShape {
    /// One byte string per (key, namespace): get, put, delete, append.
    Point,
    /// Many byte strings per (key, namespace), ordered by map key: the same, and scans.
    Ordered,
    /// A priority queue over all keys: register, delete, poll.
    Queue,
}

/// Name and version of an encoding. Two encodings with the same id produce the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CodecId {
    /// What is encoded and how, for example `i64` or `postcard:Order`.
    pub name: String,
    /// Counts incompatible changes of the encoding under that name.
    pub version: u32,
}

impl CodecId {
    /// An id from its parts.
    pub fn new(name: impl Into<String>, version: u32) -> Self {
        CodecId { name: name.into(), version }
    }
}

impl fmt::Display for CodecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} v{}", self.name, self.version)
    }
}

/// Everything that identifies a state and its encoding.
///
/// Typed facades build it from their codecs; an engine with its own serializers fills in the ids
/// it likes, Weir only compares them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateDescriptor {
    /// Unique within the operator.
    pub name: String,
    /// What it is.
    pub kind: StateKind,
    /// Encoding of namespaces.
    pub namespace: CodecId,
    /// Encoding of map keys; `None` for all kinds but maps.
    pub map_key: Option<CodecId>,
    /// Encoding of the value, the list element, the map value or the accumulator.
    pub value: CodecId,
    /// When its values expire; `None` for never, and for timers. With one, each value of the state
    /// begins with a stamp as the backend sees it ([`Stamp`](crate::ttl::Stamp)).
    #[serde(default)]
    pub ttl: Option<StateTtl>,
}

impl StateDescriptor {
    /// A state without map keys.
    pub fn new(
        name: impl Into<String>,
        kind: StateKind,
        namespace: CodecId,
        value: CodecId,
    ) -> Self {
        StateDescriptor { name: name.into(), kind, namespace, map_key: None, value, ttl: None }
    }

    /// Sets the encoding of map keys.
    #[must_use]
    pub fn with_map_key(mut self, map_key: CodecId) -> Self {
        self.map_key = Some(map_key);
        self
    }

    /// Sets when its values expire.
    #[must_use]
    pub fn with_ttl(mut self, ttl: StateTtl) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Checks that a call fits the state's kind; `fits` says so.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage), naming the call, the kind and the state.
    #[inline]
    pub fn expect(&self, fits: bool, call: &str) -> Result<()> {
        if fits { Ok(()) } else { Err(self.misused(call)) }
    }

    /// The error for a call that does not fit the state's kind.
    #[cold]
    pub fn misused(&self, call: &str) -> Error {
        Error::new(
            ErrorKind::InvalidUsage,
            format!("{call} does not work on a state of kind {}", self.kind),
        )
        .state(&self.name)
        .advice("use the calls of the kind that the state was registered with")
    }

    /// Checks that a registration fits what is there under the same name. The TTL may differ: it
    /// can be changed, see [`KeyedBackend::register`](crate::KeyedBackend::register).
    ///
    /// # Errors
    /// [`Incompatible`](ErrorKind::Incompatible), naming the stored and the requested definition.
    pub fn check_compatible(&self, requested: &StateDescriptor) -> Result<()> {
        let differs = |what: &str, stored: &dyn fmt::Display, requested: &dyn fmt::Display| {
            Error::new(
                ErrorKind::Incompatible,
                format!(
                    "the stored state has {what} {stored}, but {what} {requested} is requested"
                ),
            )
            .state(&self.name)
            .advice("register it as it was stored, or use another name")
        };
        if self.kind != requested.kind {
            return Err(differs("kind", &self.kind, &requested.kind));
        }
        if self.namespace != requested.namespace {
            return Err(differs("namespace codec", &self.namespace, &requested.namespace));
        }
        if self.value != requested.value {
            return Err(differs("value codec", &self.value, &requested.value));
        }
        match (&self.map_key, &requested.map_key) {
            (Some(stored), Some(requested)) if stored != requested => {
                Err(differs("map key codec", stored, requested))
            }
            (None, Some(requested)) => Err(differs("map key codec", &"none", requested)),
            (Some(stored), None) => Err(differs("map key codec", stored, &"none")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incompatible_registration_names_both_sides() {
        let stored = StateDescriptor {
            name: "n".into(),
            kind: StateKind::Value,
            namespace: CodecId::new("unit", 1),
            map_key: None,
            value: CodecId::new("i64", 1),
            ttl: None,
        };
        assert!(stored.check_compatible(&stored.clone()).is_ok());
        let expiring = stored.clone().with_ttl(StateTtl::new(1, crate::TimeDomain::Event));
        assert!(stored.check_compatible(&expiring).is_ok());
        let text = |change: fn(&mut StateDescriptor)| {
            let mut requested = stored.clone();
            change(&mut requested);
            stored.check_compatible(&requested).unwrap_err().to_string()
        };
        assert!(text(|d| d.kind = StateKind::List).contains("kind value, but kind list"));
        assert!(text(|d| d.value.version = 2).contains("value codec i64 v1"));
        assert!(text(|d| d.namespace.name = "str".into()).contains("namespace codec unit v1"));
        assert!(text(|d| d.map_key = Some(CodecId::new("k", 1))).contains("map key codec none"));
    }
}
