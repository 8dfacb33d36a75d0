//! What is reported to the coordinator, and what it decides.

use serde::{Deserialize, Serialize};
use weir_state_api::{CheckpointId, Error, ErrorKind};

use crate::checkpoint::TaskPart;

/// An operator that takes part in checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operator {
    pub(crate) name: String,
    pub(crate) role: Role,
}

/// What an operator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// A source of so many splits on all workers together.
    Source { splits: u32 },
    /// One with keyed state.
    Keyed,
    /// A sink with transactions.
    Sink,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Source { .. } => "source",
            Role::Keyed => "keyed operator",
            Role::Sink => "sink",
        }
    }

    /// Whether an operator of this role has made such a part.
    pub(crate) fn makes(self, part: &TaskPart) -> bool {
        matches!(
            (self, part),
            (Role::Source { .. }, TaskPart::Offsets(_))
                | (Role::Keyed, TaskPart::Keyed(_))
                | (Role::Sink, TaskPart::Prepared(_))
        )
    }
}

/// From a worker to the coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The worker's dataflow is built, its state restored, its old output committed.
    Ready { worker: u32, operators: Vec<Operator> },
    /// All sources of the worker have read all input.
    InputEnded { worker: u32 },
    /// An operator's part of a checkpoint, or why there is none.
    Snapshot { worker: u32, operator: String, epoch: u64, part: Result<TaskPart, Failure> },
    /// The worker cannot go on.
    Failed(Failure),
    /// An operator has too many records waiting, or no longer.
    Congestion { worker: u32, congested: bool },
}

/// From the coordinator to all workers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum News {
    /// All workers are ready: sources begin to read.
    Start,
    /// A checkpoint begins: sources close this epoch.
    Begin(Begun),
    /// The checkpoint of an epoch is complete.
    Complete { epoch: u64, id: CheckpointId },
    /// The checkpoint of an epoch was given up.
    Aborted { epoch: u64, id: CheckpointId },
    /// A complete checkpoint is no longer kept.
    Subsumed(CheckpointId),
    /// A worker has too many records waiting, or no longer.
    Congestion { worker: u32, congested: bool },
    /// The job has failed; all workers stop.
    Failed(Failure),
    /// The last checkpoint is complete.
    Finish,
}

/// A checkpoint that has begun.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) epoch: u64,
    pub(crate) id: CheckpointId,
    pub(crate) reuse_from: CheckpointId,
    /// It covers all input: sources have nothing behind it.
    pub(crate) last: bool,
}

/// An error on its way between workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    worker: u32,
    kind: String,
    message: String,
}

/// All kinds that can cross; one that is not here arrives as `Unavailable`.
const KINDS: [ErrorKind; 13] = [
    ErrorKind::NotFound,
    ErrorKind::Conflict,
    ErrorKind::Fenced,
    ErrorKind::Corrupt,
    ErrorKind::Unavailable,
    ErrorKind::Indeterminate,
    ErrorKind::InvalidUsage,
    ErrorKind::Incompatible,
    ErrorKind::TooLarge,
    ErrorKind::ForeignKey,
    ErrorKind::UserFunction,
    ErrorKind::Unsupported,
    ErrorKind::Closed,
];

impl Failure {
    pub(crate) fn new(worker: usize, error: &Error) -> Self {
        Failure {
            worker: worker as u32,
            kind: error.kind().name().into(),
            message: error.to_string(),
        }
    }

    /// The error as every worker returns it.
    pub(crate) fn to_error(&self) -> Error {
        let kind = KINDS.into_iter().find(|kind| kind.name() == self.kind);
        Error::new(
            kind.unwrap_or(ErrorKind::Unavailable),
            format!("worker {}: {}", self.worker, self.message),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_arrives_with_its_kind_and_where_it_arose() {
        for kind in KINDS {
            let error = Failure::new(3, &Error::new(kind, "it broke").object("a/b")).to_error();
            assert_eq!(error.kind(), kind);
            assert_eq!(error.to_string(), "worker 3: it broke (object \"a/b\")");
        }
    }
}
