//! Exactly-once output, proved on a real process: it is killed with SIGKILL at random moments, in
//! the middle of checkpoints and commits too, restarted each time, sometimes at another
//! parallelism, and must publish what an uninterrupted run publishes, byte for byte.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod example_binary;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_runtime::FileSink;

const KILLS: u32 = 20;

/// Slow enough that a run without a crash takes longer than all kills together.
const RATE: &str = "3000";

/// SplitMix64; the seed is printed, and `WEIR_SEED` repeats a run.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let seed = match std::env::var("WEIR_SEED") {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => u64::from(std::process::id()),
        };
        eprintln!("WEIR_SEED={seed}");
        Random(seed)
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

#[test]
fn twenty_kills_leave_no_trace_in_the_output() {
    let binary = example_binary::example_binary("flights");
    let folder = tempfile::tempdir().unwrap();
    let (calm, killed) = (folder.path().join("calm"), folder.path().join("killed"));
    let calm = Job { binary: &binary, folder: &calm };
    let killed = Job { binary: &binary, folder: &killed };
    assert!(calm.start(2, &[]).wait().unwrap().success());
    let expected = calm.published();
    assert!(expected.len() > 5_000, "{} lines", expected.len());

    let mut random = Random::seeded();
    let mut parallelism = 2;
    let mut with_output = 0;
    for kill in 0..KILLS {
        if kill % 3 == 2 {
            parallelism = 1 + (parallelism + random.below(3)) % 4;
        }
        let mut process = killed.start(parallelism, &["--restore", "latest", "--rate", RATE]);
        let moment = Duration::from_millis(20 + random.below(500));
        let begun = Instant::now();
        while begun.elapsed() < moment {
            assert_eq!(
                process.try_wait().unwrap(),
                None,
                "the process ended before its kill {kill}"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        // SIGKILL: nothing of the process runs any more, not even a destructor.
        process.kill().unwrap();
        process.wait().unwrap();
        with_output += u32::from(!killed.published().is_empty());
    }
    assert!(with_output >= KILLS / 2, "output was there at {with_output} of {KILLS} kills");
    assert!(killed.start(3, &["--restore", "latest"]).wait().unwrap().success());

    let published = killed.published();
    assert_eq!(published.len(), expected.len(), "number of lines");
    assert!(published == expected, "some line is missing, doubled or different");
}
