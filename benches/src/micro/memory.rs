//! Bytes per entry of `i64` to `i64`: by the backend's own account, and by the growth of the
//! resident set of a process that does nothing else.

use std::process::Command;

use hashbrown::HashMap;
use weir_state_api::{Error, ErrorKind, Result};

use super::family::DEFAULT_GROUPS;
use super::inputs::number;
use super::{Peer, Settings};
use crate::backends::Backend;
use crate::interrupt;
use crate::measure::Recorder;
use crate::peers::flink::{FlinkPeer, FlinkProcess};
use crate::resident::resident_bytes;
use crate::statistics::Median;

pub(crate) const WORKLOAD: &str = "memory per entry";
/// The metrics, in bytes per entry.
pub(crate) const METRICS: [&str; 2] = ["own account", "resident"];

/// What a contestant's process reports, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// By its own account, if it keeps one.
    pub(crate) own_account: Option<u64>,
    /// How far the resident set grew.
    pub(crate) resident: u64,
}

/// Measures each contestant in a process of its own.
pub(crate) fn run(recorder: &mut Recorder, settings: &Settings) {
    let entries = settings.memory_entries;
    println!("-- {WORKLOAD}: {entries} entries of i64 to i64, bytes each");
    recorder.open_section(WORKLOAD, vec![WORKLOAD.into()]);
    let weir = settings.backends.iter().map(ToString::to_string);
    let raw = settings.peers.contains(&Peer::Raw).then(|| RAW.into());
    let here: Vec<String> = weir.chain(raw).collect();
    let flink = settings.flink.as_ref().map_or(&[][..], |_| &settings.flink_backends);
    recorder.expect(here.len() + flink.len());
    for name in here {
        recorder.now(&format!("{WORKLOAD}, {name}"));
        let measured = probe(&name, entries);
        add(recorder, &name, entries, measured);
        recorder.step();
    }
    for &backend in flink {
        recorder.now(&format!("{WORKLOAD}, {backend}"));
        let Some(install) = settings.flink.clone() else { continue };
        let peer = FlinkPeer { install, backend, keys: entries, key_groups: DEFAULT_GROUPS };
        let measured = FlinkProcess::new(peer).memory();
        add(recorder, &backend.to_string(), entries, measured);
        recorder.step();
    }
    recorder.finished();
}

fn add(recorder: &mut Recorder, name: &str, entries: usize, measured: Result<Memory>) {
    let memory = match measured {
        Ok(memory) => memory,
        Err(_) if interrupt::requested() => return,
        Err(error) => return recorder.fail(WORKLOAD, name, &error),
    };
    let mut line = format!("{name:<29}");
    for (metric, bytes) in METRICS.iter().zip([memory.own_account, Some(memory.resident)]) {
        let Some(bytes) = bytes else { continue };
        let value = bytes as f64 / entries as f64;
        line += &format!(" {metric} {value:.1}");
        let median = Median { value, low: value, high: value };
        recorder.record(super::contest::SUITE, WORKLOAD, name, metric, "B", median, 1);
    }
    recorder.say(&line);
}

const RAW: &str = "hashbrown";

/// Runs this program as a probe.
fn probe(name: &str, entries: usize) -> Result<Memory> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Unavailable, "the process that measures memory fails").source(error)
    };
    let program = std::env::current_exe().map_err(failed)?;
    let output = Command::new(program)
        .args(["--memory-probe", name, "--memory-entries", &entries.to_string()])
        .output()
        .map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    match (output.status.success(), numbers.next(), numbers.next().flatten()) {
        (true, Some(own_account), Some(resident)) => Ok(Memory { own_account, resident }),
        _ => Err(Error::new(
            ErrorKind::Unavailable,
            format!("the process that measures memory ended with {}", output.status),
        )
        .advice(String::from_utf8_lossy(&output.stderr).trim().to_string())),
    }
}

/// The other side of [`probe`]: fills a contestant and prints what it takes.
pub(crate) fn run_probe(name: &str, entries: usize) -> Result<()> {
    let keys = 0..entries as i64;
    let mut known = Backend::ALL.into_iter();
    if let Some(backend) = known.find(|backend| backend.to_string() == name) {
        let mut instance = backend.open(DEFAULT_GROUPS)?;
        let value = instance.store.value::<i64>("v")?;
        let before = resident()?;
        for key in keys {
            instance.store.set_key(&key)?;
            value.set(&mut instance.store, &number(key as u64))?;
        }
        let grown = resident()?.saturating_sub(before);
        println!("{} {grown}", instance.store.statistics().memory_bytes);
    } else {
        let before = resident()?;
        let mut map = HashMap::new();
        for key in keys {
            map.insert(key, number(key as u64));
        }
        let grown = resident()?.saturating_sub(before);
        println!("{} {grown}", map.allocation_size());
    }
    Ok(())
}

fn resident() -> Result<u64> {
    resident_bytes().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "the resident set is known on Linux only")
    })
}
