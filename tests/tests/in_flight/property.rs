//! Random programs, random latencies: the result is that of one record after the other.

use proptest::prelude::*;
use weir_state_api::{InFlight, InFlightLimits, Millis};
use weir_tests::latency::Latency;

use crate::operator::{Event, Op};
use crate::world::{Job, KEYS, Sequential, World, per_key};

#[derive(Debug, Clone)]
enum Step {
    Record(Event),
    /// Some reads complete, and the engine polls if it is woken.
    Time(u8),
    /// Timers up to this time fire; after so many polls the job is restored from a snapshot taken
    /// right there.
    Watermark {
        now: Millis,
        crash_after: Option<u8>,
    },
    /// A snapshot; `drained` waits for all records. Its restored copy must have done what was
    /// submitted before; with `crash` the job goes on there.
    Barrier {
        drained: bool,
        crash: bool,
    },
    /// The records are taken back, and submitted again.
    TakeBack,
}

#[derive(Debug, Clone)]
struct Program {
    steps: Vec<Step>,
    seed: u64,
    hits: u64,
    defers: bool,
    limits: InFlightLimits,
}

fn op() -> impl Strategy<Value = Op> {
    let value = 0_u64..100;
    let (entry, window, time) = (0_u8..4, 0_u8..3, 0_i64..30);
    prop_oneof![
        value.clone().prop_map(Op::Set),
        value.clone().prop_map(Op::Add),
        Just(Op::Get),
        value.clone().prop_map(Op::ReadWriteLook),
        Just(Op::Clear),
        value.clone().prop_map(Op::Append),
        Just(Op::List),
        (entry.clone(), value.clone()).prop_map(|(key, value)| Op::Put(key, value)),
        entry.clone().prop_map(Op::Entry),
        entry.prop_map(Op::Remove),
        Just(Op::Scan),
        value.clone().prop_map(Op::Fold),
        Just(Op::Folded),
        (window, value).prop_map(|(window, value)| Op::SetWindow(window, value)),
        Just(Op::MergeWindows),
        time.clone().prop_map(Op::Register),
        time.prop_map(Op::Delete),
        Just(Op::Pause),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    // Half of the records go to one key.
    let key = prop_oneof![Just(0), 0..KEYS];
    let record = (key, prop::collection::vec(op(), 0..5))
        .prop_map(|(key, ops)| Step::Record(Event::Record { key, ops }));
    prop_oneof![
        12 => record,
        4 => (0_u8..4).prop_map(Step::Time),
        2 => (0_i64..30, prop::option::of(0_u8..6))
            .prop_map(|(now, crash_after)| Step::Watermark { now, crash_after }),
        2 => (any::<bool>(), any::<bool>())
            .prop_map(|(drained, crash)| Step::Barrier { drained, crash }),
        1 => Just(Step::TakeBack),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let limits = (1_usize..8, 1_usize..5).prop_map(|(records, reads)| {
        InFlightLimits::default().with_records(records).with_reads(reads)
    });
    let steps = prop::collection::vec(step(), 0..40);
    (steps, any::<u64>(), 0_u64..90, any::<bool>(), limits).prop_map(
        |(steps, seed, hits, defers, limits)| Program { steps, seed, hits, defers, limits },
    )
}

fn run(program: &Program) {
    let world = World::new();
    let latency = Latency::seeded(program.seed).with_hits(program.hits);
    let latency = if program.defers { latency.deferring() } else { latency };
    let mut expected = Sequential::new(&world);
    let mut job = Job::new(&world, latency, program.limits, None);
    for step in &program.steps {
        match step {
            Step::Record(event) => {
                expected.submit(event);
                job.submit(event.clone());
            }
            Step::Time(reads) => {
                for _ in 0..*reads {
                    job.latency.complete_one();
                }
                job.poll_once(InFlight::poll_room);
            }
            Step::Watermark { now, crash_after } => {
                expected.fire(*now);
                if let Some(polls) = crash_after {
                    for _ in 0..*polls {
                        if job.fire_once(*now) {
                            break;
                        }
                        job.until_woken();
                    }
                    let snapshot = job.snapshot(&world);
                    job = job.restored(&world, snapshot, program.limits);
                }
                job.fire(*now);
            }
            Step::Barrier { drained, crash } => {
                if *drained {
                    job.idle();
                }
                let snapshot = job.snapshot(&world);
                assert!(!drained || snapshot.1.is_empty());
                let mut restored = job.restored(&world, snapshot, program.limits);
                restored.idle();
                compare(&world, &mut restored, &mut expected);
                if *crash {
                    job = restored;
                }
            }
            Step::TakeBack => {
                let taken = job.in_flight.take_unfinished();
                job.idle();
                job.in_flight.resubmit(taken).unwrap();
            }
        }
    }
    // The timers that are left show in the outputs.
    expected.fire(1_000);
    job.fire(1_000);
    compare(&world, &mut job, &mut expected);
}

/// The outputs of each key, and the state.
fn compare(world: &World, job: &mut Job, expected: &mut Sequential) {
    assert_eq!(per_key(&job.outputs), per_key(&expected.outputs));
    let (handle, unfinished) = job.snapshot(world);
    assert!(unfinished.is_empty());
    assert_eq!(world.dump(&handle), world.dump(&expected.snapshot(world)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8 * ProptestConfig::default().cases, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn overlapping_records_give_what_one_after_the_other_gives(program in program()) {
        run(&program);
    }
}
