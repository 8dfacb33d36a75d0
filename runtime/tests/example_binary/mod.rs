//! Finds the binary of an example, for tests that run it as a process.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The example's binary beside the test's own, brought up to date first: `cargo test` builds the
/// unit tests of an example, but not the example itself.
pub(crate) fn example_binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // target/<profile>/deps/<test>
    let profile = test.parent().and_then(Path::parent).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    // As a part of the workspace, so that dependencies have the features they were built with.
    cargo.args(["build", "--quiet", "--workspace", "--example", name]);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.arg("--target-dir").arg(profile.parent().unwrap());
    assert!(cargo.status().unwrap().success(), "the example {name} does not build");
    profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}
