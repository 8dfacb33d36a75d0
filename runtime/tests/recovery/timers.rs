//! Timers of both kinds of time, and what their callbacks count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use weir_runtime::{
    Context, JobConfig, JobGraph, KeyedOperator, MAX_TIME, ReadStatus, Record, RestoreFrom, Source,
    SplitReader, Storage, VecSink, VecSource,
};
use weir_state_api::{
    Clock, Error, ErrorKind, KeyedStore, ManualClock, Millis, Result, ValueState,
};

use crate::counting::config;

/// What the source, the operator and the test tell each other.
#[derive(Default)]
struct Board {
    registered: AtomicU64,
    fired: AtomicU64,
    checkpoints: AtomicU64,
}

/// Says, when all records are read, whether the input goes on (`None`), ends or fails.
type Next = dyn Fn(&Board) -> Option<Result<()>> + Send + Sync;

/// Keys with the processing time of a reminder.
struct Reminders {
    records: Vec<(u64, Millis)>,
    board: Arc<Board>,
    next: Arc<Next>,
}

impl Source for Reminders {
    type Out = (u64, Millis);

    fn splits(&self) -> u32 {
        1
    }

    fn open(&self, _: u32, offset: u64) -> Result<Box<dyn SplitReader<Self::Out>>> {
        let records = self.records[offset as usize..].to_vec();
        Ok(Box::new(Reader { records, board: self.board.clone(), next: self.next.clone() }))
    }
}

struct Reader {
    records: Vec<(u64, Millis)>,
    board: Arc<Board>,
    next: Arc<Next>,
}

impl SplitReader<(u64, Millis)> for Reader {
    fn read(&mut self, _: usize, records: &mut Vec<Record<(u64, Millis)>>) -> Result<ReadStatus> {
        if !self.records.is_empty() {
            records.extend(self.records.drain(..).map(|value| Record { time: 0, value }));
            return Ok(ReadStatus::More);
        }
        match (self.next)(&self.board) {
            None => Ok(ReadStatus::Idle(Duration::from_millis(1))),
            Some(Ok(())) => Ok(ReadStatus::End),
            Some(Err(error)) => Err(error),
        }
    }

    fn watermark(&self) -> Millis {
        -1
    }
}

/// One reminder for each key: a later record replaces it.
struct Remind {
    pending: ValueState<Millis>,
    board: Arc<Board>,
}

impl Remind {
    fn open(store: &mut KeyedStore<u64>, board: &Arc<Board>) -> Result<Self> {
        Ok(Remind { pending: store.value("pending")?, board: board.clone() })
    }
}

impl KeyedOperator for Remind {
    type Key = u64;
    type In = (u64, Millis);
    type Out = (u64, Millis);
    type Timer = ();

    fn process(&mut self, (_, due): Self::In, context: &mut Context<'_, Self>) -> Result<()> {
        if let Some(old) = self.pending.get(context).wait()? {
            context.delete_processing_timer(old, &())?;
        }
        context.register_processing_timer(due, &())?;
        self.pending.set(context, &due)?;
        self.board.registered.fetch_add(1, SeqCst);
        Ok(())
    }

    fn on_processing_timer(
        &mut self,
        time: Millis,
        (): (),
        context: &mut Context<'_, Self>,
    ) -> Result<()> {
        assert!(context.processing_time() >= time, "not due yet");
        assert!(!context.is_late(context.time()));
        self.board.fired.fetch_add(1, SeqCst);
        let key = context.key()?;
        if time == 1_500 {
            // Due at once, and after the ones that were due before.
            context.register_processing_timer(1_400, &())?;
        }
        context.emit((key, time))
    }
}

struct Job {
    board: Arc<Board>,
    clock: Arc<ManualClock>,
    storage: Storage,
    sink: VecSink<(u64, Millis)>,
}

impl Job {
    fn new() -> Self {
        Job {
            board: Arc::default(),
            clock: Arc::new(ManualClock::new(1_000)),
            storage: Storage::in_memory(),
            sink: VecSink::default(),
        }
    }

    fn run(
        &self,
        records: &[(u64, Millis)],
        next: impl Fn(&Board) -> Option<Result<()>> + Send + Sync + 'static,
    ) -> Result<()> {
        let graph = JobGraph::new("reminders");
        let board = self.board.clone();
        let source =
            Reminders { records: records.to_vec(), board: board.clone(), next: Arc::new(next) };
        graph
            .source("records", source)?
            .key_by(|&(key, _): &(u64, Millis)| key)
            .process("remind", move |store| Remind::open(store, &board))?
            .sink("reminders", self.sink.clone())?;
        let board = self.board.clone();
        let mut settings = JobConfig {
            clock: self.clock.clone(),
            restore: RestoreFrom::Latest,
            on_progress: Some(Arc::new(move |progress| {
                board.checkpoints.store(progress.checkpoints, SeqCst);
            })),
            ..config(1, &self.storage)
        };
        settings.restart.max_restarts = 0;
        weir_runtime::run(&graph, settings).map(drop)
    }
}

/// Ends the input once that many timers have fired; the clock goes on meanwhile.
fn until_fired(count: u64, clock: Arc<ManualClock>) -> impl Fn(&Board) -> Option<Result<()>> {
    move |board| {
        if board.registered.load(SeqCst) > 0 {
            clock.advance(20);
        }
        (board.fired.load(SeqCst) >= count).then_some(Ok(()))
    }
}

#[test]
fn processing_timers_come_in_order_by_the_clock_of_the_job() {
    let job = Job::new();
    let records = [(3, 1_300), (1, 1_100), (4, 1_200), (2, 1_200)];
    job.run(&records, until_fired(4, job.clock.clone())).unwrap();
    assert_eq!(job.sink.take(), [(1, 1_100), (2, 1_200), (4, 1_200), (3, 1_300)]);
    assert!(job.clock.now() >= 1_300);
}

#[test]
fn processing_timers_are_replaced_and_may_set_others() {
    let job = Job::new();
    let records = [(1, 1_100), (1, 1_200), (2, 1_600), (1, 1_500)];
    job.run(&records, until_fired(3, job.clock.clone())).unwrap();
    let mut fired = job.sink.take();
    fired.sort_unstable();
    assert_eq!(fired, [(1, 1_400), (1, 1_500), (2, 1_600)]);
}

#[test]
fn processing_timers_that_came_due_while_the_job_was_down_come_first_and_in_order() {
    let job = Job::new();
    let records = [(1, 3_000), (2, 2_000), (3, 2_500), (4, 1_000_000)];
    let begun = AtomicU64::new(u64::MAX);
    let stopped = job.run(&records, move |board| {
        if board.registered.load(SeqCst) < 4 {
            return None;
        }
        // Two checkpoints later, one has begun after the last timer was set.
        let now = board.checkpoints.load(SeqCst);
        let begun = begun.fetch_min(now, SeqCst).min(now);
        let stop = || Err(Error::new(ErrorKind::Unavailable, "the process dies"));
        (now >= begun + 2).then(stop)
    });
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(job.sink.take().is_empty(), "nothing was due");
    job.clock.set(500_000);
    let fired = |board: &Board| (board.fired.load(SeqCst) >= 3).then_some(Ok(()));
    job.run(&records, fired).unwrap();
    assert_eq!(job.sink.take(), [(2, 2_000), (3, 2_500), (1, 3_000)]);
}

/// Counts at the end of the input, when no record follows any more.
struct LateAtTheEnd;

impl KeyedOperator for LateAtTheEnd {
    type Key = u64;
    type In = u64;
    type Out = u64;
    type Timer = ();

    fn process(&mut self, _: u64, context: &mut Context<'_, Self>) -> Result<()> {
        context.register_timer(MAX_TIME - 1, &())
    }

    fn on_timer(&mut self, _: Millis, (): (), context: &mut Context<'_, Self>) -> Result<()> {
        context.count_late();
        Ok(())
    }
}

#[test]
fn what_a_timer_counts_as_late_reaches_the_report() {
    let graph = JobGraph::new("late");
    graph
        .source("numbers", VecSource::new((0..7).map(|n| (n, n as u64))))
        .unwrap()
        .key_by(|&number: &u64| number)
        .process("late", |_| Ok(LateAtTheEnd))
        .unwrap()
        .sink("nothing", VecSink::default())
        .unwrap();
    let report = weir_runtime::run(&graph, JobConfig::default()).unwrap();
    assert_eq!(report.records_late, 7);
}
