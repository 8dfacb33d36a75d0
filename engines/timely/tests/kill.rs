//! The example over several processes, killed with SIGKILL at random moments.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const WORDS: u64 = 240_000;
/// Of each of the four splits: a run without a crash takes six seconds.
const RATE: u64 = 10_000;

/// The example's binary: the one that `WEIR_WORD_COUNT` names, or the one beside the test's own,
/// brought up to date first.
fn example() -> &'static Path {
    static EXAMPLE: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLE.get_or_init(build_example)
}

fn build_example() -> PathBuf {
    if let Some(built) = std::env::var_os("WEIR_WORD_COUNT") {
        return built.into();
    }
    let test = std::env::current_exe().unwrap();
    // target/<profile>/deps/<test>
    let profile = test.parent().and_then(Path::parent).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    // As a part of the workspace, so that dependencies have the features they were built with.
    cargo.args(["build", "--quiet", "--workspace", "--example", "word_count"]);
    if cfg!(feature = "rocks") {
        cargo.args(["--features", "weir-engine-timely/rocks"]);
    }
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.arg("--target-dir").arg(profile.parent().unwrap());
    assert!(cargo.status().unwrap().success(), "the example does not build");
    profile.join("examples").join(format!("word_count{}", std::env::consts::EXE_SUFFIX))
}

/// A number below `bound`, another one in each run; printed, so that a failure can be looked at.
fn random(bound: u64) -> u64 {
    RandomState::new().build_hasher().finish() % bound
}

struct Cluster(Vec<Child>);

impl Cluster {
    /// Starts the example on a shared folder.
    fn start(backend: &str, folder: &Path, processes: usize, workers: usize) -> Self {
        let listeners: Vec<_> =
            (0..processes).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let addresses: Vec<_> = listeners.iter().map(address).collect();
        drop(listeners);
        let start = |process: usize| {
            Command::new(example())
                .args(["--backend", backend])
                .args(["--process", &process.to_string(), "--addresses", &addresses.join(",")])
                .args(["--workers", &workers.to_string(), "--interval-ms", "50"])
                .args(["--words", &WORDS.to_string(), "--distinct", "20000"])
                .args(["--rate", &RATE.to_string()])
                .arg("--checkpoints")
                .arg(folder.join("checkpoints"))
                .arg("--output")
                .arg(folder.join("output"))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        Cluster((0..processes).map(start).collect())
    }

    /// Stops all processes in the middle of what they do, or has them go on.
    fn signal(&self, signal: &str) {
        for child in &self.0 {
            let id = child.id().to_string();
            assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        }
    }

    /// Waits for all; the errors of those that failed.
    fn wait(mut self) -> Vec<String> {
        let mut errors = Vec::new();
        for child in std::mem::take(&mut self.0) {
            let output = child.wait_with_output().unwrap();
            if !output.status.success() {
                errors.push(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        errors
    }
}

impl Drop for Cluster {
    /// A test that fails leaves no processes behind.
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.kill()));
    }
}

/// Lines published so far, sorted.
fn published(folder: &Path) -> Vec<String> {
    let Ok(files) = fs::read_dir(folder.join("output")) else { return Vec::new() };
    let parts = files
        .map(|file| file.unwrap())
        .filter(|file| file.file_name().to_string_lossy().starts_with("part-"));
    let mut lines: Vec<String> = parts
        .flat_map(|file| {
            let text = fs::read_to_string(file.path()).unwrap();
            text.lines().map(String::from).collect::<Vec<_>>()
        })
        .collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_killed_cluster_on_heap_goes_on_and_publishes_everything_once() {
    killed_and_restarted_at_other_numbers_of_workers("heap");
}

#[test]
fn a_killed_cluster_on_forst_goes_on_and_publishes_everything_once() {
    killed_and_restarted_at_other_numbers_of_workers("forst");
}

#[cfg(feature = "rocks")]
#[test]
fn a_killed_cluster_on_rocks_goes_on_and_publishes_everything_once() {
    killed_and_restarted_at_other_numbers_of_workers("rocks");
}

/// Processes that were given up, and then go on: they find that others have taken over.
#[test]
fn a_zombie_cluster_is_fenced_and_publishes_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let zombie = Cluster::start("heap", folder.path(), 2, 2);
    let started = Instant::now();
    while published(folder.path()).is_empty() && started.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    zombie.signal("-STOP");
    let before = published(folder.path()).len();
    assert!(0 < before && before < WORDS as usize, "{before} words were published");

    let errors = Cluster::start("heap", folder.path(), 1, 3).wait();
    assert!(errors.is_empty(), "{errors:?}");
    let lines = published(folder.path());
    assert_eq!(lines.len() as u64, WORDS);
    zombie.signal("-CONT");
    let errors = zombie.wait();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors.iter().all(|error| error.contains("has taken over")), "{errors:?}");
    assert!(published(folder.path()) == lines, "a zombie has published");
}

fn killed_and_restarted_at_other_numbers_of_workers(backend: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut crashes_with_output = 0;
    // Processes and workers in each: 4, 2, 3 workers, killed; then 4 to the end.
    for (processes, workers) in [(2, 2), (2, 1), (3, 1)] {
        let before = published(folder.path()).len();
        let mut cluster = Cluster::start(backend, folder.path(), processes, workers);
        let (victim, patience) = (random(processes as u64) as usize, 1_000 + random(500));
        println!("{backend}, {processes} processes: {victim} is killed after {patience} ms");
        // Not before it has published something, so that there is something to go on from.
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(patience)
            || (published(folder.path()).len() == before
                && started.elapsed() < Duration::from_secs(15))
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        cluster.0[victim].kill().unwrap();
        let errors = cluster.wait();
        assert_eq!(errors.len(), processes, "a process went on without the killed one");
        crashes_with_output += usize::from(published(folder.path()).len() > before);
    }
    assert!(crashes_with_output > 0);
    assert!(published(folder.path()).len() < WORDS as usize, "it was over before the last crash");
    let errors = Cluster::start(backend, folder.path(), 2, 2).wait();
    assert!(errors.is_empty(), "{errors:?}");

    let lines = published(folder.path());
    assert_eq!(lines.len() as u64, WORDS);
    let mut counts = BTreeMap::<&str, Vec<u64>>::new();
    for line in &lines {
        let (word, count) = line.split_once(' ').unwrap();
        counts.entry(word).or_default().push(count.parse().unwrap());
    }
    for (word, counts) in &mut counts {
        counts.sort_unstable();
        let total = counts.len() as u64;
        assert!(counts.iter().copied().eq(1..=total), "{word}: {counts:?}");
    }
    let pending = fs::read_dir(folder.path().join("output/pending")).unwrap().count();
    assert_eq!(pending, 0);
    undisturbed(&lines);
}

/// The same words without a crash.
fn undisturbed(lines: &[String]) {
    let folder = tempfile::tempdir().unwrap();
    let errors = Cluster::start("heap", folder.path(), 1, 2).wait();
    assert!(errors.is_empty(), "{errors:?}");
    assert!(published(folder.path()) == lines, "a run without a crash publishes other lines");
}
