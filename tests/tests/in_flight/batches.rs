//! Reads that need I/O travel together.

use std::task::Poll;

use weir_state_api::{ErrorKind, InFlight, InFlightLimits};
use weir_tests::latency::Latency;

use crate::operator::{Event, Op};
use crate::world::{Job, World};

const LIMITS: usize = 100;

fn job(latency: Latency, reads: usize) -> Job {
    let limits = InFlightLimits::default().with_records(LIMITS).with_reads(reads);
    let mut job = Job::new(&World::new(), latency, limits, None);
    for key in 0..LIMITS as u8 {
        job.submit(Event::Record { key, ops: vec![Op::Add(1), Op::List] });
    }
    job
}

#[test]
fn reads_of_many_records_become_batches_of_the_size_allowed() {
    for (reads, expected) in [(1_000, vec![100, 100]), (32, vec![32, 32, 32, 4, 32, 32, 32, 4])] {
        let mut job = job(Latency::seeded(1).deferring(), reads);
        job.idle();
        let mut batches = job.latency.batches();
        batches.sort_unstable();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(batches, expected);
        assert_eq!(job.outputs.len(), LIMITS);
    }
}

#[test]
fn nothing_is_sent_before_the_engine_polls_unless_the_batch_is_full() {
    let mut job = job(Latency::seeded(1).deferring(), 1_000);
    assert!(job.latency.batches().is_empty());
    assert!(!job.poll_once(InFlight::poll_idle));
    assert_eq!(job.latency.batches(), [100]);
}

#[test]
fn reads_overlap_where_the_backend_does_not_defer() {
    let mut job = job(Latency::seeded(1), 1_000);
    assert_eq!((job.latency.pending(), job.latency.batches().len()), (LIMITS, 0));
    job.idle();
    assert_eq!(job.outputs.len(), LIMITS);
}

#[test]
fn an_engine_that_waits_is_woken_for_reads_that_are_submitted_later() {
    let latency = Latency::seeded(1).deferring();
    let mut job = Job::new(&World::new(), latency, InFlightLimits::default(), None);
    job.submit(Event::Record { key: 0, ops: vec![Op::Get] });
    assert!(!job.poll_once(InFlight::poll_idle));
    job.submit(Event::Record { key: 1, ops: vec![Op::Get] });
    // No read has completed: it is the submission that woke the engine.
    assert_eq!(job.latency.pending(), 1);
    job.until_woken();
    assert_eq!(job.latency.pending(), 1);
    job.idle();
}

#[test]
fn what_a_record_reads_before_it_writes_is_as_it_was_before_the_write() {
    let latency = Latency::seeded(1).deferring();
    let mut job = Job::new(&World::new(), latency, InFlightLimits::default(), None);
    job.submit(Event::Record { key: 0, ops: vec![Op::Set(7), Op::ReadWriteLook(8), Op::Get] });
    assert!(job.latency.batches().is_empty(), "a write sends nothing");
    job.idle();
    assert_eq!(job.latency.batches(), [2, 1]);
    assert_eq!(job.outputs, [(0, vec![7, 8])]);
}

#[test]
fn a_failed_batch_fails_the_records_that_read_in_it() {
    let latency = Latency::seeded(1).deferring();
    latency.fail_next(1);
    let mut job = job(latency, 60);
    let error = loop {
        let mut result = None;
        job.poll_once(|in_flight, context| {
            let polled = in_flight.poll_idle(context);
            if let Poll::Ready(ready) = &polled {
                result = Some(ready.as_ref().map_err(weir_state_api::Error::kind).copied());
            }
            polled
        });
        match result {
            Some(result) => break result.unwrap_err(),
            None => job.until_woken(),
        }
    };
    assert_eq!(error, ErrorKind::Unavailable);
    let failures = job.in_flight.take_failures();
    assert_eq!(failures.len(), 60);
    assert!(failures.iter().all(|failure| !failure.has_written));
    job.idle();
    assert_eq!(job.outputs.len(), 40);
    // Nothing of them is left: they can be submitted again.
    for failure in failures {
        job.submit(failure.record);
    }
    job.idle();
    assert_eq!(job.outputs.len(), LIMITS);
}
