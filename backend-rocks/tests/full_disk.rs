//! A local disk that is full: typed errors, and the last checkpoint stays as good as it was.
//!
//! The test makes a small file system and runs itself again on it. Where that is not permitted (it
//! takes Linux and a name space of its own), it says so and is left out.
#![cfg(all(feature = "rocksdb", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{World, at, descriptor, snapshot, try_snapshot};
use weir_backend_rocks::{RocksBackendFactory, RocksMemory, RocksOptions};
use weir_state_api::{Error, ErrorKind, KeyedBackend, Lookup, StateId, StateKind};

const SMALL_DISK: &str = "WEIR_TEST_SMALL_DISK";

#[test]
fn a_full_disk_is_an_error_and_the_last_checkpoint_restores() {
    if let Some(disk) = std::env::var_os(SMALL_DISK) {
        return on_a_small_disk(Path::new(&disk));
    }
    let disk = tempfile::tempdir().unwrap();
    let own_name = std::thread::current().name().unwrap().to_string();
    let script = r#"mount -t tmpfs -o size=12m small "$1" || exit 77; shift; exec "$@""#;
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(disk.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &own_name])
        .env(SMALL_DISK, disk.path())
        .status();
    match status.map(|status| status.code()) {
        Ok(Some(0)) => {}
        Ok(Some(1 | 77)) | Err(_) => eprintln!("left out: no small file system can be made here"),
        Ok(code) => panic!("the test on the small disk ended with {code:?}"),
    }
}

/// Bytes that no compression shrinks.
fn noise(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(byte).take(1_000).collect()
}

fn put(backend: &mut dyn KeyedBackend, state: StateId, number: u64) -> weir_state_api::Result<()> {
    backend.put(&at(state, &number.to_be_bytes()), &noise(number))
}

fn expect_full(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("local"), "{error}");
}

fn on_a_small_disk(disk: &Path) {
    let world = World::with_options(|options| options.with_memory(RocksMemory::new(0, 0.5)));
    let on_the_disk = RocksOptions::new(disk).with_memory(RocksMemory::new(0, 0.5));
    let factory = RocksBackendFactory::new(on_the_disk);
    let small = World { factory, ..world };
    let mut backend = small.open(small.request());
    let state = backend.register(&descriptor("v", StateKind::Value)).unwrap();
    for number in 0..1_000 {
        put(&mut *backend, state, number).unwrap();
    }
    let handle = snapshot(&mut *backend, 1);

    // Far more than the disk holds; nobody knows beforehand which write is the first to hear of it.
    let refused = (1_000..100_000)
        .find_map(|number| put(&mut *backend, state, number).err().map(|error| (number, error)));
    let (number, error) = refused.unwrap();
    expect_full(&error);
    expect_full(&try_snapshot(&mut *backend, 2).unwrap_err());
    // The next one is no better off, and takes no memory.
    expect_full(&put(&mut *backend, state, number).unwrap_err());
    // What was accepted can still be read, also what RocksDB has not got; what was refused is not there.
    for accepted in 0..number {
        let found = backend.get(&at(state, &accepted.to_be_bytes())).unwrap();
        assert!(matches!(found, Lookup::Found(value) if value == noise(accepted)), "{accepted}");
    }
    let found = backend.get(&at(state, &number.to_be_bytes())).unwrap();
    assert!(matches!(found, Lookup::Absent));
    drop(backend);

    // A restore to a disk without room says so, and leaves no folder; with room, all is there.
    let filler = disk.join("filler");
    let room = |left: usize| std::fs::write(&filler, vec![0; (12 << 20) - left]).unwrap();
    room(600 << 10);
    expect_full(&small.try_open(small.request().restore_from(vec![handle.clone()])).unwrap_err());
    std::fs::remove_file(&filler).unwrap();
    let left = std::fs::read_dir(disk).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name != "lock").collect::<Vec<_>>(), [] as [&str; 0]);
    let mut restored = small.open(small.request().restore_from(vec![handle]));
    for number in 0..1_000_u64 {
        let found = restored.get(&at(state, &number.to_be_bytes())).unwrap();
        assert!(matches!(found, Lookup::Found(value) if value == noise(number)), "{number}");
    }
    let more = restored.get(&at(state, &1_000_u64.to_be_bytes())).unwrap();
    assert!(matches!(more, Lookup::Absent));
}
