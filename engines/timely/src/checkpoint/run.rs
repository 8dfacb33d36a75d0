//! Runs: which start of the job owns the store.
//!
//! ```text
//! runs/00000002        created if absent by the second run; holds its name, and the job's
//! ```
//!
//! A run claims its number before it looks for a checkpoint to restore, and checks after completing
//! a checkpoint, before anybody is told, that no newer run has claimed one. So either the newer run
//! sees the checkpoint, or the older one learns that it is fenced and publishes nothing. Checkpoint
//! numbers begin with the run's, so whatever a zombie still completes stays below those of the newer
//! run.

use serde::{Deserialize, Serialize};
use weir_state_api::frame::Frame;
use weir_state_api::store_requests::{Created, create_or_read, names_in};
use weir_state_api::{CheckpointId, Error, ErrorKind, Result};

use super::layout;
use super::store::CheckpointStore;

/// Checkpoints of one run; at ten a second, three years.
const CHECKPOINTS_PER_RUN: u64 = 1_000_000_000;

/// Tries to claim against runs that start at the same moment.
const MAX_TRIES: u32 = 100;

/// The number of a run of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Run(pub(super) u64);

/// Who has claimed a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    job: String,
    name: String,
}

const FRAME: Frame = Frame { magic: *b"WEIRTRUN", version: 1 };

impl Run {
    /// The checkpoint that closes an epoch of this run.
    pub(crate) fn checkpoint(self, epoch: u64) -> CheckpointId {
        let number = epoch.saturating_add(1).min(CHECKPOINTS_PER_RUN - 1);
        CheckpointId(self.0.saturating_mul(CHECKPOINTS_PER_RUN).saturating_add(number))
    }

    /// The run and the number within it.
    pub(super) fn split(checkpoint: CheckpointId) -> (u64, u64) {
        (checkpoint.0 / CHECKPOINTS_PER_RUN, checkpoint.0 % CHECKPOINTS_PER_RUN)
    }

    pub(super) fn join(run: u64, number: u64) -> Option<CheckpointId> {
        if number >= CHECKPOINTS_PER_RUN {
            return None;
        }
        run.checked_mul(CHECKPOINTS_PER_RUN)?.checked_add(number).map(CheckpointId)
    }
}

impl CheckpointStore {
    /// Claims the next run for `name`. Every older run is fenced from now on.
    ///
    /// Fails with [`Incompatible`](ErrorKind::Incompatible), and claims nothing, when the store is
    /// another job's.
    pub(crate) async fn claim_run(&self, job: &str, name: &str) -> Result<Run> {
        for _ in 0..MAX_TRIES {
            let newest = self.newest_run().await?;
            if let Some(newest) = newest
                && let Some(claim) = self.read_claim(newest).await?
            {
                check_job(job, &claim.job, &layout::run_path(newest))?;
            }
            let trace = self.newest_trace().await?;
            let run = Run(trace.map_or(1, |Run(number)| number.saturating_add(1)));
            let claim = Claim { job: job.into(), name: name.into() };
            if !self.create_claim(run, &claim).await? {
                continue;
            }
            // A claim that was slow may fall into a gap that newer ones left behind.
            if self.newest_trace().await? == Some(run) {
                self.forget_runs_before(run).await;
                return Ok(run);
            }
        }
        Err(Error::new(ErrorKind::Conflict, "other runs keep claiming the store")
            .object(layout::RUNS)
            .advice("see that one supervisor at a time starts the job"))
    }

    /// Fails when this store does not show the claim: it is another store than the one in which the
    /// run was claimed.
    pub(crate) async fn check_same_store(&self, run: Run, name: &str) -> Result<()> {
        match self.read_claim(run).await? {
            Some(claim) if claim.name == name => Ok(()),
            _ => Err(Error::new(
                ErrorKind::InvalidUsage,
                "this process looks at another checkpoint store than the first one",
            )
            .object(layout::run_path(run))
            .advice("give all processes the same folder or bucket")),
        }
    }

    /// Fails when the store is no longer this run's.
    pub(crate) async fn check_run(&self, run: Run) -> Result<()> {
        let (found, what) = match self.newest_run().await? {
            Some(newest) if newest == run => return Ok(()),
            Some(newest) if newest > run => {
                (newest, format!("run {} of the job has taken over from run {}", newest.0, run.0))
            }
            _ => (run, "this run's claim on the store is gone".to_string()),
        };
        Err(Error::new(ErrorKind::Fenced, what)
            .object(layout::run_path(found))
            .advice("one run at a time owns a job's store: stop this one"))
    }

    /// The newest run that has left anything: a claim, or a checkpoint's folder. A store whose claims
    /// were lost must not give old numbers out again.
    async fn newest_trace(&self) -> Result<Option<Run>> {
        let names = names_in(self.operator(), "").await?;
        let checkpoints = names.iter().filter_map(|name| layout::parse_checkpoint_folder(name));
        let of_checkpoints = checkpoints.map(|id| Run(Run::split(id).0)).max();
        Ok(of_checkpoints.max(self.newest_run().await?))
    }

    async fn newest_run(&self) -> Result<Option<Run>> {
        Ok(self.runs().await?.into_iter().max())
    }

    async fn runs(&self) -> Result<Vec<Run>> {
        let names = names_in(self.operator(), layout::RUNS).await?;
        Ok(names.iter().filter_map(|name| name.parse().ok().map(Run)).collect())
    }

    async fn read_claim(&self, run: Run) -> Result<Option<Claim>> {
        let path = layout::run_path(run);
        match self.operator().read(&path).await {
            Ok(bytes) => FRAME.decode(&bytes.to_bytes(), &path).map(Some),
            Err(error) if error.kind() == opendal::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::store("read a run's claim", &path, error)),
        }
    }

    /// Whether the run is ours.
    async fn create_claim(&self, run: Run, claim: &Claim) -> Result<bool> {
        let path = layout::run_path(run);
        let bytes = FRAME.encode(claim);
        let read = |found: &[u8]| Ok(FRAME.decode::<Claim>(found, &path)? == *claim);
        let purpose = "claim the store for this run";
        match create_or_read(self.operator(), &path, bytes, purpose, read).await? {
            Created::Now => Ok(true),
            Created::Found(ours) => Ok(ours),
        }
    }

    async fn forget_runs_before(&self, run: Run) {
        let Ok(runs) = self.runs().await else { return };
        for old in runs.into_iter().filter(|&old| old < run) {
            let path = layout::run_path(old);
            if let Err(error) = self.operator().delete(&path).await {
                tracing::debug!(%error, path, "an old claim stays; the next run tries again");
            }
        }
    }
}

/// Refuses what belongs to another job.
pub(super) fn check_job(wanted: &str, found: &str, origin: &str) -> Result<()> {
    if wanted == found {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Incompatible,
        format!("the checkpoint store is that of job {found:?}, this is job {wanted:?}"),
    )
    .object(origin)
    .advice("give each job a folder of its own"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_state_api::{Environment, block_on};

    #[test]
    fn a_newer_run_fences_the_older_one_and_numbers_grow() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let first = block_on(store.claim_run("j", "a")).unwrap();
        block_on(store.check_run(first)).unwrap();
        let second = block_on(store.claim_run("j", "b")).unwrap();
        assert!(first.checkpoint(u64::MAX) < second.checkpoint(0));
        assert_eq!(block_on(store.check_run(first)).unwrap_err().kind(), ErrorKind::Fenced);
        block_on(store.check_run(second)).unwrap();
        assert!(block_on(store.claim_run("j", "c")).unwrap() > second);
    }

    #[test]
    fn another_jobs_store_is_refused_and_nothing_is_claimed() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let run = block_on(store.claim_run("mine", "a")).unwrap();
        let error = block_on(store.claim_run("theirs", "b")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        block_on(store.check_run(run)).unwrap();
    }

    #[test]
    fn a_store_without_the_claim_is_another_store() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let run = block_on(store.claim_run("j", "a")).unwrap();
        block_on(store.check_same_store(run, "a")).unwrap();
        let elsewhere = CheckpointStore::new(Environment::in_memory().store);
        let error = block_on(elsewhere.check_same_store(run, "a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
    }

    #[test]
    fn lost_claims_give_no_old_numbers_out_and_end_the_run_that_lost_its_own() {
        let store = CheckpointStore::new(Environment::in_memory().store);
        let copied = format!("{}record", layout::checkpoint_folder(CheckpointId(7_000_000_003)));
        block_on(store.operator().write(&copied, "x")).unwrap();
        let run = block_on(store.claim_run("j", "a")).unwrap();
        assert!(run.checkpoint(0) > CheckpointId(7_000_000_003));
        block_on(store.operator().delete(&layout::run_path(run))).unwrap();
        assert_eq!(block_on(store.check_run(run)).unwrap_err().kind(), ErrorKind::Fenced);
    }

    #[test]
    fn golden_claim() {
        let bytes = FRAME.encode(&Claim { job: "j".into(), name: "n".into() });
        assert_eq!(&bytes[..12], b"WEIRTRUN\x01\0\0\0");
        assert_eq!(bytes[16..bytes.len() - 4], [1, b'j', 1, b'n']);
    }
}
