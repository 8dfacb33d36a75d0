//! What the handle of a checkpoint says beside its objects: what to restore first, what to replay then.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use weir_state_api::frame::Frame;
use weir_state_api::wire::corrupt;
use weir_state_api::{KeyGroupRange, Result, SnapshotHandle, StateTtl};

use super::batch::HEADER_LEN;
use super::position::{LogId, LogPosition};

/// The version of handles that is written, and the only one that is read.
pub(crate) const FORMAT_VERSION: u32 = 1;

const FRAME: Frame = Frame { magic: *b"WEIRCLGM", version: FORMAT_VERSION };

/// A checkpoint: materializations and the logs that go on from them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Snapshots of the wrapped backend, of disjoint key groups.
    pub(crate) bases: Vec<SnapshotHandle>,
    /// What has changed since, of disjoint key groups.
    pub(crate) logs: Vec<LogRange>,
}

/// A range of one log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogRange {
    pub(crate) log: LogId,
    /// The key groups of the instance that wrote the log.
    pub(crate) written_for: KeyGroupRange,
    /// The key groups that the range counts for: changes of others belong to other instances by now.
    pub(crate) key_groups: KeyGroupRange,
    /// Where the materialization stands.
    pub(crate) from: LogPosition,
    /// Where the checkpoint stands, exclusive.
    pub(crate) to: LogPosition,
    /// The states, by the numbers in the log.
    pub(crate) states: Vec<LoggedState>,
    /// Where the changes are, in their order, without a gap.
    pub(crate) segments: Vec<Segment>,
}

/// A state as a log names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoggedState {
    pub(crate) number: u16,
    pub(crate) name: String,
    /// The time to live under which its values were logged.
    pub(crate) ttl: Option<StateTtl>,
}

/// A batch in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// Which of the handle's objects holds it.
    pub(crate) object: u32,
    /// Where it begins in the object.
    pub(crate) offset: u64,
    /// Its length there.
    pub(crate) length: u32,
    pub(crate) from: LogPosition,
    pub(crate) to: LogPosition,
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        FRAME.encode(self)
    }

    /// Reads and checks the manifest of a handle.
    ///
    /// # Errors
    /// [`Corrupt`](weir_state_api::ErrorKind::Corrupt) when it does not decode or does not fit the
    /// handle; [`Incompatible`](weir_state_api::ErrorKind::Incompatible) for another version.
    pub(crate) fn of(handle: &SnapshotHandle) -> Result<Self> {
        let origin = format!("metadata of checkpoint {}", handle.checkpoint);
        let manifest: Manifest = FRAME.decode(&handle.metadata, &origin)?;
        let known: HashSet<&str> =
            handle.objects.iter().map(|object| object.path.as_str()).collect();
        for base in &manifest.bases {
            let mut objects = base.objects.iter();
            if let Some(object) = objects.find(|object| !known.contains(object.path.as_str())) {
                let what = format!("a materialization names {:?}, its handle not", object.path);
                return Err(corrupt(&origin, what));
            }
        }
        for log in &manifest.logs {
            log.check(handle).map_err(|what| corrupt(&origin, what))?;
        }
        Ok(manifest)
    }
}

impl LogRange {
    fn check(&self, handle: &SnapshotHandle) -> Result<(), String> {
        let inside =
            |groups: KeyGroupRange| groups.intersection(self.key_groups) == self.key_groups;
        if !inside(handle.key_groups) || !inside(self.written_for) {
            return Err(format!("the log {} counts for key groups outside", self.log));
        }
        for state in &self.states {
            if !handle.states.iter().any(|known| known.name == state.name) {
                return Err(format!(
                    "the log has a state {:?} that its handle has not",
                    state.name
                ));
            }
        }
        let mut at = self.segments.first().map_or(self.from, |first| first.from);
        if at > self.from {
            return Err(format!("the log begins at {at}, its materialization is at {}", self.from));
        }
        for segment in &self.segments {
            if segment.from != at || segment.to <= segment.from {
                return Err(format!(
                    "the log has a gap or an overlap: {} to {} stands where {at} is due",
                    segment.from, segment.to
                ));
            }
            at = segment.to;
            let end = segment.offset.checked_add(u64::from(segment.length));
            let object = handle.objects.get(segment.object as usize);
            if object.is_none_or(|object| end.is_none_or(|end| end > object.length))
                || (segment.length as usize) < HEADER_LEN
            {
                return Err(format!("a batch at {} lies in no object of the handle", segment.from));
            }
        }
        if at != self.to {
            return Err(format!("the log ends at {at}, the checkpoint is at {}", self.to));
        }
        Ok(())
    }

    /// How many changes there are to replay.
    pub(crate) fn changes(&self) -> u64 {
        self.to.0.saturating_sub(self.from.0)
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
