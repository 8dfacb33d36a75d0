use super::*;
use opendal::services::Memory;
use std::time::Duration;
use weir_state_api::block_on;
use weir_tests::faults::{Faults, StoreOp, When};

/// A store in memory, broken on demand; retries come at once.
fn store() -> (ObjectStore, Operator, Faults) {
    let faults = Faults::new();
    let plain = Operator::new(Memory::default()).unwrap();
    let operator = plain.clone().layer(faults.layer());
    let limits = RequestLimits {
        attempts: 4,
        first_pause: Duration::ZERO,
        longest_pause: Duration::ZERO,
        ..RequestLimits::default()
    };
    (ObjectStore::new(operator, limits, Arc::new(Semaphore::new(4)), Arc::default()), plain, faults)
}

fn put(store: &ObjectStore, parts: &[&'static [u8]]) -> Result<ObjectRef> {
    let parts: Vec<Bytes> = parts.iter().map(|part| Bytes::from_static(part)).collect();
    block_on(store.put_new(&ObjectNames::below("d/"), ObjectKind::Table, &parts))
}

fn paths(operator: &Operator) -> Vec<String> {
    let entries = block_on(operator.list("d/")).unwrap();
    entries.into_iter().map(|entry| entry.path().to_string()).filter(|path| path != "d/").collect()
}

#[test]
fn an_object_is_written_and_read_in_ranges() {
    let (store, plain, _) = store();
    let object = put(&store, &[b"abc", b"", b"defgh"]).unwrap();
    assert_eq!((object.length, object.crc32), (8, crc32fast::hash(b"abcdefgh")));
    assert_eq!(block_on(store.read_range(&object.path, 2..5)).unwrap(), "cde");
    assert_eq!(block_on(store.read_range(&object.path, 5..5)).unwrap(), "");
    assert_eq!(block_on(store.read_object(&object)).unwrap(), "abcdefgh");
    let traffic = store.traffic();
    assert_eq!((traffic.puts.get(), traffic.put_bytes.get()), (1, 8));
    assert_eq!((traffic.reads.get(), traffic.read_bytes.get()), (2, 11));
    block_on(store.delete(&object.path)).unwrap();
    block_on(store.delete(&object.path)).unwrap();
    assert!(paths(&plain).is_empty());
}

/// Whatever step of a write fails, before or after it took effect: one object, whole.
#[test]
fn a_write_that_fails_once_is_one_whole_object() {
    for op in [StoreOp::Write, StoreOp::Close] {
        for when in [When::Before, When::After] {
            let (store, plain, faults) = store();
            faults.fail(op, 1, when);
            let object = put(&store, &[b"abc"]).unwrap();
            assert_eq!(block_on(store.read_object(&object)).unwrap(), "abc");
            assert_eq!(paths(&plain), [object.path], "{op:?} {when:?}");
        }
    }
}

#[test]
fn a_lost_acknowledgement_is_not_written_again() {
    let (store, _, faults) = store();
    faults.fail(StoreOp::Close, 1, When::After);
    put(&store, &[b"abc"]).unwrap();
    assert_eq!(faults.count(StoreOp::Write), 1);
    assert_eq!(store.traffic().retries.get(), 0);
}

/// The first write and its look-up fail, but the write arrives: the second attempt finds it there.
#[test]
fn a_write_that_arrives_late_counts() {
    let (store, plain, faults) = store();
    faults.fail(StoreOp::Close, 1, When::After);
    for nth in 1..=4 {
        faults.fail(StoreOp::Stat, nth, When::Before);
    }
    let object = put(&store, &[b"abc"]).unwrap();
    assert_eq!(store.traffic().retries.get(), 1);
    assert_eq!(paths(&plain), [object.path]);
}

#[test]
fn a_store_that_stays_broken_gives_up_with_what_is_known() {
    let (store, plain, faults) = store();
    faults.fail_always(StoreOp::Close, When::Before);
    let error = put(&store, &[b"abc"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(faults.count(StoreOp::Close), 4);
    assert!(paths(&plain).is_empty());

    faults.fail_always(StoreOp::Stat, When::Before);
    let error = put(&store, &[b"abc"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert!(error.object_path().is_some_and(|path| path.starts_with("d/forst-")), "{error}");
}

#[test]
fn reads_are_retried_and_errors_name_the_object() {
    let (store, plain, faults) = store();
    let object = put(&store, &[b"abcdef"]).unwrap();
    faults.fail(StoreOp::Read, 1, When::Before);
    faults.fail(StoreOp::Read, 2, When::After);
    assert_eq!(block_on(store.read_range(&object.path, 1..3)).unwrap(), "bc");
    assert_eq!(store.traffic().retries.get(), 2);

    faults.fail_always(StoreOp::Read, When::Before);
    let error = block_on(store.read_range(&object.path, 1..3)).unwrap_err();
    let expected = (ErrorKind::Unavailable, Some(object.path.as_str()));
    assert_eq!((error.kind(), error.object_path()), expected);
    faults.heal();

    // Truncated, changed, missing: reported by name, and not asked for again and again.
    for (content, kind) in [
        (Some("abc"), ErrorKind::Corrupt),
        (Some("abcdeX"), ErrorKind::Corrupt),
        (None, ErrorKind::NotFound),
    ] {
        match content {
            Some(content) => drop(block_on(plain.write(&object.path, content)).unwrap()),
            None => block_on(plain.delete(&object.path)).unwrap(),
        }
        let before = faults.count(StoreOp::Read);
        let error = block_on(store.read_object(&object)).unwrap_err();
        assert_eq!((error.kind(), error.object_path()), (kind, Some(object.path.as_str())));
        assert!(faults.count(StoreOp::Read) <= before + 4);
    }
}

#[test]
fn a_copy_is_verified_also_where_the_store_cannot_copy() {
    let (store, plain, faults) = store();
    let original = put(&store, &[b"abcdef"]).unwrap();
    let names = ObjectNames::below("e/");
    faults.fail(StoreOp::Close, 1, When::After);
    let copy = block_on(store.copy(&original, &names, ObjectKind::Table)).unwrap();
    assert!(copy.path.starts_with("e/") && copy.path != original.path);
    assert_eq!(block_on(store.read_object(&copy)).unwrap(), "abcdef");

    block_on(plain.write(&original.path, "abcdeX")).unwrap();
    let error = block_on(store.copy(&original, &names, ObjectKind::Table)).unwrap_err();
    assert_eq!(
        (error.kind(), error.object_path()),
        (ErrorKind::Corrupt, Some(original.path.as_str()))
    );
}

/// The service for files copies by itself and refuses to overwrite.
#[test]
fn files_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let fs = opendal::services::Fs::default().root(folder.path().to_str().unwrap());
    let operator = Operator::new(fs).unwrap();
    assert!(operator.info().capability().copy);
    let slots = Arc::new(Semaphore::new(4));
    let store = ObjectStore::new(operator, RequestLimits::default(), slots, Arc::default());
    runtime.block_on(async {
        let names = ObjectNames::below("d/");
        let bytes = Bytes::from_static(b"abcdef");
        let object = store.put_new(&names, ObjectKind::Table, &[bytes]).await.unwrap();
        let copy = store.copy(&object, &names, ObjectKind::Table).await.unwrap();
        assert_eq!(store.read_object(&copy).await.unwrap(), "abcdef");
        assert_eq!(store.read_range(&copy.path, 4..6).await.unwrap(), "ef");
        let error = store.read_range(&copy.path, 4..9).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        store.delete(&object.path).await.unwrap();
        store.delete(&object.path).await.unwrap();
        let missing = store.copy(&object, &names, ObjectKind::Table).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}
