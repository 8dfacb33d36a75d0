//! Timers of processing time, by a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use weir_backend_heap::HeapBackendFactory;
use weir_engine_timely::{
    EpochTime, Job, JobReport, Keyed, KeyedContext, KeyedLogic, KeyedTimer, ReadState, SinkTo,
    Split, Stateful,
};
use weir_state_api::{
    BackendFactory, Environment, Error, ErrorKind, ManualClock, Millis, Result, ValueState,
};
use weir_tests::latency::{Latency, LatencyFactory};

use crate::counting::World;

const KEYS: u64 = 40;

fn due(key: u64) -> Millis {
    (key as Millis + 1) * 1_000
}

/// What the input does when all keys were read.
const WAITS: u8 = 0;
const BREAKS: u8 = 1;
const ENDS: u8 = 2;

/// Each key once, in two splits.
struct Keys {
    next: u64,
    then: Arc<AtomicU8>,
}

impl Split for Keys {
    type Record = u64;

    fn read(&mut self, records: &mut Vec<u64>, _: usize) -> Result<ReadState> {
        records.extend((self.next..KEYS).step_by(2));
        self.next = self.next.max(KEYS);
        match self.then.load(SeqCst) {
            WAITS => Ok(ReadState::Idle),
            BREAKS => Err(Error::new(ErrorKind::Unavailable, "the input is gone")),
            _ => Ok(ReadState::Ended),
        }
    }

    fn offset(&self) -> u64 {
        self.next
    }
}

/// Answers each key once, when its time has come.
struct Later(ValueState<u64>);

impl KeyedLogic for Later {
    type Key = u64;
    type Record = u64;
    type Out = (u64, u64);
    type Timer = u64;

    async fn process(&self, key: &u64, context: &mut impl KeyedContext<Self>) -> Result<()> {
        self.0.set(context, &(key + 7))?;
        context.register_processing_timer(due(*key), key)?;
        context.register_processing_timer(1, &KEYS)?;
        context.delete_processing_timer(1, &KEYS)
    }

    async fn on_processing_timer(
        &self,
        timer: &KeyedTimer<u64, u64>,
        context: &mut impl KeyedContext<Self>,
    ) -> Result<()> {
        assert_eq!((timer.namespace, timer.time), (timer.key, due(timer.key)));
        assert!(context.processing_time() >= timer.time);
        let value = self.0.get(context).await?;
        context.emit((timer.key, value.unwrap_or(0)));
        self.0.clear(context)
    }
}

fn run(world: &World, workers: usize, then: &Arc<AtomicU8>) -> Vec<Result<JobReport>> {
    let (world, then) = (world.clone(), then.clone());
    let guards = timely::execute(timely::Config::process(workers), move |worker| {
        let job = Job::join(worker, world.settings.clone())?;
        worker.dataflow::<EpochTime, _, _>(|scope| {
            let keys = job.source(scope, "keys", 2, |split, next| {
                Ok(Keys { next: next.max(u64::from(split)), then: then.clone() })
            });
            let keyed = Keyed::new("later", world.backend.clone());
            keys.stateful(&job, keyed, |key| key, |store| Ok(Later(store.value("value")?)))
                .sink_to(&job, "output", world.output.own());
        });
        job.run(worker)
    });
    guards.unwrap().join().into_iter().map(|result| result.expect("no worker panics")).collect()
}

fn fired(keys: u64) -> Vec<(u64, u64)> {
    (0..keys).map(|key| (key, key + 7)).collect()
}

fn check(backend: Arc<dyn BackendFactory>) {
    let clock = Arc::new(ManualClock::new(0));
    let mut environment = Environment::in_memory();
    environment.clock = clock.clone();
    let mut world = World::in_environment(0, environment);
    world.backend = backend;
    let then = Arc::new(AtomicU8::new(WAITS));

    let job = std::thread::spawn({
        let (world, then) = (world.clone(), then.clone());
        move || run(&world, 2, &then)
    });
    let await_commits = |more: u64| {
        let until = world.output.commits() + more;
        while world.output.commits() < until {
            assert!(!job.is_finished(), "the job has failed");
            std::thread::yield_now();
        }
    };
    // Two workers: of six commits, at least one checkpoint began after all keys were read.
    await_commits(6);
    assert!(world.output.committed().is_empty(), "no timer is due");
    clock.set(due(9));
    while world.output.committed().len() < 10 {
        assert!(!job.is_finished(), "the job has failed");
        std::thread::yield_now();
    }
    await_commits(6);
    assert_eq!(world.output.committed(), fired(10), "each once, none that is not due");
    then.store(BREAKS, SeqCst);
    for result in job.join().unwrap() {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Unavailable);
    }

    // Some come due while the job is down, others never before the input ends.
    clock.set(due(29));
    then.store(ENDS, SeqCst);
    for report in run(&world, 3, &then) {
        assert!(report.unwrap().restored.is_some());
    }
    assert_eq!(world.output.committed(), fired(30));
    clock.set(Millis::MAX - 1);
    for report in run(&world, 1, &then) {
        report.unwrap();
    }
    assert_eq!(world.output.committed(), fired(KEYS), "the next run fires the rest");
}

#[test]
fn timers_fire_when_the_clock_shows_their_time_and_overdue_ones_after_the_restore() {
    check(Arc::new(HeapBackendFactory::default()));
}

#[test]
fn timers_of_processing_time_are_the_same_when_reads_pend() {
    let latency = Latency::seeded(6).with_hits(50).by_itself();
    check(Arc::new(LatencyFactory::new(HeapBackendFactory::default(), latency)));
}
