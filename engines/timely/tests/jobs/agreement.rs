//! Workers and processes that do not belong together.

use weir_engine_timely::{EpochTime, Job, JobSettings};
use weir_state_api::{Environment, ErrorKind, MaxParallelism};

use crate::counting::{Numbers, SPLITS, World};

/// All workers get the same error.
fn refused(
    world: &World,
    settings: impl Fn(&World, usize) -> JobSettings + Send + Sync + 'static,
) -> (ErrorKind, String) {
    let results = world.run_with(3, settings);
    let errors: Vec<_> = results.into_iter().map(|result| result.unwrap_err()).collect();
    assert!(errors.iter().all(|error| error.to_string() == errors[0].to_string()), "{errors:?}");
    (errors[0].kind(), errors[0].to_string())
}

#[test]
fn workers_that_disagree_get_the_same_error() {
    let world = World::new(10);
    let (kind, message) = refused(&world, |world, worker| {
        let name = if worker == 2 { "other" } else { "counting" };
        JobSettings::new(name, world.settings.environment.clone())
    });
    assert_eq!(kind, ErrorKind::InvalidUsage);
    assert!(
        message.contains("disagree about the job") && message.contains("worker 2"),
        "{message}"
    );

    let (kind, message) = refused(&world, |world, worker| {
        let max = MaxParallelism::new(100 + worker as u16).unwrap();
        world.settings.clone().with_max_parallelism(max)
    });
    assert_eq!(kind, ErrorKind::InvalidUsage);
    assert!(message.contains("disagree about the max parallelism"), "{message}");

    let (kind, message) = refused(&world, |world, worker| match worker {
        1 => JobSettings::new("counting", Environment::in_memory()),
        _ => world.settings.clone(),
    });
    assert_eq!(kind, ErrorKind::InvalidUsage);
    assert!(message.contains("another checkpoint store"), "{message}");
    assert!(world.output.committed().is_empty());
}

#[test]
fn a_checkpoint_of_another_job_or_max_parallelism_is_refused() {
    let world = World::new(100);
    world.run(1).remove(0).unwrap();
    let (kind, message) =
        refused(&world, |world, _| JobSettings::new("other", world.settings.environment.clone()));
    assert_eq!(kind, ErrorKind::Incompatible);
    assert!(message.contains("that of job \"counting\""), "{message}");

    let (kind, message) = refused(&world, |world, _| {
        world.settings.clone().with_max_parallelism(MaxParallelism::new(64).unwrap())
    });
    assert_eq!(kind, ErrorKind::Incompatible);
    assert!(message.contains("max parallelism 128"), "{message}");
}

#[test]
fn more_workers_than_key_groups_are_refused() {
    let world = World::new(10);
    let (kind, _) = refused(&world, |world, _| {
        world.settings.clone().with_max_parallelism(MaxParallelism::new(2).unwrap())
    });
    assert_eq!(kind, ErrorKind::InvalidUsage);
}

#[test]
fn a_job_that_one_worker_never_runs_fails_on_the_others() {
    let world = World::new(10);
    let shared = world.clone();
    let guards = timely::execute(timely::Config::process(2), move |worker| {
        let job = Job::join(worker, shared.settings.clone())?;
        shared.build(worker, &job);
        if worker.index() == 1 {
            drop(job);
            return Ok(None);
        }
        job.run(worker).map(Some)
    });
    let results: Vec<_> = guards.unwrap().join().into_iter().map(Result::unwrap).collect();
    assert_eq!(results[0].as_ref().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn workers_that_build_different_dataflows_are_refused() {
    let world = World::new(10);
    let shared = world.clone();
    let guards = timely::execute(timely::Config::process(2), move |worker| {
        let job = Job::join(worker, shared.settings.clone())?;
        let splits = 2 + worker.index() as u32;
        worker.dataflow::<EpochTime, _, _>(|scope| {
            job.source(scope, "numbers", splits, |split, next| {
                Ok(Numbers { split, next, world: shared.clone() })
            });
        });
        job.run(worker)
    });
    for result in guards.unwrap().join() {
        let error = result.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        assert!(error.to_string().contains("different numbers of splits"), "{error}");
    }
}

#[test]
fn an_operator_that_has_become_another_kind_is_refused() {
    let world = World::new(100);
    world.run(1).remove(0).unwrap();
    let shared = world.clone();
    let guards = timely::execute(timely::Config::process(2), move |worker| {
        let job = Job::join(worker, shared.settings.clone())?;
        worker.dataflow::<EpochTime, _, _>(|scope| {
            for name in ["numbers", "count", "output"] {
                job.source(scope, name, SPLITS, |split, next| {
                    Ok(Numbers { split, next, world: shared.clone() })
                });
            }
        });
        job.run(worker)
    });
    for result in guards.unwrap().join() {
        let error = result.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert!(error.to_string().contains("it is a source now"), "{error}");
    }
}

#[test]
fn an_operator_that_is_gone_is_named() {
    let world = World::new(100);
    world.run(1).remove(0).unwrap();
    let shared = world.clone();
    let guards = timely::execute(timely::Config::process(2), move |worker| {
        let job = Job::join(worker, shared.settings.clone())?;
        job.run(worker)
    });
    for result in guards.unwrap().join() {
        let error = result.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert!(error.to_string().contains("operator \"count\""), "{error}");
    }
}
