//! Exactly-once output, proved on a real process: it is killed with SIGKILL in the middle of
//! checkpoints and commits, restarted each time, sometimes at another parallelism, and must publish
//! what an uninterrupted run publishes, byte for byte.
//!
//! When to kill is told by what the process has written, so that a slow machine sees the same kills.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod example_binary;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use weir_runtime::FileSink;

const KILLS: u32 = 20;

/// Slow enough that a run without a crash takes longer than all kills together.
const RATE: &str = "300";

/// SplitMix64; `WEIR_SEED` chooses another sequence.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        Random(std::env::var("WEIR_SEED").map_or(42, |seed| seed.parse().unwrap()))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % limit
    }
}

struct Job<'a> {
    binary: &'a Path,
    folder: &'a Path,
}

impl Job<'_> {
    fn start(&self, parallelism: u64, more: &[&str]) -> Child {
        Command::new(self.binary)
            .arg("--checkpoints")
            .arg(self.folder.join("checkpoints"))
            .arg("--output")
            .arg(self.folder.join("output"))
            .args(["--checkpoint-interval", "10ms", "--parallelism", &parallelism.to_string()])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn published(&self) -> Vec<String> {
        let output = self.folder.join("output");
        // A process that is killed at once leaves nothing, not even the folder.
        if output.exists() { FileSink::<String>::published(&output).unwrap() } else { Vec::new() }
    }
}

/// In memory if possible: a kill loses nothing that was written, so there is no need to wait for a disk.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// The files below a folder; what goes away meanwhile may be missing.
fn files(folder: &Path, found: &mut HashSet<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.insert(path);
        }
    }
}

#[test]
fn twenty_kills_leave_no_trace_in_the_output() {
    kills_leave_no_trace(&[]);
}

/// Some fall into the writing of a materialization, some between it and the checkpoint that goes on
/// from it, some between that and the removal of the log before.
#[test]
fn kills_in_and_around_materializations_leave_no_trace() {
    kills_leave_no_trace(&["--changelog", "--materialization-interval", "15ms"]);
}

fn kills_leave_no_trace(options: &[&str]) {
    let binary = example_binary::example_binary("flights");
    let folder = folder();
    let (calm, killed) = (folder.path().join("calm"), folder.path().join("killed"));
    let calm = Job { binary: &binary, folder: &calm };
    let killed = Job { binary: &binary, folder: &killed };
    assert!(calm.start(2, &[]).wait().unwrap().success());
    let expected = calm.published();
    assert!(expected.len() > 5_000, "{} lines", expected.len());

    let mut random = Random::seeded();
    let mut parallelism = 2;
    for kill in 0..KILLS {
        if kill % 3 == 2 {
            parallelism = 1 + (parallelism + random.below(3)) % 4;
        }
        let mut known = HashSet::new();
        files(killed.folder, &mut known);
        let before = known.len();
        // From "at once" to several checkpoints; at every fourth kill there is output too.
        let (written, output) = (random.below(60) as usize, kill % 4 == 3);
        let more = [options, &["--restore", "latest", "--rate", RATE]].concat();
        let mut process = killed.start(parallelism, &more);
        while known.len() < before + written || (output && killed.published().is_empty()) {
            let ended = process.try_wait().unwrap();
            assert_eq!(ended, None, "the process ended before its kill {kill}");
            std::thread::sleep(Duration::from_millis(1));
            files(killed.folder, &mut known);
        }
        // SIGKILL: nothing of the process runs any more, not even a destructor.
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let more = [options, &["--restore", "latest"]].concat();
    assert!(killed.start(3, &more).wait().unwrap().success());

    let published = killed.published();
    assert_eq!(published.len(), expected.len(), "number of lines");
    assert!(published == expected, "some line is missing, doubled or different");
}
