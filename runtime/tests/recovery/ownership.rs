//! Whose objects are whose: shared between checkpoints, borrowed without a claim, unreadable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use opendal::Operator;
use weir_runtime::{CheckpointStore, JobConfig, JobReport, RestoreFrom, Storage, VecSink};
use weir_state_api::{CheckpointId, ErrorKind, RestoreMode, Result, block_on};
use weir_tests::reference::ReferenceBackendFactory;

use crate::counting::{Trap, assert_exactly_once, config, count_job, numbers};

fn open_store() -> (Storage, Operator) {
    let operator = Operator::new(opendal::services::Memory::default()).unwrap();
    (Storage::custom(operator.clone()), operator)
}

fn incremental(parallelism: u16, storage: &Storage) -> JobConfig {
    let mut config = config(parallelism, storage);
    config.backend = Arc::new(ReferenceBackendFactory::default().incremental());
    config
}

/// All objects below a folder, with their content.
fn objects(operator: &Operator, folder: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = block_on(async { operator.list_with(folder).recursive(true).await }).unwrap();
    let paths = entries.iter().map(opendal::Entry::path).filter(|path| !path.ends_with('/'));
    paths.map(|path| (path.to_string(), block_on(operator.read(path)).unwrap().to_vec())).collect()
}

/// What the complete checkpoints in the store name, records included.
fn named(operator: &Operator) -> BTreeSet<String> {
    let store = CheckpointStore::new(operator.clone());
    let mut named = BTreeSet::new();
    for id in block_on(store.complete()).unwrap() {
        let checkpoint = block_on(store.read(id)).unwrap();
        named.insert(format!("{}metadata", CheckpointStore::directory(id)));
        named.extend(checkpoint.objects().map(|object| object.path.clone()));
    }
    named
}

/// Runs the job with its first 4,000 records, then stops it with an error.
fn stopped_job(storage: &Storage, operator: &Operator) -> CheckpointId {
    let mut settings = incremental(2, storage);
    settings.restart.max_restarts = 0;
    let graph = count_job(numbers(2, 3_000), Trap::at(&[4_000]), VecSink::default());
    let error = weir_runtime::run(&graph, settings).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    *block_on(CheckpointStore::new(operator.clone()).complete()).unwrap().last().unwrap()
}

fn go_on(storage: &Storage, configure: impl FnOnce(&mut JobConfig)) -> Result<JobReport> {
    let graph = count_job(numbers(2, 3_000), Trap::at(&[]), VecSink::default());
    let mut settings = incremental(3, storage);
    settings.restore = RestoreFrom::Latest;
    configure(&mut settings);
    weir_runtime::run(&graph, settings)
}

#[test]
fn checkpoints_share_objects_and_only_what_they_name_stays() {
    let (storage, operator) = open_store();
    let sink = VecSink::default();
    let trap = Trap::at(&[1_000, 4_000]);
    let graph = count_job(numbers(2, 6_000), trap, sink.clone());
    let report = weir_runtime::run(&graph, incremental(2, &storage)).unwrap();
    assert_exactly_once(sink.take(), 12_000);
    let last = report.checkpoints.last().unwrap();
    assert!(last.bytes > 0 && last.new_bytes <= last.bytes);

    let found: BTreeSet<_> = objects(&operator, "").into_keys().collect();
    let found: BTreeSet<_> =
        found.into_iter().filter(|path| !path.starts_with("epochs/")).collect();
    let named = named(&operator);
    assert_eq!(found, named);
    let records = 2;
    assert_eq!(report.objects.reachable_objects, named.len() as u64 - records);
    assert!(report.objects.deleted_objects > 0);
}

#[test]
fn a_checkpoint_restored_without_a_claim_stays_untouched_until_its_mark_is_removed() {
    let (storage, operator) = open_store();
    let borrowed = stopped_job(&storage, &operator);
    let store = CheckpointStore::new(operator.clone());
    let checkpoint = block_on(store.read(borrowed)).unwrap();
    let paths: BTreeSet<String> = checkpoint.objects().map(|o| o.path.clone()).collect();
    let content = |operator: &Operator| -> BTreeMap<String, Vec<u8>> {
        let all = objects(operator, "");
        all.into_iter().filter(|(path, _)| paths.contains(path)).collect()
    };
    let before = content(&operator);
    assert_eq!(before.len(), paths.len());

    let report = go_on(&storage, |config| config.restore_mode = RestoreMode::NoClaim).unwrap();
    assert_eq!(report.restored_from, Some(borrowed));
    assert!(report.checkpoints.len() > 2);
    assert_eq!(content(&operator), before);
    assert!(block_on(store.complete()).unwrap().contains(&borrowed));
    for id in report.checkpoints.iter().rev().take(2).map(|stats| stats.id) {
        let own = block_on(store.read(id)).unwrap();
        let shared = own.objects().filter(|object| paths.contains(&object.path)).count();
        assert_eq!(shared, 0, "checkpoint {id} builds on what it may not");
    }

    // A later run knows from the mark.
    go_on(&storage, |_| {}).unwrap();
    assert_eq!(content(&operator), before);
    let marks: Vec<_> = objects(&operator, "kept/").into_keys().collect();
    assert_eq!(block_on(store.kept()).unwrap(), BTreeSet::from([borrowed]));
    for mark in marks {
        block_on(operator.delete(&mark)).unwrap();
    }
    go_on(&storage, |_| {}).unwrap();
    assert!(content(&operator).is_empty(), "without the mark it is collected");
}

#[test]
fn an_unreadable_checkpoint_is_reported_and_keeps_what_it_may_share() {
    let (storage, operator) = open_store();
    let newest = stopped_job(&storage, &operator);
    let store = CheckpointStore::new(operator.clone());
    let older = block_on(store.complete()).unwrap()[0];
    assert!(older < newest);
    let checkpoint = block_on(store.read(older)).unwrap();
    let paths: Vec<String> = checkpoint.objects().map(|object| object.path.clone()).collect();
    let metadata = format!("{}metadata", CheckpointStore::directory(older));
    let whole = block_on(operator.read(&metadata)).unwrap();
    block_on(operator.write(&metadata, "garbage")).unwrap();

    let report = go_on(&storage, |_| {}).unwrap();
    assert_eq!(report.unreadable, [older]);
    let left = objects(&operator, "");
    assert!(paths.iter().all(|path| left.contains_key(path)), "it may name any of these");
    // Repaired, it restores.
    block_on(operator.write(&metadata, whole)).unwrap();
    let report = go_on(&storage, |config| config.restore = RestoreFrom::Checkpoint(older));
    assert_eq!(report.unwrap().restored_from, Some(older));
}
