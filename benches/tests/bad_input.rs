//! What cannot be measured is named in the figures, the rest is measured, and the exit status tells.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_weir-benches");
/// The smallest run there is.
const SMALL: [&str; 7] = ["micro", "--size", "quick", "--rounds", "1", "--only", "valueGet"];

/// A folder for a run: temporary files, fake programs, the figures.
struct Place(TempDir);

/// What a run left.
struct Ran {
    output: Output,
    figures: Value,
}

impl Place {
    fn new() -> Self {
        let place = Place(tempfile::tempdir().unwrap());
        fs::create_dir(place.path("bin")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A program of that name, in front of all others.
    fn program(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A command with the fake programs in its path.
    fn command(&self, program: &str) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.path("bin")).chain(std::env::split_paths(&path));
        let mut command = Command::new(program);
        command.env("PATH", std::env::join_paths(folders).unwrap());
        command.env("TMPDIR", self.0.path());
        command
    }

    /// Runs the benchmarks and reads what they wrote.
    fn run(&self, mut command: Command, arguments: &[&str]) -> Ran {
        let json = self.path("figures.json");
        let output = command.args(arguments).arg("--json").arg(&json).output().unwrap();
        let figures = fs::read(&json).map(|bytes| serde_json::from_slice(&bytes).unwrap());
        let figures = figures.unwrap_or_else(|_| {
            panic!("no figures: {}", String::from_utf8_lossy(&output.stderr));
        });
        Ran { output, figures }
    }

    fn measure(&self, arguments: &[&str]) -> Ran {
        self.run(self.command(PROGRAM), arguments)
    }
}

impl Ran {
    /// The message of the failure of a contestant, or of a suite.
    fn failure(&self, name: &str) -> String {
        let failures = self.figures["failures"].as_array().unwrap();
        let named = |failure: &&Value| failure["contestant"] == name || failure["workload"] == name;
        let found = failures.iter().find(named);
        let found = found.unwrap_or_else(|| panic!("{name} is not among {failures:?}"));
        found["message"].as_str().unwrap().into()
    }

    fn has_figures_of(&self, contestant: &str) -> bool {
        let records = self.figures["records"].as_array().unwrap();
        records.iter().any(|record| record["contestant"] == contestant)
    }

    fn status(&self) -> Option<i32> {
        self.output.status.code()
    }
}

/// Flink's folder as if all of it were fetched and compiled, so that the run goes on to `java`.
fn prepared_flink(place: &Place) -> String {
    let folder = place.path("flink");
    let jar = folder.join("pyflink/lib/flink-dist-2.3.0.jar");
    fs::create_dir_all(jar.parent().unwrap()).unwrap();
    fs::write(jar, "").unwrap();
    folder.to_string_lossy().into_owned()
}

fn with_flink(folder: &str) -> Vec<&str> {
    [&SMALL[..], &["--peers", "flink", "--flink-folder", folder]].concat()
}

#[test]
fn a_run_without_failures_ends_with_0() {
    let ran = Place::new().measure(&SMALL);
    assert_eq!(ran.status(), Some(0), "{}", String::from_utf8_lossy(&ran.output.stderr));
    assert!(ran.has_figures_of("weir heap") && ran.has_figures_of("BTreeMap"));
    assert_eq!(ran.figures["failures"].as_array().unwrap().len(), 0);
}

#[test]
fn unknown_suites_backends_and_peers_are_named_and_the_rest_is_measured() {
    let names = ["nosuite", "--backends", "nobackend,heap", "--peers", "nopeer"];
    let ran = Place::new().measure(&[&SMALL[..], &names].concat());
    assert_eq!(ran.status(), Some(1));
    assert!(ran.failure("nosuite").contains("there is no such suite"));
    assert!(ran.failure("nobackend").contains("there is no such backend"));
    assert!(ran.failure("nopeer").contains("there is no such peer"));
    assert!(ran.has_figures_of("weir heap"));
}

#[cfg(not(feature = "rocks"))]
#[test]
fn a_backend_that_is_not_in_this_build_says_how_to_build_it() {
    let ran = Place::new().measure(&[&SMALL[..], &["--backends", "rocks,heap"]].concat());
    assert_eq!(ran.status(), Some(1));
    assert!(ran.failure("weir rocks").contains("--features rocks"));
    assert!(ran.has_figures_of("weir heap"));
}

#[test]
fn without_a_jdk_flink_is_left_out() {
    let place = Place::new();
    // The first one that is found is one that does not run.
    place.program("javac", "exit 127");
    let folder = place.path("flink").to_string_lossy().into_owned();
    let ran = place.measure(&with_flink(&folder));
    assert_eq!(ran.status(), Some(1));
    assert!(ran.failure("flink").contains("Flink could not be prepared"));
    assert!(ran.has_figures_of("weir heap"));
}

#[test]
fn without_a_network_flink_is_left_out() {
    let place = Place::new();
    place.program("javac", "echo 'javac 17.0.1' >&2");
    place.program("python3", "case $3 in download) echo 'no route to host' >&2; exit 1;; esac");
    let folder = place.path("flink").to_string_lossy().into_owned();
    let ran = place.measure(&with_flink(&folder));
    assert_eq!(ran.status(), Some(1));
    assert!(ran.failure("flink").contains("Flink could not be prepared"));
    assert!(String::from_utf8_lossy(&ran.output.stderr).contains("no route to host"));
    assert!(ran.has_figures_of("weir heap"));
}

#[test]
fn a_peer_that_crashes_in_the_middle_is_named_and_the_others_go_on() {
    let place = Place::new();
    place.program("javac", "[ $# -gt 1 ] || echo 'javac 17.0.1' >&2");
    // Is ready, and gone in the first round.
    place.program("java", "[ \"$1\" = -version ] || { read x; echo ok; read x; kill -9 $$; }");
    let folder = prepared_flink(&place);
    let ran = place.measure(&with_flink(&folder));
    assert_eq!(ran.status(), Some(1));
    let message = ran.failure("flink heap");
    assert!(message.contains("the JVM ended") && message.contains('9'), "{message}");
    assert!(ran.has_figures_of("weir heap") && !ran.has_figures_of("flink heap"));
}

#[cfg(not(feature = "s3"))]
#[test]
fn an_s3_server_that_this_build_cannot_talk_to_is_left_out() {
    let suites = ["checkpoint", "--s3-server", "seaweedfs"];
    let ran = Place::new().measure(&[&SMALL[..], &suites].concat());
    assert_eq!(ran.status(), Some(1));
    let message = ran.failure("the rest of checkpoint");
    assert!(message.contains("no client for S3") && message.contains("--features s3"), "{message}");
    assert!(ran.has_figures_of("weir heap"));
}

/// Asks for an S3 server with an empty cache folder and such a program `weed` in the path.
#[cfg(feature = "s3")]
fn with_s3_server(place: &Place, weed: &str, suites: &[&str]) -> Ran {
    place.program("weed", weed);
    let mut command = place.command(PROGRAM);
    command.env("XDG_CACHE_HOME", place.path("cache"));
    place.run(command, &[&SMALL[..], suites, &["--s3-server", "seaweedfs"]].concat())
}

#[cfg(feature = "s3")]
#[test]
fn without_a_network_the_s3_server_is_left_out() {
    let place = Place::new();
    place.program("python3", "echo 'no route to host' >&2; exit 1");
    let ran = with_s3_server(&place, "exit 127", &["restore"]);
    assert_eq!(ran.status(), Some(1));
    assert!(ran.failure("the rest of restore").contains("SeaweedFS could not be fetched"));
    assert!(String::from_utf8_lossy(&ran.output.stderr).contains("no route to host"));
    assert!(ran.has_figures_of("weir heap"));
}

#[cfg(feature = "s3")]
#[test]
fn an_s3_server_that_does_not_start_is_named_with_what_it_said() {
    let place = Place::new();
    let weed = "[ \"$1\" != version ] || { echo version 1; exit; }; echo no such disk; exit 3";
    let ran = with_s3_server(&place, weed, &["checkpoint"]);
    assert_eq!(ran.status(), Some(1));
    let message = ran.failure("the rest of checkpoint");
    assert!(
        message.contains("SeaweedFS has ended") && message.contains("no such disk"),
        "{message}"
    );
    assert!(ran.has_figures_of("weir heap"));
}

#[test]
fn a_disk_without_space_is_an_error_of_those_who_need_it() {
    let place = Place::new();
    let mut command = place.command("bash");
    // Files of more than so many KiB cannot be written; the signal would end the program.
    command.args(["-c", "trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\"", PROGRAM]);
    let suites = ["checkpoint", "snapshot", "in-flight", "--backends", "heap,forst"];
    let ran = place.run(command, &[&suites[..], &["--size", "quick", "--rounds", "1"]].concat());
    assert_eq!(ran.status(), Some(1), "{}", String::from_utf8_lossy(&ran.output.stderr));
    for backend in ["weir heap", "weir forst"] {
        let message = ran.failure(backend);
        assert!(message.contains("the store failed"), "{backend}: {message}");
    }
    // This one needs no disk.
    assert!(ran.has_figures_of("direct calls"));
}

#[test]
fn a_folder_for_temporary_files_that_is_gone_is_an_error_of_those_who_need_it() {
    let place = Place::new();
    let mut command = place.command(PROGRAM);
    command.env("TMPDIR", place.path("gone"));
    let ran = place.run(command, &[&SMALL[..], &["--backends", "heap,forst"]].concat());
    assert_eq!(ran.status(), Some(1));
    assert!(ran.failure("weir forst").contains("no temporary folder"));
    assert!(ran.has_figures_of("weir heap"));
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    let mut command = place.command(PROGRAM);
    let page = place.path("no/such/folder/report.html");
    let output = command.args(SMALL).arg("--html").arg(&page).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the figures cannot be written"), "{said}");
    assert!(!Path::new(&page).exists());
}
