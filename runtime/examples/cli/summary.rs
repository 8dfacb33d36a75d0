//! What a run did, for people and programs.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_changelog::ChangelogMetrics;
use weir_runtime::{CheckpointStats, CheckpointStore, FileSink, JobReport};
use weir_state_api::{CheckpointId, Error, ErrorKind, Result};

use super::figures::in_millis;
use super::options::CommonOptions;
use super::places::{Places, published_files};
use super::recorder::SoFar;

/// The summary of a run; as JSON, the fields are these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The job's name.
    pub(crate) job: String,
    pub(crate) backend: String,
    pub(crate) parallelism: u16,
    /// Whether the run ended by `--crash-after`.
    pub(crate) crashed: bool,
    /// Records read by all sources, in this run.
    pub(crate) records_read: u64,
    pub(crate) elapsed_seconds: f64,
    pub(crate) records_per_second: f64,
    pub(crate) late_records: u64,
    /// The checkpoint that the run started from.
    pub(crate) restored_from: Option<String>,
    /// From opening that checkpoint until all tasks ran.
    pub(crate) recovery_ms: Option<f64>,
    /// Recoveries within the run.
    pub(crate) restarts: u32,
    pub(crate) checkpoints: Checkpoints,
    /// `null` without one, and at a crash.
    pub(crate) changelog: Option<Changelog>,
    pub(crate) output: Output,
    /// Whether the output is that of a plain evaluation; `null` when that was not asked for.
    pub(crate) verified: Option<bool>,
}

/// The checkpoints that a run completed. Without any, all is zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Checkpoints {
    pub(crate) completed: usize,
    pub(crate) failed: u32,
    /// The folder of the latest.
    pub(crate) latest: Option<String>,
    pub(crate) largest_bytes: u64,
    /// From the trigger to the completed metadata.
    pub(crate) duration_ms: Quantiles,
    /// The longest time that any of them held a task.
    pub(crate) longest_hold_ms: f64,
}

/// What the changelog did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Changelog {
    pub(crate) changes: u64,
    /// In the store, compressed.
    pub(crate) log_bytes: u64,
    pub(crate) log_objects: u64,
    pub(crate) materializations: u64,
    /// By restores, those within the run among them.
    pub(crate) changes_replayed: u64,
}

/// The median and the upper end of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// What is in the output folder, from this run and those that it continues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Output {
    /// The folder; `null` when it was a temporary one.
    pub(crate) folder: Option<String>,
    pub(crate) files: usize,
    pub(crate) rows: usize,
}

impl Summary {
    /// The summary of a run that went to its end.
    pub(crate) fn of(report: &JobReport, options: &CommonOptions, places: &Places) -> Result<Self> {
        Ok(Summary {
            job: report.job.clone(),
            restored_from: report.restored_from.map(folder_name),
            recovery_ms: report.restore_time.map(in_millis),
            restarts: report.restarts,
            late_records: report.records_late,
            checkpoints: Checkpoints::of(&report.checkpoints, report.failed_checkpoints),
            output: Output::of(&places.output, places.output_stays)?,
            ..Self::sketch(options, report.records_read, report.elapsed)
        })
    }

    /// The summary of a run that is about to crash.
    pub(crate) fn at_crash(
        job: &str,
        read: u64,
        so_far: &SoFar,
        options: &CommonOptions,
        places: &Places,
    ) -> Result<Self> {
        Ok(Summary {
            job: job.to_owned(),
            crashed: true,
            restarts: so_far.progress.restarts,
            checkpoints: Checkpoints::of(&so_far.checkpoints, 0),
            output: Output::of(&places.output, true)?,
            ..Self::sketch(options, read, so_far.elapsed)
        })
    }

    fn sketch(options: &CommonOptions, read: u64, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        Summary {
            job: String::new(),
            backend: options.backend_name(),
            parallelism: options.parallelism,
            crashed: false,
            records_read: read,
            elapsed_seconds: (elapsed.as_secs_f64() * 1e3).round() / 1e3,
            records_per_second: (read as f64 / seconds).round(),
            late_records: 0,
            restored_from: None,
            recovery_ms: None,
            restarts: 0,
            checkpoints: Checkpoints::of(&[], 0),
            changelog: None,
            output: Output { folder: None, files: 0, rows: 0 },
            verified: None,
        }
    }

    /// The summary as one line of JSON.
    pub(crate) fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| {
            Error::new(ErrorKind::InvalidUsage, "the summary cannot be written as JSON")
                .source(error)
        })
    }
}

impl Checkpoints {
    fn of(completed: &[CheckpointStats], failed: u32) -> Self {
        let durations = completed.iter().map(|checkpoint| checkpoint.duration).collect();
        let longest_hold = completed.iter().map(|checkpoint| checkpoint.longest_hold).max();
        Checkpoints {
            completed: completed.len(),
            failed,
            latest: completed.last().map(|checkpoint| folder_name(checkpoint.id)),
            largest_bytes: completed.iter().map(|checkpoint| checkpoint.bytes).max().unwrap_or(0),
            duration_ms: Quantiles::of(durations),
            longest_hold_ms: in_millis(longest_hold.unwrap_or_default()),
        }
    }
}

impl Changelog {
    pub(crate) fn of(metrics: &ChangelogMetrics) -> Self {
        Changelog {
            changes: metrics.changes,
            log_bytes: metrics.object_bytes,
            log_objects: metrics.objects,
            materializations: metrics.materializations_done,
            changes_replayed: metrics.changes_replayed,
        }
    }
}

impl Quantiles {
    fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort();
        // The smallest duration that at least this many of a hundred do not exceed.
        let percentile = |percent: usize| {
            let rank = (durations.len() * percent).div_ceil(100).max(1);
            durations.get(rank - 1).map_or(0.0, |duration| in_millis(*duration))
        };
        Quantiles { p50: percentile(50), p99: percentile(99), max: percentile(100) }
    }
}

impl Output {
    fn of(folder: &Path, stays: bool) -> Result<Self> {
        let files = published_files(folder);
        let rows = if files == 0 { 0 } else { FileSink::<String>::published(folder)?.len() };
        Ok(Output { folder: stays.then(|| folder.display().to_string()), files, rows })
    }
}

/// What a checkpoint is called: its folder in the store.
pub(crate) fn folder_name(checkpoint: CheckpointId) -> String {
    CheckpointStore::directory(checkpoint).trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_durations_that_occurred() {
        let of = |millis: &[u64]| {
            let durations = millis.iter().map(|millis| Duration::from_millis(*millis)).collect();
            let Quantiles { p50, p99, max } = Quantiles::of(durations);
            (p50, p99, max)
        };
        assert_eq!(of(&[]), (0.0, 0.0, 0.0));
        assert_eq!(of(&[7]), (7.0, 7.0, 7.0));
        assert_eq!(of(&[3, 1, 2]), (2.0, 3.0, 3.0));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(of(&hundred), (50.0, 99.0, 100.0));
    }
}
