//! A backend whose reads pend: records are parked, the worker goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use weir_backend_heap::HeapBackendFactory;
use weir_state_api::ErrorKind;
use weir_tests::latency::{Latency, LatencyFactory};

use crate::counting::{KEYS, World};

fn slow(latency: &Latency) -> Arc<LatencyFactory> {
    Arc::new(LatencyFactory::new(HeapBackendFactory::default(), latency.clone()))
}

#[test]
fn reads_of_many_records_are_in_flight_together_and_the_output_is_the_same() {
    let latency = Latency::seeded(1);
    let mut world = World::new(3_000);
    world.backend = slow(&latency);
    let (done, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    // The store answers when many have asked; a worker that waited for each answer would hang here,
    // but for the tail.
    let store = std::thread::spawn({
        let (done, most, latency) = (done.clone(), most.clone(), latency.clone());
        move || {
            let mut quiet = 0;
            while !done.load(SeqCst) {
                let pending = latency.pending();
                most.fetch_max(pending, SeqCst);
                quiet = if pending < 50 { quiet + 1 } else { 0 };
                if pending >= 50 || quiet > 200 {
                    for _ in 0..pending {
                        latency.complete_one();
                    }
                }
                std::thread::yield_now();
            }
        }
    });
    let results = world.run(2);
    done.store(true, SeqCst);
    store.join().unwrap();
    for report in results {
        report.unwrap();
    }
    assert_eq!(world.output.committed(), world.expected());
    assert!(most.load(SeqCst) >= 50, "{most:?} reads were in flight at most");
}

#[test]
fn a_crash_with_records_parked_loses_nothing() {
    let latency = Latency::seeded(2).with_hits(30).deferring().by_itself();
    let mut world = World::new(3_000);
    world.backend = slow(&latency);
    world.fail_after = Some(4);
    for result in world.run(2) {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::UserFunction);
    }
    world.fail_after = None;
    for report in world.run(3) {
        assert!(report.unwrap().restored.is_some());
    }
    assert_eq!(world.output.committed(), world.expected());
    assert!(latency.batches().iter().any(|reads| *reads > 1), "reads were not merged");
}

#[test]
fn reads_are_gathered_while_input_comes_and_sent_when_none_does() {
    const HOUR: Duration = Duration::from_secs(3600);
    let first_batch = |gather| {
        let latency = Latency::seeded(5).deferring().by_itself();
        let mut world = World::new(1_000);
        world.backend = slow(&latency);
        world.gather = gather;
        // No checkpoint but the last one ends an epoch, which would send them.
        world.settings = world.settings.clone().with_interval(HOUR);
        for report in world.run(1) {
            report.unwrap();
        }
        assert_eq!(world.output.committed(), world.expected());
        latency.batches()[0]
    };
    // A source hands on a hundred numbers at a time, which are not all different.
    let at_once = first_batch(Duration::ZERO);
    assert!(at_once < KEYS as usize, "{at_once} reads in the first batch");
    // All keys have one, and nothing but the end of the input sends them.
    assert_eq!(first_batch(HOUR), KEYS as usize);
}

#[test]
fn sources_pause_while_too_many_records_wait() {
    let latency = Latency::seeded(3).by_itself();
    let mut world = World::new(3_000);
    world.backend = slow(&latency);
    world.settings = world.settings.clone().with_queued_records(200);
    for report in world.run(2) {
        report.unwrap();
    }
    assert_eq!(world.output.committed(), world.expected());
}

#[test]
fn a_read_that_fails_fails_the_job_on_all_workers() {
    let latency = Latency::seeded(4).by_itself();
    latency.fail_next(1);
    let mut world = World::new(1_000);
    world.backend = slow(&latency);
    for result in world.run(2) {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("operator \"count\""), "{error}");
    }
    for report in world.run(2) {
        report.unwrap();
    }
    assert_eq!(world.output.committed(), world.expected());
}
