//! Timers that the frontier drives, across crashes and other numbers of workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_backend_heap::HeapBackendFactory;
use weir_engine_timely::{
    EpochTime, Job, JobReport, Keyed, KeyedContext, KeyedLogic, KeyedTimer, ReadState, SinkTo,
    Split, Stateful,
};
use weir_state_api::{BackendFactory, Error, ErrorKind, MapState, Millis, Result, StateFuture};
use weir_tests::latency::{Latency, LatencyFactory};

use crate::counting::{Output, World};

const KEYS: u64 = 13;
const WINDOW: Millis = 100;
const DISORDER: u64 = 30;

/// A click: key and event time.
type Click = (u64, Millis);

/// The n-th click of a split: its event time is out of order by less than `DISORDER`.
fn click(split: u32, n: u64) -> Click {
    let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(split + 11);
    // Splits run at different speeds of event time.
    let time = n * u64::from(split + 1) + mixed % DISORDER;
    (mixed % KEYS, time as Millis)
}

struct Clicks {
    split: u32,
    next: u64,
    world: World,
}

impl Split for Clicks {
    type Record = Click;

    fn read(&mut self, records: &mut Vec<Click>, limit: usize) -> Result<ReadState> {
        let half = self.world.numbers / 2;
        if let Some(checkpoints) = self.world.fail_after
            && self.next >= half
        {
            if self.world.output.commits() < checkpoints {
                return Ok(ReadState::Idle);
            }
            return Err(Error::new(ErrorKind::Unavailable, "the input is gone"));
        }
        let to = self.world.numbers.min(self.next + (limit as u64).min(50));
        records.extend((self.next..to).map(|n| click(self.split, n)));
        self.next = to;
        Ok(if to == self.world.numbers { ReadState::Ended } else { ReadState::More })
    }

    fn offset(&self) -> u64 {
        self.next
    }

    fn watermark(&self) -> Millis {
        (self.next * u64::from(self.split + 1)) as Millis
    }
}

/// Clicks of a key in each window.
struct Windows(MapState<i64, u64>);

impl KeyedLogic for Windows {
    type Key = u64;
    type Record = Click;
    type Out = (u64, u64);
    type Timer = i64;

    async fn process(
        &self,
        (_, time): &Click,
        context: &mut impl KeyedContext<Self>,
    ) -> Result<()> {
        let window = time.div_euclid(WINDOW);
        let clicks: StateFuture<'_, _> = self.0.get(context, &window);
        let clicks = clicks.await?.unwrap_or(0) + 1;
        self.0.put(context, &window, &clicks)?;
        context.register_timer((window + 1) * WINDOW - 1, &window)
    }

    async fn on_timer(
        &self,
        timer: &KeyedTimer<u64, i64>,
        context: &mut impl KeyedContext<Self>,
    ) -> Result<()> {
        assert_eq!(timer.time, (timer.namespace + 1) * WINDOW - 1);
        if let Some(clicks) = self.0.get(context, &timer.namespace).await? {
            self.0.remove(context, &timer.namespace)?;
            context.emit((timer.namespace as u64 * KEYS + timer.key, clicks));
        }
        Ok(())
    }
}

fn run(world: &World, workers: usize, splits: u32) -> Vec<Result<JobReport>> {
    let world = world.clone();
    let guards = timely::execute(timely::Config::process(workers), move |worker| {
        let job = Job::join(worker, world.settings.clone())?;
        worker.dataflow::<EpochTime, _, _>(|scope| {
            let clicks = job.source(scope, "clicks", splits, |split, next| {
                Ok(Clicks { split, next, world: world.clone() })
            });
            let keyed = Keyed::new("windows", world.backend.clone());
            clicks
                .stateful(&job, keyed, |(key, _)| key, |store| Ok(Windows(store.map("clicks")?)))
                .sink_to(&job, "output", world.output.own());
        });
        job.run(worker)
    });
    guards.unwrap().join().into_iter().map(|result| result.expect("no worker panics")).collect()
}

/// What a plain evaluation gives: a window that fired early would come twice.
fn expected(numbers: u64, splits: u32) -> Vec<(u64, u64)> {
    let mut windows = BTreeMap::<u64, u64>::new();
    for split in 0..splits {
        for n in 0..numbers {
            let (key, time) = click(split, n);
            *windows.entry(time.div_euclid(WINDOW) as u64 * KEYS + key).or_default() += 1;
        }
    }
    windows.into_iter().collect()
}

fn check(backend: &Arc<dyn BackendFactory>) {
    for (workers, next, splits) in [(2, 3, 4), (3, 2, 2)] {
        let mut world = World::new(3_000);
        world.backend = backend.clone();
        world.output = Output::default();
        world.fail_after = Some(4);
        for result in run(&world, workers, splits) {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Unavailable);
        }
        world.fail_after = None;
        for report in run(&world, next, splits) {
            assert!(report.unwrap().restored.is_some());
        }
        assert_eq!(world.output.committed(), expected(3_000, splits), "{workers} to {next}");
    }
}

#[test]
fn windows_fire_once_and_whole_when_the_frontier_has_passed_them() {
    check(&(Arc::new(HeapBackendFactory::default()) as Arc<dyn BackendFactory>));
}

#[test]
fn windows_are_the_same_when_reads_pend() {
    let latency = Latency::seeded(5).with_hits(60).by_itself();
    let slow = LatencyFactory::new(HeapBackendFactory::default(), latency);
    check(&(Arc::new(slow) as Arc<dyn BackendFactory>));
}
