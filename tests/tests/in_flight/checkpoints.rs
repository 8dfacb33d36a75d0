//! Snapshots wait for writers only; what is not done travels with them.

use weir_state_api::{Admission, ErrorKind, InFlight, InFlightLimits};
use weir_tests::latency::Latency;

use crate::operator::{Event, Op};
use crate::world::{Job, World, per_key};

fn job(world: &World, latency: &Latency) -> Job {
    Job::new(world, latency.clone(), InFlightLimits::default(), None)
}

fn record(key: u8, ops: &[Op]) -> Event {
    Event::Record { key, ops: ops.to_vec() }
}

#[test]
fn a_snapshot_does_not_wait_for_records_that_have_only_read() {
    let (world, latency) = (World::new(), Latency::seeded(1));
    let mut job = job(&world, &latency);
    for key in [0, 1, 0, 2] {
        job.submit(record(key, &[Op::Get, Op::Add(3)]));
    }
    let snapshot = job.snapshot(&world);
    // No read has completed, and those that were begun go on.
    assert_eq!((latency.pending(), job.in_flight.len()), (3, 4));
    let keys: Vec<_> = snapshot.1.iter().map(|unfinished| unfinished.record.key()).collect();
    assert_eq!(keys, [0, 1, 0, 2]);

    let mut restored = job.restored(&world, snapshot, InFlightLimits::default());
    job.idle();
    restored.idle();
    assert_eq!(per_key(&restored.outputs), per_key(&job.outputs));
    let (there, here) = (restored.snapshot(&world).0, job.snapshot(&world).0);
    assert_eq!(world.dump(&there), world.dump(&here));
}

#[test]
fn a_snapshot_waits_for_a_writer_and_not_for_those_behind_it() {
    let (world, latency) = (World::new(), Latency::seeded(1));
    let mut job = job(&world, &latency);
    job.submit(record(0, &[Op::Set(1), Op::Get]));
    for _ in 0..3 {
        job.submit(record(0, &[Op::Append(1), Op::Get]));
    }
    job.submit(record(1, &[Op::Get]));
    let refused = job.in_flight.snapshot(world.request_snapshot()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidUsage);
    let (_, unfinished) = job.snapshot(&world);
    assert_eq!(unfinished.len(), 4);
    assert_eq!(job.outputs, [(0, vec![1])]);
    job.idle();
    assert_eq!(job.outputs.len(), 5);
}

#[test]
fn an_engine_is_woken_for_the_records_that_a_snapshot_held_back() {
    let (world, latency) = (World::new(), Latency::seeded(1));
    let mut job = job(&world, &latency);
    job.submit(record(0, &[Op::Get]));
    assert!(!job.poll_once(InFlight::poll_idle));
    job.until_woken();
    let (_, unfinished) = job.snapshot(&world);
    assert_eq!((unfinished.len(), latency.pending()), (1, 0));
    job.until_woken();
    assert!(job.poll_once(InFlight::poll_idle));
}

#[test]
fn outputs_go_before_the_barrier() {
    let (world, latency) = (World::new(), Latency::seeded(1).with_hits(100));
    let mut job = job(&world, &latency);
    let admission = job.in_flight.submit(&0, record(0, &[Op::Set(1)])).unwrap();
    assert_eq!(admission, Admission::Done);
    let refused = job.in_flight.snapshot(world.request_snapshot()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidUsage);
    assert_eq!(job.in_flight.outputs().len(), 1);
    assert!(job.in_flight.snapshot(world.request_snapshot()).is_ok());
}

#[test]
fn records_taken_back_leave_no_trace_and_nothing_passes_them() {
    let (world, latency) = (World::new(), Latency::seeded(1));
    let mut job = job(&world, &latency);
    job.submit(record(0, &[Op::Append(1), Op::Get]));
    job.submit(record(0, &[Op::Append(2)]));
    job.submit(record(1, &[Op::Get, Op::Append(3)]));
    let taken = job.in_flight.take_unfinished();
    assert_eq!(taken.len(), 2);
    let next = record(0, &[Op::List]);
    assert_eq!(job.in_flight.submit(&0, next.clone()).unwrap(), Admission::Full(next.clone()));
    job.idle();
    assert_eq!(job.in_flight.with_store(|store| Ok(store.statistics())).unwrap().entries, 1);
    job.in_flight.resubmit(taken).unwrap();
    job.submit(next);
    job.idle();
    assert_eq!(per_key(&job.outputs)[0].last().unwrap().as_slice(), [1, 2]);
}

#[test]
fn records_resubmitted_out_of_order_are_failures_and_none_is_lost() {
    let (world, latency) = (World::new(), Latency::seeded(1));
    let mut job = job(&world, &latency);
    job.submit(record(0, &[Op::Get]));
    let (_, unfinished) = job.snapshot(&world);
    job.idle();
    let error = job.in_flight.resubmit(unfinished).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUsage);
    assert_eq!(job.in_flight.take_failures().len(), 1);
}

#[test]
fn timers_that_have_fired_and_are_not_done_travel_with_the_snapshot() {
    let (world, latency) = (World::new(), Latency::seeded(1));
    let mut job = job(&world, &latency);
    for key in 0..3 {
        job.submit(record(key, &[Op::Register(5), Op::Register(6)]));
    }
    job.idle();
    while job.in_flight.len() < 2 {
        assert!(!job.fire_once(10));
        job.until_woken();
    }
    let snapshot = job.snapshot(&world);
    assert_eq!(snapshot.1.len(), 2);
    let mut restored = job.restored(&world, snapshot, InFlightLimits::default());
    restored.fire(10);
    job.fire(10);
    assert_eq!(per_key(&restored.outputs), per_key(&job.outputs));
}
