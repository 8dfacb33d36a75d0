use std::time::Duration;

use weir_state_api::ErrorKind;

use super::*;
use crate::writer::pressure::InFlight;

const MILLI: Duration = Duration::from_millis(1);

fn options() -> ChangelogOptions {
    ChangelogOptions::default()
        .with_batch_bytes(100)
        .with_batch_linger(10 * MILLI)
        .with_retries(3, 500 * MILLI)
        .with_timeouts(Duration::from_secs(1), Duration::from_secs(5))
}

/// A schedule with a clock that stands until it is moved.
struct World {
    schedule: Schedule,
    now: Instant,
    account: Arc<InFlight>,
}

impl World {
    fn new(options: ChangelogOptions, streams: u64) -> Self {
        let mut schedule = Schedule::new(Arc::new(options), Arc::default());
        (0..streams).for_each(|stream| schedule.open(stream));
        World { schedule, now: Instant::now(), account: InFlight::new(u64::MAX) }
    }

    /// Changes of a stream up to a position.
    fn append(&mut self, stream: StreamId, to: u64, length: usize) -> Arc<Chunk> {
        let chunk = Arc::new(Chunk::new(LogPosition(to - 1), LogPosition(to)));
        let held = self.account.hold(1, Duration::ZERO, &Counters::default(), || {}).unwrap();
        let batch = vec![to as u8; length];
        self.schedule.append(Item { stream, chunk: Arc::clone(&chunk), batch, _held: held });
        chunk
    }

    fn persist(&mut self, stream: StreamId) -> oneshot::Receiver<Result<()>> {
        let (reply, receiver) = oneshot::channel();
        self.schedule.persist(self.now, stream, reply);
        receiver
    }

    /// The attempts that begin now: upload, attempt, length.
    fn tick(&mut self) -> Vec<(UploadId, AttemptId, usize)> {
        let actions = self.schedule.tick(self.now).into_iter();
        actions
            .map(|Action::Attempt { upload, attempt, bytes, .. }| (upload, attempt, bytes.len()))
            .collect()
    }

    fn pass(&mut self, time: Duration) -> Vec<(UploadId, AttemptId, usize)> {
        self.now += time;
        self.tick()
    }

    fn succeed(&mut self, upload: UploadId, attempt: AttemptId) -> Settled {
        let settled = self.schedule.settle(self.now, upload, attempt, Ok(()));
        self.schedule.answer();
        settled
    }

    fn fail(&mut self, upload: UploadId, attempt: AttemptId, kind: ErrorKind) -> Settled {
        self.schedule.settle(self.now, upload, attempt, Err(Error::new(kind, "no").object("o")))
    }
}

/// What a checkpoint has been told.
fn told(receiver: &mut oneshot::Receiver<Result<()>>) -> Option<Result<(), ErrorKind>> {
    let reply = receiver.try_recv().expect("the reply is not dropped");
    reply.map(|result| result.map_err(|error| error.kind()))
}

#[test]
fn nothing_is_uploaded_until_there_is_enough_or_a_checkpoint_asks() {
    let mut world = World::new(options(), 2);
    world.append(0, 1, 60);
    assert_eq!(world.tick(), []);
    assert_eq!(world.schedule.next_deadline(), None);
    world.append(1, 1, 40);
    assert_eq!(world.tick(), [(0, 0, 100)], "batches of both in one object");
    assert_eq!(world.tick(), []);
}

#[test]
fn a_checkpoint_waits_for_the_others_and_not_longer_than_it_must() {
    let mut world = World::new(options(), 2);
    world.append(0, 1, 10);
    world.append(1, 1, 10);
    let mut first = world.persist(0);
    assert_eq!(world.pass(9 * MILLI), []);
    assert_eq!(world.schedule.next_deadline(), Some(world.now + MILLI));
    assert_eq!(world.pass(MILLI), [(0, 0, 20)]);
    let Settled::Done { items: placed, .. } = world.succeed(0, 0) else { panic!("it is done") };
    assert_eq!(placed.iter().map(|placed| placed.offset).collect::<Vec<_>>(), [0, 10]);
    assert_eq!(told(&mut first), Some(Ok(())));

    // When everybody is there, nobody waits.
    world.append(0, 2, 10);
    world.append(1, 2, 10);
    let mut second = world.persist(0);
    let mut third = world.persist(1);
    assert_eq!(world.tick(), [(1, 1, 20)]);
    assert_eq!((told(&mut second), told(&mut third)), (None, None));
    world.succeed(1, 1);
    assert_eq!((told(&mut second), told(&mut third)), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn a_checkpoint_without_changes_waits_for_nothing_and_one_for_uploads_under_way() {
    let mut world = World::new(options(), 1);
    assert_eq!(told(&mut world.persist(0)), Some(Ok(())));
    world.append(0, 1, 100);
    assert_eq!(world.tick(), [(0, 0, 100)]);
    let mut waiting = world.persist(0);
    assert_eq!((told(&mut waiting), world.tick().len()), (None, 0), "nothing is uploaded twice");
    world.succeed(0, 0);
    assert_eq!(told(&mut waiting), Some(Ok(())));
    assert_eq!(world.account.bytes(), 0);
}

#[test]
fn much_is_packed_into_several_objects() {
    let mut world = World::new(options(), 1);
    (1..=5).for_each(|to| drop(world.append(0, to, 60)));
    let _waiting = world.persist(0);
    let lengths: Vec<usize> = world.tick().into_iter().map(|(.., length)| length).collect();
    assert_eq!(lengths, [120, 120, 60]);
}

#[test]
fn a_failed_attempt_is_repeated_after_a_pause_and_a_failed_upload_by_a_later_checkpoint() {
    let mut world = World::new(options(), 1);
    let chunk = world.append(0, 1, 10);
    let mut waiting = world.persist(0);
    assert_eq!(world.tick(), [(0, 0, 10)]);
    for attempt in 0..2 {
        assert!(matches!(world.fail(0, attempt, ErrorKind::Unavailable), Settled::Again));
        assert_eq!(world.pass(499 * MILLI), []);
        assert_eq!(world.pass(MILLI), [(0, attempt + 1, 10)]);
    }
    assert_eq!(told(&mut waiting), None);
    assert!(matches!(world.fail(0, 2, ErrorKind::Unavailable), Settled::GivenUp));
    assert_eq!(told(&mut waiting), Some(Err(ErrorKind::Unavailable)));
    assert_eq!(world.pass(Duration::from_secs(100)), [], "nobody asks for it");

    world.append(0, 2, 10);
    let mut waiting = world.persist(0);
    assert_eq!(world.tick(), [(1, 3, 20)], "with what failed, in order");
    let Settled::Done { items: placed, .. } = world.succeed(1, 3) else { panic!("it is done") };
    assert!(Arc::ptr_eq(&placed[0].item.chunk, &chunk));
    assert_eq!(told(&mut waiting), Some(Ok(())));
}

#[test]
fn what_cannot_succeed_is_not_repeated() {
    let mut world = World::new(options(), 1);
    world.append(0, 1, 10);
    let mut waiting = world.persist(0);
    world.tick();
    assert!(matches!(world.fail(0, 0, ErrorKind::InvalidUsage), Settled::GivenUp));
    assert_eq!(told(&mut waiting), Some(Err(ErrorKind::InvalidUsage)));
}

#[test]
fn a_slow_attempt_is_joined_by_another_and_the_first_success_counts() {
    let mut world = World::new(options(), 1);
    world.append(0, 1, 10);
    let mut waiting = world.persist(0);
    assert_eq!(world.tick(), [(0, 0, 10)]);
    assert_eq!(world.pass(999 * MILLI), []);
    assert_eq!(world.pass(MILLI), [(0, 1, 10)]);
    assert!(matches!(world.succeed(0, 1), Settled::Done { .. }));
    assert_eq!(told(&mut waiting), Some(Ok(())));
    // The object of the other one is of no use.
    assert!(matches!(world.succeed(0, 0), Settled::Superfluous));
}

#[test]
fn attempts_that_do_not_end_fail_in_the_end_and_late_news_changes_nothing() {
    let mut world = World::new(options(), 1);
    world.append(0, 1, 10);
    let mut waiting = world.persist(0);
    world.tick();
    let mut begun = 1;
    for _ in 0..20 {
        begun += world.pass(Duration::from_millis(500)).len();
    }
    assert_eq!(begun, 3);
    assert_eq!(told(&mut waiting), Some(Err(ErrorKind::Unavailable)));
    assert!(matches!(world.succeed(0, 0), Settled::Superfluous));
    assert!(matches!(world.fail(0, 1, ErrorKind::Unavailable), Settled::Superfluous));
    let mut waiting = world.persist(0);
    let (upload, attempt, _) = world.tick()[0];
    world.succeed(upload, attempt);
    assert_eq!(told(&mut waiting), Some(Ok(())));
}

#[test]
fn a_task_that_waits_for_room_makes_everything_go_also_what_has_failed() {
    let mut world = World::new(options().with_retries(1, 500 * MILLI), 1);
    world.append(0, 1, 10);
    world.schedule.press();
    assert_eq!(world.tick(), [(0, 0, 10)]);
    world.fail(0, 0, ErrorKind::Unavailable);
    assert_eq!(world.schedule.next_deadline(), Some(world.now + 500 * MILLI));
    assert_eq!(world.pass(499 * MILLI), []);
    assert_eq!(world.pass(MILLI), [(1, 1, 10)]);
    world.succeed(1, 1);
    assert_eq!(world.account.bytes(), 0);
    world.append(0, 2, 10);
    assert_eq!(world.tick(), [], "the pressure is over");
}

#[test]
fn what_a_closed_instance_leaves_is_dropped_unless_a_checkpoint_waits_for_it() {
    let mut world = World::new(options(), 2);
    world.append(0, 1, 10);
    let mut waiting = world.persist(0);
    world.append(0, 2, 10);
    world.append(1, 1, 10);
    world.schedule.close(0);
    assert_eq!(world.account.bytes(), 2);
    assert_eq!(world.pass(10 * MILLI), [(0, 0, 20)]);
    world.succeed(0, 0);
    assert_eq!(told(&mut waiting), Some(Ok(())));
    world.schedule.close(1);
    assert!(world.schedule.is_idle());

    // After a failure nobody asks again.
    let mut world = World::new(options().with_retries(1, MILLI), 1);
    world.append(0, 1, 10);
    let mut waiting = world.persist(0);
    world.tick();
    world.schedule.close(0);
    world.fail(0, 0, ErrorKind::Unavailable);
    assert_eq!(told(&mut waiting), Some(Err(ErrorKind::Unavailable)));
    assert!(world.schedule.is_idle());
    assert_eq!(world.account.bytes(), 0);
}

/// A log that was given up, or truncated, while its batches were under way.
#[test]
fn what_was_forgotten_while_it_was_under_way_does_not_come_back() {
    let mut world = World::new(options().with_retries(1, MILLI), 1);
    world.append(0, 1, 60);
    world.append(0, 2, 60);
    world.tick();
    world.schedule.forget(0, LogPosition(1));
    world.fail(0, 0, ErrorKind::Unavailable);
    assert_eq!(world.account.bytes(), 1, "the second one may be needed");
    let mut waiting = world.persist(0);
    let (upload, attempt, length) = world.tick()[0];
    assert_eq!(length, 60);
    world.succeed(upload, attempt);
    assert_eq!((told(&mut waiting), world.account.bytes()), (Some(Ok(())), 0));
}

/// Whoever demanded something that is dropped then must not keep the writer busy.
#[test]
fn a_demand_that_cannot_be_met_any_more_is_over() {
    let mut world = World::new(options().with_retries(1, MILLI), 2);
    world.append(0, 1, 60);
    world.schedule.press();
    world.tick();
    world.append(0, 2, 10);
    let mut waiting = world.persist(0);
    world.fail(0, 0, ErrorKind::Unavailable);
    assert_eq!(told(&mut waiting), Some(Err(ErrorKind::Unavailable)));
    world.schedule.close(0);
    assert_eq!(world.schedule.next_deadline(), None);
}

/// What is known of an instance goes with the last thing that is to be uploaded of it.
#[test]
fn an_instance_that_has_ended_is_forgotten() {
    let mut world = World::new(options(), 2);
    world.append(0, 1, 60);
    world.schedule.press();
    world.tick();
    world.schedule.close(0);
    world.schedule.tidy();
    assert!(world.schedule.knows(0) && world.schedule.knows(1));
    world.succeed(0, 0);
    world.schedule.tidy();
    assert!(!world.schedule.knows(0) && world.schedule.knows(1));
}
