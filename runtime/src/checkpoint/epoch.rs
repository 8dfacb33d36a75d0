//! Run epochs: which run owns a job's store.
//!
//! ```text
//! epochs/00000002        created if absent by the second run; holds the run's name
//! ```
//!
//! A run claims an epoch before it looks for a checkpoint to restore, and checks after completing a
//! checkpoint, before anything is published, that no newer epoch was claimed. So either the newer
//! run sees the checkpoint, or the older run learns that it is fenced and publishes nothing.
//! Checkpoint numbers begin with the epoch: whatever an old run still completes stays below the
//! numbers of the newer one.

use weir_state_api::store_requests::{Created, create_or_read, names_in};
use weir_state_api::{CheckpointId, Error, ErrorKind, Result};

use super::layout;
use super::store::CheckpointStore;

const FOLDER: &str = "epochs/";

/// Checkpoints of one epoch; at ten a second, three years.
const CHECKPOINTS_PER_EPOCH: u64 = 1_000_000_000;

/// Tries to claim against runs that start at the same moment.
const MAX_TRIES: u32 = 100;

/// The number of a run of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub(super) u64);

impl Epoch {
    /// The first checkpoint number of this run.
    pub fn first_checkpoint(self) -> CheckpointId {
        CheckpointId(self.0.saturating_mul(CHECKPOINTS_PER_EPOCH).saturating_add(1))
    }

    /// The epoch and the number within it of a checkpoint.
    pub(crate) fn split(checkpoint: CheckpointId) -> (u64, u64) {
        (checkpoint.0 / CHECKPOINTS_PER_EPOCH, checkpoint.0 % CHECKPOINTS_PER_EPOCH)
    }

    pub(crate) fn join(epoch: u64, number: u64) -> Option<CheckpointId> {
        if number >= CHECKPOINTS_PER_EPOCH {
            return None;
        }
        epoch.checked_mul(CHECKPOINTS_PER_EPOCH)?.checked_add(number).map(CheckpointId)
    }

    fn path(self) -> String {
        format!("{FOLDER}{:08}", self.0)
    }
}

impl CheckpointStore {
    /// Claims the next epoch for the run called `owner`. Every older run is fenced from now on.
    ///
    /// # Errors
    /// Those of the store; [`Conflict`](ErrorKind::Conflict) when other runs keep claiming.
    pub async fn claim_epoch(&self, owner: &str) -> Result<Epoch> {
        for _ in 0..MAX_TRIES {
            let epoch = self.next_epoch().await?;
            if !self.create_epoch(epoch, owner).await? {
                continue;
            }
            // A claim that was slow may fall into a gap that newer ones left behind.
            if self.newest_trace().await? == Some(epoch) {
                self.forget_epochs_before(epoch).await;
                return Ok(epoch);
            }
        }
        Err(Error::new(ErrorKind::Conflict, "other runs keep claiming the store")
            .object(FOLDER)
            .advice("see that one supervisor at a time starts the job"))
    }

    /// What a run that claims now gets, if no other one does.
    pub(crate) async fn next_epoch(&self) -> Result<Epoch> {
        let newest = self.newest_trace().await?;
        Ok(newest.map_or(Epoch(1), |Epoch(newest)| Epoch(newest.saturating_add(1))))
    }

    /// Fails when the store is no longer this run's: a newer run has claimed it, or the claim is gone.
    ///
    /// # Errors
    /// [`Fenced`](ErrorKind::Fenced) then; otherwise those of the store.
    pub async fn check_epoch(&self, epoch: Epoch) -> Result<()> {
        let (found, what) = match self.newest_epoch().await? {
            Some(newest) if newest == epoch => return Ok(()),
            Some(newest) if newest > epoch => {
                (newest, format!("run {} of the job has taken over from run {}", newest.0, epoch.0))
            }
            _ => (epoch, "this run's claim on the store is gone".to_string()),
        };
        Err(Error::new(ErrorKind::Fenced, what).object(found.path()).advice(
            "one run at a time owns a job's store, and nothing else may delete in it: start the job \
             again when that holds",
        ))
    }

    /// The newest run that has left anything: a claim, or a checkpoint's folder. A store whose claims
    /// were lost or not copied along must not give old numbers out again.
    async fn newest_trace(&self) -> Result<Option<Epoch>> {
        let names = names_in(self.operator(), "").await?;
        let checkpoints = names.iter().filter_map(|name| layout::parse_checkpoint_folder(name));
        let of_checkpoints = checkpoints.map(|id| Epoch(Epoch::split(id).0)).max();
        Ok(of_checkpoints.max(self.newest_epoch().await?))
    }

    async fn newest_epoch(&self) -> Result<Option<Epoch>> {
        Ok(self.epochs().await?.into_iter().max())
    }

    async fn epochs(&self) -> Result<Vec<Epoch>> {
        let names = names_in(self.operator(), FOLDER).await?;
        Ok(names.iter().filter_map(|name| name.parse().ok().map(Epoch)).collect())
    }

    /// Whether the epoch is ours.
    async fn create_epoch(&self, epoch: Epoch, owner: &str) -> Result<bool> {
        let path = epoch.path();
        let bytes = owner.as_bytes().to_vec();
        let read = |found: &[u8]| Ok(found == owner.as_bytes());
        let purpose = "claim the store for this run";
        match create_or_read(self.operator(), &path, bytes, purpose, read).await? {
            Created::Now => Ok(true),
            Created::Found(ours) => Ok(ours),
        }
    }

    async fn forget_epochs_before(&self, epoch: Epoch) {
        let Ok(epochs) = self.epochs().await else { return };
        for old in epochs.into_iter().filter(|&old| old < epoch) {
            let path = old.path();
            if let Err(error) = self.operator().delete(&path).await {
                tracing::debug!(%error, path, "an old epoch stays; the next run tries again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_state_api::{Environment, block_on};

    #[test]
    fn a_newer_run_fences_the_older_one_and_numbers_grow() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let first = block_on(store.claim_epoch("first")).unwrap();
        block_on(store.check_epoch(first)).unwrap();
        let second = block_on(store.claim_epoch("second")).unwrap();
        assert!(first.first_checkpoint() < second.first_checkpoint());
        block_on(store.check_epoch(second)).unwrap();
        let error = block_on(store.check_epoch(first)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        let third = block_on(store.claim_epoch("third")).unwrap();
        assert!(third > second, "forgetting old epochs does not bring their numbers back");
    }

    #[test]
    fn lost_claims_give_no_old_numbers_out_and_end_the_run_that_lost_its_own() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let copied = format!("{}metadata", CheckpointStore::directory(CheckpointId(7_000_000_003)));
        block_on(store.operator().write(&copied, "x")).unwrap();
        let epoch = block_on(store.claim_epoch("me")).unwrap();
        assert!(epoch.first_checkpoint() > CheckpointId(7_000_000_003));
        block_on(store.operator().delete(&epoch.path())).unwrap();
        assert_eq!(block_on(store.check_epoch(epoch)).unwrap_err().kind(), ErrorKind::Fenced);
    }

    #[test]
    fn a_claim_whose_answer_was_lost_is_still_ours() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        assert!(block_on(store.create_epoch(Epoch(1), "me")).unwrap());
        assert!(block_on(store.create_epoch(Epoch(1), "me")).unwrap());
        assert!(!block_on(store.create_epoch(Epoch(1), "they")).unwrap());
    }

    #[test]
    fn numbers_split_and_join() {
        let id = Epoch(7).first_checkpoint();
        assert_eq!(Epoch::split(id), (7, 1));
        assert_eq!(Epoch::join(7, 1), Some(id));
        assert_eq!(Epoch::join(7, CHECKPOINTS_PER_EPOCH), None);
        assert_eq!(Epoch::join(u64::MAX, 1), None);
    }
}
