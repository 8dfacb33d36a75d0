//! What the operators of one worker share: settings, news, the way to the coordinator.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};

use timely::dataflow::Scope;
use timely::scheduling::{Activator, SyncActivator};
use timely::worker::Worker;
use weir_state_api::{CheckpointId, Error, ErrorKind, Result};

use super::message::{Begun, Failure, News, Operator, Report, Role};
use crate::checkpoint::{JobCheckpoint, Run, TaskPart};
use crate::settings::JobSettings;
use crate::time::EpochTime;

/// One operator's view of the news.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    queue: Rc<RefCell<VecDeque<News>>>,
    activator: Rc<Activator>,
}

impl Listener {
    /// The next news that has not been looked at.
    pub(crate) fn next(&self) -> Option<News> {
        self.queue.borrow_mut().pop_front()
    }

    /// Has the operator scheduled again.
    pub(crate) fn activate(&self) {
        self.activator.activate();
    }
}

/// Reports from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    worker: usize,
    reports: Sender<Report>,
    wake: SyncActivator,
}

impl Reporter {
    pub(crate) fn report(&self, report: Report) {
        // When the worker is gone, so is the job.
        if self.reports.send(report).is_ok() {
            wake(&self.wake);
        }
    }

    pub(crate) fn snapshot(&self, operator: &str, epoch: u64, part: Result<TaskPart>) {
        self.report(Report::Snapshot {
            worker: self.worker as u32,
            operator: operator.into(),
            epoch,
            part: part.map_err(|error| Failure::new(self.worker, &error)),
        });
    }
}

/// Has an operator scheduled, from any thread.
pub(crate) fn wake(activator: &SyncActivator) {
    if activator.activate().is_err() {
        tracing::debug!("the worker is gone");
    }
}

/// The state of one worker.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) worker: usize,
    pub(crate) peers: usize,
    pub(crate) settings: JobSettings,
    pub(crate) run: Run,
    pub(crate) restored: Option<Rc<JobCheckpoint>>,
    sender: Sender<Report>,
    reports: Receiver<Report>,
    outbox: OnceCell<SyncActivator>,
    /// The dataflow that carries reports and news.
    control: Cell<Option<usize>>,
    listeners: RefCell<Vec<Listener>>,
    operators: RefCell<Vec<Operator>>,
    /// Dataflows that they are in.
    dataflows: RefCell<BTreeSet<usize>>,
    /// Sources that have not read all input.
    open_sources: Cell<usize>,
    begun: RefCell<BTreeMap<u64, Option<Begun>>>,
    /// Operators of this worker with too many records, and workers with such operators.
    congested_here: RefCell<BTreeSet<String>>,
    congested: RefCell<BTreeSet<u32>>,
    /// Work that must be done before the worker is ready, or may end.
    outstanding: Cell<usize>,
    completed: Cell<u64>,
    latest: Cell<Option<CheckpointId>>,
    started: Cell<bool>,
    finished: Cell<bool>,
    /// What this worker has reported, and what the coordinator has decided.
    own_failure: RefCell<Option<Failure>>,
    failure: RefCell<Option<Failure>>,
}

impl Shared {
    pub(crate) fn new(
        worker: usize,
        peers: usize,
        settings: JobSettings,
        run: Run,
        restored: Option<Rc<JobCheckpoint>>,
    ) -> Rc<Self> {
        let (sender, reports) = channel();
        Rc::new(Shared {
            worker,
            peers,
            settings,
            run,
            restored,
            sender,
            reports,
            outbox: OnceCell::new(),
            control: Cell::new(None),
            listeners: RefCell::default(),
            operators: RefCell::default(),
            dataflows: RefCell::default(),
            open_sources: Cell::new(0),
            begun: RefCell::default(),
            congested_here: RefCell::default(),
            congested: RefCell::default(),
            outstanding: Cell::new(0),
            completed: Cell::new(0),
            latest: Cell::new(None),
            started: Cell::new(false),
            finished: Cell::new(false),
            own_failure: RefCell::new(None),
            failure: RefCell::new(None),
        })
    }

    /// The operator that sends reports can be woken by this; it is in this dataflow.
    pub(super) fn set_outbox(&self, wake: SyncActivator, dataflow: usize) {
        drop(self.outbox.set(wake));
        self.control.set(Some(dataflow));
    }

    /// Whether reports and news may still be on their way, from or to any worker.
    pub(crate) fn is_connected(&self, worker: &Worker) -> bool {
        self.control.get().is_some_and(|dataflow| worker.installed_dataflows().contains(&dataflow))
    }

    pub(super) fn take_report(&self) -> Option<Report> {
        self.reports.try_recv().ok()
    }

    pub(crate) fn reporter(&self) -> Option<Reporter> {
        let (worker, reports) = (self.worker, self.sender.clone());
        self.outbox.get().map(|wake| Reporter { worker, reports, wake: wake.clone() })
    }

    pub(crate) fn report(&self, report: Report) {
        if let Some(reporter) = self.reporter() {
            reporter.report(report);
        }
    }

    /// Takes part in checkpoints under this name, in the dataflow of this scope.
    pub(crate) fn add_operator(&self, name: &str, role: Role, scope: Scope<'_, EpochTime>) {
        self.dataflows.borrow_mut().extend(scope.addr().first());
        if let Role::Source { .. } = role {
            self.open_sources.set(self.open_sources.get() + 1);
        }
        let mut operators = self.operators.borrow_mut();
        if operators.iter().any(|other| other.name == name) {
            drop(operators);
            self.fail(
                &Error::new(ErrorKind::InvalidUsage, format!("two operators are called {name:?}"))
                    .advice("give each operator of a job a name of its own"),
            );
        } else if name.is_empty() || name.contains('/') {
            drop(operators);
            self.fail(&Error::new(
                ErrorKind::InvalidUsage,
                format!("{name:?} is no name of an operator: it must not be empty or contain '/'"),
            ));
        } else {
            operators.push(Operator { name: name.into(), role });
        }
    }

    pub(crate) fn operators(&self) -> Vec<Operator> {
        self.operators.borrow().clone()
    }

    /// The dataflows that operators of the job are in; once.
    pub(crate) fn take_dataflows(&self) -> BTreeSet<usize> {
        self.dataflows.take()
    }

    /// A source has read all input.
    pub(crate) fn source_ended(&self) {
        self.open_sources.set(self.open_sources.get().saturating_sub(1));
        if self.open_sources.get() == 0 {
            self.report(Report::InputEnded { worker: self.worker as u32 });
        }
    }

    pub(crate) fn listen(&self, activator: Activator) -> Listener {
        let listener = Listener { queue: Rc::default(), activator: Rc::new(activator) };
        self.listeners.borrow_mut().push(listener.clone());
        listener
    }

    /// Notes news, and passes it on to the operators.
    pub(super) fn deliver(&self, news: &News) {
        match news {
            News::Start => self.started.set(true),
            News::Begin(begun) => {
                self.begun.borrow_mut().insert(begun.epoch, Some(*begun));
            }
            News::Aborted { epoch, .. } => {
                self.begun.borrow_mut().insert(*epoch, None);
            }
            News::Complete { epoch, id } => {
                self.completed.set(self.completed.get() + 1);
                self.latest.set(Some(*id));
                let mut begun = self.begun.borrow_mut();
                *begun = begun.split_off(epoch);
            }
            News::Subsumed(_) => {}
            News::Congestion { worker, congested } => {
                let mut workers = self.congested.borrow_mut();
                if *congested {
                    workers.insert(*worker);
                } else {
                    workers.remove(worker);
                }
            }
            News::Failed(failure) => {
                self.failure.borrow_mut().get_or_insert_with(|| failure.clone());
            }
            News::Finish => self.finished.set(true),
        }
        if let (true, Some(outbox)) = (self.is_over(), self.outbox.get()) {
            // It lets its capability go.
            wake(outbox);
        }
        for listener in self.listeners.borrow().iter() {
            listener.queue.borrow_mut().push_back(news.clone());
            listener.activate();
        }
    }

    /// The checkpoint that closes an epoch: not begun yet, given up, or begun.
    pub(crate) fn begun(&self, epoch: u64) -> Option<Option<Begun>> {
        self.begun.borrow().get(&epoch).copied()
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.get()
    }

    /// Whether the job has ended, well or not: operators let go of everything.
    pub(crate) fn is_over(&self) -> bool {
        self.finished.get() || self.has_failed()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished.get()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// What the job's end is on this worker. After the last checkpoint nobody decides any more: what
    /// fails then fails here only.
    pub(crate) fn failure(&self) -> Option<Error> {
        let (decided, own) = (self.failure.borrow(), self.own_failure.borrow());
        decided.as_ref().or(own.as_ref()).map(Failure::to_error)
    }

    /// Ends the job on all workers. Only the first failure of a worker is reported.
    pub(crate) fn fail(&self, error: &Error) {
        if self.own_failure.borrow().is_some() {
            return;
        }
        tracing::warn!(worker = self.worker, %error, "failed");
        let failure = Failure::new(self.worker, error);
        self.own_failure.replace(Some(failure.clone()));
        self.report(Report::Failed(failure));
    }

    /// Whether this worker has failed; the others may not know yet.
    pub(crate) fn is_failing(&self) -> bool {
        self.own_failure.borrow().is_some() || self.has_failed()
    }

    /// How many checkpoints were completed, and the latest.
    pub(crate) fn completed(&self) -> (u64, Option<CheckpointId>) {
        (self.completed.get(), self.latest.get())
    }

    pub(crate) fn begin_work(&self) {
        self.outstanding.set(self.outstanding.get() + 1);
    }

    pub(crate) fn end_work(&self) {
        self.outstanding.set(self.outstanding.get().saturating_sub(1));
    }

    pub(crate) fn has_outstanding_work(&self) -> bool {
        self.outstanding.get() > 0
    }

    /// An operator has too many records waiting, or no longer.
    pub(crate) fn set_congested(&self, operator: &str, congested: bool) {
        let mut here = self.congested_here.borrow_mut();
        let before = !here.is_empty();
        if congested {
            here.insert(operator.into());
        } else {
            here.remove(operator);
        }
        let after = !here.is_empty();
        if before != after {
            let worker = self.worker as u32;
            self.report(Report::Congestion { worker, congested: after });
        }
    }

    /// Whether sources pause.
    pub(crate) fn is_congested(&self) -> bool {
        !self.congested.borrow().is_empty() || !self.congested_here.borrow().is_empty()
    }
}
