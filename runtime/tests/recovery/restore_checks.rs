//! A restore is checked up front: it starts from matching, whole checkpoints or is refused.

use weir_runtime::{
    CheckpointStore, JobConfig, JobGraph, JobReport, RestoreFrom, Storage, VecSink, VecSource,
};
use weir_state_api::{CheckpointId, Error, ErrorKind, MaxParallelism, OperatorState, block_on};

use crate::counting::{Trap, config, count_job, numbers};

/// A finished job with complete checkpoints.
fn finished() -> Storage {
    let storage = Storage::in_memory();
    weir_runtime::run(&job(2), config(2, &storage)).unwrap();
    storage
}

fn job(splits: u32) -> JobGraph {
    count_job(numbers(splits, 500), Trap::at(&[]), VecSink::default())
}

fn restore(
    storage: &Storage,
    graph: &JobGraph,
    change: impl Fn(&mut JobConfig),
) -> Result<JobReport, Error> {
    let mut config = config(2, storage);
    config.restore = RestoreFrom::Latest;
    change(&mut config);
    weir_runtime::run(graph, config)
}

#[test]
fn what_does_not_match_is_refused_by_name_and_the_checkpoint_stays_usable() {
    let storage = finished();

    let fresh = |config: &mut JobConfig| config.restore = RestoreFrom::Fresh;
    let error = restore(&storage, &job(2), fresh).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");

    let error = restore(&storage, &job(3), |_| {}).unwrap_err();
    assert!(error.to_string().contains("has 3 splits"), "{error}");

    let max = |config: &mut JobConfig| config.max_parallelism = MaxParallelism::new(64).unwrap();
    let error = restore(&storage, &job(2), max).unwrap_err();
    assert!(error.to_string().contains("max parallelism 128"), "{error}");

    let wide = |config: &mut JobConfig| config.parallelism = 200;
    let error = restore(&storage, &job(2), wide).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");

    let other = JobGraph::new("other");
    other.source("numbers", numbers(2, 500)).unwrap().sink("counts", VecSink::default()).unwrap();
    let error = restore(&storage, &other, |_| {}).unwrap_err();
    assert!(error.to_string().contains("belongs to job \"count\""), "{error}");

    let renamed = JobGraph::new("count");
    renamed.source("numbers", numbers(2, 500)).unwrap().sink("counts", VecSink::default()).unwrap();
    let error = restore(&storage, &renamed, |_| {}).unwrap_err();
    assert!(error.to_string().contains("operator \"count\""), "{error}");

    let report = restore(&storage, &job(2), |_| {}).unwrap();
    assert!(report.restored_from.is_some());
}

#[test]
fn damaged_or_missing_checkpoint_objects_are_named_and_older_checkpoints_still_restore() {
    type Damage = fn(Vec<u8>) -> Option<Vec<u8>>;
    let damages: [(&str, Damage, ErrorKind); 3] = [
        ("missing", |_| None, ErrorKind::NotFound),
        ("truncated", |bytes| Some(bytes[..bytes.len() / 2].to_vec()), ErrorKind::Corrupt),
        ("flipped", flip_middle, ErrorKind::Corrupt),
    ];
    for (name, damage, kind) in damages {
        for metadata in [true, false] {
            // Where the last checkpoint before the end came after all records, the end has nothing to write.
            let (storage, operator, newest, path) = (0..100)
                .find_map(|_| {
                    let (storage, operator) = open_store();
                    weir_runtime::run(&job(2), config(2, &storage)).unwrap();
                    let paths = paths(&operator);
                    let newest = newest_checkpoint(&paths);
                    let own = newest.replacen("chk-", "shared/", 1);
                    let is_it = |path: &String| match metadata {
                        true => path.starts_with(&newest) && path.ends_with("metadata"),
                        false => path.starts_with(&own) && !path.ends_with('/'),
                    };
                    let path = paths.into_iter().find(is_it)?;
                    Some((storage, operator, newest, path))
                })
                .expect("some job changes state before its end");
            let path = &path;
            let bytes = block_on(operator.read(path)).unwrap().to_vec();
            match damage(bytes) {
                Some(bytes) => drop(block_on(operator.write(path, bytes)).unwrap()),
                None => block_on(operator.delete(path)).unwrap(),
            }
            let restored = restore(&storage, &job(2), |_| {});
            if metadata && name == "missing" {
                // Without metadata a checkpoint was never complete: the one before is the latest.
                restored.unwrap();
                continue;
            }
            let error = restored.unwrap_err();
            assert_eq!(error.kind(), kind, "{name} {path}: {error}");
            assert_eq!(error.object_path(), Some(path.as_str()), "{error}");

            let before = CheckpointId(CheckpointStore::parse_directory(&newest).unwrap().0 - 1);
            let older = |config: &mut JobConfig| config.restore = RestoreFrom::Checkpoint(before);
            let report = restore(&storage, &job(2), older).unwrap();
            assert_eq!(report.restored_from, Some(before));
        }
    }
}

fn flip_middle(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    Some(bytes)
}

fn open_store() -> (Storage, opendal::Operator) {
    let operator = opendal::Operator::new(opendal::services::Memory::default()).unwrap();
    (Storage::custom(operator.clone()), operator)
}

fn paths(operator: &opendal::Operator) -> Vec<String> {
    let entries = block_on(async { operator.list_with("").recursive(true).await }).unwrap();
    entries.into_iter().map(|entry| entry.path().to_string()).collect()
}

fn newest_checkpoint(paths: &[String]) -> String {
    let metadata = paths.iter().filter(|path| path.ends_with("/metadata")).max().unwrap();
    metadata.trim_end_matches("metadata").to_string()
}

#[test]
fn a_failure_after_restoring_an_older_checkpoint_does_not_jump_to_a_newer_one() {
    let (storage, operator) = open_store();
    let stop = count_job(numbers(2, 3_000), Trap::at(&[4_000]), VecSink::default());
    let mut settings = config(2, &storage);
    settings.restart.max_restarts = 0;
    weir_runtime::run(&stop, settings).unwrap_err();
    let store = CheckpointStore::new(operator);
    let complete = block_on(store.complete()).unwrap();
    let [older, newer] = complete[..] else { panic!("two are kept: {complete:?}") };
    let offset = |id| -> u64 {
        let states = block_on(store.read(id)).unwrap().states("numbers");
        let offsets = |state: OperatorState| state.get::<(u32, u64)>("offsets").unwrap();
        states.into_iter().flat_map(offsets).map(|(_, offset)| offset).sum()
    };
    let covered = offset(older);
    assert!(covered < offset(newer), "the newer one covers more input");

    // Fails at its first record and recovers: what `older` lacks is emitted, not what `newer` lacks.
    let sink = VecSink::default();
    let graph = count_job(numbers(2, 3_000), Trap::at(&[0]), sink.clone());
    let report = restore(&storage, &graph, |config| {
        config.restore = RestoreFrom::Checkpoint(older);
    })
    .unwrap();
    assert_eq!((report.restored_from, report.restarts), (Some(older), 1));
    assert_eq!(sink.take().len() as u64, 6_000 - covered);
}

#[test]
fn a_newest_checkpoint_damaged_while_the_job_runs_stops_its_recovery() {
    let (storage, operator) = open_store();
    let spoiler = operator.clone();
    let graph = count_job(
        numbers(2, 3_000),
        Trap::calling(2_000, move || {
            let newest = newest_checkpoint(&paths(&spoiler));
            block_on(spoiler.write(&format!("{newest}metadata"), "garbage")).unwrap();
        }),
        VecSink::default(),
    );
    let error = weir_runtime::run(&graph, config(2, &storage)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let path = error.object_path().unwrap();
    assert!(path.ends_with("metadata"), "{error}");
}

#[test]
fn operator_names_are_checked() {
    let graph = JobGraph::new("names");
    let stream = graph.source("a", VecSource::new([(0, 1_u64)])).unwrap();
    for bad in ["", "a", "with space", "slash/"] {
        let error = stream.sink(bad, VecSink::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{bad:?}: {error}");
    }
}
