//! What lies where in a job's store; the place of an object tells who made it, and when.
//!
//! ```text
//! epochs/00000002                          the claim of run 2
//! chk-00002-000000007/metadata             JobCheckpoint; its existence makes the checkpoint complete
//! chk-00002-000000007/...                  objects that only checkpoint 7 of run 2 names
//! shared/00002-000000007/...               objects made for it, which later checkpoints may name too
//! live/00002-<attempt>/<operator>-<n>/...  objects that an instance makes between checkpoints
//! kept/chk-00001-000000004                 a mark: that checkpoint and its objects stay
//! ```

use weir_state_api::{CheckpointId, Origin, StoredObject};

use super::epoch::Epoch;

const CHECKPOINT: &str = "chk-";
const SHARED: &str = "shared/";
const LIVE: &str = "live/";
const METADATA: &str = "metadata";

/// Marks of checkpoints that stay.
pub(super) const KEPT: &str = "kept/";

/// The folder of a checkpoint.
pub(super) fn checkpoint_folder(id: CheckpointId) -> String {
    format!("{CHECKPOINT}{}/", numbers(id))
}

/// The folder of objects made for a checkpoint, which later ones may name too.
pub(crate) fn shared_folder(id: CheckpointId) -> String {
    format!("{SHARED}{}/", numbers(id))
}

/// The folder of what an attempt's instances make between checkpoints.
pub(crate) fn live_folder(epoch: Epoch, attempt: &str) -> String {
    format!("{LIVE}{:05}-{attempt}/", epoch.0)
}

/// The object that makes a checkpoint complete.
pub(super) fn metadata_path(id: CheckpointId) -> String {
    format!("{}{METADATA}", checkpoint_folder(id))
}

/// The mark of a checkpoint that stays.
pub(super) fn kept_path(id: CheckpointId) -> String {
    format!("{KEPT}{}", checkpoint_folder(id).trim_end_matches('/'))
}

/// Whether this folder is there whatever is in it.
pub(super) fn is_fixed(folder: &str) -> bool {
    folder == SHARED || folder == LIVE
}

/// The checkpoint whose folder has this name, with or without a `/` at its end.
pub(super) fn parse_checkpoint_folder(name: &str) -> Option<CheckpointId> {
    parse_numbers(name.strip_prefix(CHECKPOINT)?.trim_end_matches('/'))
}

/// The checkpoint whose folder an object is in.
pub(super) fn checkpoint_of(path: &str) -> Option<CheckpointId> {
    parse_checkpoint_folder(path.split_once('/')?.0)
}

fn numbers(id: CheckpointId) -> String {
    let (epoch, number) = Epoch::split(id);
    format!("{epoch:05}-{number:09}")
}

fn parse_numbers(name: &str) -> Option<CheckpointId> {
    let (epoch, number) = name.split_once('-')?;
    Epoch::join(epoch.parse().ok()?, number.parse().ok()?)
}

fn shared(rest: &str) -> Option<Origin> {
    parse_numbers(rest.split_once('/')?.0).map(Origin::Shared)
}

/// Who reads the layout: the run, and its attempt that is running.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) epoch: Epoch,
    pub(super) attempt: &'a str,
}

impl Reader<'_> {
    /// Who made an object.
    pub(super) fn origin(&self, path: &str) -> Origin {
        if let Some(id) = checkpoint_of(path) {
            return Origin::Snapshot(id);
        }
        let known = match path.strip_prefix(SHARED) {
            Some(rest) => shared(rest),
            None => path.strip_prefix(LIVE).and_then(|rest| self.live(rest)),
        };
        known.unwrap_or(Origin::Foreign)
    }

    fn live(&self, rest: &str) -> Option<Origin> {
        let (epoch, attempt) = rest.split_once('/')?.0.split_once('-')?;
        match Epoch(epoch.parse().ok()?) {
            // A newer run has taken over; what it makes is none of this one's business.
            epoch if epoch > self.epoch => None,
            epoch if epoch == self.epoch && attempt == self.attempt => Some(Origin::Live),
            _ => Some(Origin::Former),
        }
    }

    /// What a listing says about an object.
    pub(super) fn stored(&self, path: String, length: u64) -> StoredObject {
        let origin = self.origin(&path);
        let record_of = checkpoint_of(&path).filter(|&id| path == metadata_path(id));
        StoredObject { path, length, origin, record_of }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_an_object_tells_who_made_it() {
        let (epoch, id) = (Epoch(2), CheckpointId(2_000_000_007));
        let reader = Reader { epoch, attempt: "b" };
        let origin = |folder: String| reader.origin(&format!("{folder}x/y"));
        assert_eq!(checkpoint_folder(id), "chk-00002-000000007/");
        assert_eq!(origin(checkpoint_folder(id)), Origin::Snapshot(id));
        assert_eq!(origin(shared_folder(id)), Origin::Shared(id));
        assert_eq!(origin(live_folder(epoch, "b")), Origin::Live);
        assert_eq!(origin(live_folder(epoch, "a")), Origin::Former);
        assert_eq!(origin(live_folder(Epoch(1), "b")), Origin::Former, "another run's attempt");
        assert_eq!(origin(live_folder(Epoch(3), "b")), Origin::Foreign, "a newer run's");
        for foreign in ["epochs/00000002", "kept/chk-1-2", "shared/x", "live/1/x", "chk-1/x", "x"] {
            assert_eq!(reader.origin(foreign), Origin::Foreign, "{foreign}");
        }
        assert_eq!(reader.stored(metadata_path(id), 1).record_of, Some(id));
        assert_eq!(reader.stored(format!("{}a", checkpoint_folder(id)), 1).record_of, None);
        assert_eq!(parse_checkpoint_folder("chk-00002-000000007"), Some(id));
    }
}
