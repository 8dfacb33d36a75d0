//! Where and with what a run was measured.

use std::process::Command;

use serde::{Deserialize, Serialize};
use weir_state_api::{Clock, Millis, SystemClock};

use crate::huge_pages;

/// The machine, the versions and the command of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) system: String,
    pub(crate) rust: String,
    pub(crate) weir: String,
    pub(crate) optimized: bool,
    #[serde(default)]
    pub(crate) huge_pages: bool,
    pub(crate) load_at_start: String,
    pub(crate) started_unix_ms: Millis,
    pub(crate) command: String,
}

impl Machine {
    /// Asks the system. What it does not tell is `unknown`.
    pub(crate) fn inspect() -> Self {
        let kilobytes: f64 = field("/proc/meminfo", "MemTotal")
            .and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or_default();
        let commit =
            output("git", &["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short", "HEAD"]);
        Machine {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: (kilobytes / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            system: output("uname", &["-srm"]),
            rust: output("rustc", &["--version"]),
            weir: format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
            optimized: !cfg!(debug_assertions),
            huge_pages: huge_pages::are_asked_for(),
            load_at_start: std::fs::read_to_string("/proc/loadavg")
                .map_or_else(|_| unknown(), |load| load.trim().into()),
            started_unix_ms: SystemClock.now(),
            command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        }
    }

    /// Whether figures of the two may stand beside each other.
    pub(crate) fn is_like(&self, other: &Machine) -> bool {
        let same = |machine: &Machine| {
            let Machine { cpu, cores, system, rust, optimized, huge_pages, .. } = machine.clone();
            (cpu, cores, system, rust, optimized, huge_pages)
        };
        same(self) == same(other)
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        format!(
            "{} cores of {}, {} GiB, {}, {}, weir {}, {} pages; load at the start: {}",
            self.cores,
            self.cpu,
            self.memory_gib,
            self.system,
            self.rust,
            self.weir,
            if self.huge_pages { "huge" } else { "base" },
            self.load_at_start
        )
    }
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().into())
}

fn output(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(unknown, |text| text.trim().into())
}

fn unknown() -> String {
    "unknown".into()
}
