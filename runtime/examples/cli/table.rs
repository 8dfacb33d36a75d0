//! Summaries as a table: a row per figure, a column per run.

use std::fmt::Write;

use super::figures::{bytes, millis, thousands};
use super::summary::{Changelog, Summary};

/// A run and what to call it.
pub(crate) struct Column<'a> {
    pub(crate) title: &'a str,
    pub(crate) summary: &'a Summary,
}

type Figure = fn(&Summary) -> String;

const ROWS: &[(&str, Figure)] = &[
    ("backend, parallelism", |run| format!("{}, {}", run.backend, run.parallelism)),
    ("restored from checkpoint", |run| or_dash(run.restored_from.clone(), |name| name)),
    ("recovery time", |run| or_dash(run.recovery_ms, millis)),
    ("records read", |run| thousands(run.records_read)),
    ("time", |run| format!("{:.2} s", run.elapsed_seconds)),
    ("records per second", |run| thousands(run.records_per_second as u64)),
    ("ended by", |run| {
        let reason = if run.crashed { "a crash" } else { "end of input" };
        reason.to_owned()
    }),
    ("late records", |run| thousands(run.late_records)),
    ("restarts within the run", |run| run.restarts.to_string()),
    ("checkpoints", |run| match run.checkpoints.failed {
        0 => run.checkpoints.completed.to_string(),
        failed => format!("{}, {failed} failed", run.checkpoints.completed),
    }),
    ("  largest", |run| bytes(run.checkpoints.largest_bytes)),
    ("  duration p50", |run| millis(run.checkpoints.duration_ms.p50)),
    ("  duration p99", |run| millis(run.checkpoints.duration_ms.p99)),
    ("  duration max", |run| millis(run.checkpoints.duration_ms.max)),
    ("  longest hold of a task", |run| millis(run.checkpoints.longest_hold_ms)),
];

/// Left out where no run has a changelog.
const LOG_ROWS: &[(&str, Figure)] = &[
    ("changelog, changes", |run| of_log(run, |log| thousands(log.changes))),
    ("  in the store", |run| {
        of_log(run, |log| format!("{} in {} objects", bytes(log.log_bytes), log.log_objects))
    }),
    ("  materializations", |run| of_log(run, |log| log.materializations.to_string())),
    ("  changes replayed", |run| of_log(run, |log| thousands(log.changes_replayed))),
];

const OUTPUT_ROWS: &[(&str, Figure)] = &[
    ("rows published so far", |run| thousands(run.output.rows as u64)),
    ("  in files", |run| thousands(run.output.files as u64)),
];

fn or_dash<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn of_log(run: &Summary, show: impl Fn(Changelog) -> String) -> String {
    or_dash(run.changelog, show)
}

/// The table of these runs. Figures of a changelog appear when any of them has one.
pub(crate) fn table(columns: &[Column<'_>]) -> String {
    let titles: Vec<String> = columns.iter().map(|column| column.title.to_owned()).collect();
    let mut rows = vec![(String::new(), titles)];
    let logged = columns.iter().any(|column| column.summary.changelog.is_some());
    let log_rows = if logged { LOG_ROWS } else { &[] };
    for (name, figure) in [ROWS, log_rows, OUTPUT_ROWS].into_iter().flatten() {
        let figures = columns.iter().map(|column| figure(column.summary)).collect();
        rows.push(((*name).to_owned(), figures));
    }
    let name_width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| rows.iter().map(|(_, figures)| figures[column].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (name, figures) in rows {
        let mut line = format!("{name:name_width$}");
        for (figure, width) in figures.iter().zip(&widths) {
            // Writing into a string cannot fail.
            write!(line, "  {figure:>width$}").unwrap_or_default();
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
