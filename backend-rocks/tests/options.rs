//! What can be set, what is refused, and that the memory budget is kept.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use common::{World, at, descriptor, snapshot, try_snapshot};
use weir_backend_rocks::{Compaction, Preset, RocksMemory};
use weir_state_api::{ErrorKind, KeyedBackend, Lookup, StateKind};

#[track_caller]
fn refusal(name: &str, value: &str) -> String {
    let world = World::with_options(|options| options.with_rocksdb_option(name, value));
    let error = world.try_open(world.request()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
    assert!(error.to_string().contains(name), "{error}");
    error.to_string()
}

#[test]
fn unknown_and_reserved_options_are_refused_by_name() {
    refusal("no_such_option", "1");
    refusal("write_buffer_size", "many");
    refusal("compression", "kNoSuchCompression");
    refusal("block_based_table_factory", "{no_such=1;}");
    refusal("a=b;c", "1");
    let text = refusal("comparator", "leveldb.BytewiseComparator");
    assert!(text.contains("leave it out"), "{text}");
    refusal("merge_operator", "put");
}

/// Options of databases, of families and of tables, alone and together.
#[test]
fn rocksdb_options_are_taken_by_their_own_names() {
    let world = World::with_options(|options| {
        options
            .with_preset(Preset::SpinningDisk)
            .with_compaction(Compaction::Universal)
            .with_rocksdb_option("max_background_jobs", "3")
            .with_rocksdb_option("write_buffer_size", "131072")
            .with_rocksdb_option("compression", "kZSTD")
            .with_rocksdb_option("block_based_table_factory", "{block_size=16384;}")
            .with_rocksdb_option("compaction_options_universal", "{size_ratio=5;}")
    });
    let mut backend = world.open(world.request());
    let state = backend.register(&descriptor("v", StateKind::Value)).unwrap();
    backend.put(&at(state, b"k"), b"v").unwrap();
    let handle = snapshot(&mut *backend, 1);
    let mut restored = world.open(world.request().restore_from(vec![handle]));
    assert!(matches!(restored.get(&at(state, b"k")).unwrap(), Lookup::Found(b"v")));
}

/// Sixteen instances that share one budget and write and read twenty times as much stay within it,
/// give or take a write buffer, which is a twelfth of it here.
#[test]
fn many_instances_stay_within_one_budget() {
    let budget = 64 << 20;
    let memory = RocksMemory::new(budget, 0.5);
    let world = World::with_options(|options| options.with_memory(memory.clone()));
    let mut instances: Vec<Box<dyn KeyedBackend>> =
        (0..16).map(|_| world.open(world.request())).collect();
    let mut most = 0;
    for round in 0..20_u64 {
        for (number, backend) in instances.iter_mut().enumerate() {
            let state = backend.register(&descriptor("v", StateKind::Value)).unwrap();
            for key in 0..100_u64 {
                let bytes = [round, key, number as u64].map(u64::to_be_bytes).concat();
                backend.put(&at(state, &bytes), &bytes.repeat(400)).unwrap();
                let older = [round / 2, key, number as u64].map(u64::to_be_bytes).concat();
                assert!(matches!(backend.get(&at(state, &older)).unwrap(), Lookup::Found(_)));
            }
            most = most.max(memory.used_bytes());
        }
    }
    assert!(memory.write_bytes() > 0);
    assert!(most <= budget + budget / 12, "{most} bytes used of {budget}");
    drop(instances);
    assert!(memory.write_bytes() < 1 << 20, "{} bytes of closed instances", memory.write_bytes());
}

/// A local folder that is a file, or gone, is an error that names it; nothing panics.
#[test]
fn a_bad_local_folder_is_an_error_that_names_it() {
    let world = World::new();
    let file = world.directory.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    let world = world.reopened_with(|mut options| {
        options.directory = file.clone();
        options
    });
    let error = world.try_open(world.request()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("file"), "{error}");
}

/// When the folder of a running instance is removed under it, its snapshots fail with a typed error
/// and the earlier checkpoint restores.
#[test]
fn a_removed_local_folder_fails_the_snapshot_only() {
    let world = World::new();
    let mut backend = world.open(world.request());
    let state = backend.register(&descriptor("v", StateKind::Value)).unwrap();
    backend.put(&at(state, b"k"), b"v").unwrap();
    let handle = snapshot(&mut *backend, 1);
    backend.put(&at(state, b"k"), b"w").unwrap();
    let entries = std::fs::read_dir(world.directory.path()).unwrap();
    for folder in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        std::fs::remove_dir_all(folder).unwrap();
    }
    let error = try_snapshot(&mut *backend, 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    drop(backend);
    let mut restored = world.open(world.request().restore_from(vec![handle]));
    assert!(matches!(restored.get(&at(state, b"k")).unwrap(), Lookup::Found(b"v")));
}

/// Metrics reach whoever has installed a recorder: properties always, counters with statistics on.
#[test]
fn rocksdbs_own_figures_are_exported() {
    let world = World::with_options(|options| options.with_statistics(true));
    let recorder = Recorder::default();
    metrics::with_local_recorder(&recorder, || {
        let mut backend = world.open(world.request());
        let state = backend.register(&descriptor("v", StateKind::Value)).unwrap();
        for number in 0..1_000_u64 {
            backend.put(&at(state, &number.to_be_bytes()), &[1; 100]).unwrap();
        }
        snapshot(&mut *backend, 1);
        drop(backend.get(&at(state, &7_u64.to_be_bytes())).unwrap());
        backend
            .notify(weir_state_api::Notification::Complete(weir_state_api::CheckpointId(1)))
            .unwrap();
    });
    let seen = recorder.0.lock().unwrap();
    for name in [
        "weir_rocks_entries",
        "weir_rocks_pending_compaction_bytes",
        "weir_rocks_live_versions",
        "weir_rocks_memory_used_bytes",
        "weir_rocks_stall_microseconds_total",
        "weir_rocks_flushed_bytes_total",
        "weir_rocks_collected_write_bytes",
        "weir_rocks_row_cache_bytes",
        "weir_rocks_row_cache_hits_total",
        "weir_rocks_row_cache_misses_total",
    ] {
        assert!(seen.contains(name), "{name} is not among {seen:?}");
    }
}

/// Notes which metrics there are.
#[derive(Default)]
struct Recorder(std::sync::Mutex<std::collections::BTreeSet<String>>);

impl Recorder {
    fn note(&self, key: &metrics::Key) {
        self.0.lock().unwrap().insert(key.name().to_string());
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }

    fn describe_gauge(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }

    fn describe_histogram(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }

    fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        self.note(key);
        metrics::Counter::noop()
    }

    fn register_gauge(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        self.note(key);
        metrics::Gauge::noop()
    }

    fn register_histogram(
        &self,
        key: &metrics::Key,
        _: &metrics::Metadata<'_>,
    ) -> metrics::Histogram {
        self.note(key);
        metrics::Histogram::noop()
    }
}
