//! What a job is run with.

use std::time::Duration;

use weir_state_api::{Environment, MaxParallelism};

/// What all workers of a job have in common. [`Job::join`](crate::Job::join) checks that they do.
///
/// ```
/// use std::time::Duration;
/// use weir_engine_timely::JobSettings;
/// use weir_state_api::Environment;
///
/// let settings = JobSettings::new("word-count", Environment::in_memory())
///     .with_interval(Duration::from_millis(200))
///     .with_retained(3);
/// assert_eq!(settings.max_parallelism.get(), 128);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobSettings {
    /// The job's name. A checkpoint folder belongs to one job.
    pub job: String,
    /// Clock, store of checkpoints, and where work in the background runs. The store is one and the
    /// same for all processes: a shared folder, or a bucket. It must support writing an object only if
    /// it is absent.
    pub environment: Environment,
    /// Key groups, the limit of the number of workers for ever. 128 by default.
    pub max_parallelism: MaxParallelism,
    /// From the beginning of one checkpoint to that of the next. 1 s by default.
    pub interval: Duration,
    /// A checkpoint that is not complete by then is given up. 10 minutes by default.
    pub timeout: Duration,
    /// Complete checkpoints that are kept, at least one. 2 by default.
    pub retained: usize,
    /// Checkpoints that may fail in a row before the job fails. 3 by default.
    pub tolerable_failures: u32,
    /// Sources pause while an operator of any worker has more records than this waiting: early ones
    /// of the next epoch, or those behind reads in flight. 262,144 by default. Sources learn of it
    /// some milliseconds later, so it is exceeded by what they read meanwhile.
    pub queued_records: usize,
}

impl JobSettings {
    /// Settings with defaults.
    pub fn new(job: impl Into<String>, environment: Environment) -> Self {
        JobSettings {
            job: job.into(),
            environment,
            max_parallelism: MaxParallelism::default(),
            interval: Duration::from_secs(1),
            timeout: Duration::from_mins(10),
            retained: 2,
            tolerable_failures: 3,
            queued_records: 1 << 18,
        }
    }

    /// Sets [`max_parallelism`](Self::max_parallelism).
    #[must_use]
    pub fn with_max_parallelism(mut self, max_parallelism: MaxParallelism) -> Self {
        self.max_parallelism = max_parallelism;
        self
    }

    /// Sets [`interval`](Self::interval).
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets [`timeout`](Self::timeout).
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets [`retained`](Self::retained).
    #[must_use]
    pub fn with_retained(mut self, retained: usize) -> Self {
        self.retained = retained.max(1);
        self
    }

    /// Sets [`tolerable_failures`](Self::tolerable_failures).
    #[must_use]
    pub fn with_tolerable_failures(mut self, failures: u32) -> Self {
        self.tolerable_failures = failures;
        self
    }

    /// Sets [`queued_records`](Self::queued_records).
    #[must_use]
    pub fn with_queued_records(mut self, records: usize) -> Self {
        self.queued_records = records;
        self
    }
}
