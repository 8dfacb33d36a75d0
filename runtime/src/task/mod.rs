//! Tasks: one thread per subtask of an operator.

mod alignment;
mod keyed;
mod sink;
mod source;
mod watermarks;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_state_api::{
    BackendFactory, CheckpointId, Environment, Error, ErrorKind, KeyGroupRange, MaxParallelism,
    OperatorState, RestoreMode, Result, SnapshotHandle,
};

use crate::checkpoint::{Epoch, JobCheckpoint, TaskSnapshot};
use crate::inbox::{Mailbox, cancelled};
use crate::output::OutputSettings;

pub(crate) use keyed::KeyedNode;
pub(crate) use sink::SinkNode;
pub(crate) use source::SourceNode;

/// An operator of the graph, of whatever types.
pub(crate) trait Node {
    /// The operator's name.
    fn name(&self) -> &str;

    /// The checks on its restored state that need the operator (before anything is started).
    fn kind(&self) -> NodeKind;

    /// Creates the channels into its subtasks; called on all nodes before any is started.
    fn prepare(&self, attempt: &Attempt);

    /// Starts the thread of one subtask.
    fn start(&self, attempt: &Attempt, subtask: u16) -> Result<StartedTask>;
}

/// What the job has to know of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Source,
    Keyed,
    Sink,
}

/// A running task.
pub(crate) struct StartedTask {
    pub(crate) mailbox: Arc<dyn Mailbox>,
    pub(crate) thread: JoinHandle<()>,
}

/// One run of the job's tasks: from a start or restore to the end or a failure.
#[derive(Clone)]
pub(crate) struct Attempt {
    pub(crate) name: Arc<str>,
    /// The run that it belongs to.
    pub(crate) epoch: Epoch,
    pub(crate) parallelism: u16,
    pub(crate) max_parallelism: MaxParallelism,
    pub(crate) batch_size: usize,
    pub(crate) channel_capacity: usize,
    pub(crate) backend: Arc<dyn BackendFactory>,
    pub(crate) environment: Environment,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) restored: Option<Arc<JobCheckpoint>>,
    /// Whether what is restored may be built on.
    pub(crate) restore_mode: RestoreMode,
    pub(crate) messages: Sender<TaskMessage>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) counters: Arc<Counters>,
}

/// Numbers that tasks count and the job reports.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) late: AtomicU64,
}

/// Identifies a task in messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TaskId {
    pub(crate) operator: Arc<str>,
    pub(crate) subtask: u16,
}

impl TaskId {
    /// The task's name as a part of object names.
    pub(crate) fn file_name(&self) -> String {
        format!("{}-{}", self.operator, self.subtask)
    }
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[{}]", self.operator, self.subtask)
    }
}

/// What tasks tell the coordinator.
#[derive(Debug)]
pub(crate) enum TaskMessage {
    /// The task has restored its state and waits for the gate.
    Ready(TaskId),
    /// The task's part of a checkpoint is written, or failed to be.
    Snapshot {
        task: TaskId,
        checkpoint: CheckpointId,
        result: Result<Box<TaskSnapshot>>,
        /// How long the task's thread was held.
        held: Duration,
    },
    /// A source has read all its input.
    InputRead(TaskId),
    /// The task's thread is over.
    Ended { task: TaskId, result: Result<()> },
}

/// Holds all tasks until every one has restored its state.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    open: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn decide(&self, open: bool) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(open);
        self.changed.notify_all();
    }

    fn pass(&self) -> Result<()> {
        let state = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self
            .changed
            .wait_while(state, |open| open.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        if *state == Some(true) { Ok(()) } else { Err(cancelled()) }
    }
}

/// What a task's code works with.
pub(crate) struct TaskContext {
    pub(crate) id: TaskId,
    pub(crate) attempt: Attempt,
    /// The operator's state without a key, redistributed to this subtask.
    pub(crate) state: OperatorState,
}

impl TaskContext {
    pub(crate) fn new(attempt: &Attempt, operator: &str, subtask: u16) -> Result<Self> {
        let state = match &attempt.restored {
            Some(checkpoint) => {
                let former = checkpoint.states(operator);
                OperatorState::redistribute(&former, attempt.parallelism)?
                    .swap_remove(usize::from(subtask))
            }
            None => OperatorState::new(),
        };
        Ok(TaskContext {
            id: TaskId { operator: operator.into(), subtask },
            attempt: attempt.clone(),
            state,
        })
    }

    pub(crate) fn handles(&self) -> Vec<SnapshotHandle> {
        let restored = self.attempt.restored.as_ref();
        restored.map_or_else(Vec::new, |checkpoint| checkpoint.handles(&self.id.operator))
    }

    pub(crate) fn key_groups(&self) -> Result<KeyGroupRange> {
        KeyGroupRange::of_subtask(
            self.attempt.max_parallelism,
            self.attempt.parallelism,
            self.id.subtask,
        )
    }

    pub(crate) fn output_settings(&self) -> OutputSettings {
        OutputSettings {
            subtask: self.id.subtask,
            parallelism: self.attempt.parallelism,
            max_parallelism: self.attempt.max_parallelism,
            batch_size: self.attempt.batch_size,
        }
    }

    /// Reports that the state is restored and waits until all tasks' are.
    pub(crate) fn ready(&self) -> Result<()> {
        self.send(TaskMessage::Ready(self.id.clone()));
        self.attempt.gate.pass()
    }

    pub(crate) fn send(&self, message: TaskMessage) {
        // The coordinator is gone only when the attempt is over; then nobody listens.
        drop(self.attempt.messages.send(message));
    }

    /// The answer to a barrier; `held` is how long it has held the task's thread.
    pub(crate) fn part_of(&self, checkpoint: CheckpointId, held: Duration) -> Part {
        Part { task: self.id.clone(), checkpoint, held, messages: self.attempt.messages.clone() }
    }

    pub(crate) fn count(&self, counter: impl Fn(&Counters) -> &AtomicU64, by: u64) {
        counter(&self.attempt.counters).fetch_add(by, Relaxed);
    }
}

/// A task's part of a checkpoint, to be sent to the coordinator from whatever thread ends it.
pub(crate) struct Part {
    task: TaskId,
    checkpoint: CheckpointId,
    held: Duration,
    messages: Sender<TaskMessage>,
}

impl Part {
    pub(crate) fn send(self, written: Result<(OperatorState, Option<SnapshotHandle>)>) {
        let Part { task, checkpoint, held, messages } = self;
        let result = written.map(|(state, keyed)| {
            let operator = task.operator.to_string();
            Box::new(TaskSnapshot { operator, subtask: task.subtask, keyed, state })
        });
        // The coordinator is gone only when the attempt is over; then nobody listens.
        drop(messages.send(TaskMessage::Snapshot { task, checkpoint, result, held }));
    }
}

/// Runs a task on a thread of its own; whatever ends it, the coordinator hears of it.
pub(crate) fn spawn(
    context: TaskContext,
    mailbox: Arc<dyn Mailbox>,
    body: impl FnOnce(&TaskContext) -> Result<()> + Send + 'static,
) -> Result<StartedTask> {
    let name = context.id.to_string();
    let thread = std::thread::Builder::new()
        .name(name.clone())
        .spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| body(&context)))
                .unwrap_or_else(|panic| Err(panicked(&context.id, &*panic)));
            context.send(TaskMessage::Ended { task: context.id.clone(), result });
        })
        .map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("the thread of task {name} cannot start"))
                .source(error)
                .advice("lower the parallelism or raise the limit of threads")
        })?;
    Ok(StartedTask { mailbox, thread })
}

fn panicked(task: &TaskId, panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".into());
    Error::new(ErrorKind::UserFunction, format!("task {task} panicked: {text}"))
}
