//! Checkpoints of this version stay readable for ever.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;
#[path = "support/world.rs"]
mod world;

use weir_state_api::*;
use world::*;

/// A line per stored thing: its path (or `handle`), and its bytes in hexadecimal digits. Its format is in
/// `docs/formats/changelog.md`; a change here is a new version.
const GOLDEN: &str = include_str!("golden/changelog-v1.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Vec<u8> {
    let digits: Vec<char> = digits.chars().collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// A key that is in the materialization, one that is in the log, and one in both.
#[test]
fn golden_bytes_restore() {
    let world = World::new();
    let mut handle = None;
    for line in GOLDEN.lines() {
        let (path, digits) = line.split_once(' ').unwrap();
        if path == "handle" {
            handle = Some(SnapshotHandle::from_bytes(&from_hex(digits), path).unwrap());
        } else {
            block_on(world.bare.write(path, from_hex(digits))).unwrap();
        }
    }
    let mut restored = world.open(&world.factory(u64::MAX), vec![handle.unwrap()]);
    let counted = ["old", "both", "new", "none"].map(|key| restored.counted(key));
    assert_eq!(counted, [1, 2, 3, 0]);
}

/// Writes the file anew, for another version.
#[test]
#[ignore = "only for a new version of the format"]
fn write_golden_bytes() {
    let world = World::new();
    let mut job = world.open(&world.factory(u64::MAX), vec![]);
    ["old", "both"].into_iter().for_each(|key| job.count(key));
    job.factory.control().materialize();
    job.store.notify(Notification::Complete(CheckpointId(0))).unwrap();
    ["both", "new", "new", "new"].into_iter().for_each(|key| job.count(key));
    let handle = job.checkpoint(&world);
    let mut golden = format!("handle {}\n", hex(&handle.to_bytes()));
    for object in &handle.objects {
        let bytes = block_on(world.bare.read(&object.path)).unwrap().to_vec();
        golden += &format!("{} {}\n", object.path, hex(&bytes));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/changelog-v1.txt");
    std::fs::write(path, golden).unwrap();
}
