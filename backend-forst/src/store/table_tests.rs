use super::test_tables::*;
use super::*;
use weir_state_api::{BoxFuture, ErrorKind, InlineSpawner, Spawner, block_on};
use weir_tests::faults::{StoreOp, When};

#[test]
fn a_new_table_is_read_with_as_few_requests_as_possible() {
    let fixture = Fixture::new();
    let written = fixture.stored(40);
    assert!(written.meta_now().is_some(), "who wrote it knows its end");
    let object = written.object().unwrap();
    assert!(object.path.starts_with("d/forst-") && object.length == written.length());

    // As after a restore: the end, then the blocks that are wanted.
    let tables = fixture.reopened(&settings().build().unwrap());
    let table = again(&written, &tables);
    assert!(table.meta_now().is_none() && table.block_now(0).unwrap().is_none());
    let meta = block_on(table.load_meta()).unwrap();
    assert_eq!((meta.block_count(), fixture.reads()), (40, 1));
    assert_eq!(meta.block_of(&key(7)), Some(7));
    let blocks = block_on(table.fetch_blocks(&[9, 7, 8, 7])).unwrap();
    for (block, number) in blocks.iter().zip([9, 7, 8, 7]) {
        assert_block(block, number);
    }
    assert_eq!(fixture.reads(), 2, "neighbours in one request");
    for block in [7, 8, 9] {
        assert_block(&table.block_now(block).unwrap().unwrap(), block);
    }
    block_on(table.fetch_blocks(&[8, 9])).unwrap();
    assert_eq!(fixture.reads(), 2, "from the cache");
    // Too far apart to be worth what is between.
    block_on(table.fetch_blocks(&[0, 39])).unwrap();
    assert_eq!(fixture.reads(), 4);
    assert_eq!(table.block_now(40).unwrap_err().kind(), ErrorKind::InvalidUsage);
}

#[test]
fn the_end_is_fetched_on_the_way_when_it_is_missing() {
    let fixture = Fixture::new();
    let written = fixture.stored(4);
    let tables = fixture.reopened(&settings().build().unwrap());
    let table = again(&written, &tables);
    assert_block(&block_on(table.fetch_blocks(&[3])).unwrap()[0], 3);
    assert_eq!(fixture.reads(), 2);
}

#[test]
fn instances_share_what_they_have_read() {
    let resources = settings().build().unwrap();
    let fixture = Fixture::with(&resources);
    let written = fixture.stored(4);
    block_on(written.fetch_blocks(&[2])).unwrap();
    let before = fixture.reads();
    let other = again(&written, &fixture.reopened(&resources));
    assert!(std::sync::Arc::ptr_eq(other.meta_now().unwrap(), written.meta_now().unwrap()));
    assert_block(&other.block_now(2).unwrap().unwrap(), 2);
    assert_eq!(fixture.reads(), before);
    let pinned = resources.usage().pinned_bytes;
    assert!(pinned > 0);
    drop(written);
    assert_eq!(resources.usage().pinned_bytes, pinned, "the other has it open");
    drop(other);
    assert_eq!(resources.usage().pinned_bytes, 0);
}

#[test]
fn a_store_that_fails_refuses_and_cuts_short_gives_the_right_bytes() {
    let fixture = Fixture::new();
    let written = fixture.stored(4);
    let table = again(&written, &fixture.reopened(&settings().build().unwrap()));
    fixture.faults.fail(StoreOp::Read, 1, When::After);
    fixture.faults.refuse(StoreOp::Read, 2, opendal::ErrorKind::RateLimited);
    fixture.faults.shorten(3, 10);
    block_on(table.load_meta()).unwrap();
    fixture.faults.shorten(1, 0);
    fixture.faults.fail(StoreOp::Read, 2, When::Before);
    let blocks = block_on(table.fetch_blocks(&[1, 2])).unwrap();
    assert_block(&blocks[1], 2);
    assert_eq!(fixture.reads(), 7);
    assert_eq!(table.tables.store().traffic().retries.get(), 5);
}

#[test]
fn a_read_that_fails_for_good_says_so_and_can_be_tried_again() {
    let fixture = Fixture::new();
    let table = fixture.stored(4);
    fixture.faults.fail_always(StoreOp::Read, When::Before);
    let error = block_on(table.fetch_blocks(&[1, 2])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(error.object_path(), Some(&*table.object().unwrap().path));
    fixture.faults.heal();
    assert_block(&block_on(table.fetch_blocks(&[1])).unwrap()[0], 1);
    assert_eq!(fixture.tables.caches().block_reads.len(), 0);
}

#[test]
fn damage_in_the_store_is_found_and_named() {
    let fixture = Fixture::new();
    let written = fixture.stored(4);
    let path = written.object().unwrap().path.clone();
    let mut bytes = block_on(fixture.plain.read(&path)).unwrap().to_vec();
    bytes[VALUE_LEN + 500] ^= 1;
    block_on(fixture.plain.write(&path, bytes.clone())).unwrap();
    assert_block(&block_on(written.fetch_blocks(&[0])).unwrap()[0], 0);
    let error = block_on(written.fetch_blocks(&[1, 2])).unwrap_err();
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::Corrupt, Some(&*path)));
    assert_block(&written.block_now(2).unwrap().unwrap(), 2);

    let tables = fixture.reopened(&settings().build().unwrap());
    let last = bytes.len() - 20;
    bytes[last] ^= 1;
    block_on(fixture.plain.write(&path, bytes.clone())).unwrap();
    let error = block_on(again(&written, &tables).load_meta()).unwrap_err();
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::Corrupt, Some(&*path)));

    bytes.truncate(100);
    block_on(fixture.plain.write(&path, bytes)).unwrap();
    let error = block_on(again(&written, &tables).load_meta()).unwrap_err();
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::Corrupt, Some(&*path)));

    block_on(fixture.plain.delete(&path)).unwrap();
    let error = block_on(again(&written, &tables).load_meta()).unwrap_err();
    assert_eq!((error.kind(), error.object_path()), (ErrorKind::NotFound, Some(&*path)));
}

/// A spawner that shuts down: it drops what it is given.
#[derive(Debug)]
struct Dropping;

impl Spawner for Dropping {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        drop(future);
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        drop(work);
    }
}

#[test]
fn reads_that_a_spawner_drops_fail_and_hold_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let resources = settings().disk_cache(folder.path(), 64 << 20).build().unwrap();
    let fixture = Fixture::with(&resources);
    let written = fixture.stored(2);
    written.drop_local();
    let dropping = Fixture::on(&resources, std::sync::Arc::new(Dropping));
    let table = again(&written, &dropping.tables);
    for _ in 0..3 {
        let error = block_on(table.fetch_blocks(&[1])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
    assert_block(&block_on(written.fetch_blocks(&[1])).unwrap()[0], 1);
    // The dropped attempts to bring it to local disk do not stand in the way of this one.
    assert_eq!(resources.usage().disk_cache_bytes, written.length());
}

#[test]
fn a_table_in_memory_needs_no_store() {
    let fixture = Fixture::new();
    let sink = fixture.tables.sink(Destination::Memory, 1, None);
    let NewTable { table, properties } = block_on(write(sink, 5)).unwrap();
    assert_eq!(properties.states.len(), 1);
    assert!(table.object().is_none());
    assert_block(&table.block_now(4).unwrap().unwrap(), 4);
    assert_block(&block_on(table.fetch_blocks(&[0, 4])).unwrap()[1], 4);
    assert_eq!((fixture.reads(), fixture.faults.count(StoreOp::Close)), (0, 0));

    // It moves to the store: the same table, its meta in memory.
    let object = block_on(table.copy_to(&ObjectNames::below("s/").shared())).unwrap();
    assert!(object.shared && object.path.starts_with("s/"));
    let moved = table.moved_to(object);
    assert!(moved.meta_now().is_some());
    assert_block(&block_on(moved.fetch_blocks(&[3])).unwrap()[0], 3);
    let copy = block_on(moved.copy_to(&ObjectNames::below("t/"))).unwrap();
    assert!(!copy.shared && copy.path.starts_with("t/"));

    block_on(moved.delete()).unwrap();
    assert_eq!(block_on(moved.fetch_blocks(&[0])).unwrap_err().kind(), ErrorKind::NotFound);
    let bytes = table.resident_bytes().unwrap();
    let short = bytes.slice(..bytes.len() - 1);
    let error = fixture.tables.open_resident(short, *table.meta_place()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn compaction_reads_everything_in_order_and_leaves_the_caches_alone() {
    for disk in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings();
        if disk {
            settings = settings.disk_cache(folder.path(), 64 << 20);
        }
        let resources = settings.build().unwrap();
        let fixture = Fixture::with(&resources);
        let table = fixture.stored(1_200);
        let meta = block_on(table.load_meta()).unwrap();
        let mut stream = table.read_for_compaction(meta, 100..usize::MAX);
        for number in 100..1_200 {
            let block = block_on(std::future::poll_fn(|context| stream.poll_next(context)));
            assert_block(&block.unwrap().unwrap(), number);
        }
        let end = block_on(std::future::poll_fn(|context| stream.poll_next(context)));
        assert!(end.unwrap().is_none());
        assert_eq!(fixture.reads(), if disk { 0 } else { 3 });
        assert_eq!(resources.usage().block_cache_bytes, 0);
        assert_eq!(table.density(), Density(0.0));
    }
}

#[test]
fn a_compaction_read_that_fails_is_over() {
    let fixture = Fixture::new();
    let table = fixture.stored(1_200);
    let meta = block_on(table.load_meta()).unwrap();
    fixture.faults.fail_always(StoreOp::Read, When::Before);
    let mut stream = table.read_for_compaction(meta, 0..1_200);
    let error = block_on(std::future::poll_fn(|context| stream.poll_next(context))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let end = block_on(std::future::poll_fn(|context| stream.poll_next(context)));
    assert!(end.unwrap().is_none());
}

#[test]
fn local_disk_answers_what_was_written_through_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings().disk_cache(folder.path(), 64 << 20);
    let resources = settings.clone().build().unwrap();
    let fixture = Fixture::with(&resources);
    let written = fixture.stored(50);
    assert_block(&written.block_now(20).unwrap().unwrap(), 20);
    assert_eq!(resources.usage().disk_cache_bytes, written.length());
    let (object, meta) = (written.object().unwrap().clone(), *written.meta_place());
    drop(written);
    let Fixture { faults, plain, tables } = fixture;
    drop((tables, resources));

    let resources = settings.build().unwrap();
    let fixture = Fixture { faults, plain, tables: Fixture::with(&resources).tables };
    let table = fixture.reopened(&resources).open(object.clone(), meta);
    block_on(table.load_meta()).unwrap();
    for number in 0..50 {
        assert_block(&table.block_now(number).unwrap().unwrap(), number);
    }
    assert_eq!((fixture.reads(), resources.usage().disk_cache_hits), (0, 51));

    block_on(table.delete()).unwrap();
    assert_eq!(resources.usage().disk_cache_bytes, 0);
}

#[test]
fn damage_on_local_disk_is_mended_from_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let resources = settings().disk_cache(folder.path(), 64 << 20).build().unwrap();
    let fixture = Fixture::with(&resources);
    let table = fixture.stored(8);
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap()).collect();
    let file = files.iter().find(|file| file.file_name() != "lock").unwrap().path();
    // As after a power cut: the right length, other bytes.
    std::fs::write(&file, vec![0; table.length() as usize]).unwrap();
    assert!(table.block_now(3).unwrap().is_none());
    assert_eq!(resources.usage().disk_cache_damaged, 1);
    assert_eq!(resources.usage().disk_cache_failures, 0);
    assert!(!file.exists());
    assert_block(&block_on(table.fetch_blocks(&[3])).unwrap()[0], 3);
}

#[test]
fn what_is_read_much_comes_to_local_disk() {
    let folder = tempfile::tempdir().unwrap();
    let resources = settings().disk_cache(folder.path(), 64 << 20).build().unwrap();
    let elsewhere = Fixture::new();
    let written = elsewhere.stored(40);
    let table = again(&written, &elsewhere.reopened(&resources));
    for number in 0..9 {
        block_on(table.fetch_blocks(&[number])).unwrap();
    }
    assert_eq!(resources.usage().disk_cache_bytes, 0, "not yet a quarter");
    block_on(table.fetch_blocks(&[9])).unwrap();
    assert_eq!(resources.usage().hydrated_bytes, table.length());
    let before = elsewhere.reads();
    assert_block(&table.block_now(33).unwrap().unwrap(), 33);
    assert_eq!(elsewhere.reads(), before);
}

#[test]
fn a_table_that_changed_in_the_store_does_not_come_to_local_disk() {
    let folder = tempfile::tempdir().unwrap();
    let resources = settings().disk_cache(folder.path(), 64 << 20).build().unwrap();
    let elsewhere = Fixture::new();
    let written = elsewhere.stored(8);
    let path = written.object().unwrap().path.clone();
    let mut bytes = block_on(elsewhere.plain.read(&path)).unwrap().to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    block_on(elsewhere.plain.write(&path, bytes)).unwrap();
    let table = again(&written, &elsewhere.reopened(&resources));
    block_on(table.fetch_blocks(&[0])).unwrap();
    block_on(table.fetch_blocks(&[1])).unwrap();
    let usage = resources.usage();
    assert_eq!((usage.hydrated_bytes, usage.disk_cache_bytes), (table.length(), 0));
}

#[test]
fn a_table_whose_upload_fails_leaves_nothing_on_local_disk() {
    let folder = tempfile::tempdir().unwrap();
    let resources = settings().disk_cache(folder.path(), 64 << 20).build().unwrap();
    let fixture = Fixture::on(&resources, std::sync::Arc::new(InlineSpawner));
    fixture.faults.fail_always(StoreOp::Close, When::Before);
    let sink = fixture.tables.sink(Destination::Store(ObjectNames::below("d/")), 1, None);
    let error = block_on(write(sink, 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(resources.usage().disk_cache_bytes, 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the lock");
    fixture.faults.heal();
    fixture.stored(20);
}
