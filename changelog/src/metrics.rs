//! What the changelog has done so far: counters, for tests and metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A moment's reading of the counters of a factory and all its instances. All of them only grow, but
/// [`in_flight_bytes`](ChangelogMetrics::in_flight_bytes) and
/// [`changes_to_replay`](ChangelogMetrics::changes_to_replay).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChangelogMetrics {
    /// Instances that were opened without a folder of their own
    /// ([`OpenRequest::directory`](weir_state_api::OpenRequest::directory)), and so have no log.
    pub instances_without_log: u64,
    /// Changes that were logged.
    pub changes: u64,
    /// Their bytes before compression.
    pub change_bytes: u64,
    /// Objects of the log that are in the store.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Batches in these objects.
    pub batches: u64,
    /// Attempts to upload an object, hedged ones included.
    pub attempts: u64,
    /// Attempts that were begun beside one that took long.
    pub hedges: u64,
    /// Attempts that failed or took too long.
    pub failed_attempts: u64,
    /// Uploads that were given up; their batches wait for the next checkpoint.
    pub failed_uploads: u64,
    /// Objects that the writer deleted itself, since nothing ever named them; those of failed attempts
    /// among them, whether they had arrived or not.
    pub deleted_objects: u64,
    /// Local copies that could not be written.
    pub failed_local_copies: u64,
    /// Local copies deleted because nobody needed them any more, those of former processes among them.
    pub swept_local_copies: u64,
    /// Bytes of changes, before compression, that are handed over and not yet in the store.
    pub in_flight_bytes: u64,
    /// How often a task waited because too much was in flight.
    pub stalls: u64,
    /// How long tasks waited for that, in all.
    pub stalled: Duration,
    /// Logs given up because a task would have waited too long.
    pub abandoned_logs: u64,
    /// Materializations begun: on schedule, as a whole checkpoint, or of an instance that is opened empty.
    pub materializations_begun: u64,
    /// Materializations that are done.
    pub materializations_done: u64,
    /// Materializations that failed, took too long, or were overtaken by a change that made them useless.
    /// What is begun, not done and not failed is under way, or ended after the instance was last called.
    pub materializations_failed: u64,
    /// Checkpoints that could not build on a log, and hold a whole snapshot of the wrapped backend.
    pub whole_checkpoints: u64,
    /// Changes that restores have to replay or have replayed, as far as they have begun; without what failed
    /// ones have left. While a restore runs, what it still has to do is the difference to
    /// [`changes_replayed`](ChangelogMetrics::changes_replayed).
    pub changes_to_replay: u64,
    /// Changes that restores have replayed, or left out as those of other key groups.
    pub changes_replayed: u64,
    /// Bytes of log that restores have read, from the store or from local copies.
    pub bytes_replayed: u64,
    /// Batches that were read from local copies.
    pub local_reads: u64,
}

/// The counters themselves.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) instances_without_log: AtomicU64,
    pub(crate) changes: AtomicU64,
    pub(crate) change_bytes: AtomicU64,
    pub(crate) objects: AtomicU64,
    pub(crate) object_bytes: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) attempts: AtomicU64,
    pub(crate) hedges: AtomicU64,
    pub(crate) failed_attempts: AtomicU64,
    pub(crate) failed_uploads: AtomicU64,
    pub(crate) deleted_objects: AtomicU64,
    pub(crate) failed_local_copies: AtomicU64,
    pub(crate) swept_local_copies: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) stalled_micros: AtomicU64,
    pub(crate) abandoned_logs: AtomicU64,
    pub(crate) materializations_begun: AtomicU64,
    pub(crate) materializations_done: AtomicU64,
    pub(crate) materializations_failed: AtomicU64,
    pub(crate) whole_checkpoints: AtomicU64,
    pub(crate) changes_to_replay: AtomicU64,
    pub(crate) changes_replayed: AtomicU64,
    pub(crate) bytes_replayed: AtomicU64,
    pub(crate) local_reads: AtomicU64,
}

impl Counters {
    /// Reads all of them.
    pub(crate) fn read(&self, in_flight_bytes: u64) -> ChangelogMetrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ChangelogMetrics {
            instances_without_log: read(&self.instances_without_log),
            changes: read(&self.changes),
            change_bytes: read(&self.change_bytes),
            objects: read(&self.objects),
            object_bytes: read(&self.object_bytes),
            batches: read(&self.batches),
            attempts: read(&self.attempts),
            hedges: read(&self.hedges),
            failed_attempts: read(&self.failed_attempts),
            failed_uploads: read(&self.failed_uploads),
            deleted_objects: read(&self.deleted_objects),
            failed_local_copies: read(&self.failed_local_copies),
            swept_local_copies: read(&self.swept_local_copies),
            in_flight_bytes,
            stalls: read(&self.stalls),
            stalled: Duration::from_micros(read(&self.stalled_micros)),
            abandoned_logs: read(&self.abandoned_logs),
            materializations_begun: read(&self.materializations_begun),
            materializations_done: read(&self.materializations_done),
            materializations_failed: read(&self.materializations_failed),
            whole_checkpoints: read(&self.whole_checkpoints),
            changes_to_replay: read(&self.changes_to_replay),
            changes_replayed: read(&self.changes_replayed),
            bytes_replayed: read(&self.bytes_replayed),
            local_reads: read(&self.local_reads),
        }
    }
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
