//! Starts all processes on this machine, waits for them, checks what they have published.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command};

use weir_state_api::{Error, ErrorKind, Result};

use crate::options::Options;
use crate::words;

pub(crate) fn run(options: &Options) -> Result<()> {
    let addresses = free_addresses(options.processes)?;
    let program = std::env::current_exe().map_err(|error| broken("this program", &error))?;
    let start = |process: u16| -> Result<Child> {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1));
        command.args(["--process", &process.to_string(), "--addresses", &addresses.join(",")]);
        command.spawn().map_err(|error| broken("a process", &error))
    };
    let children = (0..options.processes).map(start).collect::<Result<Vec<_>>>()?;
    let mut failed = 0;
    for mut child in children {
        // When one dies, timely dataflow ends the others.
        let status = child.wait().map_err(|error| broken("a process", &error))?;
        failed += u32::from(!status.success());
    }
    if failed > 0 {
        return Err(Error::new(ErrorKind::Unavailable, format!("{failed} processes failed"))
            .advice("start the command again: the job goes on from its latest checkpoint"));
    }
    verify(options)
}

/// Ports that are free now.
fn free_addresses(processes: u16) -> Result<Vec<String>> {
    let bind = |_| TcpListener::bind("127.0.0.1:0").map_err(|error| broken("a port", &error));
    let listeners = (0..processes).map(bind).collect::<Result<Vec<_>>>()?;
    let address = |listener: &TcpListener| listener.local_addr().map(|at| at.to_string());
    let addresses = listeners.iter().map(address).collect::<std::io::Result<_>>();
    addresses.map_err(|error| broken("a port", &error))
}

/// Each word with each count from one to how often it comes, once.
fn verify(options: &Options) -> Result<()> {
    let mut published = BTreeMap::<String, Vec<u64>>::new();
    let files = fs::read_dir(&options.output).map_err(|error| broken("the output", &error))?;
    for file in files {
        let path = file.map_err(|error| broken("the output", &error))?.path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("part-")) {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|error| broken("the output", &error))?;
        for line in text.lines() {
            let parsed = line.split_once(' ').and_then(|(word, n)| Some((word, n.parse().ok()?)));
            let Some((word, count)) = parsed else { return Err(wrong(line)) };
            published.entry(word.into()).or_default().push(count);
        }
    }
    let expected = words::counts(options);
    for (word, counts) in &mut published {
        counts.sort_unstable();
        let right = expected.get(word).is_some_and(|&n| counts.iter().copied().eq(1..=n));
        if !right {
            return Err(wrong(word));
        }
    }
    if published.len() != expected.len() {
        return Err(wrong("some words are missing"));
    }
    println!("{} words published, each count once", options.words);
    Ok(())
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the published lines are wrong: {what}"))
}

fn broken(what: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what} is not to be had: {error}"))
}
