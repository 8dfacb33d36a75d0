//! Many readers of one table at the same time, on real threads, in an order made from a seed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use weir_state_api::{TokioSpawner, block_on};
use weir_tests::faults::{StoreOp, When};

use super::test_tables::*;

const BLOCKS: usize = 60;
const READERS: u64 = 4;

/// Pseudo-random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// Runs readers that each ask for `requests` random sets of up to `at_once` blocks; which blocks were
/// asked for, and how many reads the store has seen.
fn run(seed: u64, requests: usize, at_once: usize, faults: bool) -> (BTreeSet<usize>, u64) {
    let runtime = runtime();
    let spawner = Arc::new(TokioSpawner::new(runtime.handle().clone()));
    let fixture = Fixture::on(&settings().build().unwrap(), spawner);
    let table = fixture.stored(BLOCKS);
    if faults {
        for nth in [2, 5, 6, 11] {
            fixture.faults.fail(StoreOp::Read, nth, When::After);
        }
        fixture.faults.refuse(StoreOp::Read, 3, opendal::ErrorKind::RateLimited);
        fixture.faults.shorten(8, 100);
    }
    // The first ones pile up, the others meet blocks that are there, on their way, or neither.
    let held = fixture.faults.hold(StoreOp::Read);
    let readers: Vec<_> = (0..READERS)
        .map(|reader| {
            let table = Arc::clone(&table);
            let mut random = Random(seed * READERS + reader);
            thread::spawn(move || {
                let mut asked = BTreeSet::new();
                let mut pending = Vec::new();
                for request in 0..requests {
                    let numbers: Vec<usize> =
                        (0..=random.below(at_once)).map(|_| random.below(BLOCKS)).collect();
                    asked.extend(&numbers);
                    pending.push((table.fetch_blocks(&numbers), numbers));
                    // Some requests go side by side, others are waited for.
                    if request > 10 && random.below(3) == 0 {
                        for (blocks, numbers) in pending.drain(..) {
                            let blocks = block_on(blocks).unwrap();
                            assert_eq!(blocks.len(), numbers.len());
                            for (block, number) in blocks.iter().zip(numbers) {
                                assert_block(block, number);
                            }
                        }
                    }
                }
                for (blocks, numbers) in pending {
                    for (block, number) in block_on(blocks).unwrap().iter().zip(numbers) {
                        assert_block(block, number);
                    }
                }
                asked
            })
        })
        .collect();
    while fixture.reads() == 0 {
        thread::yield_now();
    }
    drop(held);
    let asked = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
    assert_eq!(fixture.tables.caches().block_reads.len(), 0, "seed {seed}");
    (asked, fixture.reads())
}

#[test]
fn each_block_is_read_once_however_many_want_it() {
    for seed in 0..16 {
        let (asked, reads) = run(seed, 60, 1, false);
        assert_eq!(reads, asked.len() as u64, "seed {seed}");
    }
}

#[test]
fn everybody_gets_the_right_blocks_from_a_store_that_fails() {
    for seed in 0..16 {
        let (asked, _) = run(seed, 40, 6, true);
        assert!(!asked.is_empty());
    }
}

/// A future that is dropped was a prefetch: the read goes on, and others have joined it.
#[test]
fn who_goes_away_does_not_take_the_read_along() {
    let runtime = runtime();
    let spawner = Arc::new(TokioSpawner::new(runtime.handle().clone()));
    let fixture = Fixture::on(&settings().build().unwrap(), spawner);
    let table = fixture.stored(4);
    let held = fixture.faults.hold(StoreOp::Read);
    let first = table.fetch_blocks(&[1, 2]);
    let second = table.fetch_blocks(&[2]);
    drop(first);
    drop(held);
    assert_block(&block_on(second).unwrap()[0], 2);
    assert_block(&block_on(table.fetch_blocks(&[1])).unwrap()[0], 1);
    assert_eq!(fixture.reads(), 1);
}

/// A background copy to local disk that does not get on holds no reader up.
#[test]
fn a_miss_waits_for_its_own_range_only() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let resources = settings().disk_cache(folder.path(), 64 << 20);
    // So slow that it is stuck for hours behind its first stripe.
    let resources = resources.hydration_bytes_per_second(1).build().unwrap();
    let spawner = Arc::new(TokioSpawner::new(runtime.handle().clone()));
    let fixture = Fixture::on(&resources, spawner);
    // Written where no local disk takes part in it.
    let elsewhere = Fixture::new();
    let written = elsewhere.stored(16);
    let object = written.object().unwrap().clone();
    let content = block_on(elsewhere.plain.read(&object.path)).unwrap();
    block_on(fixture.plain.write(&object.path, content)).unwrap();
    let table = fixture.tables.open(object, *written.meta_place());
    for number in 0..16 {
        assert_block(&block_on(table.fetch_blocks(&[number])).unwrap()[0], number);
    }
    while resources.usage().hydrated_bytes == 0 {
        thread::yield_now();
    }
    assert!(!fixture.tables.caches().disk.as_ref().unwrap().contains(table.shared.id));
    runtime.shutdown_background();
}
