//! The auction benchmark as its users run it: a process, with crashes and restores.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod example_binary;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;
use weir_runtime::FileSink;

const QUERIES: [&str; 14] =
    ["q3", "q4", "q5", "q7", "q8", "q9", "q11", "q12", "q15", "q16", "q17", "q18", "q19", "q20"];

/// Builds the program, which takes no time when it is up to date, and returns its path.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| example_binary::example_binary("nexmark"))
}

/// A job's folders.
struct Job {
    query: &'static str,
    events: u64,
    folder: TempDir,
}

impl Job {
    fn new(query: &'static str, events: u64) -> Self {
        Job { query, events, folder: tempfile::tempdir().unwrap() }
    }

    fn run(&self, options: &str) -> Output {
        Command::new(program())
            .args(["--query", self.query, "--events", &self.events.to_string(), "--json"])
            .arg("--checkpoints")
            .arg(self.folder.path().join("checkpoints"))
            .arg("--output")
            .arg(self.folder.path().join("output"))
            .args(options.split_whitespace())
            .output()
            .unwrap()
    }

    /// Runs to the end of the input and returns the summary.
    fn finish(&self, options: &str) -> Value {
        let output = self.run(options);
        assert!(output.status.success(), "{} {options}: {}", self.query, text(&output.stderr));
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["verified"], true, "{summary}");
        assert_eq!(summary["late_records"], 0, "{summary}");
        summary
    }

    fn lines(&self) -> Vec<String> {
        FileSink::<String>::published(&self.folder.path().join("output")).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_result_of_each_query_is_that_of_the_plain_evaluation_at_any_parallelism() {
    for query in QUERIES {
        let [one, three] = [1, 3].map(|parallelism| {
            let job = Job::new(query, 30_000);
            let options = format!("--parallelism {parallelism} --checkpoint-interval 20ms");
            let summary = job.finish(&options);
            assert_eq!(summary["records_read"], 30_000, "{summary}");
            job.lines()
        });
        assert!(!one.is_empty() && one == three, "{query}");
    }
}

fn crashed(query: &'static str, parallelism: u16) -> Job {
    crashed_with(query, parallelism, "")
}

/// Crashes a job in the midst of its input, after at least one checkpoint.
fn crashed_with(query: &'static str, parallelism: u16, options: &str) -> Job {
    for events in [30_000, 120_000, 480_000, 1_920_000] {
        let job = Job::new(query, events);
        let crash_after = events / 3 * 2;
        let output = job.run(&format!(
            "--parallelism {parallelism} --checkpoint-interval 5ms --crash-after {crash_after} {options}"
        ));
        assert_eq!(output.status.code(), Some(137), "{query}: {}", text(&output.stderr));
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["crashed"], true, "{summary}");
        if summary["checkpoints"]["completed"].as_u64() > Some(0) {
            return job;
        }
        // The machine is so fast that there was none yet.
    }
    panic!("{query}: no checkpoint before the crash");
}

#[test]
fn a_crash_and_a_restore_at_another_parallelism_change_nothing() {
    for (query, before, after) in [
        ("q3", 2, 1),
        ("q4", 1, 3),
        ("q5", 3, 1),
        ("q7", 2, 3),
        ("q8", 1, 2),
        ("q9", 3, 2),
        ("q11", 1, 3),
        ("q11", 3, 2),
        ("q12", 2, 1),
        ("q16", 1, 2),
        ("q18", 2, 3),
        ("q19", 3, 1),
        ("q20", 1, 3),
    ] {
        let job = crashed(query, before);
        let summary = job.finish(&format!("--parallelism {after} --restore latest"));
        assert!(summary["restored_from"].is_string(), "{summary}");
        let read = summary["records_read"].as_u64().unwrap();
        assert!(read < job.events, "{query} began anew");
    }
}

/// With materializations between the checkpoints, and with checkpoints that are nothing but log.
#[test]
fn with_a_changelog_a_crash_and_a_restore_change_nothing() {
    for (backend, interval, before, after) in
        [("heap", "10ms", 2, 3), ("heap", "60m", 3, 1), ("forst", "10ms", 1, 2)]
    {
        let options =
            format!("--backend {backend} --changelog --materialization-interval {interval}");
        let job = crashed_with("q4", before, &options);
        let summary = job.finish(&format!("{options} --parallelism {after} --restore latest"));
        assert_eq!(summary["backend"], format!("{backend} with changelog"), "{summary}");
        let read = summary["records_read"].as_u64().unwrap();
        assert!(read < job.events, "{backend} began anew");
    }
}

#[test]
fn the_changelog_is_switched_on_and_off_from_run_to_run() {
    for (backend, before, after) in [
        ("heap", "", "--changelog"),
        ("heap", "--changelog", ""),
        ("forst", "", "--changelog"),
        ("forst", "--changelog", ""),
    ] {
        let job = crashed_with("q5", 2, &format!("--backend {backend} {before}"));
        let options = format!("--backend {backend} {after} --parallelism 3 --restore latest");
        let summary = job.finish(&options);
        assert!(summary["restored_from"].is_string(), "{summary}");
        // And back, from the end of the input.
        let options = format!("--backend {backend} {before} --parallelism 1 --restore latest");
        let summary = job.finish(&options);
        assert_eq!(summary["records_read"], 0, "{summary}");
    }
}

#[test]
fn events_out_of_order_change_nothing() {
    for query in QUERIES {
        let in_order = Job::new(query, 30_000);
        in_order.finish("--parallelism 1");
        let shuffled = Job::new(query, 30_000);
        shuffled.finish("--parallelism 2 --disorder 1000 --splits 3");
        assert!(in_order.lines() == shuffled.lines(), "{query}");
    }
}

#[test]
fn a_difference_is_reported_and_ends_with_status_1() {
    let job = Job::new("q8", 20_000);
    job.finish("");
    std::fs::write(job.folder.path().join("output/part-strange"), "1,2,nobody\n").unwrap();
    let output = job.run("--restore latest");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("nobody"), "{}", text(&output.stderr));
}

#[test]
fn all_queries_have_folders_of_their_own() {
    let job = Job::new("all", 20_000);
    let output = job.run("--verify");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), QUERIES.len());
    for query in QUERIES {
        for place in ["checkpoints", "output"] {
            assert!(job.folder.path().join(place).join(query).is_dir(), "{place} of {query}");
        }
    }
}

#[test]
fn an_unknown_query_is_answered_with_the_known_ones() {
    let output = Job::new("q6", 1).run("");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let known = format!("{}, all", QUERIES.join(", "));
    assert!(stderr.contains("'q6'") && stderr.contains(&known), "{stderr}");
}
