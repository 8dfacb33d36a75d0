//! What lies where in a job's store; the place of an object tells who made it, and when.
//!
//! ```text
//! runs/00000002                            the claim of run 2
//! chk-00002-000000007/record               JobCheckpoint; its existence makes the checkpoint complete
//! chk-00002-000000007/...                  objects that only checkpoint 7 of run 2 names
//! shared/00002-000000007/...               objects made for it, which later checkpoints may name too
//! live/00002/<operator>-<worker>/...       objects that an instance makes between checkpoints
//! ```

use weir_state_api::{CheckpointId, Origin, StoredObject};

use super::run::Run;

const CHECKPOINT: &str = "chk-";
const SHARED: &str = "shared/";
const LIVE: &str = "live/";
const RECORD: &str = "record";

/// The claims of runs.
pub(super) const RUNS: &str = "runs/";

pub(super) fn run_path(run: Run) -> String {
    format!("{RUNS}{:08}", run.0)
}

/// The folder of a checkpoint.
pub(crate) fn checkpoint_folder(id: CheckpointId) -> String {
    format!("{CHECKPOINT}{}/", numbers(id))
}

/// The folder of objects made for a checkpoint, which later ones may name too.
pub(crate) fn shared_folder(id: CheckpointId) -> String {
    format!("{SHARED}{}/", numbers(id))
}

/// The folder of what an instance makes between checkpoints.
pub(crate) fn live_folder(run: Run, operator: &str, worker: usize) -> String {
    format!("{LIVE}{:05}/{operator}-{worker}/", run.0)
}

/// The object that makes a checkpoint complete.
pub(super) fn record_path(id: CheckpointId) -> String {
    format!("{}{RECORD}", checkpoint_folder(id))
}

/// The checkpoint whose folder has this name, with or without a `/` at its end.
pub(super) fn parse_checkpoint_folder(name: &str) -> Option<CheckpointId> {
    parse_numbers(name.strip_prefix(CHECKPOINT)?.trim_end_matches('/'))
}

/// Whether this folder is there whatever is in it.
pub(super) fn is_fixed(folder: &str) -> bool {
    folder == SHARED || folder == LIVE
}

fn numbers(id: CheckpointId) -> String {
    let (run, number) = Run::split(id);
    format!("{run:05}-{number:09}")
}

fn parse_numbers(name: &str) -> Option<CheckpointId> {
    let (run, number) = name.split_once('-')?;
    Run::join(run.parse().ok()?, number.parse().ok()?)
}

/// Who made an object, as run `run` sees it.
pub(super) fn origin(run: Run, path: &str) -> Origin {
    let Some((folder, rest)) = path.split_once('/') else { return Origin::Foreign };
    if let Some(id) = parse_checkpoint_folder(folder) {
        return Origin::Snapshot(id);
    }
    let Some((second, _)) = rest.split_once('/') else { return Origin::Foreign };
    let known = match format!("{folder}/").as_str() {
        SHARED => parse_numbers(second).map(Origin::Shared),
        LIVE => second.parse().ok().and_then(|maker| match Run(maker) {
            maker if maker == run => Some(Origin::Live),
            maker if maker < run => Some(Origin::Former),
            // A newer run has taken over; what it makes is none of this one's business.
            _ => None,
        }),
        _ => None,
    };
    known.unwrap_or(Origin::Foreign)
}

/// What a listing says about an object.
pub(super) fn stored(run: Run, path: String, length: u64) -> StoredObject {
    let origin = origin(run, &path);
    let record_of = match origin {
        Origin::Snapshot(id) if path == record_path(id) => Some(id),
        _ => None,
    };
    StoredObject { path, length, origin, record_of }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_an_object_tells_who_made_it() {
        let (run, id) = (Run(2), CheckpointId(2_000_000_007));
        let of = |folder: String| origin(run, &format!("{folder}x/y"));
        assert_eq!(checkpoint_folder(id), "chk-00002-000000007/");
        assert_eq!(of(checkpoint_folder(id)), Origin::Snapshot(id));
        assert_eq!(of(shared_folder(id)), Origin::Shared(id));
        assert_eq!(of(live_folder(run, "o", 1)), Origin::Live);
        assert_eq!(of(live_folder(Run(1), "o", 1)), Origin::Former);
        assert_eq!(of(live_folder(Run(3), "o", 1)), Origin::Foreign, "a newer run's");
        for foreign in ["runs/00000002", "shared/x", "live/x/y", "chk-1/x", "x"] {
            assert_eq!(origin(run, foreign), Origin::Foreign, "{foreign}");
        }
        assert_eq!(stored(run, record_path(id), 1).record_of, Some(id));
        assert_eq!(stored(run, format!("{}a", checkpoint_folder(id)), 1).record_of, None);
    }
}
