//! Incremental snapshots: which objects a snapshot consists of, and when a new whole one is due.
#![deny(clippy::indexing_slicing)]

use weir_state_api::wire::{Decoder, put_varint};
use weir_state_api::{KeyGroupRange, ObjectRef, Result, SnapshotHandle};

/// The most parts that a snapshot is made of: a restore reads all of them.
const MAX_PARTS: usize = 48;

/// What a snapshot takes from one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) object: ObjectRef,
    /// The key groups that it counts for. After a rescale an object holds others too, and what it
    /// says of them may be outdated.
    pub(crate) key_groups: KeyGroupRange,
}

/// The parts of a snapshot, in the order in which a restore applies them: what is in a later one
/// replaces or changes what is in earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Chain {
    pub(crate) parts: Vec<Part>,
    /// Bytes of the objects that hold everything.
    whole_bytes: u64,
    /// Bytes of those that hold what changed.
    increment_bytes: u64,
}

impl Chain {
    /// Of a snapshot that stands on its own; without an object there is nothing in it.
    pub(crate) fn whole(object: Option<ObjectRef>, key_groups: KeyGroupRange) -> Self {
        let whole_bytes = object.as_ref().map_or(0, |object| object.length);
        let parts = object.into_iter().map(|object| Part { object, key_groups }).collect();
        Chain { parts, whole_bytes, increment_bytes: 0 }
    }

    /// With what changed since; where nothing did, there is no object.
    pub(crate) fn with_increment(
        mut self,
        object: Option<ObjectRef>,
        key_groups: KeyGroupRange,
    ) -> Self {
        if let Some(object) = object {
            self.increment_bytes += object.length;
            self.parts.push(Part { object, key_groups });
        }
        self
    }

    /// Whether another increment is better than a new whole snapshot: a restore reads no more than
    /// half as much again as it would have to, from a bounded number of objects.
    pub(crate) fn may_grow(&self) -> bool {
        self.parts.len() < MAX_PARTS && self.increment_bytes <= self.whole_bytes / 2
    }

    /// The objects, each once.
    pub(crate) fn objects(&self) -> Vec<ObjectRef> {
        let mut objects: Vec<ObjectRef> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            if !objects.contains(&part.object) {
                objects.push(part.object.clone());
            }
        }
        objects
    }

    /// What a handle says beside its objects.
    pub(crate) fn to_metadata(&self) -> Vec<u8> {
        let objects = self.objects();
        let mut out = Vec::new();
        put_varint(&mut out, self.whole_bytes);
        put_varint(&mut out, self.increment_bytes);
        put_varint(&mut out, self.parts.len() as u64);
        for part in &self.parts {
            let index = objects.iter().position(|object| *object == part.object);
            put_varint(&mut out, index.unwrap_or_default() as u64);
            put_varint(&mut out, u64::from(part.key_groups.first().0));
            put_varint(&mut out, part.key_groups.len() as u64);
        }
        out
    }

    /// The chain of a handle.
    pub(crate) fn of(handle: &SnapshotHandle) -> Result<Self> {
        let origin = format!("handle of checkpoint {}", handle.checkpoint);
        let mut decoder = Decoder::new(&handle.metadata, &origin);
        let (whole_bytes, increment_bytes) = (decoder.varint()?, decoder.varint()?);
        let mut parts = Vec::new();
        for _ in 0..decoder.varint()? {
            let index: u16 = decoder.number()?;
            let (first, len): (u16, u16) = (decoder.number()?, decoder.number()?);
            let last = len.checked_sub(1).and_then(|more| first.checked_add(more));
            let (Some(object), Some(last)) = (handle.objects.get(usize::from(index)), last) else {
                return Err(decoder.corrupt("the metadata of the snapshot names what is not there"));
            };
            let key_groups = KeyGroupRange::new(first, last);
            if key_groups.intersection(handle.key_groups) != key_groups {
                return Err(decoder.corrupt(format!(
                    "a part of the snapshot counts for key groups {key_groups}, the snapshot covers \
                     {} only",
                    handle.key_groups
                )));
            }
            parts.push(Part { object: object.clone(), key_groups });
        }
        let unused = |object: &ObjectRef| !parts.iter().any(|part| part.object == *object);
        if !decoder.is_empty() || handle.objects.iter().any(unused) {
            return Err(decoder.corrupt("the metadata of the snapshot does not fit its objects"));
        }
        Ok(Chain { parts, whole_bytes, increment_bytes })
    }

    /// The same for some of the key groups.
    pub(crate) fn clipped(mut self, key_groups: KeyGroupRange) -> Self {
        self.parts.retain_mut(|part| {
            part.key_groups = part.key_groups.intersection(key_groups);
            !part.key_groups.is_empty()
        });
        self
    }

    /// Together with the chain of other key groups.
    pub(crate) fn and(mut self, other: Chain) -> Self {
        self.parts.extend(other.parts);
        self.whole_bytes = self.whole_bytes.saturating_add(other.whole_bytes);
        self.increment_bytes = self.increment_bytes.saturating_add(other.increment_bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(length: u64) -> Option<ObjectRef> {
        Some(ObjectRef::new(format!("{length}"), length, 0))
    }

    #[test]
    fn a_chain_ends_when_its_increments_are_half_of_the_whole_or_too_many() {
        let groups = KeyGroupRange::new(0, 7);
        let mut chain = Chain::whole(object(100), groups).with_increment(object(40), groups);
        assert!(chain.may_grow());
        chain = chain.with_increment(None, groups).with_increment(object(11), groups);
        assert!(!chain.may_grow());
        assert_eq!(chain.parts.len(), 3);
        let many = (1..MAX_PARTS as u64).fold(Chain::whole(object(9_999), groups), |chain, n| {
            chain.with_increment(object(n), groups)
        });
        assert!(!many.may_grow());
        assert!(Chain::whole(None, groups).may_grow(), "nothing is cheap to build on");
    }
}
