use proptest::prelude::*;

use super::*;

fn request(number: u64, reuse_from: Option<u64>) -> SnapshotRequest {
    let mut request = SnapshotRequest::checkpoint(CheckpointId(number), "chk");
    request.reuse_from = reuse_from.map(CheckpointId);
    request
}

fn id(number: u64) -> CheckpointId {
    CheckpointId(number)
}

#[test]
fn only_what_is_known_to_be_complete_is_built_on() {
    let mut bases = SnapshotBases::new();
    bases.written(id(1), 1);
    bases.written(id(2), 2);
    assert_eq!(bases.base(&request(3, None)), None);
    bases.notify(Notification::Complete(id(9)));
    assert_eq!(bases.base(&request(3, None)), None, "news of an unknown checkpoint");
    bases.notify(Notification::Aborted(id(2)));
    bases.notify(Notification::Complete(id(1)));
    assert_eq!(bases.base(&request(3, None)), Some(&1));
    bases.written(id(3), 3);
    bases.notify(Notification::Complete(id(3)));
    bases.notify(Notification::Complete(id(1)));
    assert_eq!(bases.base(&request(4, None)), Some(&3), "older news does not go back");
    let mut savepoint = request(4, None);
    savepoint.kind = crate::SnapshotKind::NativeSavepoint;
    assert_eq!(bases.base(&savepoint), None);
}

#[test]
fn news_of_the_end_may_come_before_that_of_the_completion() {
    let mut bases = SnapshotBases::new();
    bases.written(id(1), 1);
    bases.notify(Notification::Subsumed(id(1)));
    bases.notify(Notification::Complete(id(1)));
    assert_eq!(bases.base(&request(2, None)), None);
    bases.written(id(1), 1);
    bases.notify(Notification::Complete(id(1)));
    assert_eq!(bases.base(&request(2, None)), None, "a task that ends late brings nothing back");
}

#[test]
fn a_claimed_restore_is_built_on_and_another_is_not() {
    let claimed = SnapshotBases::restored(RestoreMode::Claim, id(5), 5);
    assert_eq!(claimed.base(&request(6, Some(5))), Some(&5));
    assert_eq!(claimed.base(&request(6, Some(6))), None, "no longer kept");
    let mut borrowed = SnapshotBases::restored(RestoreMode::NoClaim, id(5), 5);
    assert_eq!(borrowed.base(&request(6, None)), None);
    borrowed.written(id(6), 6);
    borrowed.notify(Notification::Complete(id(5)));
    assert_eq!(borrowed.base(&request(7, None)), None, "not through late news either");
    borrowed.notify(Notification::Complete(id(6)));
    assert_eq!(borrowed.base(&request(7, None)), Some(&6));
}

#[test]
fn lost_news_does_not_pile_up() {
    let mut bases = SnapshotBases::new();
    for number in 1..1_000 {
        bases.written(id(number), number);
    }
    assert_eq!(bases.undecided.len(), MAX_UNDECIDED);
    bases.notify(Notification::Complete(id(999)));
    assert_eq!(bases.newest_confirmed(), Some(id(999)));
    assert!(bases.undecided.is_empty());
}

/// One step of a job with one instance.
#[derive(Debug, Clone)]
enum Step {
    /// A checkpoint is taken and then completes or is aborted.
    Checkpoint { completes: bool },
    /// One of the pieces of news not delivered yet arrives, perhaps to arrive again later.
    Deliver { which: prop::sample::Index, again: bool },
    /// One is lost.
    Lose(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => any::<bool>().prop_map(|completes| Step::Checkpoint { completes }),
        4 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(which, again)| Step::Deliver { which, again }),
        1 => any::<prop::sample::Index>().prop_map(Step::Lose),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #[test]
    fn no_order_loss_or_repetition_of_news_leads_to_a_base_that_is_gone(
        steps in steps(),
        retained in 1_usize..4,
        engine_says in any::<bool>(),
    ) {
        let mut bases = SnapshotBases::new();
        let mut kept: Vec<u64> = Vec::new();
        let mut completed = Vec::new();
        let mut in_flight: Vec<Notification> = Vec::new();
        let mut delivered_subsumed = 0;
        let mut next = 1;
        for step in steps {
            match step {
                Step::Checkpoint { completes } => {
                    let floor = kept.first().copied().unwrap_or(next);
                    let base = bases.base(&request(next, engine_says.then_some(floor))).copied();
                    if let Some(base) = base {
                        prop_assert!(completed.contains(&base), "{base} never completed");
                        prop_assert!(base > delivered_subsumed, "{base} is known to be gone");
                        prop_assert!(!engine_says || kept.contains(&base), "{base} is not kept");
                    }
                    bases.written(id(next), next);
                    if completes {
                        completed.push(next);
                        kept.push(next);
                        in_flight.push(Notification::Complete(id(next)));
                        while kept.len() > retained {
                            in_flight.push(Notification::Subsumed(id(kept.remove(0))));
                        }
                    } else {
                        in_flight.push(Notification::Aborted(id(next)));
                    }
                    next += 1;
                }
                Step::Deliver { which, again } if !in_flight.is_empty() => {
                    let index = which.index(in_flight.len());
                    let news = in_flight[index];
                    if !again {
                        in_flight.remove(index);
                    }
                    if let Notification::Subsumed(id) = news {
                        delivered_subsumed = delivered_subsumed.max(id.0);
                    }
                    bases.notify(news);
                }
                Step::Lose(which) if !in_flight.is_empty() => {
                    in_flight.remove(which.index(in_flight.len()));
                }
                Step::Deliver { .. } | Step::Lose(_) => {}
            }
        }
    }

    #[test]
    fn with_all_news_in_order_the_newest_complete_one_is_the_base(
        outcomes in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        let mut bases = SnapshotBases::new();
        let mut newest = None;
        for (number, completes) in (1..).zip(outcomes) {
            bases.written(id(number), number);
            if completes {
                bases.notify(Notification::Complete(id(number)));
                newest.into_iter().for_each(|old| bases.notify(Notification::Subsumed(id(old))));
                newest = Some(number);
            } else {
                bases.notify(Notification::Aborted(id(number)));
            }
            prop_assert_eq!(bases.base(&request(number + 1, newest)).copied(), newest);
        }
    }
}
