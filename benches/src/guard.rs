//! The regression guard: how many instructions the hot paths take, against a committed file.
//!
//! Instructions do not depend on what else the machine does, so a change shows in one run, and
//! continuous integration can decide by it; it never does by times. Valgrind's callgrind counts them.
//! A count is the difference between a process that runs an operation a number of rounds and one that
//! runs it twice as many: start and set-up fall out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use weir_state_api::{Error, ErrorKind, Result};

use crate::backends::{Backend, StandingClock};
use crate::interrupt;
use crate::machine::Machine;
use crate::measure::Recorder;
use crate::micro;
use crate::options::Asked;

const SUITE: &str = "guard";

/// Backends whose instructions are ours. `forst` answers from its memtables here.
const BACKENDS: [Backend; 2] = [Backend::Heap, Backend::Forst];

/// The hot paths, by their names in `micro`. Timers include the registering before they fire.
const OPERATIONS: [&str; 10] = [
    "valueGet",
    "valueUpdate",
    "valueReadModifyWrite",
    "listAppend",
    "listGetAndIterate",
    "mapGet",
    "mapUpdate",
    "mapIterator",
    "aggregatingAdd",
    "timerFire",
];

/// Keys that are set up.
const KEYS: usize = 1_000;
/// Rounds of the shorter process.
const ROUNDS: usize = 20;

/// The committed file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Baseline {
    /// The compiler; another one makes other instructions.
    rust: String,
    /// By how much a count may grow.
    tolerance_percent: f64,
    /// By backend and operation: instructions per call (per entry where entries are read).
    instructions: BTreeMap<String, Counts>,
}

type Counts = BTreeMap<String, f64>;

/// What the guard finds about one operation.
#[derive(Debug, Clone, PartialEq)]
enum Finding {
    Within,
    Grown { percent: f64 },
    New,
}

impl Baseline {
    fn judge(&self, backend: Backend, operation: &str, count: f64) -> Finding {
        let counts = self.instructions.get(&backend.to_string());
        let Some(expected) = counts.and_then(|counts| counts.get(operation)) else {
            return Finding::New;
        };
        let percent = (count / expected - 1.0) * 100.0;
        if percent > self.tolerance_percent { Finding::Grown { percent } } else { Finding::Within }
    }
}

/// Counts, and compares with the committed file or writes it anew (what is not counted stays). Where
/// it cannot count or compare it says so; that is no failure.
pub(crate) fn run(recorder: &mut Recorder, backends: &[Backend], write: bool) -> Result<()> {
    let machine = recorder.results.header.machine.clone();
    if let Some(why) = obstacle(&machine) {
        println!("guard: skipped: {why}");
        return Ok(());
    }
    let path = path();
    let baseline = if write { read(&path).ok() } else { Some(read(&path)?) };
    if let Some(baseline) =
        baseline.as_ref().filter(|baseline| baseline.rust != machine.rust && !write)
    {
        let (ours, theirs) = (&machine.rust, &baseline.rust);
        println!("guard: skipped: this is {ours}, the committed counts are of {theirs}");
        return Ok(());
    }
    let mut written = baseline.clone().unwrap_or_default();
    (written.rust, written.tolerance_percent) = (machine.rust, 15.0);
    for backend in BACKENDS.into_iter().filter(|backend| backends.contains(backend)) {
        for operation in OPERATIONS {
            if interrupt::requested() {
                return Ok(());
            }
            let count = count(backend, operation)?;
            let contestant = backend.to_string();
            recorder.add(SUITE, operation, &contestant, "instructions", "per op", vec![count]);
            let judge = |baseline: &Baseline| baseline.judge(backend, operation, count);
            match baseline.as_ref().filter(|_| !write).map(judge) {
                Some(Finding::Grown { percent }) => {
                    let message =
                        format!("{percent:.1} % more instructions than committed: {count:.1}");
                    let advice =
                        "if that is the price of something, write the counts anew: guard --write";
                    let error = Error::new(ErrorKind::Incompatible, message).advice(advice);
                    recorder.fail(operation, &contestant, &error);
                }
                Some(Finding::New) => {
                    println!("guard: {operation} of {contestant} is not in the committed file");
                }
                Some(Finding::Within) | None => {}
            }
            let counts = written.instructions.entry(contestant).or_default();
            counts.insert(operation.to_string(), (count * 10.0).round() / 10.0);
        }
    }
    if write {
        let text =
            serde_json::to_string_pretty(&written).map_err(|error| unusable(&path, error))?;
        std::fs::write(&path, text + "\n").map_err(|error| unusable(&path, error))?;
    }
    Ok(())
}

/// The other side of the guard: runs an operation for so many rounds.
pub(crate) fn run_probe(backend: Backend, operation: &str, rounds: usize) -> Result<()> {
    StandingClock::leave_system_alone();
    micro::hot_path(backend, operation, KEYS, rounds).map(drop)
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json")
}

/// Why nothing can be counted here.
fn obstacle(machine: &Machine) -> Option<String> {
    if !machine.optimized {
        return Some("a build without --release".into());
    }
    let found = Command::new("valgrind").arg("--version").output();
    if found.is_ok_and(|output| output.status.success()) {
        return None;
    }
    Some("valgrind is not installed (Debian: apt-get install valgrind)".into())
}

/// Instructions per call.
fn count(backend: Backend, operation: &str) -> Result<f64> {
    let once = instructions(backend, operation, ROUNDS)?;
    let twice = instructions(backend, operation, 2 * ROUNDS)?;
    let calls = micro::hot_path(backend, operation, KEYS, 0)? * ROUNDS as u64;
    Ok(twice.saturating_sub(once) as f64 / calls as f64)
}

/// Instructions of a process that runs an operation for so many rounds.
fn instructions(backend: Backend, operation: &str, rounds: usize) -> Result<u64> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Unavailable, "instructions cannot be counted").source(error)
    };
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().map_err(failed)?)
        .args(["--guard-probe", operation, "--guard-rounds", &rounds.to_string()])
        .args(["--backends", &Asked::Known(backend).to_string()])
        .output()
        .map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stderr);
    match (output.status.success(), collected(&text)) {
        (true, Some(instructions)) => Ok(instructions),
        _ => Err(Error::new(
            ErrorKind::Unavailable,
            format!("valgrind counts nothing: {}", output.status),
        )
        .object(operation)
        .advice(text.lines().last().unwrap_or_default())),
    }
}

/// The number that callgrind says at its end.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().rev().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.split_whitespace().next()?.parse().ok()
}

fn read(path: &Path) -> Result<Baseline> {
    let text = std::fs::read(path).map_err(|error| unusable(path, error))?;
    serde_json::from_slice(&text).map_err(|error| unusable(path, error))
}

fn unusable(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::InvalidUsage, "the committed counts cannot be used")
        .object(path.display().to_string())
        .advice("write them anew: guard --write")
        .source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_instructions_than_tolerated_are_found() {
        let counts = BTreeMap::from([("valueGet".to_string(), 200.0)]);
        let instructions = BTreeMap::from([("weir heap".to_string(), counts)]);
        let baseline = Baseline { rust: String::new(), tolerance_percent: 10.0, instructions };
        assert_eq!(baseline.judge(Backend::Heap, "valueGet", 209.9), Finding::Within);
        assert_eq!(baseline.judge(Backend::Heap, "valueGet", 100.0), Finding::Within);
        assert_eq!(
            baseline.judge(Backend::Heap, "valueGet", 220.0),
            Finding::Grown { percent: 10.000_000_000_000_009 }
        );
        assert_eq!(baseline.judge(Backend::Heap, "mapGet", 1.0), Finding::New);
        assert_eq!(baseline.judge(Backend::Forst, "valueGet", 1.0), Finding::New);
    }

    #[test]
    fn the_last_line_of_callgrind_is_understood() {
        let text = "==12== Events    : Ir\n==12== Collected : 1234567\n==12== \n";
        assert_eq!(collected(text), Some(1_234_567));
        assert_eq!(collected("valgrind: command not found"), None);
    }

    #[test]
    fn the_committed_file_names_hot_paths_and_they_exist() {
        let committed = read(&path()).unwrap();
        let backends: Vec<_> = committed.instructions.keys().cloned().collect();
        let mut known = BACKENDS.map(|backend| backend.to_string());
        known.sort_unstable();
        assert_eq!(backends, known);
        let named = committed.instructions.values().flat_map(BTreeMap::keys);
        let unknown: Vec<_> = named.filter(|name| !OPERATIONS.contains(&name.as_str())).collect();
        assert!(unknown.is_empty(), "{unknown:?} are no hot paths");
        for (backend, operation) in BACKENDS.iter().flat_map(|b| OPERATIONS.map(|o| (*b, o))) {
            assert!(micro::hot_path(backend, operation, 20, 1).unwrap() >= 20, "{operation}");
        }
        assert!(micro::hot_path(Backend::Heap, "nosuch", 20, 1).is_err());
    }
}
