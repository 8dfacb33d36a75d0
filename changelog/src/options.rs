//! What can be set.

use std::time::Duration;

use opendal::Operator;

/// When an instance materializes: takes a snapshot of the wrapped backend, from which the log goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Materialization {
    /// So often, the first time after a random part of it, so that the subtasks of a job do not
    /// materialize all at once.
    Every(Duration),
    /// After so many changes. For tests, and for state whose log should be bounded by replay time.
    AfterChanges(u64),
    /// When [`ChangelogControl::materialize`](crate::ChangelogControl::materialize) asks for it. One that
    /// fails is counted and not tried again until it is asked for again.
    OnRequest,
}

/// Options of a changelog. The defaults are those of Apache Flink where it has the option.
///
/// ```
/// use std::time::Duration;
/// use weir_changelog::{ChangelogOptions, Materialization};
///
/// let options = ChangelogOptions::default()
///     .with_materialization(Materialization::Every(Duration::from_secs(180)))
///     .with_batch_linger(Duration::from_millis(5));
/// assert_eq!(options.batch_bytes, 10 << 20);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChangelogOptions {
    /// How many bytes, compressed, the writer collects from all instances before it uploads them as
    /// one object, when no checkpoint waits for them. Default: 10 MiB.
    pub batch_bytes: u64,
    /// How long a checkpoint waits for other instances to join its object. It does not wait when all
    /// instances of the process are there: who drives several on one thread calls `snapshot` on all of
    /// them before the first task is run. Default: 10 ms.
    pub batch_linger: Duration,
    /// How many bytes of changes an instance collects before it hands them to the writer; 0 hands over
    /// each change. Default: 256 KiB.
    pub chunk_bytes: usize,
    /// The level of zstd, 0 for no compression. One that zstd has not counts as the nearest that it has.
    /// Default: 1.
    pub compression_level: i32,
    /// How many bytes of changes, before compression, may be handed over and not be in the store yet,
    /// in the whole process. A task that goes beyond waits; when nothing is in flight, any one may.
    /// Default: 100 MiB.
    pub max_in_flight_bytes: u64,
    /// How long a task waits for that before the log is given up: the job goes on without one, and
    /// the next checkpoint holds a whole snapshot of the wrapped backend. Default: one minute.
    pub stall_timeout: Duration,
    /// How often an upload is tried, hedged attempts included, before the checkpoints that wait for it
    /// fail; at least once. Its batches stay, for a later checkpoint. Default: 3.
    pub upload_attempts: u32,
    /// After how long a second attempt is begun beside one that has not ended, and a restore leaves a local
    /// copy that does not come for the object in the store. Default: one second.
    pub hedge_after: Duration,
    /// After how long an attempt counts as failed. Default: 30 seconds.
    pub attempt_timeout: Duration,
    /// The pause between a failed attempt and the next. Default: 500 ms.
    pub retry_pause: Duration,
    /// When instances materialize. Default: every ten minutes.
    pub materialization: Materialization,
    /// After how long a materialization that has not ended counts as failed, so that the next can begin.
    /// Default: one hour.
    pub materialization_timeout: Duration,
    /// How many batches the log of an instance may have, those that it was restored with among them, before
    /// it materializes, whatever the time: each takes some forty bytes in every handle. Default: 4,000.
    pub max_batches: usize,
    /// A store beside the first, usually a local folder, for second copies of the log's objects, from
    /// which a restore reads first, once it has seen that the object itself is in the store. It belongs to
    /// one factory of one process: what that does not need is swept. It may be emptied at any time.
    /// Default: none.
    pub local_copies: Option<Operator>,
}

impl Default for ChangelogOptions {
    fn default() -> Self {
        ChangelogOptions {
            batch_bytes: 10 << 20,
            batch_linger: Duration::from_millis(10),
            chunk_bytes: 256 << 10,
            compression_level: 1,
            max_in_flight_bytes: 100 << 20,
            stall_timeout: Duration::from_secs(60),
            upload_attempts: 3,
            hedge_after: Duration::from_secs(1),
            attempt_timeout: Duration::from_secs(30),
            retry_pause: Duration::from_millis(500),
            materialization: Materialization::Every(Duration::from_secs(600)),
            materialization_timeout: Duration::from_secs(60 * 60),
            max_batches: 4_000,
            local_copies: None,
        }
    }
}

/// As good as for ever, and no instant that overflows.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl ChangelogOptions {
    /// The same with times that can be added to an instant, and at least one of what there must be.
    pub(crate) fn within_reason(mut self) -> Self {
        for time in [
            &mut self.batch_linger,
            &mut self.stall_timeout,
            &mut self.hedge_after,
            &mut self.attempt_timeout,
            &mut self.retry_pause,
            &mut self.materialization_timeout,
        ] {
            *time = LONGEST.min(*time);
        }
        if let Materialization::Every(interval) = &mut self.materialization {
            *interval = LONGEST.min(*interval);
        }
        self.attempt_timeout = self.attempt_timeout.max(Duration::from_millis(1));
        self.upload_attempts = self.upload_attempts.max(1);
        self.chunk_bytes = self.chunk_bytes.max(1);
        self
    }

    /// Sets [`batch_bytes`](Self::batch_bytes).
    #[must_use]
    pub fn with_batch_bytes(mut self, bytes: u64) -> Self {
        self.batch_bytes = bytes;
        self
    }

    /// Sets [`batch_linger`](Self::batch_linger).
    #[must_use]
    pub fn with_batch_linger(mut self, linger: Duration) -> Self {
        self.batch_linger = linger;
        self
    }

    /// Sets [`chunk_bytes`](Self::chunk_bytes).
    #[must_use]
    pub fn with_chunk_bytes(mut self, bytes: usize) -> Self {
        self.chunk_bytes = bytes;
        self
    }

    /// Sets [`compression_level`](Self::compression_level).
    #[must_use]
    pub fn with_compression_level(mut self, level: i32) -> Self {
        self.compression_level = level;
        self
    }

    /// Sets [`max_in_flight_bytes`](Self::max_in_flight_bytes) and
    /// [`stall_timeout`](Self::stall_timeout).
    #[must_use]
    pub fn with_back_pressure(mut self, max_in_flight_bytes: u64, stall_timeout: Duration) -> Self {
        self.max_in_flight_bytes = max_in_flight_bytes;
        self.stall_timeout = stall_timeout;
        self
    }

    /// Sets [`upload_attempts`](Self::upload_attempts) and [`retry_pause`](Self::retry_pause).
    #[must_use]
    pub fn with_retries(mut self, attempts: u32, pause: Duration) -> Self {
        self.upload_attempts = attempts;
        self.retry_pause = pause;
        self
    }

    /// Sets [`hedge_after`](Self::hedge_after) and [`attempt_timeout`](Self::attempt_timeout).
    #[must_use]
    pub fn with_timeouts(mut self, hedge_after: Duration, attempt_timeout: Duration) -> Self {
        self.hedge_after = hedge_after;
        self.attempt_timeout = attempt_timeout;
        self
    }

    /// Sets [`materialization`](Self::materialization).
    #[must_use]
    pub fn with_materialization(mut self, materialization: Materialization) -> Self {
        self.materialization = materialization;
        self
    }

    /// Sets [`materialization_timeout`](Self::materialization_timeout).
    #[must_use]
    pub fn with_materialization_timeout(mut self, timeout: Duration) -> Self {
        self.materialization_timeout = timeout;
        self
    }

    /// Sets [`max_batches`](Self::max_batches).
    #[must_use]
    pub fn with_max_batches(mut self, batches: usize) -> Self {
        self.max_batches = batches;
        self
    }

    /// Sets [`local_copies`](Self::local_copies).
    #[must_use]
    pub fn with_local_copies(mut self, store: Operator) -> Self {
        self.local_copies = Some(store);
        self
    }
}
