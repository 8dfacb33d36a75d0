//! Which objects are needed, and which may be deleted: reachability as a pure decision.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;

use crate::{CheckpointId, Error, ErrorKind, ObjectRef, Result};

/// Who created an object, as its place in the store tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The snapshot of this checkpoint, for itself alone.
    Snapshot(CheckpointId),
    /// The snapshot of this checkpoint; later ones may name it too.
    Shared(CheckpointId),
    /// An instance, between snapshots, that may be running: it may name the object in its next handle.
    Live,
    /// An instance, between snapshots, that is gone.
    Former,
    /// Somebody else. Never deleted.
    Foreign,
}

/// An object that a listing has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObject {
    /// Its path in the store.
    pub path: String,
    /// Its length in bytes, 0 where the listing does not tell.
    pub length: u64,
    /// Who created it.
    pub origin: Origin,
    /// The checkpoint that it completes by being there, for a record of one (Weir's `metadata`).
    pub record_of: Option<CheckpointId>,
}

/// How much is needed and how much has been deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ObjectCounts {
    /// Objects that kept checkpoints name, each once.
    pub reachable_objects: u64,
    /// Their bytes.
    pub reachable_bytes: u64,
    /// Objects deleted so far, records of checkpoints included.
    pub deleted_objects: u64,
    /// Their bytes, as far as known.
    pub deleted_bytes: u64,
}

#[derive(Debug)]
struct Root {
    /// Path and length, each path once.
    objects: BTreeMap<String, u64>,
    hold: Hold,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    UntilSubsumed,
    ForEver,
    /// Subsumed; its record is to be deleted.
    No,
}

#[derive(Debug)]
struct Named {
    length: u64,
    roots: usize,
}

/// The checkpoints of one job that matter, and the objects they name.
///
/// It decides, the engine acts: the engine reports what happens to checkpoints, asks what is due,
/// deletes, and reports what it has deleted. Forgetting to ask, failing to delete and repeating a
/// report are harmless: nothing becomes due that a kept or running checkpoint needs, and what was not
/// deleted is due again or found by the next listing.
///
/// A checkpoint is complete through one object, its *record*, which names the others. Records go
/// first: only when one is gone do the objects behind it become due, so a checkpoint never looks
/// complete while it lacks objects.
///
/// ```
/// use weir_state_api::{CheckpointId, ObjectRef, ObjectRegistry, Origin};
///
/// let (one, two) = (CheckpointId(1), CheckpointId(2));
/// let origin = |path: &str| Origin::Shared(if path < "s2" { one } else { two });
/// let mut registry = ObjectRegistry::new(one);
/// registry.begin(one);
/// registry.complete(one, &[ObjectRef::new("s1-a", 10, 0), ObjectRef::new("s1-b", 20, 0)]);
/// registry.begin(two);
/// let objects = [ObjectRef::new("s1-b", 20, 0), ObjectRef::new("s2-c", 5, 0)];
/// assert_eq!(registry.admit(two, &objects, origin)?, 5, "bytes that are new");
/// registry.complete(two, &objects);
///
/// registry.subsume(one);
/// assert_eq!(registry.due_records(), [one]);
/// registry.record_deleted(one, 0);
/// assert_eq!(registry.due_objects(origin), [("s1-a".to_string(), 10)]);
/// # Ok::<(), weir_state_api::Error>(())
/// ```
#[derive(Debug)]
pub struct ObjectRegistry {
    roots: BTreeMap<CheckpointId, Root>,
    /// Everything that a root or a protection names.
    named: HashMap<String, Named>,
    unreadable: BTreeSet<CheckpointId>,
    /// Checkpoints under way, with the oldest one that each may build on.
    running: BTreeMap<CheckpointId, CheckpointId>,
    /// The first number that has not been given out.
    next: CheckpointId,
    /// Objects of checkpoints whose records are gone, not deleted yet.
    unnamed: BTreeMap<String, u64>,
    counts: ObjectCounts,
}

impl ObjectRegistry {
    /// Knows nothing yet. Checkpoints from `next` on have not begun: what they may have left in the
    /// store is somebody else's and is not touched.
    pub fn new(next: CheckpointId) -> Self {
        ObjectRegistry {
            roots: BTreeMap::new(),
            named: HashMap::new(),
            unreadable: BTreeSet::new(),
            running: BTreeMap::new(),
            next,
            unnamed: BTreeMap::new(),
            counts: ObjectCounts::default(),
        }
    }

    /// A complete checkpoint was found in the store and is claimed: kept until it is subsumed.
    pub fn adopt<'a>(
        &mut self,
        checkpoint: CheckpointId,
        objects: impl IntoIterator<Item = &'a ObjectRef>,
    ) {
        self.add_root(checkpoint, objects, Hold::UntilSubsumed);
    }

    /// A complete checkpoint was found that stays for ever: a savepoint, or one that is restored
    /// without claiming it. Nothing builds on it.
    pub fn keep<'a>(
        &mut self,
        checkpoint: CheckpointId,
        objects: impl IntoIterator<Item = &'a ObjectRef>,
    ) {
        self.add_root(checkpoint, objects, Hold::ForEver);
    }

    /// A complete checkpoint cannot be read. It is kept, and so is all it may name: what its own
    /// snapshot made, and every shared object that is older than it.
    pub fn adopt_unreadable(&mut self, checkpoint: CheckpointId) {
        self.unreadable.insert(checkpoint);
    }

    /// These objects are never deleted: those of handles that an engine has pinned.
    pub fn protect<'a>(&mut self, objects: impl IntoIterator<Item = &'a ObjectRef>) {
        for (path, length) in distinct(objects) {
            self.name(path, length);
        }
    }

    /// A checkpoint begins. Returns the oldest complete checkpoint that is kept until this one has
    /// ended, for [`SnapshotRequest::reuse_from`](crate::SnapshotRequest::reuse_from); itself when
    /// there is none, which allows nothing.
    pub fn begin(&mut self, checkpoint: CheckpointId) -> CheckpointId {
        let oldest = self.roots.iter().find(|(_, root)| root.hold == Hold::UntilSubsumed);
        let reuse_from = oldest.map_or(checkpoint, |(&id, _)| id);
        self.running.insert(checkpoint, reuse_from);
        self.next = self.next.max(CheckpointId(checkpoint.0.saturating_add(1)));
        reuse_from
    }

    /// A running checkpoint is given up. What it has written is found by the next listing.
    pub fn abort(&mut self, checkpoint: CheckpointId) {
        self.running.remove(&checkpoint);
    }

    /// Everything that runs is given up: the attempt is over.
    pub fn abort_all(&mut self) {
        self.running.clear();
    }

    /// Checks, before a checkpoint is completed, that it names only objects that are there and stay:
    /// its own, those of kept checkpoints, those of instances. Returns the bytes that no kept
    /// checkpoint names: what the checkpoint has added to the store.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) naming the object: the backend has built on a
    /// checkpoint that was aborted or subsumed. Abort the checkpoint.
    pub fn admit<'a>(
        &self,
        checkpoint: CheckpointId,
        objects: impl IntoIterator<Item = &'a ObjectRef>,
        origin: impl Fn(&str) -> Origin,
    ) -> Result<u64> {
        let mut added = 0;
        for (path, length) in distinct(objects) {
            let known = self.named.contains_key(path);
            let problem = match origin(path) {
                Origin::Snapshot(id) | Origin::Shared(id) if id == checkpoint => None,
                Origin::Snapshot(_) => Some("belongs to another checkpoint alone"),
                Origin::Live => None,
                Origin::Shared(_) | Origin::Former | Origin::Foreign if known => None,
                Origin::Shared(_) => Some("was made for a checkpoint that is not kept"),
                Origin::Former | Origin::Foreign => Some("is named by no checkpoint that is kept"),
            };
            if let Some(problem) = problem {
                return Err(Error::new(
                    ErrorKind::InvalidUsage,
                    format!("checkpoint {checkpoint} names an object that {problem}"),
                )
                .object(path)
                .advice(
                    "build only on checkpoints known to be complete, and not before the request's \
                     `reuse_from`",
                ));
            }
            if !known {
                added += length;
            }
        }
        Ok(added)
    }

    /// A running checkpoint is complete: kept until it is subsumed.
    pub fn complete<'a>(
        &mut self,
        checkpoint: CheckpointId,
        objects: impl IntoIterator<Item = &'a ObjectRef>,
    ) {
        self.running.remove(&checkpoint);
        self.add_root(checkpoint, objects, Hold::UntilSubsumed);
    }

    /// A complete checkpoint is no longer kept. Its record becomes due once no running checkpoint may
    /// build on it.
    pub fn subsume(&mut self, checkpoint: CheckpointId) {
        if let Some(root) = self.roots.get_mut(&checkpoint)
            && root.hold == Hold::UntilSubsumed
        {
            root.hold = Hold::No;
        }
    }

    /// Records to delete now, oldest first. Report each with
    /// [`record_deleted`](ObjectRegistry::record_deleted).
    pub fn due_records(&self) -> Vec<CheckpointId> {
        let needed_from = self.running.values().min();
        let due = |id: &CheckpointId| needed_from.is_none_or(|needed_from| id < needed_from);
        let subsumed = self.roots.iter().filter(|(_, root)| root.hold == Hold::No);
        subsumed.map(|(&id, _)| id).filter(due).collect()
    }

    /// The record of a subsumed checkpoint is gone, certainly; `length` is its bytes.
    pub fn record_deleted(&mut self, checkpoint: CheckpointId, length: u64) {
        let Some(root) = self.roots.remove(&checkpoint) else { return };
        self.counts.deleted_objects += 1;
        self.counts.deleted_bytes += length;
        for (path, length) in root.objects {
            self.unname(&path);
            self.unnamed.insert(path, length);
        }
    }

    /// Objects to delete now, with their bytes: those of checkpoints whose records are gone, without
    /// those that another one names. Report them with
    /// [`objects_deleted`](ObjectRegistry::objects_deleted).
    pub fn due_objects(&mut self, origin: impl Fn(&str) -> Origin) -> Vec<(String, u64)> {
        // What another checkpoint names comes back when that one goes.
        let named = &self.named;
        self.unnamed.retain(|path, _| !named.contains_key(path));
        let due = self.unnamed.iter().filter(|(path, _)| {
            let origin = origin(path);
            origin != Origin::Foreign && !self.unreadable_may_name(origin, &BTreeSet::new())
        });
        due.map(|(path, &length)| (path.clone(), length)).collect()
    }

    /// These objects are gone.
    pub fn objects_deleted<'a>(&mut self, objects: impl IntoIterator<Item = (&'a str, u64)>) {
        for (path, length) in objects {
            self.unnamed.remove(path);
            self.counts.deleted_objects += 1;
            self.counts.deleted_bytes += length;
        }
    }

    /// Records in a listing that complete a checkpoint which is neither kept nor under way: left by a
    /// run that was overtaken, or by a deletion that failed. Delete them, and take those that are gone
    /// out of the listing, before asking [`unreachable`](ObjectRegistry::unreachable).
    pub fn stale_records(&self, listing: &[StoredObject]) -> Vec<CheckpointId> {
        let stale = |id: &CheckpointId| {
            *id < self.undecided_from()
                && !self.roots.contains_key(id)
                && !self.unreadable.contains(id)
        };
        listing.iter().filter_map(|object| object.record_of).filter(stale).collect()
    }

    /// What of a listing may be deleted: everything that is not reachable. Kept is what a kept
    /// checkpoint names, what belongs to a checkpoint that has not ended, what an instance may still
    /// use, what an unreadable checkpoint or one whose record is still in the listing may name, and
    /// what is somebody else's.
    ///
    /// Nothing is deleted here: who shows the result instead of deleting it has made a dry run.
    ///
    /// ```
    /// use weir_state_api::{CheckpointId, ObjectRef, ObjectRegistry, Origin, StoredObject};
    ///
    /// let mut registry = ObjectRegistry::new(CheckpointId(1));
    /// let named = ObjectRef::new("shared/a", 10, 0).shared();
    /// registry.begin(CheckpointId(1));
    /// registry.complete(CheckpointId(1), [&named]);
    /// let found = |path: &str| StoredObject {
    ///     path: path.into(),
    ///     length: 10,
    ///     origin: Origin::Shared(CheckpointId(1)),
    ///     record_of: None,
    /// };
    /// let listing = [found("shared/a"), found("shared/b")];
    /// let doomed: Vec<_> = registry.unreachable(&listing).iter().map(|object| &object.path).collect();
    /// assert_eq!(doomed, ["shared/b"]);
    /// ```
    pub fn unreachable<'a>(&self, listing: &'a [StoredObject]) -> Vec<&'a StoredObject> {
        let stale: BTreeSet<_> = self.stale_records(listing).into_iter().collect();
        let from = self.undecided_from();
        let needed = |object: &&StoredObject| {
            let undecided = match object.origin {
                Origin::Snapshot(id) | Origin::Shared(id) => id >= from,
                Origin::Live | Origin::Foreign => true,
                Origin::Former => false,
            };
            undecided
                || object.record_of.is_some()
                || self.named.contains_key(&object.path)
                || self.unreadable_may_name(object.origin, &stale)
        };
        listing.iter().filter(|object| !needed(object)).collect()
    }

    /// How much is needed and how much has been deleted.
    pub fn counts(&self) -> ObjectCounts {
        self.counts
    }

    /// Checkpoints from here on are under way or have not begun.
    fn undecided_from(&self) -> CheckpointId {
        self.running.keys().next().copied().map_or(self.next, |running| running.min(self.next))
    }

    fn unreadable_may_name(&self, origin: Origin, stale: &BTreeSet<CheckpointId>) -> bool {
        let newest = self.unreadable.last().max(stale.last());
        match origin {
            Origin::Snapshot(id) => self.unreadable.contains(&id) || stale.contains(&id),
            Origin::Shared(id) => newest >= Some(&id),
            Origin::Live | Origin::Former | Origin::Foreign => newest.is_some(),
        }
    }

    fn add_root<'a>(
        &mut self,
        checkpoint: CheckpointId,
        objects: impl IntoIterator<Item = &'a ObjectRef>,
        hold: Hold,
    ) {
        if self.roots.contains_key(&checkpoint) {
            return;
        }
        let objects: BTreeMap<String, u64> =
            distinct(objects).map(|(path, length)| (path.to_string(), length)).collect();
        for (path, &length) in &objects {
            self.name(path, length);
        }
        self.roots.insert(checkpoint, Root { objects, hold });
    }

    fn name(&mut self, path: &str, length: u64) {
        if let Some(named) = self.named.get_mut(path) {
            named.roots += 1;
            return;
        }
        self.named.insert(path.to_string(), Named { length, roots: 1 });
        self.counts.reachable_objects += 1;
        self.counts.reachable_bytes += length;
    }

    fn unname(&mut self, path: &str) {
        let Some(named) = self.named.get_mut(path) else { return };
        named.roots -= 1;
        if named.roots == 0 {
            self.counts.reachable_objects -= 1;
            self.counts.reachable_bytes -= named.length;
            self.named.remove(path);
        }
    }
}

/// Each path once: the handles of several subtasks may name the same object.
fn distinct<'a>(
    objects: impl IntoIterator<Item = &'a ObjectRef>,
) -> impl Iterator<Item = (&'a str, u64)> {
    let mut seen = HashSet::new();
    objects
        .into_iter()
        .filter(move |object| seen.insert(object.path.as_str()))
        .map(|object| (object.path.as_str(), object.length))
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
