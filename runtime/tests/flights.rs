//! The example `flights` as users run it: as a process, with crashes and bad input.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod example_binary;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;
use weir_runtime::FileSink;

/// Flights and observations in January.
const RECORDS: u64 = 27_004 + 2_226;

fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| example_binary::example_binary("flights"))
}

/// A run of the example in folders of its own.
struct Job {
    folder: TempDir,
}

impl Job {
    fn new() -> Self {
        Job { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(binary())
            .arg("--checkpoints")
            .arg(self.path("checkpoints"))
            .arg("--output")
            .arg(self.path("output"))
            .args(["--checkpoint-interval", "20ms"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// The lines published so far.
    fn lines(&self) -> Vec<String> {
        FileSink::<String>::published(&self.path("output")).unwrap()
    }

    /// The folders of complete checkpoints, oldest first.
    fn checkpoints(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path("checkpoints")).unwrap();
        let mut complete: Vec<_> = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.join("metadata").exists())
            .collect();
        complete.sort();
        complete
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_status(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{}", stderr(output));
}

/// The only error line of a run that ended with status 1.
fn error(output: &Output) -> String {
    assert_status(output, 1);
    let text = stderr(output);
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(!text.contains("panicked"), "{text}");
    lines[0].to_owned()
}

/// What January comes to, whatever the parallelism and whatever happened on the way: number of
/// rows, first and last one, and the sums of the columns.
fn assert_january(lines: &[String]) {
    assert_eq!(lines.len(), 5_133);
    assert_eq!(lines[0], "2013-01-01T05:00,AA,1,0,0,0,0,1,0,2,0");
    assert_eq!(lines[5_132], "2013-01-31T23:00,B6,2,0,0,0,2,2,0,13,0");
    let mut totals = [0; 9];
    for line in lines {
        for (total, field) in totals.iter_mut().zip(line.split(',').skip(2)) {
            *total += field.parse::<i64>().unwrap();
        }
    }
    assert_eq!(totals, [27_004, 521, 155, 52, 6_414, 9_662, 29_920, 257_099, 54_391]);
}

#[test]
fn a_plain_run_publishes_january() {
    for parallelism in ["1", "3"] {
        let job = Job::new();
        let output = job.run(&["--parallelism", parallelism, "--verify"]);
        assert_status(&output, 0);
        assert_january(&job.lines());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("verified: equal"), "{text}");
        assert!(text.contains("records per second"), "{text}");
    }
}

/// Crashes a job in the midst of its input, after at least one checkpoint. Returns it with the number
/// of times that it replays January.
fn crashed(parallelism: &str) -> (Job, u64) {
    for repeat in [4, 16, 64, 256] {
        let job = Job::new();
        let after = repeat * RECORDS / 3 * 2;
        let (repeat_text, after_text) = (repeat.to_string(), after.to_string());
        let arguments = ["--repeat", &repeat_text, "--crash-after", &after_text, "--json"];
        let output = job.run(&[&arguments[..], &["--parallelism", parallelism]].concat());
        assert_status(&output, 137);
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["crashed"], true);
        assert!(summary["records_read"].as_u64().unwrap() >= after);
        if !job.checkpoints().is_empty() {
            return (job, repeat);
        }
        // The machine is so fast that there was none yet.
    }
    panic!("no checkpoint before the crash");
}

#[test]
fn after_a_crash_and_a_restore_at_another_parallelism_the_output_is_the_same() {
    for (before, after) in [("2", "3"), ("3", "1")] {
        let (job, repeat) = crashed(before);
        let latest = job.checkpoints().pop().unwrap();
        let repeat_text = repeat.to_string();
        let restore = ["--repeat", &repeat_text, "--restore", latest.to_str().unwrap()];
        let more = ["--parallelism", after, "--verify", "--json"];
        let output = job.run(&[&restore[..], &more].concat());
        assert_status(&output, 0);
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["verified"], true);
        assert!(summary["restored_from"].as_str().unwrap().starts_with("chk-"));
        assert!(summary["recovery_ms"].as_f64().unwrap() > 0.0);
        assert!(summary["records_read"].as_u64().unwrap() < repeat * RECORDS);
        assert_eq!(summary["late_records"], 0);

        let lines = job.lines();
        assert_eq!(lines.len() as u64, repeat * 5_133);
        // Within the first repetition; with many, other Januaries follow in other years.
        let january: Vec<_> =
            lines.into_iter().filter(|line| line.starts_with("2013-01-")).collect();
        assert_january(&january);
    }
}

#[test]
fn crashes_and_restores_may_follow_each_other() {
    let job = Job::new();
    let (mut crashes, mut crash_after, mut latest) = (0, 40_000, None);
    loop {
        let after = crash_after.to_string();
        let crash = ["--repeat", "10", "--crash-after", &after, "--restore", "latest"];
        let parallelism = ["2", "1", "4"][crashes % 3];
        let output = job.run(&[&crash[..], &["--parallelism", parallelism]].concat());
        if output.status.success() {
            break;
        }
        assert_status(&output, 137);
        crashes += 1;
        let before = std::mem::replace(&mut latest, job.checkpoints().pop());
        if latest == before {
            // It crashed before there was another checkpoint: more time for the next run.
            crash_after *= 2;
        }
    }
    assert!(crashes > 0);
    let lines = job.lines();
    assert_eq!(lines.len(), 10 * 5_133);
    assert!(lines.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn the_summary_is_one_json_object() {
    let job = Job::new();
    let output = job.run(&["--json", "--events", "2000", "--verify"]);
    assert_status(&output, 0);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["job"], "flights");
    assert_eq!(summary["parallelism"], 2);
    assert_eq!(summary["crashed"], false);
    assert_eq!(summary["records_read"], 2_000 + 2_226);
    assert_eq!(summary["restored_from"], Value::Null);
    assert_eq!(summary["verified"], true);
    assert_eq!(summary["output"]["rows"].as_u64().unwrap(), job.lines().len() as u64);
    assert!(summary["checkpoints"]["duration_ms"]["p99"].as_f64().unwrap() > 0.0);
}

const HEADER: &str = "year,month,day,dep_time,dep_delay,arr_delay,carrier,flight,tailnum,origin,\
                      dest,air_time,hour,minute\n";

#[test]
fn a_malformed_row_is_named() {
    let job = Job::new();
    let file = job.path("flights.csv");
    let good = "2013,1,1,517,2,11,UA,1545,N14228,EWR,IAH,227,5,15\n";
    let bad = good.replace(",2,11,", ",soon,11,");
    std::fs::write(&file, [HEADER, good, &bad, good].concat()).unwrap();
    let error = error(&job.run(&["--flights", file.to_str().unwrap()]));
    assert!(error.contains("flights.csv, line 3, column dep_delay: \"soon\""), "{error}");
    assert!(error.contains("expected an integer"), "{error}");
}

#[test]
fn files_of_ones_own_need_not_be_in_order() {
    let job = Job::new();
    let file = job.path("flights.csv");
    let late = "2013,1,1,1337,7,60,UA,2,N14228,EWR,IAH,100,13,30\n";
    let early = "2013,1,1,515,50,60,UA,1,N14228,EWR,IAH,227,5,15\n";
    std::fs::write(&file, [HEADER, late, early].concat()).unwrap();
    assert_status(&job.run(&["--flights", file.to_str().unwrap(), "--verify"]), 0);
    let lines = job.lines();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0], "2013-01-01T05:00,UA,1,0,0,0,0,1,0,50,0");
    // The first flight, though later in the file, is the previous leg of the other one.
    assert_eq!(lines[1], "2013-01-01T13:00,UA,1,0,0,0,1,1,7,0,0");
}

#[test]
fn standard_input_is_read_but_cannot_be_restored_from() {
    let job = Job::new();
    // Standard input is empty: not even a header.
    let output = job.run(&["--flights", "-"]);
    assert!(error(&output).contains("standard input, line 1"), "{}", stderr(&output));
    let output = job.run(&["--flights", "-", "--restore", "latest"]);
    assert_status(&output, 2);
    assert!(stderr(&output).contains("save it to a file"), "{}", stderr(&output));
}

#[test]
fn a_missing_file_is_named() {
    let job = Job::new();
    for option in ["--flights", "--weather"] {
        let error = error(&job.run(&[option, "no/such/file.csv"]));
        assert!(error.contains("no/such/file.csv: cannot be read"), "{error}");
        assert!(error.contains("check that the file exists"), "{error}");
    }
}

#[test]
fn a_bad_restore_says_what_would_be_good() {
    let job = Job::new();
    for value in ["newest", "7", "x/7", "chk-x", ""] {
        let output = job.run(&["--restore", value]);
        assert_status(&output, 2);
        assert!(stderr(&output).contains("expected `latest`, the path"), "{}", stderr(&output));
    }
    assert_status(&job.run(&["--events", "500"]), 0);
    let missing = error(&job.run(&["--restore", "chk-00000-000000077"]));
    assert!(missing.contains("chk-00000-000000077"), "{missing}");
    assert!(missing.contains("complete checkpoints beside it"), "{missing}");
    let elsewhere = error(&job.run(&["--restore", "elsewhere/chk-00001-000000001"]));
    assert!(elsewhere.contains("is in \"elsewhere\""), "{elsewhere}");
    // Without --restore, the folder that is in use is left alone.
    let used = error(&job.run(&["--events", "500"]));
    assert!(used.contains("restore the latest one"), "{used}");

    let alone = Command::new(binary()).args(["--restore", "latest"]).output().unwrap();
    assert_status(&alone, 2);
    let alone = Command::new(binary())
        .args(["--restore", "latest", "--output"])
        .arg(job.path("output"))
        .output()
        .unwrap();
    assert_status(&alone, 2);
    assert!(stderr(&alone).contains("--checkpoints"), "{}", stderr(&alone));
}

#[test]
fn an_unknown_backend_says_which_there_are() {
    let job = Job::new();
    let output = job.run(&["--backend", "tape"]);
    assert_status(&output, 2);
    assert!(stderr(&output).contains("heap"), "{}", stderr(&output));
}
