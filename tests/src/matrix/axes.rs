//! The four axes.

use std::fmt;
use std::time::Duration;

use weir_state_api::{TimeDomain, Ttl};

use super::model::LIFETIME;
use crate::cases::ttl_probe;

/// The kind of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// One value.
    Value,
    /// A list; each element expires on its own.
    List,
    /// A map; each entry expires on its own.
    Map,
    /// A map whose order is part of its contract, read from the end.
    SortedMap,
    /// A value that added ones are combined with.
    Reducing,
    /// An accumulator that values are folded into.
    Aggregating,
    /// Timers, which do not expire.
    Timers,
}

impl Kind {
    /// All of them, in the order of the table.
    pub const ALL: &[Kind] = &[
        Kind::Value,
        Kind::List,
        Kind::Map,
        Kind::SortedMap,
        Kind::Reducing,
        Kind::Aggregating,
        Kind::Timers,
    ];

    /// Whether the interface offers this TTL for this kind.
    pub fn can_have(self, ttl: TtlMode) -> bool {
        match self {
            Kind::Value | Kind::List | Kind::Map | Kind::SortedMap => true,
            Kind::Reducing | Kind::Aggregating => ttl != TtlMode::PerWrite,
            Kind::Timers => ttl == TtlMode::None,
        }
    }

    /// The kind of probe that reads and writes it; none for timers.
    pub(super) fn probe(self) -> Option<ttl_probe::Kind> {
        match self {
            Kind::Value => Some(ttl_probe::Kind::Value),
            Kind::List => Some(ttl_probe::Kind::List),
            Kind::Map => Some(ttl_probe::Kind::Map),
            Kind::SortedMap => Some(ttl_probe::Kind::SortedMap),
            Kind::Reducing => Some(ttl_probe::Kind::Reducing),
            Kind::Aggregating => Some(ttl_probe::Kind::Aggregating),
            Kind::Timers => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Value => "value",
            Kind::List => "list",
            Kind::Map => "map",
            Kind::SortedMap => "sorted map",
            Kind::Reducing => "reducing",
            Kind::Aggregating => "aggregating",
            Kind::Timers => "timers",
        })
    }
}

/// How the state expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TtlMode {
    /// Never.
    None,
    /// By processing time since the last write.
    Written,
    /// By processing time since the last write or read.
    Refreshed,
    /// By event time since the last write.
    EventTime,
    /// By a lifetime or an instant that the write brings.
    PerWrite,
}

impl TtlMode {
    /// All of them, in the order of the table.
    pub const ALL: &[TtlMode] = &[
        TtlMode::None,
        TtlMode::Written,
        TtlMode::Refreshed,
        TtlMode::EventTime,
        TtlMode::PerWrite,
    ];

    pub(super) fn domain(self) -> TimeDomain {
        if self == TtlMode::EventTime { TimeDomain::Event } else { TimeDomain::Processing }
    }

    /// What the state is registered with.
    pub(super) fn ttl(self) -> Option<Ttl> {
        let lifetime = ttl_probe::ttl(LIFETIME.unsigned_abs());
        match self {
            TtlMode::None => None,
            TtlMode::Written => Some(lifetime),
            TtlMode::Refreshed => Some(lifetime.refresh_on_read()),
            TtlMode::EventTime => Some(lifetime.event_time()),
            // So long that what a write brings decides.
            TtlMode::PerWrite => Some(Ttl::new(Duration::from_secs(1_000_000))),
        }
    }
}

impl fmt::Display for TtlMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TtlMode::None => "none",
            TtlMode::Written => "processing time",
            TtlMode::Refreshed => "refreshed on read",
            TtlMode::EventTime => "event time",
            TtlMode::PerWrite => "per write",
        })
    }
}

/// What the state is restored from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SnapshotMode {
    /// The first checkpoint of a job.
    Checkpoint,
    /// A checkpoint after a complete one, which is subsumed then: what the later one does not name
    /// is deleted.
    Incremental,
    /// A native savepoint after a complete checkpoint, all objects of which are deleted then.
    Savepoint,
}

impl SnapshotMode {
    /// All of them, in the order of the table.
    pub const ALL: &[SnapshotMode] =
        &[SnapshotMode::Checkpoint, SnapshotMode::Incremental, SnapshotMode::Savepoint];

    /// The capability without which it is skipped: a field of
    /// [`Capabilities`](weir_state_api::Capabilities).
    pub fn needs(self) -> Option<&'static str> {
        (self == SnapshotMode::Incremental).then_some("incremental_snapshots")
    }
}

impl fmt::Display for SnapshotMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SnapshotMode::Checkpoint => "checkpoint",
            SnapshotMode::Incremental => "incremental",
            SnapshotMode::Savepoint => "savepoint",
        })
    }
}

/// The parallelism at the snapshot and at the restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rescale {
    /// How many instances the snapshot is of.
    pub from: u16,
    /// How many instances are restored.
    pub to: u16,
}

impl Rescale {
    /// Those of the table, in its order: none, splitting, splitting unevenly, joining.
    pub const ALL: &[Rescale] = &[
        Rescale { from: 2, to: 2 },
        Rescale { from: 1, to: 2 },
        Rescale { from: 2, to: 3 },
        Rescale { from: 3, to: 1 },
    ];
}

impl fmt::Display for Rescale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}→{}", self.from, self.to)
    }
}
