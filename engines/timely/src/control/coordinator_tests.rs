use super::*;
use crate::checkpoint::CheckpointStore;
use weir_state_api::{Environment, block_on};
use weir_tests::faults::{Faults, StoreOp, When};

/// Two workers with a source.
fn coordinator(environment: Environment) -> Coordinator {
    let settings = JobSettings::new("j", environment.clone())
        .with_interval(Duration::ZERO)
        .with_retained(1)
        .with_tolerable_failures(1);
    let store = CheckpointStore::new(environment.store);
    let run = block_on(store.claim_run("j", "me")).unwrap();
    let collector = Collector::new(store, run);
    Coordinator::new(settings, run, "me".into(), 2, collector, Vec::new(), None)
}

fn ready(worker: u32, operators: &[&str]) -> Report {
    let source = |&name: &&str| Operator { name: name.into(), role: Role::Source { splits: 1 } };
    Report::Ready { worker, operators: operators.iter().map(source).collect() }
}

fn part(worker: u32, epoch: u64) -> Report {
    let part = Ok(TaskPart::Offsets(vec![(worker, epoch)]));
    Report::Snapshot { worker, operator: "o".into(), epoch, part }
}

fn advance(coordinator: &mut Coordinator) -> Vec<String> {
    coordinator.advance(Waker::noop());
    coordinator.news().map(|news| format!("{news:?}")).collect()
}

fn names(news: &[String]) -> Vec<&str> {
    let name = |news: &String| news.find(['(', ' ']).unwrap_or(news.len());
    news.iter().map(|news| &news[..name(news)]).collect()
}

#[test]
fn a_checkpoint_is_complete_when_all_have_acknowledged_and_the_last_one_ends_the_job() {
    let environment = Environment::in_memory();
    let mut coordinator = coordinator(environment.clone());
    coordinator.take_report(ready(0, &["o"]));
    assert!(advance(&mut coordinator).is_empty(), "worker 1 is not ready");
    coordinator.take_report(ready(1, &["o"]));
    assert_eq!(names(&advance(&mut coordinator)), ["Start", "Begin"]);
    coordinator.take_report(part(1, 0));
    coordinator.take_report(part(1, 0));
    assert!(advance(&mut coordinator).is_empty(), "worker 0 has not acknowledged");
    coordinator.take_report(part(0, 0));
    assert_eq!(names(&advance(&mut coordinator)), ["Complete"]);
    coordinator.take_report(Report::InputEnded { worker: 0 });
    coordinator.take_report(Report::InputEnded { worker: 1 });
    let begun = advance(&mut coordinator);
    assert!(begun[0].contains("epoch: 1") && begun[0].contains("last: true"), "{begun:?}");
    coordinator.take_report(part(0, 1));
    coordinator.take_report(part(1, 1));
    assert_eq!(names(&advance(&mut coordinator)), ["Complete", "Subsumed", "Finish"]);
    assert!(coordinator.is_over());
    let store = CheckpointStore::new(environment.store);
    let complete = block_on(store.complete()).unwrap();
    assert_eq!(complete.len(), 1, "the first one is collected");
    let checkpoint = block_on(store.read(complete[0])).unwrap();
    assert!(checkpoint.finished);
    assert_eq!(checkpoint.offsets("o"), [(0, 1), (1, 1)]);
}

#[test]
fn a_part_that_failed_gives_the_checkpoint_up_and_a_late_one_changes_nothing() {
    let environment = Environment::in_memory();
    let mut coordinator = coordinator(environment.clone());
    coordinator.take_report(ready(0, &["o"]));
    coordinator.take_report(ready(1, &["o"]));
    advance(&mut coordinator);
    coordinator.take_report(part(0, 0));
    let error = Error::new(ErrorKind::Unavailable, "no space");
    let failed = |epoch| Report::Snapshot {
        worker: 1,
        operator: "o".into(),
        epoch,
        part: Err(Failure::new(1, &error)),
    };
    coordinator.take_report(failed(0));
    assert_eq!(names(&advance(&mut coordinator)), ["Aborted", "Begin"]);
    coordinator.take_report(part(1, 0));
    assert!(advance(&mut coordinator).is_empty());
    assert!(block_on(CheckpointStore::new(environment.store).complete()).unwrap().is_empty());
    coordinator.take_report(failed(1));
    let news = advance(&mut coordinator);
    assert_eq!(names(&news), ["Aborted", "Failed"], "the second failure in a row is one too many");
    assert!(news[1].contains("unavailable") && news[1].contains("no space"), "{news:?}");
}

#[test]
fn a_lost_answer_of_the_store_completes_nothing_twice() {
    let faults = Faults::new();
    let mut environment = Environment::in_memory();
    environment.store = environment.store.layer(faults.layer());
    let mut coordinator = coordinator(environment.clone());
    coordinator.take_report(ready(0, &["o"]));
    coordinator.take_report(ready(1, &["o"]));
    advance(&mut coordinator);
    // The record is stored, the answer lost: reading it shows whose it is.
    faults.fail(StoreOp::Close, 1, When::After);
    coordinator.take_report(part(0, 0));
    coordinator.take_report(part(1, 0));
    assert_eq!(names(&advance(&mut coordinator)), ["Complete"]);
    advance(&mut coordinator);
    // Nothing is stored: the checkpoint is given up, the next one is tried.
    faults.fail(StoreOp::Close, 1, When::Before);
    coordinator.take_report(part(0, 1));
    coordinator.take_report(part(1, 1));
    assert_eq!(names(&advance(&mut coordinator)), ["Aborted"]);
    assert_eq!(names(&advance(&mut coordinator)), ["Begin"]);
    assert_eq!(block_on(CheckpointStore::new(environment.store).complete()).unwrap().len(), 1);
}

#[test]
fn an_overtaken_run_fails_for_all() {
    let environment = Environment::in_memory();
    let mut coordinator = coordinator(environment.clone());
    coordinator.take_report(ready(0, &["o"]));
    coordinator.take_report(ready(1, &["o"]));
    advance(&mut coordinator);
    block_on(CheckpointStore::new(environment.store).claim_run("j", "newer")).unwrap();
    coordinator.take_report(part(0, 0));
    coordinator.take_report(part(1, 0));
    let news = advance(&mut coordinator);
    assert_eq!(names(&news), ["Failed"]);
    assert!(news[0].contains("fenced"), "{news:?}");
}

#[test]
fn workers_that_built_different_operators_fail_for_all() {
    let mut coordinator = coordinator(Environment::in_memory());
    coordinator.take_report(ready(0, &["o"]));
    coordinator.take_report(ready(1, &["p"]));
    let news = advance(&mut coordinator);
    assert_eq!(names(&news), ["Failed"]);
    assert!(news[0].contains("invalid-usage"), "{news:?}");
}
