//! User code that panics fails the job on every worker, and nobody waits for the one that did.

use timely::dataflow::Scope;
use timely::dataflow::operators::vec::Map;
use weir_engine_timely::{
    EpochTime, Job, JobReport, Keyed, KeyedContext, KeyedLogic, ReadState, SinkTo, Split, Stateful,
    TransactionalSink,
};
use weir_state_api::{BoxFuture, CheckpointId, ErrorKind, Result, ValueState};

use crate::counting::{Number, Numbers, Output, SPLITS, World};

/// Where the panic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Open,
    Read,
    Between,
    Key,
    Register,
    Process,
    Write,
    Prepare,
}

const PLACES: [Place; 8] = [
    Place::Open,
    Place::Read,
    Place::Between,
    Place::Key,
    Place::Register,
    Place::Process,
    Place::Write,
    Place::Prepare,
];

fn panic_at(place: Place, here: Place, worker: usize) {
    assert!(place != here || worker != 1, "user code breaks at {here:?}");
}

struct Breaking {
    inner: Numbers,
    place: Place,
    worker: usize,
}

impl Split for Breaking {
    type Record = Number;

    fn read(&mut self, records: &mut Vec<Number>, limit: usize) -> Result<ReadState> {
        panic_at(self.place, Place::Read, self.worker);
        self.inner.read(records, limit)
    }

    fn offset(&self) -> u64 {
        self.inner.offset()
    }
}

struct BreakingCount {
    inner: ValueState<u64>,
    place: Place,
    worker: usize,
}

impl KeyedLogic for BreakingCount {
    type Key = u64;
    type Record = Number;
    type Out = (u64, u64);
    type Timer = ();

    async fn process(&self, record: &Number, context: &mut impl KeyedContext<Self>) -> Result<()> {
        panic_at(self.place, Place::Process, self.worker);
        let count = self.inner.update(context, |old| old.unwrap_or(0) + 1).await?;
        context.emit((record.0, count));
        Ok(())
    }
}

struct BreakingSink {
    inner: Output,
    place: Place,
    worker: usize,
}

impl TransactionalSink for BreakingSink {
    type Record = (u64, u64);

    fn recover(&mut self, prepared: Vec<Vec<u8>>) -> BoxFuture<'static, Result<()>> {
        self.inner.recover(prepared)
    }

    fn write(&mut self, records: Vec<(u64, u64)>) -> Result<()> {
        panic_at(self.place, Place::Write, self.worker);
        self.inner.write(records)
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        let (prepared, place, worker) = (self.inner.prepare(checkpoint), self.place, self.worker);
        Box::pin(async move {
            panic_at(place, Place::Prepare, worker);
            prepared.await
        })
    }

    fn commit(&mut self, prepared: Vec<u8>) -> BoxFuture<'static, Result<()>> {
        self.inner.commit(prepared)
    }
}

fn run(world: &World, place: Place) -> Vec<Result<JobReport>> {
    let world = world.clone();
    let guards = timely::execute(timely::Config::process(3), move |worker| {
        let job = Job::join(worker, world.settings.clone())?;
        let me = worker.index();
        worker.dataflow::<EpochTime, _, _>(|scope| {
            let numbers = job.source(scope, "numbers", SPLITS, |split, next| {
                panic_at(place, Place::Open, me);
                let inner = Numbers { split, next, world: world.clone() };
                Ok(Breaking { inner, place, worker: me })
            });
            let between = numbers.map(move |number| {
                panic_at(place, Place::Between, me);
                number
            });
            let keyed = Keyed::new("count", world.backend.clone());
            let counted = between.stateful(
                &job,
                keyed,
                move |record: &Number| {
                    panic_at(place, Place::Key, me);
                    &record.0
                },
                |store| {
                    panic_at(place, Place::Register, me);
                    Ok(BreakingCount { inner: store.value("count")?, place, worker: me })
                },
            );
            let sink = BreakingSink { inner: world.output.own(), place, worker: me };
            counted.sink_to(&job, "output", sink);
        });
        job.run(worker)
    });
    let results = guards.unwrap().join().into_iter();
    results.map(|result| result.expect("no thread of a worker panics")).collect()
}

#[test]
fn a_panic_anywhere_is_an_error_on_every_worker_and_the_next_run_goes_on() {
    for place in PLACES {
        let world = World::new(3_000);
        for result in run(&world, place) {
            let error = result.unwrap_err();
            let (kind, message) = (error.kind(), error.to_string());
            assert!(message.contains("worker 1"), "{place:?}: {message}");
            assert_eq!(kind, ErrorKind::UserFunction, "{place:?}: {message}");
            assert!(message.contains(&format!("breaks at {place:?}")), "{message}");
        }
        for report in world.run(2) {
            report.unwrap();
        }
        assert_eq!(world.output.committed(), world.expected(), "{place:?}");
    }
}

/// What becomes of the job when these workers panic between its operators, while they build it: as the
/// job's dataflow, or as any.
fn run_half_built(
    world: &World,
    guarded: bool,
    breaks: fn(usize) -> bool,
) -> Vec<Option<Result<JobReport>>> {
    let world = world.clone();
    let guards = timely::execute(timely::Config::process(3), move |worker| {
        let job = Job::join(worker, world.settings.clone())?;
        let me = worker.index();
        let build = |scope: Scope<'_, EpochTime>| {
            let numbers = job.source(scope, "numbers", SPLITS, |split, next| {
                Ok(Numbers { split, next, world: world.clone() })
            });
            assert!(!breaks(me), "building breaks");
            let keyed = Keyed::new("count", world.backend.clone());
            numbers.stateful(
                &job,
                keyed,
                |record| &record.0,
                |store| {
                    let inner = store.value("count")?;
                    Ok(BreakingCount { inner, place: Place::Open, worker: me })
                },
            );
        };
        if guarded {
            job.dataflow(worker, build)?;
        } else {
            worker.dataflow(build);
        }
        job.run(worker)
    });
    guards.unwrap().join().into_iter().map(Result::ok).collect()
}

const CASES: [fn(usize) -> bool; 5] =
    [|me| me == 0, |me| me == 1, |me| me == 2, |me| me != 1, |_| true];

#[test]
fn a_panic_while_the_jobs_dataflow_is_built_is_an_error_on_every_worker() {
    for breaks in CASES {
        let world = World::new(3_000);
        for result in run_half_built(&world, true, breaks) {
            let error = result.expect("no thread ends with the panic").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UserFunction, "{error}");
            assert!(error.to_string().contains("user code panicked: building breaks"), "{error}");
        }
        for report in world.run(2) {
            report.unwrap();
        }
        assert_eq!(world.output.committed(), world.expected());
    }
}

#[test]
fn a_panic_while_the_dataflow_is_built_ends_the_other_workers_with_an_error() {
    for breaks in CASES {
        let world = World::new(3_000);
        for (worker, result) in run_half_built(&world, false, breaks).into_iter().enumerate() {
            assert_eq!(result.is_none(), breaks(worker), "who panics has no result");
            let Some(result) = result else { continue };
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UserFunction, "{error}");
            assert!(error.to_string().contains("panicked before the job ran"), "{error}");
        }
        for report in world.run(2) {
            report.unwrap();
        }
        assert_eq!(world.output.committed(), world.expected());
    }
}
