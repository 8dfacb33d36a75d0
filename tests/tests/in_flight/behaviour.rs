//! Order, limits, failures, wake-ups: one statement to a test.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weir_state_api::{
    Address, Admission, ErrorKind, InFlight, InFlightLimits, KeyGroup, KeyRef, KeyedStore,
    MaxParallelism, NextTimer, RecordOperator, RecordState, Result, StateAccess, StateId, TimerRef,
    TimerState, ValueState, block_on,
};
use weir_tests::latency::{Latency, LatencyFactory};
use weir_tests::reference::ReferenceBackendFactory;

use crate::operator::pause;

/// What a record does.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Do {
    Count,
    Fail,
    WriteAndFail,
    Panic,
    PanicInside,
    PanicInsideAtOnce,
    OtherKey,
    PollTimers,
    Hold(Arc<()>),
    CountEightTimes,
    Register(i64),
    Fired(i64),
}

struct Operator {
    count: ValueState<u64>,
    timers: TimerState,
}

impl RecordOperator for Operator {
    type Record = Do;
    type Output = (String, u64);

    async fn process(&self, what: &Do, state: &mut RecordState<'_, Self::Output>) -> Result<()> {
        let count = |old: Option<u64>| old.unwrap_or(0) + 1;
        match what {
            Do::Count | Do::Hold(_) => {
                let count = self.count.update(state, count).await?;
                state.emit((format!("{:?}", state.key().bytes()), count));
            }
            Do::Fail => {
                state.emit(("lost".into(), 0));
                self.count.try_update(state, |_| Err("as the test wants".into())).await?;
            }
            Do::WriteAndFail => {
                self.count.update(state, count).await?;
                self.count.try_update(state, |_| Err("as the test wants".into())).await?;
            }
            Do::Panic => {
                pause().await;
                panic!("as the test wants");
            }
            Do::PanicInside => {
                self.count.get(state).await?;
                state.with(|_| panic!("as the test wants"))?;
            }
            Do::PanicInsideAtOnce => state.with(|_| panic!("as the test wants"))?,
            Do::OtherKey => {
                let mut address = None;
                state.with(|scope| {
                    let key = KeyRef::with_group(b"other", KeyGroup(0))?;
                    let at = Address { state: StateId(0), key, namespace: &[], map_key: &[] };
                    address = Some(scope.backend.put(&at, b"mine now"));
                    Ok(())
                })?;
                address.unwrap()?;
            }
            Do::PollTimers => {
                state.with(|scope| scope.backend.poll_timer(StateId(1), 0).map(drop))?;
            }
            Do::CountEightTimes => {
                for _ in 0..8 {
                    self.count.update(state, count).await?;
                }
            }
            Do::Register(time) => {
                self.count.get(state).await?;
                self.timers.register(state, *time, &())?;
            }
            Do::Fired(time) => {
                self.count.update(state, count).await?;
                state.emit(("fired".into(), *time as u64));
            }
        }
        Ok(())
    }
}

type Executor = InFlight<Operator, u64>;

fn executor(latency: &Latency, limits: InFlightLimits) -> Executor {
    let factory = LatencyFactory::new(ReferenceBackendFactory::default(), latency.clone());
    let mut store = KeyedStore::<u64>::open_in_memory(&factory).unwrap();
    let operator =
        Operator { count: store.value("count").unwrap(), timers: store.timers("timers").unwrap() };
    InFlight::new(store, operator, limits)
}

fn slow() -> (Latency, Executor) {
    let latency = Latency::seeded(1);
    let executor = executor(&latency, InFlightLimits::default());
    (latency, executor)
}

/// Submits a record that pends or waits.
fn begin(executor: &mut Executor, key: u64, what: Do) {
    assert_eq!(executor.submit(&key, what).unwrap(), Admission::InFlight);
}

/// Completes all reads, and polls to the end.
fn finish(latency: &Latency, executor: &mut Executor) -> Vec<(String, u64)> {
    loop {
        let polled = executor.poll_idle(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Ready(result) => {
                result.unwrap();
                return executor.outputs().collect();
            }
            Poll::Pending => assert!(latency.complete_one(), "stalled"),
        }
    }
}

fn counts(outputs: &[(String, u64)]) -> Vec<u64> {
    outputs.iter().map(|output| output.1).collect()
}

#[test]
fn records_of_one_key_wait_and_those_of_others_overlap() {
    let (latency, mut executor) = slow();
    for key in [0, 0, 1, 0, 2] {
        assert_eq!(executor.submit(&key, Do::Count).unwrap(), Admission::InFlight);
    }
    assert_eq!((executor.len(), latency.pending()), (5, 3));
    let mut outputs = finish(&latency, &mut executor);
    outputs.sort();
    assert_eq!(counts(&outputs), [1, 2, 3, 1, 1]);
}

#[test]
fn a_record_whose_state_is_in_memory_is_done_at_once() {
    let latency = Latency::seeded(1).with_hits(100);
    let mut executor = executor(&latency, InFlightLimits::default());
    assert_eq!(executor.submit(&1, Do::Count).unwrap(), Admission::Done);
    assert!(executor.is_empty());
    assert_eq!(counts(&executor.outputs().collect::<Vec<_>>()), [1]);
}

#[test]
fn the_limit_of_records_gives_the_next_one_back_until_one_is_done() {
    let latency = Latency::seeded(1);
    let mut executor = executor(&latency, InFlightLimits::default().with_records(2));
    for key in [0, 0] {
        assert_eq!(executor.submit(&key, Do::Count).unwrap(), Admission::InFlight);
    }
    assert_eq!(executor.submit(&1, Do::Fail).unwrap(), Admission::Full(Do::Fail));
    let mut context = Context::from_waker(Waker::noop());
    assert!(executor.poll_room(&mut context).is_pending());
    assert!(latency.complete_one());
    assert!(executor.poll_room(&mut context).is_ready());
    assert_eq!(executor.submit(&1, Do::Count).unwrap(), Admission::InFlight);
    assert_eq!(finish(&latency, &mut executor).len(), 3);
}

#[test]
fn the_limit_of_bytes_holds_and_a_heavy_record_goes_alone() {
    let latency = Latency::seeded(1);
    let weight = size_of::<Do>();
    let mut light = executor(&latency, InFlightLimits::default().with_bytes(2 * weight));
    for key in 0..2 {
        assert_eq!(light.submit(&key, Do::Count).unwrap(), Admission::InFlight);
    }
    assert_eq!(light.submit(&2, Do::Count).unwrap(), Admission::Full(Do::Count));
    finish(&latency, &mut light);

    let mut tight = executor(&latency, InFlightLimits::default().with_bytes(1));
    assert_eq!(tight.submit(&0, Do::Count).unwrap(), Admission::InFlight);
    assert_eq!(tight.submit(&1, Do::Count).unwrap(), Admission::Full(Do::Count));
    finish(&latency, &mut tight);
}

#[test]
fn accesses_of_one_record_do_not_count_against_the_limit() {
    let latency = Latency::seeded(1);
    let mut executor = executor(&latency, InFlightLimits::default().with_records(1));
    begin(&mut executor, 0, Do::CountEightTimes);
    finish(&latency, &mut executor);
    begin(&mut executor, 0, Do::Count);
    assert_eq!(counts(&finish(&latency, &mut executor)), [9]);
}

#[test]
fn a_failing_record_is_reported_with_its_record_and_all_others_go_on() {
    for (what, kind, has_written) in [
        (Do::Fail, ErrorKind::UserFunction, false),
        (Do::WriteAndFail, ErrorKind::UserFunction, true),
        (Do::Panic, ErrorKind::UserFunction, false),
        (Do::OtherKey, ErrorKind::InvalidUsage, false),
        (Do::PollTimers, ErrorKind::InvalidUsage, false),
    ] {
        let (latency, mut executor) = slow();
        let mut failed = 0;
        for (key, what) in [(0, Do::Count), (0, what.clone()), (0, Do::Count), (1, Do::Count)] {
            failed += u64::from(executor.submit(&key, what).is_err());
        }
        assert_eq!(failed, 0, "nothing of key 0 but its first record has begun");
        let error = loop {
            match executor.poll_idle(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => break result.unwrap_err(),
                Poll::Pending => assert!(latency.complete_one()),
            }
        };
        assert_eq!(error.kind(), kind, "{what:?}");
        // It stays an error until it is taken.
        assert!(executor.poll_room(&mut Context::from_waker(Waker::noop())).is_ready());
        assert!(executor.submit(&2, Do::Count).is_err());
        let failures = executor.take_failures();
        assert_eq!(failures.len(), 1);
        assert_eq!((&failures[0].record, failures[0].has_written), (&what, has_written));
        assert_eq!(failures[0].error.kind(), kind);
        let outputs = finish(&latency, &mut executor);
        let mut last: Vec<_> = counts(&outputs);
        last.sort_unstable();
        let second = 2 + u64::from(has_written);
        assert_eq!(last, [1, 1, 1, second], "{what:?}");
        assert_eq!(executor.len(), 0);
    }
}

#[test]
fn a_failing_read_fails_its_record_only() {
    let (latency, mut executor) = slow();
    latency.fail_next(1);
    for key in [0, 0, 1] {
        begin(&mut executor, key, Do::Count);
    }
    let error = loop {
        match executor.poll_idle(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => break result.unwrap_err(),
            Poll::Pending => assert!(latency.complete_one()),
        }
    };
    assert_eq!((error.kind(), error.state_name()), (ErrorKind::Unavailable, Some("count")));
    assert!(!executor.take_failures()[0].has_written);
    assert_eq!(counts(&finish(&latency, &mut executor)), [1, 1]);
}

#[test]
fn a_panic_inside_an_access_closes_the_state_and_nothing_hangs() {
    for latency in [Latency::seeded(1), Latency::seeded(1).deferring()] {
        let mut executor = executor(&latency, InFlightLimits::default());
        begin(&mut executor, 0, Do::PanicInside);
        for key in [0, 1, 1] {
            begin(&mut executor, key, Do::CountEightTimes);
        }
        let mut failures = Vec::new();
        while !executor.is_empty() {
            if executor.poll_idle(&mut Context::from_waker(Waker::noop())).is_pending() {
                assert!(latency.complete_one(), "stalled");
            }
            failures.extend(executor.take_failures());
        }
        let kinds: Vec<_> = failures.iter().map(|failure| failure.error.kind()).collect();
        assert_eq!(kinds.len(), 4);
        assert!(kinds.iter().filter(|&&kind| kind == ErrorKind::Closed).count() == 3, "{kinds:?}");
        assert_eq!(executor.with_store(|_| Ok(())).unwrap_err().kind(), ErrorKind::Closed);
    }
}

#[test]
fn a_panic_inside_an_access_fails_reads_that_were_not_sent() {
    let latency = Latency::seeded(1).deferring();
    let mut executor = executor(&latency, InFlightLimits::default());
    begin(&mut executor, 0, Do::Count);
    assert!(executor.submit(&1, Do::PanicInsideAtOnce).is_err());
    let mut kinds = Vec::new();
    while !executor.is_empty() {
        let polled = executor.poll_idle(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready() || latency.complete_one(), "stalled");
        kinds.extend(executor.take_failures().iter().map(|failure| failure.error.kind()));
    }
    assert_eq!(kinds, [ErrorKind::UserFunction, ErrorKind::Closed]);
}

#[test]
fn a_key_that_is_not_ours_makes_the_record_a_failure() {
    let (_, mut executor) = slow();
    let error = executor.submit_encoded(b"key", KeyGroup(1), Do::Count).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUsage);
    assert_eq!(executor.take_failures()[0].record, Do::Count);
    assert!(executor.is_empty());
}

#[test]
fn dropping_the_executor_drops_what_is_in_flight() {
    let (latency, mut executor) = slow();
    let held = Arc::new(());
    for key in [0, 0, 1] {
        begin(&mut executor, key, Do::Hold(held.clone()));
    }
    assert_eq!((latency.pending(), Arc::strong_count(&held)), (2, 4));
    drop(executor);
    assert_eq!((latency.pending(), Arc::strong_count(&held)), (0, 1));
}

#[test]
fn a_finished_record_is_dropped_at_once() {
    let latency = Latency::seeded(1).with_hits(100);
    let mut executor = executor(&latency, InFlightLimits::default());
    let held = Arc::new(());
    assert_eq!(executor.submit(&0, Do::Hold(held.clone())).unwrap(), Admission::Done);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn an_epoch_is_through_after_its_records_and_holds_none_back() {
    let (latency, mut executor) = slow();
    let empty = executor.close_epoch();
    assert!(executor.is_through(empty));
    begin(&mut executor, 0, Do::Count);
    let first = executor.close_epoch();
    begin(&mut executor, 1, Do::Count);
    let second = executor.close_epoch();
    assert!(!executor.is_through(first) && !executor.is_through(second));
    finish(&latency, &mut executor);
    assert!(executor.is_through(first) && executor.is_through(second));
}

#[test]
fn a_watermark_waits_for_the_records_before_it_and_fires_each_timer_once() {
    let (latency, mut executor) = slow();
    for (key, time) in [(0, 5), (1, 3), (0, 4), (2, 11)] {
        begin(&mut executor, key, Do::Register(time));
    }
    let timers = executor.operator().timers.clone();
    loop {
        let mut context = Context::from_waker(Waker::noop());
        match executor.poll_timers(&timers, 10, |_, timer| Do::Fired(timer.time), &mut context) {
            Poll::Ready(result) => break result.unwrap(),
            Poll::Pending => assert!(latency.complete_one(), "stalled"),
        }
        // Records behind the watermark wait.
        assert_eq!(executor.submit(&9, Do::Count).unwrap(), Admission::Full(Do::Count));
    }
    let mut fired =
        counts(&executor.outputs().filter(|output| output.0 == "fired").collect::<Vec<_>>());
    let of_key_0: Vec<_> = fired.iter().copied().filter(|&time| time != 3).collect();
    assert_eq!(of_key_0, [4, 5]);
    fired.sort_unstable();
    assert_eq!(fired, [3, 4, 5]);
}

#[test]
fn a_timer_that_does_not_decode_is_an_error_and_stays() {
    let latency = Latency::seeded(1).with_hits(100);
    let mut executor = executor(&latency, InFlightLimits::default());
    let timers = executor.operator().timers.clone();
    let queue = executor
        .with_store(|store| {
            let known = store.backend().states();
            let (queue, _) = known.iter().find(|(_, state)| state.name == "timers").unwrap();
            let key = KeyRef::new(&[0; 8], MaxParallelism::default())?;
            let timer = TimerRef { queue: *queue, time: 5, key, namespace: b"no unit" };
            store.backend().register_timer(&timer)?;
            Ok(*queue)
        })
        .unwrap();
    for _ in 0..2 {
        let error =
            executor.wait_timers(&timers, 10, |_, timer| Do::Fired(timer.time)).unwrap_err();
        assert_eq!((error.kind(), error.state_name()), (ErrorKind::Corrupt, Some("timers")));
    }
    let next = executor.with_store(|store| store.backend().next_timer(queue)).unwrap();
    assert_eq!(next, NextTimer::At(5));
}

#[test]
fn reads_that_complete_on_another_thread_wake_a_blocked_engine() {
    let (latency, mut executor) = slow();
    for record in 0..2_000_u64 {
        begin(&mut executor, record % 50, Do::Count);
    }
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let completing = std::thread::spawn({
        let (latency, done) = (latency.clone(), done.clone());
        move || {
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                if !latency.complete_one() {
                    std::thread::yield_now();
                }
            }
        }
    });
    executor.wait_idle().unwrap();
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    completing.join().unwrap();
    assert_eq!(executor.outputs().filter(|output| output.1 == 40).count(), 50);
}

#[test]
fn an_asynchronous_engine_awaits_it() {
    let latency = Latency::seeded(1).by_itself();
    let mut executor = executor(&latency, InFlightLimits::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let counted = runtime.spawn(async move {
        for record in 0..100_u64 {
            let admission = executor.submit(&(record % 7), Do::Count).unwrap();
            assert!(!matches!(admission, Admission::Full(_)));
        }
        std::future::poll_fn(|context| executor.poll_idle(context)).await.unwrap();
        executor.outputs().len()
    });
    assert_eq!(block_on(counted).unwrap(), 100);
}
